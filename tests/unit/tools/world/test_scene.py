"""What follows from documents and rules."""

from shared import replies
from shared.rag.guidance import write_rule
from tools.world.relations import Atom, Fact, Finding, Rule, Scene, find_answer

OWN = Rule((Atom(1, "bakes for", 2),), "greets")
EXCHANGED = Rule((Atom(2, "bakes for", 1),), "greets")
CHAIN = Rule((Atom(1, "bakes for", 3), Atom(2, "sells to", 3)), "greets")


def ask(*facts: Fact, rules: tuple[Rule, ...], asks_object: bool = True) -> Finding:
    return find_answer(Scene("Ann", "greets", asks_object, rules, facts))


def test_a_rule_is_followed_from_the_end_that_the_question_names() -> None:
    facts = (Fact("Cy", "bakes for", "Ann"), Fact("Ann", "bakes for", "Bo"))
    assert ask(*facts, rules=(OWN,)).answer == "Bo"
    assert ask(*facts, rules=(OWN,), asks_object=False).answer == "Cy"


def test_a_rule_that_exchanges_its_terms_is_read_the_other_way_round() -> None:
    facts = (Fact("Ann", "bakes for", "Bo"), Fact("Cy", "bakes for", "Ann"))
    found = ask(*facts, rules=(EXCHANGED,))
    assert (found.answer, found.facts, found.rule) == ("Cy", facts[1:], EXCHANGED)


def test_two_atoms_are_followed_through_two_documents() -> None:
    facts = (Fact("Di", "sells to", "Bo"), Fact("Ann", "bakes for", "Bo"))
    found = ask(*facts, rules=(CHAIN,))
    assert found.answer == "Di"
    assert found.facts == (facts[1], facts[0])
    assert ask(*facts[::-1], rules=(CHAIN,)).answer == "Di"


def test_the_best_rule_that_matches_is_followed_and_of_its_documents_the_first() -> None:
    facts = (Fact("Cy", "bakes for", "Ann"), Fact("Ann", "bakes for", "Bo"), Fact("Ann", "bakes for", "Di"))
    assert ask(*facts, rules=(Rule((Atom(1, "paints", 2),), "greets"), OWN, EXCHANGED)).answer == "Bo"
    assert ask(*facts, rules=(EXCHANGED, OWN)).answer == "Cy"


def test_a_document_with_the_relation_itself_comes_before_every_rule() -> None:
    found = ask(Fact("Ann", "bakes for", "Bo"), Fact("Ann", "greets", "Cy"), rules=(OWN,))
    assert (found.answer, found.rule) == ("Cy", None)


def test_without_a_match_the_first_document_about_the_entity_answers() -> None:
    others = (Fact("Cy", "paints", "Di"), Fact("Bo", "paints", "Ann"))
    assert ask(*others, rules=(OWN,)).answer == "Bo"
    assert ask(others[0], rules=()).answer == "Di"


def test_facts_and_rules_read_as_the_system_writes_them() -> None:
    assert str(Fact("Ann", "bakes for", "Bo", "2013-05-06")) == "Time 2013-05-06 Ann bakes for Bo."
    assert str(CHAIN) == (
        "[Entity1, bakes for, Entity3] and [Entity2, sells to, Entity3] leads to [Entity1, greets, Entity2]"
    )


def test_a_rule_reads_as_the_rules_of_a_bank_do() -> None:
    body = (replies.Atom("b", 0, 2), replies.Atom("s", 1, 2))
    rule = replies.Rule(head=replies.Atom("g", 0, 1), body=body, support=1, body_size=1, confidence=1.0)
    assert write_rule(rule, {"b": "bakes for", "s": "sells to", "g": "greets"}) == str(CHAIN)
