"""Seed document 001's flow as one pipeline: every part does what it does alone, in the document's order."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import Call, Generate, Judge, Rerank, Retrieve, Write
from shared.params import Params
from shared.pipelines import registry
from shared.replies import Generated, Reply, Scored
from shared.samples import Item, Outcome, Sample
from tests.unit.shared.pipelines.test_crag import (
    GONE,
    HASHES,
    JUDGED,
    LIBRARY,
    NAMES,
    QUESTION,
    TEXTS,
    Answer,
    context,
    decided,
    failing,
    shape,
    world,
)
from tests.unit.shared.pipelines.test_pipelines import drive


def rewording(answer: Answer) -> Answer:
    def reply(call: Call) -> Reply:
        if isinstance(call, Write) and call.template == "decompose":
            return Generated(text="NONE")
        return answer(call)

    return reply


def run_enhanced(answer: Answer, *, size: int = 3, **groups: Any) -> tuple[Outcome, list[list[Call]]]:
    crag = {"fallback": "other", "rounds": 0, **groups.pop("crag", {})}
    asked = {"context_size": size, "duplicates": "same-words", "compress": {"enabled": False}, "crag": crag, **groups}
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    return drive(registry.get("enhanced-crag").run(sample, msgspec.convert(asked, Params), LIBRARY), rewording(answer))


def test_the_parts_come_in_the_documents_order() -> None:
    outcome, asked = run_enhanced(world({"base": 5, "new": 4}))
    kinds = [[type(call) for call in step] for step in asked]
    assert {Retrieve, Write} == set(kinds[0])
    assert [set(step) for step in kinds[1:]] == [{Retrieve}, {Judge}, {Rerank}, {Generate}]
    assert [each.stage for each in outcome.trace.decisions if each.stage in ("rewrite", "crag", "rerank")] == [
        "rewrite", "crag", "rerank",
    ]  # fmt: skip
    assert context(outcome) == ["base", "new"]


def test_every_wordings_documents_are_evaluated_once() -> None:
    outcome, asked = run_enhanced(world({"base": 5}))
    judged = [call for step in asked for call in step if isinstance(call, Judge)]
    assert sorted(NAMES[call.document] for call in judged) == ["base", "music", "new", "same"]
    assert {call.question for call in judged} == {QUESTION}
    assert HASHES["twin"] in outcome.trace.duplicates


def test_what_is_irrelevant_is_not_reranked_and_stays_in_the_trace() -> None:
    outcome, asked = run_enhanced(world({"base": 5, "new": 3}))
    (reranked,) = [call for step in asked for call in step if isinstance(call, Rerank)]
    assert [NAMES[each] for each in reranked.documents] == ["base", "new"]
    names = [NAMES[each.document] for each in outcome.trace.candidates]
    assert (names[:2], set(names[2:])) == (["base", "new"], {"music", "same"})
    assert [each.rank for each in outcome.trace.candidates] == [1, 2, 3, 4]


def test_enhanced_crag_completes_an_ambiguous_list_from_the_fallback_corpus() -> None:
    outcome, asked = run_enhanced(world({"base": 3, "far": 5}), crag={"diversity": 0.0})
    assert decided(outcome, "crag")[0].action == "ambiguous"
    (reranked,) = [call for step in asked for call in step if isinstance(call, Rerank)]
    assert {NAMES[each] for each in reranked.documents} == {"base", "far"}
    assert context(outcome) == ["far", "base"]


def test_an_incorrect_list_is_refined_from_another_angle() -> None:
    _, asked = run_enhanced(world({}), crag={"rounds": 1})
    written = [call.template for step in asked for call in step if isinstance(call, Write)]
    assert written == ["rewrite", "decompose", "rewrite-again", "keywords"]


def test_documents_are_compressed_at_last() -> None:
    outcome, asked = run_enhanced(world({"base": 5, "new": 4}), compress={"enabled": True, "ratio": 0.5})
    assert isinstance(asked[-1][0], Generate)
    assert asked[-1][0].passage
    assert [each.stage for each in outcome.trace.decisions][-1] == "compress"


def test_judge_calls_of_enhanced_crag_come_before_the_one_generation() -> None:
    for ratings in ({"base": 5}, {"base": 3, "far": 5}, {}):
        _, asked = run_enhanced(world(ratings), crag={"rounds": 2, "diversity": 1.0})
        kinds = [type(call) for step in asked for call in step]
        assert kinds.count(Generate) == 1
        assert kinds[-1] is Generate


@pytest.mark.parametrize("kind", [Write, Judge, Rerank])
def test_a_part_that_fails_is_left_out(kind: type) -> None:
    outcome, _ = run_enhanced(failing(kind, world({"base": 5})))
    assert outcome.answer == "6"
    assert outcome.context
    assert any(each.fallback == "connection" for each in outcome.trace.decisions)


def test_a_question_may_be_refused() -> None:
    outcome, asked = run_enhanced(
        lambda call: (
            Scored(scores=(0.1,) * len(call.documents)) if isinstance(call, Rerank) else world({"base": 5})(call)
        ),
        rerank={"refuse": True},
    )
    assert outcome.refusal
    assert "Generate 1" not in shape(asked)


ENHANCED_OPTIONS = st.fixed_dictionaries(
    {
        "evaluator": st.sampled_from(["judge", "reranker", "similarity"]),
        "diversity": st.sampled_from([0.0, 1.0]),
        "rounds": st.integers(0, 2),
        "fallback": st.sampled_from(["", "other"]),
    }
)


@given(JUDGED, ENHANCED_OPTIONS, st.sets(st.sampled_from([Write, Rerank])))
def test_replay_repeats_calls_and_outcome_of_enhanced_crag(judged: dict[str, Reply], options: dict[str, Any], broken: set[type]) -> None:
    def answer(call: Call) -> Reply:
        if type(call) in broken:
            return GONE
        return judged[NAMES[call.document]] if isinstance(call, Judge) else world({"base": 3})(call)

    first, again = (run_enhanced(answer, crag=options) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)
    assert all(step for step in first[1])
    assert set(TEXTS) >= {NAMES[each.document] for each in first[0].trace.candidates}
