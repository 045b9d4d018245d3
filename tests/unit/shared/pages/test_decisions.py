"""Decisions in sentences, also of methods that have none."""

from shared.pages.lines import BY_ACTION, BY_STAGE, SENTENCES, describe_decision
from shared.samples import Decision
from tests.unit.cases import named

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
