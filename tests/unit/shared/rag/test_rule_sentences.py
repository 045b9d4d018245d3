"""Rules in words."""

from shared.rag.guidance import write_relation, write_rule
from shared.replies import Atom, Rule


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
