"""Estimate calls: one batch a chunk, and what cannot be estimated fails in words."""

from pathlib import Path
from shutil import copytree

import msgspec
import pytest

from services.judge.executors import OTHER_CLASSIFIER, UNKNOWN, EstimateExecutor
from shared.calls import Request
from shared.models.difficulty import EMBEDDINGS, DifficultyClassifier, read_regression
from shared.models.embedding import StaticEmbedder
from shared.models.files import digest
from shared.replies import Estimated, Failure, FailureKind, Reply
from shared.runtime.pins import BUILT_IN, ESTIMATOR, WEIGHTS
from shared.runtime.queue import ClaimedCall

pytestmark = pytest.mark.anyio

QUESTIONS = ("What is $2+3$?", "Prove that there are infinitely many primes.")


def call(number: int, question: str, model: str = ESTIMATOR.hash.hex()) -> ClaimedCall:
    body = msgspec.json.encode(Request(role="estimate", model=model, values={"question": question}))
    return ClaimedCall(id=number, key=b"", role="estimate", model_id=3, request=body)


async def replies(executor: EstimateExecutor, *calls: ClaimedCall) -> list[Reply]:
    answers = [answer async for answer in executor.run(calls, None)]
    assert [answer.call_id for answer in answers] == [each.id for each in calls]
    return [answer.reply for answer in answers]


async def test_a_chunk_is_answered_as_the_classifier_answers() -> None:
    classifier = DifficultyClassifier(read_regression(WEIGHTS), StaticEmbedder(EMBEDDINGS))
    expected = [Estimated(probability=each or 0) for each in classifier.probabilities(QUESTIONS)]
    executor = EstimateExecutor()
    assert await replies(executor, *map(call, (1, 2), QUESTIONS)) == expected
    assert await replies(executor, call(3, QUESTIONS[1])) == expected[1:]


async def test_a_question_that_the_classifier_cannot_read_fails_alone() -> None:
    first, second = await replies(
        EstimateExecutor(), call(1, "求 $x$ 的值，其中两个数字之和是五。"), call(2, QUESTIONS[0])
    )
    assert first == UNKNOWN
    assert isinstance(second, Estimated)


async def test_a_job_that_was_given_another_classifier_is_not_answered_by_this_one() -> None:
    assert await replies(EstimateExecutor(), call(1, QUESTIONS[0], model="0" * 64)) == [OTHER_CLASSIFIER]


async def test_embeddings_that_the_weights_were_not_fitted_to_are_refused(tmp_path: Path) -> None:
    other = Path(copytree(EMBEDDINGS, tmp_path / "other"))
    (other / "config.json").write_text("{}")
    executor = EstimateExecutor(embeddings=other)
    for reply in await replies(executor, *map(call, (1, 2), QUESTIONS)):
        assert isinstance(reply, Failure)
        assert reply.kind is FailureKind.BACKEND_ERROR
        assert "fitted to embedder" in reply.detail
    (other / "config.json").write_bytes((EMBEDDINGS / "config.json").read_bytes())
    assert isinstance((await replies(executor, call(3, QUESTIONS[0])))[0], Estimated)


def test_jobs_are_pinned_to_the_weights_and_by_them_to_the_embedder() -> None:
    assert BUILT_IN["estimate"] is ESTIMATOR
    assert ESTIMATOR.digest == digest(WEIGHTS)
    assert read_regression(WEIGHTS).embedder == StaticEmbedder(EMBEDDINGS).signature
