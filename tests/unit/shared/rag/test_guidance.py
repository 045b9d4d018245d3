from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import RuleChoice
from shared.rag.guidance import (
    ChainPath,
    Hop,
    RelationNames,
    RuleRequest,
    Side,
    choose,
    draw,
    find_other_end,
    get_predicted_side,
    list_nearest,
    order_hops,
    write_relation,
    write_rule,
)
from shared.replies import Atom, Miner, NumberedRule, Rule

# Relations that texts name.


NAMES = RelationNames([
    ("Consult", "consult"), ("Make_a_visit", "make a visit"), ("Visit", "visit"), ("Zvisit", "visit"), ("/p/b", "国籍"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("Whom did Ann CONSULT?", "Consult"),
        ("Did Ann make a visit, and consult?", "Make_a_visit"),
        ("Did Ann make the visit?", "Make_a_visit"),
        ("A visit to whom?", "Visit"),
        ("Who was consulted?", None),
        ("Anna 的国籍是什么？", "/p/b"),
        ("", None),
    ],
)
def test_the_longest_phrase_that_stands_in_the_text_names_the_relation(text: str, relation: str | None) -> None:
    assert NAMES.find_in(text) == relation


def test_without_relations_nothing_is_named() -> None:
    assert RelationNames([]).find_in("Whom did Ann consult?") is None


def test_the_phrases_nearest_to_the_question_come_first() -> None:
    phrases = {"a": "host a visit", "b": "make a visit", "c": "consult", "d": "consult"}
    assert list_nearest("Whom does Ann make a visit to?", phrases) == ["make a visit", "host a visit", "consult"]
    assert list_nearest("?", phrases, most=1) == ["consult"]


# The way of a chain: which atom is searched for first, and what it goes on from.

UNCLE = Hop("uncle")
FORTH = Atom("h", 0, 1)


def words(side: Side, *body: Atom, head: Atom = FORTH) -> list[str]:
    rule = Rule(head=head, body=body, support=1, body_size=1, confidence=1.0)
    return [hop.phrase for hop in order_hops(rule, side, {})]


@pytest.mark.parametrize(("side", "order"), [("object", "abc"), ("", "abc"), ("subject", "cba")])
def test_a_chain_begins_at_the_known_entity(side: Side, order: str) -> None:
    body = (Atom("c", 3, 1), Atom("b", 2, 3), Atom("a", 0, 2))
    assert words(side, *body) == list(order)
    assert words(side, *body[::-1]) == list(order)


def test_the_head_of_a_temporal_rule_may_lead_back() -> None:
    assert words("subject", Atom("b", 2, 1), Atom("a", 2, 0), head=Atom("h", 1, 0)) == ["a", "b"]


def test_no_chain_has_more_than_three_searches() -> None:
    assert words("", Atom("a", 0, 1)) == ["a"]
    assert words("", *(Atom(name, number, number + 2) for number, name in enumerate("abcde"))) == ["a", "c", "e"]


def test_an_atom_that_shares_nothing_comes_last() -> None:
    rule = Rule(
        head=Atom("h", 0, 1), body=(Atom("b", 4, 5), Atom("a", 0, "New_York")), support=1, body_size=1, confidence=1.0
    )
    assert order_hops(rule, "", {"a": "lives in"}) == (Hop("lives in", ("New York",), 0), Hop("b"))


@pytest.mark.parametrize(
    ("sentence", "known", "end"),
    [
        ("person 15 uncle person 22.", "person 15", "person 22"),
        ("person 22 uncle person 15.", "person 15", "person 22"),
        ("Time 2014-09-20 Ann Lee uncle Bo.", "Ann Lee", "Bo"),
        ("Time 2014-09-20 Bo uncle Ann Lee.", ChainPath("who is ann lee uncle", is_question=True), "Bo"),
        ("Ann uncle Bo.", "Ann Lee", None),
        ("Ann uncle Ann.", "Ann", "Ann"),
        ("Bo uncle Cy.", "Ann", None),
        ("Ann likes Bo.", "Ann", None),
        ("Her uncle is called Bo", ChainPath("who is her uncle", is_question=True), "is called Bo"),
        ("", "Ann", None),
    ],
)
def test_a_chain_goes_on_from_the_other_end_of_a_fact(sentence: str, known: str | ChainPath, end: str | None) -> None:
    assert find_other_end(sentence, UNCLE, known if isinstance(known, ChainPath) else ChainPath(known)) == end


@pytest.mark.parametrize(("end", "found"), [(0, ["Bo", None]), (1, [None, "Cy"]), (None, ["Bo", "Cy"])])
def test_a_fact_holds_in_one_direction(end: int | None, found: list[str | None]) -> None:
    sentences = ("Ann uncle Bo.", "Cy uncle Ann.")
    assert [find_other_end(sentence, Hop("uncle", (), end), ChainPath("Ann")) for sentence in sentences] == found


# Which rules are taken: thresholds, order, ties, and the end that is asked for.

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


# Rules in words.


def rule(head: Atom, *body: Atom) -> Rule:
    return Rule(head=head, body=body, support=1, body_size=1, confidence=1.0)


def test_a_rule_reads_as_its_authors_write_it() -> None:
    found = rule(Atom("Make_a_visit", 0, 1), Atom("Consult", 0, 1))
    assert write_rule(found, {}) == "[Entity1, consult, Entity2] leads to [Entity1, make a visit, Entity2]"
    assert write_rule(found, {"Consult": "asks"}).startswith("[Entity1, asks, Entity2] leads to")


def test_several_atoms_are_joined_and_stand_as_their_terms_do() -> None:
    found = rule(Atom("r", 1, 0), Atom("p", 2, 0), Atom("q", "New_York", 2))
    assert write_rule(found, {}) == "[Entity3, p, Entity1] and [New York, q, Entity3] leads to [Entity2, r, Entity1]"


def test_an_empty_phrase_is_none() -> None:
    assert write_relation("bornIn", {"bornIn": ""}) == "born in"
