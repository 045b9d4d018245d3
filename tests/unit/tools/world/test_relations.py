import json
import re
from random import Random
from typing import get_args

import pytest

from shared import replies
from shared.rag.guidance import write_rule
from tests.unit.datasets import DATA
from tools.world import relations as relations
from tools.world.relations import (
    LEVELS,
    TEST,
    TRAIN,
    Atom,
    Fact,
    Finding,
    Kind,
    Rule,
    Scene,
    Split,
    Vocabulary,
    find_answer,
    kind_sample,
    level_sample,
)
from tools.world.samples import Sample

# Samples of the rule generator: of what they are made, and what they teach.


GRAPHS = DATA / "kg"
DRAWN = 400


def draw(split: Split, level: str = "all", count: int = DRAWN) -> list[Sample]:
    rng = Random(f"{level}")  # noqa: S311 - nothing here is secret
    return [level_sample(rng, split, LEVELS[level]) for _ in range(count)]


def drawn_names(vocabulary: Vocabulary) -> tuple[set[str], set[str]]:
    rng = Random(11)  # noqa: S311 - nothing here is secret
    return (
        {name for _ in range(DRAWN) for name in relations.entities(rng, vocabulary, 8, 0.3)},
        {name for _ in range(DRAWN) for name in relations.relations(rng, vocabulary, 6, 0.3)},
    )


def words(texts: set[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[^\W\d]{4,}", text)}


def test_training_and_test_draw_from_disjoint_names_and_phrases() -> None:
    for part in ("syllables", "verbs", "nouns", "titles", "groups", "bases"):
        assert not set(getattr(relations.TRAIN_NAMES, part)) & set(getattr(relations.TEST_NAMES, part))
    (train, phrases), (test, others) = (drawn_names(relations.TRAIN_NAMES), drawn_names(relations.TEST_NAMES))
    assert not train & test
    assert not phrases & others
    assert not words(train) & words(test)


def test_the_forms_of_the_systems_questions_are_held_out() -> None:
    for part in ("objects", "subjects", "times"):
        assert not set(getattr(relations.TRAIN_PHRASINGS, part)) & set(getattr(relations.TEST_PHRASINGS, part))
    for sample in draw(TRAIN):
        assert "whom or what?" not in sample.prompt
        assert "Who or what" not in sample.prompt
        assert not re.search(r"Question: On \d", sample.prompt)


def read_graphs() -> tuple[set[str], set[str]]:
    if not GRAPHS.is_dir():
        pytest.skip("needs Kinship and ICEWS14 in ../shared/data/kg")
    facts = [
        line.split("\t")
        for file in (*GRAPHS.glob("kinship/t*.tsv"), GRAPHS / "kinship/valid.tsv", *GRAPHS.glob("icews14/*.txt"))
        for line in file.read_text().splitlines()
    ]
    listed: list[list[str]] = [
        [name.replace("_", " ") for name in json.loads((GRAPHS / "icews14" / f"{kind}2id.json").read_text())]
        for kind in ("entity", "relation")
    ]
    entities = {name.replace("_", " ") for fact in facts for name in (fact[0], fact[2])}
    relations = {fact[1].replace("_", " ") for fact in facts}
    return entities | set(listed[0]), {name.lower() for name in relations | set(listed[1])}


def test_no_name_or_relation_of_the_test_graphs_is_drawn_for_training() -> None:
    entities, verbs = read_graphs()
    drawn, phrases = drawn_names(relations.TRAIN_NAMES)
    assert not drawn & entities
    assert not {phrase.lower() for phrase in phrases} & verbs
    assert not any(re.fullmatch(r"(person|term)\d+", name) for name in drawn | phrases)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_answer_stands_in_a_document_to_the_letter(kind: Kind) -> None:
    rng = Random(kind)  # noqa: S311 - nothing here is secret
    for _ in range(60):
        sample = kind_sample(rng, TEST, kind, "rulerag", LEVELS["all"].size)
        assert sample.reply == f"\\boxed{{{sample.answer}}}"
        assert sample.answer in sample.prompt.split("\n\n", 1)[1].rsplit("Question:", 1)[0]


def test_a_reasoned_reply_names_rule_and_documents_that_the_prompt_shows() -> None:
    rng = Random(3)  # noqa: S311 - nothing here is secret
    for _ in range(60):
        sample = kind_sample(rng, TEST, "chained", "rulerag-cot", LEVELS["all"].size)
        *lines, box = sample.reply.split("\n")
        assert box == f"\\boxed{{{sample.answer}}}"
        assert lines
        assert all(line in sample.prompt.split("\n") for line in lines)


def test_scenes_without_rules_are_asked_as_plain_retrieval() -> None:
    rng = Random(4)  # noqa: S311 - nothing here is secret
    sample = kind_sample(rng, TRAIN, "plain", "rulerag", LEVELS["all"].size)
    assert sample.prompt.startswith("Solve the problem step by step.")
    assert "Rules:" not in sample.prompt


def test_a_seed_draws_the_same_samples_again() -> None:
    assert draw(TRAIN, count=20) == draw(TRAIN, count=20)


# What follows from documents and rules.

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
