from typing import Any

import pytest

from shared.pages.lines import (
    BY_ACTION,
    BY_STAGE,
    SENTENCES,
    describe_decision,
    describe_rules,
    describe_scoring_problems,
    name_rules,
)
from shared.samples import Decision
from tests.unit.cases import named

# Decisions in sentences, also of methods that have none.


HASH = "ab" * 32


def test_a_sentence_names_the_figures_that_it_was_decided_by() -> None:
    easy = Decision(stage="route", action="easy", detail={"probability": 0.23456, "threshold": 0.5})
    assert describe_decision(easy, {}).startswith("The question looks easy (hard with probability 0.235, below 0.5)")
    drop = Decision(stage="context", action="drop", detail={"document": HASH, "reason": "too long"}, fallback="f")
    assert (
        describe_decision(drop, {HASH: "doc-7"}) == "Document doc-7 did not fit into the prompt: too long. Fallback: f."
    )
    dropped = Decision(stage="dedupe", action="dropped", detail={"documents": [HASH] * 7})
    assert describe_decision(dropped, {}).endswith(f"{HASH[:12]} and 2 more.")


def test_a_loop_says_its_round() -> None:
    assert describe_decision(Decision(stage="refine", action="deeper", round=2, detail={"new": 3.0}), {}).startswith(
        "Round 2: "
    )


def test_what_has_no_sentence_is_named_as_the_trace_names_it() -> None:
    unknown = Decision(stage="dowse", action="with a rod", detail={"said": "{x}", "sure": True, "where": None})
    assert describe_decision(unknown, {}) == "Dowse: with a rod (said {x}, sure yes, where not known)."


def test_every_sentence_can_be_said_of_a_decision_without_figures() -> None:
    known = [*SENTENCES, *(f"x {name}" for name in BY_ACTION), *(f"{name} x" for name in BY_STAGE)]
    decisions = [
        Decision(stage=stage, action=action, detail={}) for stage, _, action in (each.partition(" ") for each in known)
    ]
    assert [decision for decision in decisions if not named(describe_decision, decision, {})] == []


# Rules as a sample shows them.


def test_a_sample_names_its_rules_and_what_each_brought() -> None:
    told: dict[str, Any] = {"rule": "[..] leads to [..]", "number": 12.0, "certainty": 0.25}
    decisions = [
        {"stage": "relation", "action": "named"},
        {"stage": "rule", "action": "search", "detail": {**told, "documents": ["a", "b"]}},
        {"stage": "rule", "action": "prompt", "detail": told},
    ]
    assert list(describe_rules(decisions)) == [
        ("rule 12", "[..] leads to [..] (0.250): 2 documents"),
        ("rule 12", "[..] leads to [..] (0.250): in the prompt alone"),
    ]


def test_a_document_names_the_rules_that_brought_it() -> None:
    assert name_rules({"paths": {"rule 3": 1, "rule 12": 4}}) == "rule 3, rule 12"
    assert name_rules({"paths": {"original dense": 1}}) == name_rules({"paths": None}) == name_rules({}) == ""


# What went wrong before the prompt was built, in a report's line.

NONE = {"parse_failures": 0, "unscored": 0, "duplicates_dropped": 0, "decisions": {}}


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (NONE, ""),
        ({**NONE, "decisions": {"crag": {"kept": 5}}}, ""),
        ({**NONE, "duplicates_dropped": 2}, "2 near-duplicates dropped"),
        (
            {**NONE, "duplicates_dropped": 2, "decisions": {"duplicates": {"kept": 3}}},
            "2 near-duplicates dropped, 3 documents in prompts that almost repeat the question",
        ),
    ],
)
def test_documents_that_almost_repeat_the_question_are_counted_beside_those_dropped(
    report: dict[str, object], said: str
) -> None:
    assert describe_scoring_problems(report) == said


def test_a_sample_names_the_document_that_almost_repeats_its_question() -> None:
    kept = Decision(stage="duplicates", action="kept", detail={"document": "ab" * 32, "share": 14 / 15})
    said = describe_decision(kept, {"ab" * 32: "doc-7"})
    assert said.startswith("Document doc-7 stood in the prompt although it almost repeats the question (0.933 of the")
