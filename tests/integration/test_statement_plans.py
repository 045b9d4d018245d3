"""Hot statements find each row by an index, whatever statistics the tables had when the statement was planned."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from sqlalchemy import TextClause, text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling import scheduler
from shared.runtime import advance, lifecycle, purge, queue, worker
from shared.storage import provenance
from shared.storage.database import Database
from tests.integration import scene

pytestmark = pytest.mark.anyio

SELDOM = (
    "queue.EXPIRED", "queue.FORGET", "queue.OVERDUE", "queue.PAUSED", "lifecycle.DRAINED", "lifecycle.PARKED",
    "lifecycle.UPDATE_PLACES", "lifecycle.CANCEL_SAMPLES", "lifecycle.AWAIT_ADVANCE", "scheduler.COUNT",
    "scheduler.STARVED",
)  # fmt: skip
"""Statements that are rare, or read many rows by design."""
HOT = {
    f"{module.__name__.rpartition('.')[2]}.{name}": statement
    for module in (queue, advance, worker, lifecycle, scheduler)
    for name, statement in vars(module).items()
    if isinstance(statement, TextClause)
} | {f"provenance.{name}": getattr(provenance, name) for name in ("LAST", "SAMPLES", "SELECT_CALL_RECORDS")}
LARGE = ("queue", "calls", "steps", "samples", "attempts", "items", "outcomes", "records", "documents", "given")
COMPARED = {
    "samples_of_job": "job_id", "samples_job_id_kind_ordinal_repeat_key": "job_id", "queue_pkey": "lane",
    "steps_pkey": "sample_id", "items_pkey": "dataset_id", "given_pkey": "ordinal", "records_job_id_seq_key": "job_id",
}  # fmt: skip
"""The column of an index of several columns that must be compared, so that few entries are read."""
SCAN = re.compile(r"-> +(?:(Seq) Scan|Index (?:Only )?Scan(?: Backward)? using (\w+)) on (\w+)|^(Seq) Scan")


def find_full_scans(plan: Sequence[str]) -> list[str]:
    """Return the nodes that read a large table without comparing the leading column of an index."""
    found = []
    for line, following in pairwise([*plan, ""]):
        if (scan := SCAN.search(line)) is None or scan[3] not in LARGE:
            continue
        if scan[2] is None or "Index Cond:" not in following or COMPARED.get(scan[2], "") not in following:
            found.append(line.strip())
    return found


@pytest.mark.parametrize("tables", ["never analysed", "analysed while empty", "analysed with rows"])
async def test_hot_statements_find_every_row_by_an_index(database: Database, owner: Database, tables: str) -> None:
    if tables == "analysed with rows":
        await scene.furnish(database, items=40)
        await scene.submit_job(database)
        await scene.advance(database)
    if tables != "never analysed":
        async with owner.statement() as connection:
            await connection.execute(text("ANALYZE"))
    async with database.transaction() as connection:
        full_scans = {
            name: find_full_scans(await explain(connection, statement))
            for name, statement in HOT.items()
            if name not in SELDOM
        }
    assert {name: scans for name, scans in full_scans.items() if scans} == {}


async def explain(connection: AsyncConnection, statement: TextClause) -> list[str]:
    """Return the plan of a statement for any arguments."""
    compiled = str(statement.compile(dialect=PGDialect_asyncpg()))
    arguments = ", ".join(["NULL"] * len(set(re.findall(r"\$\d+", compiled))))
    await connection.exec_driver_sql(f"PREPARE explained AS {compiled}")
    execute = f"EXPLAIN (COSTS OFF) EXECUTE explained{arguments and f'({arguments})'}"
    plan = [row[0] for row in await connection.exec_driver_sql(execute)]
    await connection.exec_driver_sql("DEALLOCATE explained")
    return plan


@pytest.mark.parametrize("statement", [purge.LOCK_UNUSED, provenance.ATTEMPTS], ids=["purge", "sample"])
async def test_a_purge_and_a_sample_read_no_more_of_a_large_database(owner: Database, statement: TextClause) -> None:
    # Large tables are joined by a merge, which starts at the first row that the conditions allow.
    settings = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_nestloop": "off"}
    async with owner.transaction() as connection:
        for name, value in settings.items():
            await connection.execute(text(f"SET LOCAL {name} = {value}"))
        assert find_full_scans(await explain(connection, statement)) == []
