"""Verify calls from a job to the verifier's process and back: as the one who scores, and as the gate's truth."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from services.judge.executors import VerifyExecutor
from services.judge.pools import VerificationPool
from shared.calls import DocumentRef, Request
from shared.replies import Failure, FailureKind, Verified
from shared.runtime.pins import VERIFIER
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Lapse, Release
from shared.samples import GateDecision, Outcome
from shared.storage.database import Database
from tests.integration.scene import ScriptedExecutor, drain, furnish, rows, scalar, submit_job

pytestmark = pytest.mark.anyio


class ByRole(ScriptedExecutor):
    def __init__(self, verifying: VerifyExecutor) -> None:
        super().__init__()
        self.verifying = verifying

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.verifying.run(calls, epoch) if calls[0].role == "verify" else super().run(calls, epoch)


@pytest.fixture
async def verifying(database: Database) -> AsyncIterator[VerifyExecutor]:
    async with VerificationPool(1, deadline_s=60) as pool:
        yield VerifyExecutor(database, pool)


async def test_a_jobs_documents_are_verified_and_ranked_by_what_was_found(
    database: Database, verifying: VerifyExecutor
) -> None:
    await furnish(database)
    await submit_job(database, params={"quality": "verifier"})
    await drain(database, ByRole(verifying))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    assert await scalar(database, "SELECT count(*) FROM calls WHERE role = 'judge'") == 0
    names = await rows(database, "SELECT DISTINCT m.name FROM calls c JOIN models m ON m.id = c.model_id WHERE role = 'verify'")  # fmt: skip  # noqa: E501
    assert names == [(VERIFIER.name,)]
    outcomes = await rows(
        database, "SELECT outcome FROM outcomes o JOIN samples s ON s.id = sample_id WHERE kind = 'item'"
    )
    for (stored,) in outcomes:
        outcome = msgspec.json.decode(stored, type=Outcome)  # type: ignore[call-overload]
        assert [candidate.quality for candidate in outcome.trace.candidates] == [0.75] * len(outcome.trace.candidates)
        assert outcome.trace.candidates[0].features == {"verified": 1, "refuted": 0, "unknown": 0}


async def test_the_gates_decision_holds_the_truth(database: Database, verifying: VerifyExecutor) -> None:
    await furnish(database)
    await submit_job(database, params={"gate": {"truth": "verifier", "min_pairs": 5}})
    await drain(database, ByRole(verifying))
    prepared: Any = await scalar(database, "SELECT prepared FROM jobs")
    truth = msgspec.json.decode(prepared, type=GateDecision).truth
    assert truth is not None
    assert set(truth.refuted) == {0}
    assert (truth.judge.rho, truth.judge.undefined) == (None, "the verifier gave every document 0.75")


async def test_a_document_that_does_not_exist_is_a_failure_of_its_own_call(
    database: Database, verifying: VerifyExecutor
) -> None:
    await furnish(database)
    (hash_,) = (await rows(database, "SELECT encode(hash, 'hex') FROM documents WHERE body LIKE '%7+7=14%'"))[0]
    requests = [
        Request(role="verify", model=VERIFIER.hash.hex(), values={"document": DocumentRef(str(each))})
        for each in (hash_, "ab" * 32)
    ]
    calls = [ClaimedCall(id=n, key=b"", role="verify", model_id=1, request=msgspec.json.encode(each)) for n, each in enumerate(requests)]  # fmt: skip  # noqa: E501
    found = {answer.call_id: answer.reply async for answer in verifying.run(calls, None)}
    assert found[0] == Verified(verified=1, refuted=0, unknown=0)
    assert isinstance(found[1], Failure)
    assert found[1].kind is FailureKind.BACKEND_ERROR
