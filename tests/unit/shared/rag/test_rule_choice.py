"""Which rules are taken: thresholds, order, ties, and the end that is asked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import RuleChoice
from shared.rag.guidance import RuleRequest, Side, choose, draw, get_predicted_side
from shared.replies import Atom, Miner, NumberedRule, Rule

BODY = (Atom("b", 0, 1),)
HEAD = Atom("h", 0, 1)


def numbered(number: int, head: Atom = HEAD, **fields: Any) -> NumberedRule:
    given = {"body": BODY, "support": 5, "body_size": 10, "confidence": 0.5, **fields}
    return NumberedRule(number, Rule(head=head, **given))


def taken(rules: list[NumberedRule], side: Side = "", miner: Miner = "amie", **choice: Any) -> list[int]:
    asked = RuleRequest("h", side, RuleChoice(**{"most": 20, **choice}))
    return [each.number for each in choose(rules, asked, miner)]


RANKED = [
    numbered(7, confidence=0.9, support=1),
    numbered(3, pca_confidence=0.8, confidence=0.1),
    numbered(6, support=9),
    numbered(2, body=BODY),
    numbered(4, body=BODY),
    numbered(1, body=BODY * 2),
]
"""Best first: by certainty, support, length of the body, number."""


def test_the_best_rules_come_first_and_ties_are_broken() -> None:
    best = [each.number for each in RANKED]
    assert taken(RANKED[::-1]) == best
    assert taken(RANKED[::-1], most=2) == best[:2]
    assert taken(RANKED, order="worst") == best[::-1]


def test_thresholds_hold_for_every_order() -> None:
    assert taken(RANKED, confidence=0.8) == [7, 3]
    assert taken(RANKED, order="worst", confidence=0.8) == [3, 7]
    assert taken(RANKED, support=6) == [6]
    assert taken(RANKED, most=0) == []


def test_rules_of_other_relations_are_none() -> None:
    assert taken([numbered(0, Atom("other", 0, 1), confidence=1.0)]) == []


@given(st.permutations(RANKED), st.integers(0, 6), st.integers(0, 6))
def test_the_choice_is_the_same_from_parts_and_in_any_order(rules: list[NumberedRule], cut: int, most: int) -> None:
    asked = RuleRequest("h", "", RuleChoice(most=most))
    first = choose(rules[:cut], asked, "amie")
    assert choose((*rules[cut:], *first), asked, "amie") == choose(RANKED, asked, "amie")


@pytest.mark.parametrize(
    ("head", "body", "side"),
    [
        (Atom("h", 0, 1), BODY, "object"),
        (Atom("h", 1, 0), BODY, "subject"),
        (Atom("h", 0, "c"), BODY, "object"),
        (Atom("h", "c", 0), BODY, "subject"),
        (Atom("h", 1, "c"), BODY, "subject"),
        (Atom("h", "c", 1), BODY, "object"),
        (Atom("h", "s", "o"), (Atom("h", "s", 2),), "object"),
        (Atom("h", "s", "o"), (Atom("h", 2, "o"),), "subject"),
    ],
)
def test_a_temporal_rule_predicts_one_end(head: Atom, body: tuple[Atom, ...], side: str) -> None:
    assert get_predicted_side(numbered(0, head, body=body).rule) == side


def test_a_temporal_rule_serves_questions_for_the_end_that_it_predicts() -> None:
    rules = [numbered(0, Atom("h", 0, 1)), numbered(1, Atom("h", 1, 0))]
    assert (taken(rules, "object", "tlogic"), taken(rules, "subject", "tlogic")) == ([0], [1])
    assert taken(rules, "", "tlogic") == taken(rules, "object", "amie") == taken(rules, "subject", "amie") == [0, 1]


def test_a_rule_about_one_entity_alone_is_taken_for_no_question() -> None:
    rules = [numbered(0, Atom("h", "s", "o"), body=(Atom("h", "s", 2),)), numbered(1, Atom("h", "c", 1))]
    assert taken(rules, "object", "temporal-simple") == []
    assert taken([numbered(2, Atom("h", 0, "c"))], "object", "temporal-simple") == [2]
    assert taken([numbered(2, Atom("h", 0, "c"))], "subject", "amie") == []


@given(st.integers(), st.integers(0, 20), st.integers(0, 50))
def test_a_draw_is_the_beginning_of_a_shuffle(seed: int, most: int, of: int) -> None:
    drawn = draw(seed, most, of)
    assert len(set(drawn)) == len(drawn) == min(most, of)
    assert set(drawn) <= set(range(of))
    assert draw(seed, of, of)[:most] == drawn


def test_another_seed_draws_otherwise() -> None:
    draws = [draw(seed, 3, 10) for seed in range(200)]
    assert draws[0] != draws[1]
    assert {number for drawn in draws for number in drawn} == set(range(10))
