"""Bodies that lead from a question to an answer, among the facts of a lead."""

import pytest

from shared.questions.training import LONGEST, Evidence, Told, evidence
from shared.replies import Atom, Rule
from shared.samples import FactQuery

QUERY = FactQuery(relation="uncle", entity="ann", side="object")
FACTS = [
    Told("0", "eve", "brother", "ian"), Told("1", "ann", "parent", "bob"), Told("2", "ann", "parent", "cat"),
    Told("3", "cat", "brother", "dan"), Told("4", "cat", "brother", "fay"), Told("5", "ann", "brother", "gil"),
]  # fmt: skip


def rule(*body: Atom, head: tuple[int | str, int | str] = (0, 1)) -> Rule:
    return Rule(head=Atom("uncle", *head), body=body, support=1, body_size=1, confidence=1.0)


CHAIN = rule(Atom("parent", 0, 2), Atom("brother", 2, 1))


def test_the_facts_of_one_body_are_told_with_the_answer_that_they_reach() -> None:
    assert evidence(CHAIN, QUERY, ["dan"], FACTS) == Evidence("dan", ("2", "3"))
    assert evidence(CHAIN, QUERY, ["fay", "gil"], FACTS) == Evidence("fay", ("2", "4"))
    assert evidence(CHAIN, QUERY, ["gil"], FACTS) is None


def test_a_question_for_the_subject_is_followed_from_the_other_end() -> None:
    query = FactQuery(relation="uncle", entity="dan", side="subject")
    assert evidence(CHAIN, query, ["ann"], FACTS) == Evidence("ann", ("2", "3"))


def test_constants_hold_for_their_entity_alone() -> None:
    constant = rule(Atom("parent", 0, "cat"), head=(0, "dan"))
    assert evidence(constant, QUERY, ["dan"], FACTS) == Evidence("dan", ("2",))
    assert evidence(rule(Atom("parent", 0, "eve"), head=(0, "dan")), QUERY, ["dan"], FACTS) is None
    assert evidence(rule(Atom("parent", 0, "cat"), head=("bob", 0)), QUERY, ["dan"], FACTS) is None


def test_a_fact_that_two_atoms_stand_for_is_told_once() -> None:
    twice = rule(Atom("brother", 0, 1), Atom("brother", 0, 1))
    assert evidence(twice, QUERY, ["gil"], FACTS) == Evidence("gil", ("5",))


@pytest.mark.parametrize(("atoms", "found"), [(LONGEST, True), (LONGEST + 1, False)])
def test_a_long_body_is_not_looked_for(atoms: int, found: bool) -> None:
    loop = rule(*[Atom("parent", 0, "cat")] * (atoms - 1), Atom("brother", 0, 1))
    assert (evidence(loop, QUERY, ["gil"], FACTS) is not None) is found
