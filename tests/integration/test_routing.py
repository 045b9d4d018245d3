"""Routing from a job's question to the classifier and back: who is judged, what is kept, what the report counts."""

import uuid
from collections.abc import AsyncIterator, Sequence
from statistics import median

import msgspec
import pytest

from services.judge.executors import EstimateExecutor
from services.orchestrator.reports.report import report
from shared import audit
from shared.models.difficulty import EMBEDDINGS, DifficultyClassifier, read_regression
from shared.models.embedding import StaticEmbedder
from shared.replies import Estimated, Reply
from shared.runtime.pins import ESTIMATOR, WEIGHTS
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Lapse, Release
from shared.storage.database import Database
from tests.integration.scene import ScriptedExecutor, drain, furnish, rows, run_sql, submit_job

pytestmark = pytest.mark.anyio

QUESTIONS = [f"What is {n} plus {n}?" for n in range(5)]
_REPLY = msgspec.json.Decoder(Reply)


class ByRole(ScriptedExecutor):
    def __init__(self) -> None:
        super().__init__()
        self.estimates = EstimateExecutor()

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.estimates.run(calls, epoch) if calls[0].role == "estimate" else super().run(calls, epoch)


async def routed(database: Database, threshold: float) -> uuid.UUID:
    params = {"quality": "judge", "route": {"enabled": True, "threshold": threshold}}
    job = await submit_job(database, params=params)
    await drain(database, ByRole())
    return job


async def judged(database: Database, job: uuid.UUID) -> list[object]:
    sql = """SELECT DISTINCT s.ordinal FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
             JOIN calls c ON c.id = t.call_id WHERE j.public_id = :job AND c.role = 'judge' ORDER BY 1"""
    return [ordinal for (ordinal,) in await rows(database, sql, job=job)]


async def test_only_questions_that_look_hard_are_judged_and_another_threshold_estimates_nothing_anew(
    database: Database,
) -> None:
    await furnish(database)
    expected = DifficultyClassifier(read_regression(WEIGHTS), StaticEmbedder(EMBEDDINGS)).probabilities(QUESTIONS)
    threshold = median(each for each in expected if each is not None)
    hard = [number for number, each in enumerate(expected) if each is not None and each >= threshold]
    first, second = await routed(database, threshold), await routed(database, 0.0)
    assert await judged(database, first) == hard
    assert await judged(database, second) == [0, 1, 2, 3, 4]
    kept = "SELECT a.reply, m.hash FROM calls c JOIN attempts a ON a.call_id = c.id JOIN models m ON m.id = c.model_id"
    found = await rows(database, f"{kept} WHERE c.role = 'estimate'")
    assert {_REPLY.decode(reply) for reply, _ in found} == {Estimated(probability=each or 0) for each in expected}
    assert [bytes(hash_) for _, hash_ in found] == [ESTIMATOR.hash] * 5
    reports = [await report(database, str(job), {}) for job in (first, second)]
    assert reports[0].decisions["route"] == {"easy": 5 - len(hard), "hard": len(hard)}
    assert [each.calls_made["estimate"] for each in reports] == [5, 0]
    assert reports[1].calls_reused["estimate"] == 5
    found_wrong = {each.invariant for each in await audit.check_in_thread(database, first)}
    assert found_wrong <= {"I2"}, "scripted models have no residency"


async def test_a_job_of_other_weights_is_judged_throughout_and_says_why(database: Database) -> None:
    await furnish(database, items=2)
    params = {"quality": "judge", "route": {"enabled": True, "threshold": 1.0}}
    job = await submit_job(database, params=params)
    await run_sql(
        database,
        """UPDATE jobs SET pins = jsonb_set(pins, '{estimate,hash}', to_jsonb(repeat('0', 64)))""",
    )
    for _ in range(10):
        await drain(database, ByRole())
        await run_sql(database, "UPDATE queue SET not_before = NULL")
    assert await judged(database, job) == [0, 1]
    found = await report(database, str(job), {})
    assert found.state == "completed"
    assert found.decisions["route"] == {"hard": 2}
    assert found.fallbacks["route"] == {"backend_error": 2}
