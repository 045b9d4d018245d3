"""Prompts that do not fit: the worst documents are dropped, one by one, and the trace says so."""

from collections.abc import Callable
from typing import Any

import msgspec

from shared.calls import Call, Generate, Rerank
from shared.params import Params
from shared.replies import CallFailed, Failure, FailureKind, Reply, Scored
from shared.samples import Outcome
from tests.unit.cases import named
from tests.unit.shared.pipelines.test_pipelines import A, Answer, B, C, run, world

TOO_LONG = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="900 tokens of 512")
PIPELINES = ["critic-loop", "dense", "enhanced", "enhanced-crag", "hybrid", "hyde", "mathrag-gate", "sparse"]


def holding(most: int, answer: Answer = world) -> Answer:
    def reply(call: Call) -> Reply:
        if isinstance(call, Rerank):
            return Scored(scores=tuple(1 - at / 10 for at in range(len(call.documents))))
        return TOO_LONG if isinstance(call, Generate) and len(call.context) > most else answer(call)

    return reply


def ask(pipeline: str, most: int, size: int = 3, **groups: Any) -> tuple[Outcome, list[tuple[str, ...]]]:
    outcome, asked = run(pipeline, holding(most), msgspec.convert({"context_size": size, **groups}, Params))
    return outcome, [call.context for step in asked for call in step if isinstance(call, Generate)]


def ask_broken(kind: FailureKind) -> object:
    return run("dense", lambda call: Failure(kind=kind) if isinstance(call, Generate) else world(call))


def failure(function: Callable[..., object], *given: object) -> str:
    try:
        function(*given)
    except CallFailed as failed:
        return str(failed)
    return "(not at all)"


def dropped(outcome: Outcome) -> list[object]:
    return [each.detail["document"] for each in outcome.trace.decisions if each.stage == "context"]


def test_the_worst_documents_are_dropped_until_the_prompt_fits() -> None:
    wrong = {}
    for pipeline in PIPELINES:
        whole, _ = named(ask, pipeline, 3)
        ranked = list(whole.context)
        for most in [0, 1, 2]:
            outcome, tried = named(ask, pipeline, most)
            found = outcome.answer, list(outcome.context), dropped(outcome), [len(context) for context in tried]
            if found != ("14", ranked[:most], ranked[most:][::-1], list(range(len(ranked), most - 1, -1))):
                wrong[pipeline, most] = found
    assert wrong == {}


def test_the_trace_says_why_a_document_was_dropped() -> None:
    outcome, _ = ask("dense", 2)
    decision = outcome.trace.decisions[-1]
    assert (decision.stage, decision.action, decision.fallback) == ("context", "drop", "context_exceeded")
    assert decision.detail == {"document": C, "reason": "900 tokens of 512"}


def test_what_fits_is_asked_once() -> None:
    outcome, tried = ask("dense", 3)
    assert (tried, dropped(outcome)) == ([(A, B, C)], [])


def test_a_question_that_does_not_fit_alone_fails_in_words() -> None:
    said = {pipeline: named(failure, ask, pipeline, -1) for pipeline in ["closed-book", *PIPELINES]}
    words = "context_exceeded: 900 tokens of 512"
    assert {pipeline: found for pipeline, found in said.items() if words not in found} == {}


def test_no_other_failure_drops_a_document() -> None:
    kinds = sorted(set(FailureKind) - {FailureKind.CONTEXT_EXCEEDED})
    said = {kind.value: named(failure, ask_broken, kind) for kind in kinds}
    assert {kind: found for kind, found in said.items() if kind not in found} == {}


def test_what_is_left_is_compressed_anew() -> None:
    first, _ = ask("enhanced", 4, size=4, compress={"ratio": 1.0, "tokens": 60})
    left, _ = ask("enhanced", len(first.context) - 1, size=4, compress={"ratio": 1.0, "tokens": 60})
    assert set(left.context) < set(first.context)
    assert [each.stage for each in left.trace.decisions].count("compress") == 1
