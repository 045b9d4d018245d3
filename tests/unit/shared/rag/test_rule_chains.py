"""The way of a chain: which atom is searched for first, and what it goes on from."""

import pytest

from shared.rag.guidance import ChainPath, Hop, Side, find_other_end, order_hops
from shared.replies import Atom, Rule

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
