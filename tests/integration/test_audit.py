"""Whatever a job goes through in earnest, its audit is clean: every pipeline, reuse, faults, cancel, before its end."""

import uuid
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from shared.audit import check
from shared.calls import CALL_KINDS, Lane, Request
from shared.errors import NotFound
from shared.lease import residencies
from shared.lease.lease import DeviceLease, Phase
from shared.pipelines import registry
from shared.replies import Failure, FailureKind, Reply
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.runtime.queue import RETRIES, lapse_expired
from shared.runtime.worker import LaneWorker
from shared.settings import Workers
from shared.storage.database import Database
from tests.integration.following import add_bank
from tests.integration.scene import (
    Answer,
    ScriptedExecutor,
    SilentTicker,
    add_dataset,
    by_rule,
    furnish,
    rows,
    scalar,
    submit_job,
)

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0"


class Device:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.lease: DeviceLease | None = None

    async def read_leases(self) -> dict[str, DeviceLease | None]:
        return {DEVICE: self.lease}

    async def flip(self, model: str, cause: str) -> None:
        model_id = await scalar(self.database, "SELECT id FROM models WHERE name = :name", name=model)
        assert isinstance(model_id, int)
        await self.close(None)
        async with self.database.transaction() as connection:
            newest = await residencies.find_newest(connection, DEVICE)
            epoch = await residencies.insert_wanted(
                connection, DEVICE, newest.epoch if newest else 0, [model_id], cause
            )
            assert epoch is not None
            await residencies.set_state(connection, epoch, "open", datetime.now(UTC))
        self.lease = DeviceLease(epoch=epoch, phase=Phase.OPEN, models=(model_id,))

    async def close(self, reason: str | None) -> None:
        if self.lease is not None:
            async with self.database.transaction() as connection:
                await residencies.set_state(connection, self.lease.epoch, "closed", datetime.now(UTC), reason)
        self.lease = None

    async def drain(self, lane: Lane, executor: ScriptedExecutor) -> None:
        roles = dict.fromkeys(CALL_KINDS, executor)
        await LaneWorker(
            lane,
            self.database,
            roles,
            name=f"test-{lane.value}",
            guards=self,  # type: ignore[arg-type]
            ticker=SilentTicker(),  # type: ignore[arg-type]
            limits=Workers(window_ms=1),
        ).drain()


async def staged(database: Database, executor: ScriptedExecutor | None = None) -> None:
    executor = executor or ScriptedExecutor()
    device = Device(database)
    await device.flip("a-judge", "drained" if await scalar(database, "SELECT max(epoch) FROM residencies") else "first")
    await device.drain(Lane.JUDGE, executor)
    await device.flip("a-generator", "drained")
    await device.drain(Lane.GENERATE, executor)
    await device.drain(Lane.JUDGE, executor)
    await device.close("guard_stopped")


async def completed(database: Database, pipeline: str = "mathrag-gate", **fields: object) -> uuid.UUID:
    await furnish(database, items=5)
    job = await submit_job(database, pipeline, **fields)
    await staged(database)
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    return job


async def execute(database: Database, sql: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text(sql))


@pytest.mark.parametrize("pipeline", registry.list_offered())
async def test_a_completed_job_is_clean(database: Database, pipeline: str) -> None:
    await add_bank(database)
    params = {} if registry.get(pipeline).ignores("rules") else {"rules": "bank"}
    job = await completed(database, pipeline, repeats=2, params=params)
    assert await check(database, job) == []


@pytest.mark.parametrize("tau", [-1.0, 1.0])
async def test_both_branches_of_the_gate_are_clean(database: Database, tau: float) -> None:
    job = await completed(database, params={"gate": {"tau": tau, "min_pairs": 5}})
    assert await check(database, job) == []


async def test_a_job_that_reuses_another_jobs_calls_is_clean(database: Database) -> None:
    await completed(database)
    await add_dataset(database, 5, "changed", frozenset({1}))
    job = await submit_job(database, dataset="changed")
    await staged(database)
    assert await check(database, job) == []


async def test_a_job_is_clean_before_its_end(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    assert await check(database, job) == []
    device = Device(database)
    await device.flip("a-judge", "first")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    assert await scalar(database, "SELECT state FROM jobs") == "running"
    assert await check(database, job) == []


async def test_a_cancelled_job_is_clean(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    device = Device(database)
    await device.flip("a-judge", "first")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await cancel(database, job)
    await finish_due_jobs(database)
    await device.flip("a-generator", "drained")
    await device.drain(Lane.GENERATE, ScriptedExecutor())
    assert await scalar(database, "SELECT state FROM jobs") == "cancelled"
    assert await scalar(database, "SELECT count(*) FROM attempts a JOIN calls c ON c.id = a.call_id"
                        " WHERE c.role = 'generate'") == 0  # fmt: skip
    assert await check(database, job) == []


async def test_a_job_whose_preparation_failed_is_clean(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    unrated = Failure(kind=FailureKind.UNPARSED, detail="no rating")
    await staged(database, ScriptedExecutor(lambda request: unrated if request.role == "judge" else by_rule(request)))
    assert await scalar(database, "SELECT state FROM jobs") == "failed"
    assert await check(database, job) == []


async def test_lapses_and_retries_are_clean(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database, "closed-book")
    device, broken = Device(database), Failure(kind=FailureKind.BACKEND_ERROR, detail="down")
    await device.flip("a-generator", "first")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await execute(
        database, "UPDATE queue SET token = gen_random_uuid(), claim_until = now() - interval '1 s'"
        " WHERE call_id = (SELECT min(call_id) FROM queue)")  # fmt: skip
    await lapse_expired(database, "sweeper")
    for _ in range(RETRIES):
        await device.drain(Lane.GENERATE, ScriptedExecutor(_breaking(broken)))
        await execute(database, "UPDATE queue SET not_before = NULL")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.close("guard_stopped")
    assert await rows(database, "SELECT state, count(*) FROM samples GROUP BY 1 ORDER BY 1") == [(2, 4), (3, 1)]
    assert await check(database, job) == []


def _breaking(failure: Failure) -> Answer:
    def answer(request: Request) -> Reply:
        return failure if request.values["question"] == "What is 2 plus 2?" else by_rule(request)

    return answer


async def test_an_interruption_with_a_cause_explains_its_load(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    device = Device(database)
    await device.flip("a-judge", "first")
    await Device(database).drain(Lane.JUDGE, ScriptedExecutor())  # retrieves only: it holds no lease
    await execute(database, "UPDATE queue SET not_before = now() + interval '5 minutes' WHERE call_id % 2 = 0")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.close("guard_restart")
    await execute(database, "UPDATE queue SET not_before = NULL")
    await device.flip("a-judge", "guard_restart")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.flip("a-generator", "drained")
    await device.drain(Lane.GENERATE, ScriptedExecutor())
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    loads = (
        "SELECT count(DISTINCT (a.epoch, c.model_id)) FROM attempts a JOIN calls c ON c.id = a.call_id AND a.epoch > 0"
    )
    assert await scalar(database, loads) == 3
    assert await check(database, job) == []


async def test_a_job_that_is_not_there_cannot_be_audited(database: Database) -> None:
    with pytest.raises(NotFound, match="no job"):
        await check(database, uuid.uuid4())


async def test_samples_whose_judgements_are_there_already_may_be_generated_first(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "crag")
    await staged(database)
    await add_dataset(database, 5, "more")
    job = await submit_job(database, "crag", dataset="more", name="second", params={"generate": {"max_tokens": 99}})
    device, executor = Device(database), ScriptedExecutor()
    for model in ("a-generator", "a-judge", "a-generator"):
        await device.flip(model, "drained")
        for lane in (Lane.JUDGE, Lane.GENERATE, Lane.JUDGE):
            await device.drain(lane, executor)
    await device.close("guard_stopped")
    assert await scalar(database, "SELECT count(*) FROM jobs WHERE state = 'completed'") == 2
    assert await check(database, job) == []
