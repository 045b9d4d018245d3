"""PostgreSQL that restarts, is cut off inside a commit, is full, read-only, or another version for a while."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

import httpx2
import pytest
from sqlalchemy import NullPool, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from mathrag_gate.stack import postgres as postgres_module
from tests.e2e.test_upgrade import TWICE, alembic, fetched
from tests.faults.conftest import TABLES_MIB
from tests.faults.processes import until
from tests.faults.proxied import Proxied
from tests.faults.proxy import Hit
from tests.faults.recording import Seen
from tests.faults.trial import JOB
from tests.running import DEADLINE_S, ended

AWAY_S = 5.0
HOT = {
    "claim": "delete queue, update outages, update queue",
    "answer": "delete queue, insert attempts",
    "look": "update samples",
    "advance": "insert calls, insert queue, insert steps, update samples",
    "end of samples": "insert outcomes, update samples",
    "decision of a flip": "insert residencies",
    "step of a flip": "update residencies",
    "expansion of a job": "insert samples, update jobs",
    "end of a job": "insert records, update jobs",
}
"""What each commit that must be hit writes."""
SUBMIT = "insert jobs"
HOT_TABLES = ("queue", "attempts", "steps", "samples", "outcomes", "calls")
EVERY = 25
TRIP = f"""
    CREATE FUNCTION trip() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE n bigint := nextval('trips');
    BEGIN
        IF n % {EVERY} = 0 THEN
            PERFORM nextval('tripped');
            IF n % {2 * EVERY} = 0 THEN RAISE EXCEPTION 'a conflict' USING ERRCODE = '40001'; END IF;
            RAISE EXCEPTION 'a deadlock' USING ERRCODE = '40P01';
        END IF;
        RETURN NULL;
    END $$"""
OURS = "FROM pg_stat_activity WHERE application_name = 'mathrag'"
BACKWARDS = text("SELECT 1 FROM queue WHERE call_id = :call FOR UPDATE")
LAST_AND_FIRST = text("SELECT max(call_id), min(call_id) FROM queue WHERE token IS NOT NULL")
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def ends_whole(it: Proxied, job: str, seen: Seen) -> None:
    it.ends_whole(job, seen)
    assert asyncio.run(fetched(it.postgres.of.url(), TWICE)) == []


@pytest.mark.fault("D1")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGQUIT], ids=["in order", "in a crash"])
def test_a_restart_of_postgresql_costs_a_moment(it: Proxied, seen: Seen, by: signal.Signals) -> None:
    seen.describe(f"{by.name} of the postmaster at 30 % of the judge's calls, and started again {AWAY_S:.0f} s later")
    job = it.submit_judging("D1", 0.3)
    with it.postgres.keep_stopped(by):
        time.sleep(AWAY_S)
    ends_whole(it, job, seen)


@pytest.mark.fault("D2")
@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_commit_whose_answer_is_lost_is_whole_either_way(it: Proxied, seen: Seen, every: int) -> None:
    key = f"D2-{every}"
    it.cuts.arm(every=every, most=3)
    try:
        job = submit_until_answered(it, key)
        ends_whole(it, job, seen)
    finally:
        hits = Counter(it.cuts.hits)
        it.cuts.arm(every=0, most=0)
    assert submit_until_answered(it, key) == job, "the same key is the same job, for ever"
    missed = {name for name, wrote in HOT.items() if not hits[Hit(wrote, happened=True)]}
    assert every > 1 or not missed, sorted(hits)
    assert any(SUBMIT in hit.wrote for hit in hits) or every > 1
    seen.describe("the connection cut before and after the server carries out COMMIT (or a statement by itself), "
                  "up to three times for every kind of commit")  # fmt: skip
    for name, wrote in HOT.items():
        seen.figure(f"cut: {name}", hits[Hit(wrote, happened=True)] + hits[Hit(wrote, happened=False)])
    seen.figure("commits cut", hits.total())


def submit_until_answered(it: Proxied, key: str) -> str:
    body = {"name": key, "dataset": "world", "corpus": "world", "pipeline": "mathrag-gate", **JOB}
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        response = httpx2.post(
            f"{it.stack.url}/v1/jobs", json=body, headers={"Idempotency-Key": key}, timeout=60, trust_env=False
        )
        if response.status_code == 202:
            return str(response.json()["id"])
        assert response.status_code in (409, 503), response.text
        time.sleep(0.2)
    raise AssertionError("no service accepted the job")


@pytest.mark.fault("D3")
def test_transactions_that_are_rolled_back_for_others_are_done_again(it: Proxied, seen: Seen) -> None:
    seen.describe(f"a trigger raises 40001 and 40P01 in turn at every {EVERY}th statement that writes a hot table")
    with trip(it):
        job = it.submit_judging("D3-trips")
        it.stack.wait(job, ended)  # its audit, outside the block, finds triggers that the migrations did not make
        ((raised,),) = it.rows("SELECT last_value FROM tripped")
    assert raised > 5
    seen.figure("transactions rolled back", raised)
    ends_whole(it, job, seen)


@contextmanager
def trip(it: Proxied) -> Iterator[None]:
    try:
        it.rows("CREATE SEQUENCE trips")
        it.rows("CREATE SEQUENCE tripped")
        it.rows(TRIP)
        for table in HOT_TABLES:
            it.rows(f"CREATE TRIGGER trip AFTER INSERT OR UPDATE OR DELETE ON {table} EXECUTE FUNCTION trip()")
        yield
    finally:
        it.rows("DROP FUNCTION IF EXISTS trip CASCADE")
        it.rows("DROP SEQUENCE IF EXISTS trips, tripped")


@pytest.mark.fault("D3")
def test_a_deadlock_with_somebody_else_costs_a_moment(it: Proxied, seen: Seen) -> None:
    seen.describe("another session locks claimed rows of the queue from the last to the first, over and over")
    ((before,),) = it.rows(DEADLOCKS)
    job = it.submit_judging("D3-deadlocks")
    asyncio.run(against_the_order(it, job))
    ends_whole(it, job, seen)
    seen.figure("deadlocks", it.rows(DEADLOCKS)[0][0] - before)


async def against_the_order(it: Proxied, job: str) -> None:
    engine = create_async_engine(it.superuser_url(), poolclass=NullPool)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await asyncio.to_thread(it.has_ended, job):
                with suppress(SQLAlchemyError):
                    async with engine.begin() as connection:
                        for call in (await connection.execute(LAST_AND_FIRST)).one():
                            await connection.execute(BACKWARDS, {"call": call})
                            await asyncio.sleep(0.05)
    finally:
        await engine.dispose()


@pytest.mark.fault("D4")
def test_a_server_without_a_free_connection_is_waited_for(it: Proxied, seen: Seen) -> None:
    seen.describe(f"every connection of the services terminated and all of max_connections taken for {AWAY_S:.0f} s")
    job = it.submit_judging("D4", 0.3)
    taken = asyncio.run(crowd(it))
    seen.figure("connections taken", taken)
    assert taken > 20
    ends_whole(it, job, seen)


async def crowd(it: Proxied) -> int:
    engine = create_async_engine(it.postgres.of.url(), poolclass=NullPool)
    taken: list[AsyncConnection] = []
    until_s = inf
    try:
        while time.monotonic() < until_s:
            with suppress(SQLAlchemyError):  # the superuser's connections may also be taken
                await asyncio.to_thread(it.rows, f"SELECT pg_terminate_backend(pid) {OURS}")
            with suppress(SQLAlchemyError):
                while True:
                    taken.append(await engine.connect())
            until_s = min(until_s, time.monotonic() + AWAY_S)
        return len(taken)
    finally:
        for connection in taken:
            await connection.close()
        await engine.dispose()


@pytest.mark.fault("D5")
def test_a_full_disk_stops_the_job_until_it_is_relieved(it: Proxied, seen: Seen) -> None:
    if (small := it.disk) is None:
        pytest.skip("mounting a small file system needs root")
    seen.describe(f"PostgreSQL's tables on a file system of {TABLES_MIB} MiB (its log on another), filled at 20 % of "
                  f"the judge's calls, relieved {AWAY_S:.0f} s after an insert has failed")  # fmt: skip
    log = it.postgres.of.directory.with_suffix(".log")
    job = it.submit_judging("D5", 0.2)
    log_size = log.stat().st_size
    try:
        small.fill()
        until("an insert has failed", lambda: b"No space left on device" in log.read_bytes()[log_size:])
        time.sleep(AWAY_S)
    finally:
        small.relieve()
    seen.figure("PostgreSQL ended over it", it.postgres.ended)
    if it.postgres.ended:
        it.postgres.start()
    ends_whole(it, job, seen)
    seen.note("if a backend process dies of it, PostgreSQL's recovery also needs room and fails without it")


@pytest.mark.fault("D6")
def test_a_read_only_database_is_waited_for(it: Proxied, seen: Seen) -> None:
    seen.describe(
        f"default_transaction_read_only = on and every connection of the services terminated; off {AWAY_S:.0f} s later"
    )
    job = it.submit_judging("D6", 0.3)
    log_size = it.log("judge").stat().st_size
    with read_only(it):
        it.rows(f"SELECT pg_terminate_backend(pid) {OURS}")
        until("a service has met it", lambda: b"read-only" in it.log("judge").read_bytes()[log_size:])
        time.sleep(AWAY_S)
    ends_whole(it, job, seen)


@contextmanager
def read_only(it: Proxied) -> Iterator[None]:
    it.rows(f"ALTER ROLE {postgres_module.APP} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        it.rows(f"ALTER ROLE {postgres_module.APP} RESET default_transaction_read_only")


@pytest.mark.fault("D7")
def test_a_schema_may_go_back_and_forth_under_a_job_in_flight(it: Proxied, seen: Seen) -> None:
    seen.describe("services cut off from PostgreSQL at 30 % of the judge's calls, `alembic downgrade 0001` and "
                  "`upgrade head`, connected again")  # fmt: skip
    job = it.submit_judging("D7", 0.3)
    with it.to_postgres.heal_afterwards():
        it.to_postgres.part()
        owner = {"MATHRAG_OWNER_URL": it.owner_url(), "MATHRAG_DATABASE_URL": it.postgres.of.url()}
        alembic(owner, "downgrade", "0001")
        alembic(owner, "upgrade", "head")
    ends_whole(it, job, seen)
