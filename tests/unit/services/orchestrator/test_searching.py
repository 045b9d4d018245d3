from collections.abc import Callable, Generator
from itertools import product
from typing import Any

import msgspec
import pytest

from mathrag.errors import Invalid
from services.orchestrator.api.search import SearchRequest, choose_params
from services.orchestrator.searching import Mode, SearchOptions, run_steps, verdict
from shared.calls import Call, Rerank, Retrieve
from shared.params import Params
from shared.pipelines import registry
from shared.replies import Document, Failure, FailureKind, Generated, Hit, Reply, Retrieved, Scored
from shared.runtime.advance import Replay
from shared.samples import Item, Sample, Trace
from shared.storage.configurations import SHIPPED, Configuration, merge
from tests.unit.watched import LEAVES, SEEN, Tree, leaf_of, nested, other_values, watched

# A search is a pipeline without its models: it finds what a job finds whose models write nothing.


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
        run_steps(QUESTION, options, params, DOCUMENTS),
        lambda call: down if isinstance(call, Rerank) else found(call),
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


# A search reads each parameter that it accepts, and refuses the others by name, whatever the request asks for.

MISSPELT = "Please, what is the gratest comon divisor of 12 and 18?"
AT_ONCE = {"duplicates", "dense.threshold", "crag.calibrated_by", "crag.judged_by", "crag.thresholds"}
"""Parameters that are read around the steps: with the corpus at hand, or added to each search."""
MODES = ("dense", "sparse", "hybrid")
REQUESTS: list[Tree] = [
    {"mode": mode, "enhance": enhance, "rerank": rerank, "crag": crag}
    for mode, enhance, rerank, crag in product(MODES, (False, True), (False, True), (False, True))
]
CALIBRATED: Tree = {"thresholds": "calibrated", "calibrated_by": "x"}
PARAMS: list[Tree] = [
    {"crag": {"evaluator": "judge"}, "fusion": {"method": "rrf"}},
    {"crag": {"evaluator": "judge"}, "fusion": {"method": "weighted"}},
    {"crag": {"evaluator": "reranker"}, "fusion": {"method": "rrf"}},
    {"crag": {"evaluator": "similarity"}, "fusion": {"method": "rrf"}},
    {"crag": {"evaluator": "reranker", **CALIBRATED}, "fusion": {"method": "rrf"}},
    {"crag": {"evaluator": "similarity", **CALIBRATED}, "fusion": {"method": "weighted"}},
]


def answer(call: Call, *, fails: bool) -> Reply:
    match call:
        case Retrieve(k=k):
            return Retrieved(
                hits=tuple(Hit(document=hash_, rank=n, score=1 / n) for n, hash_ in enumerate(HASHES[:k], 1))
            )
        case Rerank(documents=documents) if not fails:
            return Scored(scores=tuple(0.5 for _ in documents))
    return Failure(kind=FailureKind.NOT_CONFIGURED)


def traces_of(request: Tree, params: Params) -> list[Trace]:
    found = []
    for fails in (False, True):
        replay = Replay(run_steps(MISSPELT, SearchOptions(**request), params, DOCUMENTS))
        while replay.calls:
            replay.answer([answer(call, fails=fails) for call in replay.calls])
        assert replay.result is not None, replay.failure
        decisions = tuple(each for each in replay.result.decisions if each.stage != "intent")
        found.append(msgspec.structs.replace(replay.result, decisions=decisions))
    return found


def read_by(request: Tree, params: Params) -> set[str]:
    noting = watched(params)
    SEEN.clear()
    traces_of(request, noting)
    return SEEN & set(LEAVES)


def refusal(request: Tree, given: Tree, held: Tree) -> Invalid | None:
    try:
        asked = SearchRequest(question=MISSPELT, corpus="docs", params=given, **request)
        choose_params(asked, Configuration(version=1, params=held))
    except Invalid as error:
        return error
    return None


@pytest.mark.parametrize(
    "held", PARAMS, ids=lambda held: "-".join(str(value) for group in held.values() for value in group.values())
)
def test_a_search_accepts_the_parameters_that_its_steps_read_and_no_other(held: Tree) -> None:
    """For every mode and every part that a request may ask for, and with every evaluator.

    Some are read and then not used: those of the list that is not searched, for instance. They change nothing.
    """
    for request in REQUESTS:
        params = choose_params(
            SearchRequest(question="q", corpus="c", **request), Configuration(version=1, params=held)
        )
        read = read_by(request, params)
        for path in LEAVES:
            group, _, name = path.partition(".")
            given = nested(path, held[group][name]) if name in held.get(group, {}) else other_values(path)
            refused = refusal(request, given, held)
            if refused is None:
                assert path in read | AT_ONCE, (request, path)
            else:
                assert f"`params.{leaf_of(path).path}" in refused.message, (request, path)
                assert refused.hint
                if path in read:
                    changed = msgspec.convert(merge(msgspec.to_builtins(params), other_values(path)), Params)
                    assert traces_of(request, params) == traces_of(request, changed), (
                        request,
                        path,
                    )
    assert refusal({}, {"duplicates": "off"}, {}) is None


@pytest.mark.parametrize(
    ("request_", "params", "said"),
    [
        ({}, {"crag": {"upper": 0.9}}, "`params.crag.upper`: a search reads it only if `crag` is true"),
        ({"crag": True}, {"crag": {"upper": 0.9}}, "a search reads it only if `crag.evaluator` is `reranker` or"),
        ({"crag": True}, {"crag": {"rounds": 1}}, "`params.crag.rounds`: a search would not read it"),
        ({"crag": True}, {"crag": {"upper": 0.2, "lower": 0.9}}, "`params.crag.upper`: must be at least `crag.lower`"),
        ({}, {"enhance": {"synonyms": False}}, "`params.enhance.synonyms`: a search reads it only if `enhance`"),
        ({"enhance": True}, {"enhance": {"rewrite": False}}, "`params.enhance.rewrite`: a search would not read it"),
        ({"rerank": True}, {"rerank": {"floor": 0.1}}, "`params.rerank.floor`: a search would not read it"),
        ({"rerank": True}, {"rerank": {"enabled": False}}, "`params.rerank.enabled`: a search would not read it"),
        ({"mode": "dense"}, {"rrf_k": 3}, '`params.rrf_k`: a search reads it only if `mode` is "hybrid" or `enhance`'),
        ({"mode": "sparse"}, {"fusion": {"dense": 1}}, '`params.fusion.dense`: a search reads it only if `mode` is'),
        ({"mode": "sparse"}, {"dense": {"threshold": 0.7}}, "`params.dense.threshold`: a search reads it only if"),
        ({}, {"fusion": {"normaliser": "rank"}}, '`params.fusion.normaliser`: is not read while `fusion.method`'),
        ({}, {"gate": {"tau": 0.3}}, "`params.gate.tau`: a search would not read it"),
    ],
)  # fmt: skip
def test_the_refusal_says_what_would_read_the_parameter(request_: Tree, params: Tree, said: str) -> None:
    refused = refusal(request_, params, SHIPPED.params)
    assert refused is not None
    assert said in refused.message


@pytest.mark.parametrize(
    "crag",
    [
        {"evaluator": "similarity", "upper": 0.2, "lower": 0.9},
        {"evaluator": "reranker", "upper": 0.2},
        {"evaluator": "reranker", "lower": 0.9},
        {"evaluator": "similarity", "similarity": {"upper": 0.2, "lower": 0.9}},
        {"evaluator": "similarity", "similarity": {"upper": 0.2, "lower": 0.1}, "lower": 0.9},
    ],
)
def test_thresholds_that_contradict_each_other_are_refused(crag: Tree) -> None:
    refused = refusal({"crag": True}, {"crag": crag}, {})
    assert refused is not None
    assert refused.message.startswith("`params.crag.")
    assert "lower" in refused.message


@pytest.mark.parametrize(
    "crag", [{"upper": 0.5, "lower": 0.5}, {"upper": 0.3}, {"lower": 0.8}, {"upper": 0, "lower": 0}]
)
def test_thresholds_that_leave_room_or_touch_are_accepted(crag: Tree) -> None:
    assert refusal({"crag": True}, {"crag": {"evaluator": "reranker", **crag}}, {}) is None
