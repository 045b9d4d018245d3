"""Prompts that do not fit: the worst documents are dropped, one by one, and the trace says so."""

from typing import Any

import msgspec
import pytest

from shared.contracts.calls import Call, Generate, Rerank
from shared.contracts.params import Params
from shared.contracts.replies import CallFailed, Failure, FailureKind, Reply, Scored
from shared.contracts.samples import Outcome
from tests.unit.shared.pipelines.test_pipelines import A, Answer, B, C, run, world

TOO_LONG = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="900 tokens of 512")
PIPELINES = ["critic-loop", "dense", "enhanced", "enhanced-crag", "hybrid", "hyde", "mathrag-gate", "sparse"]


def holding(most: int, answer: Answer = world) -> Answer:
    """A generator whose context holds so many documents beside the question; -1: not even the question."""

    def reply(call: Call) -> Reply:
        if isinstance(call, Rerank):
            return Scored(scores=tuple(1 - at / 10 for at in range(len(call.documents))))
        return TOO_LONG if isinstance(call, Generate) and len(call.context) > most else answer(call)

    return reply


def ask(pipeline: str, most: int, size: int = 3, **groups: Any) -> tuple[Outcome, list[tuple[str, ...]]]:
    """The outcome, and the documents of every prompt that was tried."""
    outcome, asked = run(pipeline, holding(most), msgspec.convert({"context_size": size, **groups}, Params))
    return outcome, [call.context for step in asked for call in step if isinstance(call, Generate)]


def dropped(outcome: Outcome) -> list[object]:
    """Documents that the trace says were dropped, in this order."""
    return [each.detail["document"] for each in outcome.trace.decisions if each.stage == "context"]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_worst_documents_are_dropped_until_the_prompt_fits(pipeline: str, most: int) -> None:
    """In every pipeline: the best stay, the trace names the others, worst first, and the answer is there."""
    whole, _ = ask(pipeline, 3)
    outcome, tried = ask(pipeline, most)
    ranked = list(whole.context)
    assert outcome.answer == "14"
    assert list(outcome.context) == ranked[:most]
    assert dropped(outcome) == ranked[most:][::-1]
    assert [len(context) for context in tried] == list(range(len(ranked), most - 1, -1))


def test_the_trace_says_why_a_document_was_dropped() -> None:
    """In the words of the server that refused the prompt; reports count it as a fallback."""
    outcome, _ = ask("dense", 2)
    decision = outcome.trace.decisions[-1]
    assert (decision.stage, decision.action, decision.fallback) == ("context", "drop", "context_exceeded")
    assert decision.detail == {"document": C, "reason": "900 tokens of 512"}


def test_what_fits_is_asked_once() -> None:
    """And nothing is said of it."""
    outcome, tried = ask("dense", 3)
    assert (tried, dropped(outcome)) == ([(A, B, C)], [])


@pytest.mark.parametrize("pipeline", ["closed-book", *PIPELINES])
def test_a_question_that_does_not_fit_alone_fails_in_words(pipeline: str) -> None:
    """No document is to blame."""
    with pytest.raises(CallFailed, match="context_exceeded: 900 tokens of 512"):
        ask(pipeline, -1)


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - {FailureKind.CONTEXT_EXCEEDED}))
def test_no_other_failure_drops_a_document(kind: FailureKind) -> None:
    """A refusal or a broken backend says nothing about the prompt's length."""
    with pytest.raises(CallFailed, match=kind.value):
        run("dense", lambda call: Failure(kind=kind) if isinstance(call, Generate) else world(call))


def test_what_is_left_is_compressed_anew() -> None:
    """A dropped document takes its sentences along."""
    first, _ = ask("enhanced", 4, size=4, compress={"ratio": 1.0, "tokens": 60})
    left, _ = ask("enhanced", len(first.context) - 1, size=4, compress={"ratio": 1.0, "tokens": 60})
    assert set(left.context) < set(first.context)
    assert [each.stage for each in left.trace.decisions].count("compress") == 1
