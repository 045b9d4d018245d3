"""A search is a pipeline without its models: it finds what a job finds whose models write nothing."""

from collections.abc import Callable, Generator
from typing import Any

import msgspec
import pytest

from services.orchestrator.searching import Mode, SearchOptions, run_steps, verdict
from shared.calls import Call, Rerank, Retrieve
from shared.params import Params
from shared.pipelines import registry
from shared.replies import Document, Failure, FailureKind, Generated, Hit, Reply, Retrieved, Scored
from shared.runtime.advance import Replay
from shared.samples import Item, Sample, Trace

DOCUMENTS = {
    document.hash: document
    for document in (Document(problem=f"What is {n} grusel {n}?", text=f"It is {n}, by step {n}.") for n in range(12))
}
HASHES = sorted(DOCUMENTS)
QUESTION = "Please, what is the gcd of 12 and 18?"
QUIET: dict[str, Any] = {"enhance": {"rewrite": False, "decompose": False}, "candidates": 6}
"""Parameters of a job whose models write nothing before it answers."""


def found(call: Call) -> Reply:
    match call:
        case Retrieve(question=question, index=index, k=k):
            start = (len(question) + len(index)) % len(HASHES)
            order = [*HASHES[start:], *HASHES[:start]][:k]
            hits = (Hit(document=hash_, rank=n, score=1 / n) for n, hash_ in enumerate(order, 1))
            return Retrieved(hits=tuple(hits))
        case Rerank(documents=documents):
            return Scored(scores=tuple(HASHES.index(document) / len(HASHES) for document in documents))
    return Generated(text="\\boxed{1}")


def run(generator: Generator[Any, Any, Any], answer: Callable[[Call], Reply] = found) -> tuple[Any, list[Call]]:
    replay, asked = Replay[Any](generator), []
    while replay.calls:
        asked += replay.calls
        replay.answer([answer(call) for call in replay.calls])
    assert replay.failure is None, replay.failure
    return replay.result, asked


def job(pipeline: str, params: Params) -> tuple[Trace, list[Call]]:
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    outcome, asked = run(registry.get(pipeline).run(sample, params, DOCUMENTS))
    return outcome.trace, asked[:-1]


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
def test_a_plain_search_is_the_baseline_of_its_name(mode: Mode) -> None:
    params = msgspec.convert({"candidates": 5, "fusion": {"method": "weighted", "dense": 0.7}}, Params)
    assert run(run_steps(QUESTION, SearchOptions(mode=mode), params, DOCUMENTS)) == job(mode, params)


@pytest.mark.parametrize("by_intent", [True, False])
def test_an_enhanced_search_is_the_pipeline_enhanced_without_its_writer(by_intent: bool) -> None:
    params = msgspec.convert({**QUIET, "fusion": {"by_intent": by_intent}, "compress": {"enabled": False}}, Params)
    trace, asked = run(run_steps(QUESTION, SearchOptions(mode="hybrid", enhance=True, rerank=True), params, DOCUMENTS))
    assert (trace, asked) == job("enhanced", params)
    assert {call.question for call in asked if isinstance(call, Retrieve)} > {QUESTION}


@pytest.mark.parametrize("evaluator", ["similarity", "reranker"])
def test_an_evaluated_search_has_the_verdict_of_the_pipeline_crag(evaluator: str) -> None:
    crag = {"evaluator": evaluator, "rounds": 0}
    params = msgspec.convert({**QUIET, "crag": crag}, Params)
    trace, _ = run(run_steps(QUESTION, SearchOptions(mode="hybrid", crag=True), params, DOCUMENTS))
    first = next(each for each in job("crag", params)[0].decisions if each.stage == "crag")
    assert trace.decisions[-1] == first
    assert verdict(trace.decisions) == first.action


def test_what_cannot_be_scored_is_not_irrelevant() -> None:
    down = Failure(kind=FailureKind.TIMEOUT)
    options = SearchOptions(mode="dense", rerank=True, crag=True)
    params = msgspec.convert({"crag": {"evaluator": "reranker"}}, Params)
    trace, _ = run(
        run_steps(QUESTION, options, params, DOCUMENTS), lambda call: down if isinstance(call, Rerank) else found(call)
    )
    plain, _ = run(run_steps(QUESTION, SearchOptions(mode="dense"), params, DOCUMENTS))
    assert [each.document for each in trace.candidates] == [each.document for each in plain.candidates]
    reranked, evaluated = trace.decisions
    assert (reranked.fallback, evaluated.detail["evaluator"]) == ("timeout", "similarity")
    assert evaluated.fallback is not None


def test_nothing_found_is_incorrect() -> None:
    options = SearchOptions(mode="hybrid", enhance=True, rerank=True, crag=True)
    trace, _ = run(
        run_steps(QUESTION, options, Params(), DOCUMENTS),
        lambda call: Retrieved(hits=()) if isinstance(call, Retrieve) else Scored(scores=()),
    )
    assert (trace.candidates, verdict(trace.decisions)) == ((), "incorrect")
