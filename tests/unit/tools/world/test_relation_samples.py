"""Samples of the rule generator: of what they are made, and what they teach."""

import json
import re
from random import Random
from typing import get_args

import pytest

from shared.settings import REPOSITORY
from tools.world import relations as relations
from tools.world.relations import LEVELS, TEST, TRAIN, Kind, Split, Vocabulary, kind_sample, level_sample
from tools.world.samples import Sample

GRAPHS = REPOSITORY.parent / "shared" / "data" / "kg"
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
    (train, phrases), (test, others) = (
        drawn_names(relations.TRAIN_NAMES),
        drawn_names(relations.TEST_NAMES),
    )
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
