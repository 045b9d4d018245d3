"""What the judge is trained to write and to rate for retrieval: served templates, documents of the promised kinds."""

import re
from random import Random
from typing import get_args

import pytest

from mathrag.demo.world import TEST_NAMES, TEST_TEMPLATES, TRAIN_NAMES
from shared.rag.prompts import render, template
from tools.world.samples import Skill, Split, foreign_skill_sample, relevance_sample, skill_sample

SKILLS: tuple[Skill, ...] = get_args(Skill)
SPLIT = Split(TEST_NAMES, TEST_TEMPLATES)
ABOUT = re.compile(r"(\d) (\w+) (\d)")
RELEVANCE = re.compile(
    r"Question: (?P<question>[^\n]+)\n\nProblem: (?P<problem>[^\n]+)\nSolution: (?P<text>[^\n]+)\nRating:"
)


def seeded(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 - nothing here is secret


def operand(text: str) -> tuple[str, str, str]:
    found = ABOUT.search(text)
    assert found
    return found[1], found[2], found[3]


def asked(prompt: str) -> str:
    return prompt.rpartition("Question: ")[2].rpartition("\n")[0]


def traits(text: str) -> tuple[bool, bool]:
    return "(" in text, "Step 1." in text


def rated(grade: int, count: int = 100) -> list[re.Match[str]]:
    rng = seeded(grade)
    samples = [relevance_sample(rng, SPLIT, grade) for _ in range(count)]
    assert {sample.reply for sample in samples} == {f"[[{grade}]]"}
    found = [RELEVANCE.search(sample.prompt) for sample in samples]
    assert all(found)
    return [each for each in found if each]


@pytest.mark.parametrize("skill", SKILLS)
def test_a_prompt_is_the_served_template(skill: Skill) -> None:
    served = template(skill).text.replace("{{subqueries}}", "3").splitlines()
    for draw in (skill_sample, foreign_skill_sample):
        lines = [line for seed in range(20) for line in draw(seeded(seed), SPLIT, skill).prompt.splitlines()]
        assert {served[0], served[-1]} <= set(lines)
        assert not any("{{" in line for line in lines)


def test_a_question_alone_makes_the_whole_prompt() -> None:
    prompt = skill_sample(seeded(1), SPLIT, "rewrite").prompt
    assert prompt == render(template("rewrite"), {"question": asked(prompt)})


@pytest.mark.parametrize("skill", SKILLS)
def test_the_same_seed_draws_the_same_sample(skill: Skill) -> None:
    for draw in (skill_sample, foreign_skill_sample):
        assert draw(seeded(3), SPLIT, skill) == draw(seeded(3), SPLIT, skill)


@pytest.mark.parametrize(("grade", "wanted"), [(5, (True, True)), (4, (True, False)), (3, (False, True))])
def test_a_useful_document_is_about_the_operator_and_graded_by_what_it_shows(
    grade: int, wanted: tuple[bool, bool]
) -> None:
    for each in rated(grade):
        assert operand(each["question"])[1] == operand(each["problem"])[1]
        assert traits(each["text"]) == wanted


def test_a_document_that_contradicts_itself_or_only_answers_is_of_no_use() -> None:
    seen = set()
    for each in rated(2):
        assert operand(each["question"])[1] == operand(each["problem"])[1]
        seen.add(traits(each["text"]))
    assert seen == {(True, True), (False, False)}


def test_a_document_about_another_operator_is_unrelated_however_good_it_is() -> None:
    found = rated(1)
    names = [(operand(each["question"])[1], operand(each["problem"])[1]) for each in found]
    assert all(one != other for one, other in names)
    assert any(one[:3] == other[:3] for one, other in names)
    assert {traits(each["text"]) for each in found} == {(True, True), (True, False), (False, True), (False, False)}


def test_every_grade_of_relevance_is_trained() -> None:
    rng = seeded("grades")
    replies = {skill_sample(rng, SPLIT, "relevance").reply for _ in range(200)}
    assert replies == {f"[[{grade}]]" for grade in range(1, 6)}


def test_a_rewritten_query_asks_for_the_definition_of_the_operator() -> None:
    for seed in range(30):
        sample = skill_sample(seeded(seed), SPLIT, "rewrite")
        _, name, _ = operand(asked(sample.prompt))
        assert sample.reply == f"definition of a {name} b"


def test_another_query_looks_from_another_angle_with_and_without_documents() -> None:
    counts = set()
    for seed in range(30):
        sample = skill_sample(seeded(seed), SPLIT, "rewrite-again")
        counts.add(sample.prompt.count("Problem: "))
        assert sample.reply == f"worked example of {operand(asked(sample.prompt))[1]}, step by step"
        assert "definition" not in sample.reply
    assert counts == {0, 1, 2, 3}


def test_a_question_about_two_values_is_split_and_a_simple_one_stays_one() -> None:
    lines = set()
    for seed in range(40):
        sample = skill_sample(seeded(seed), SPLIT, "decompose")
        question = asked(sample.prompt)
        parts = sample.reply.splitlines()
        lines.add(len(parts))
        assert ABOUT.findall(question) == [operand(part) for part in parts]
        assert all(re.fullmatch(r"What is \d \w+ \d\?", part) for part in parts)
    assert lines == {1, 2}


def test_keywords_begin_with_the_operator() -> None:
    sample = skill_sample(seeded(4), SPLIT, "keywords")
    assert sample.reply.split(", ")[0] == operand(asked(sample.prompt))[1]
    assert len(sample.reply.split(", ")) == 3


def test_a_hypothetical_document_solves_the_question_itself_by_some_rule() -> None:
    for seed in range(20):
        sample = skill_sample(seeded(seed), SPLIT, "hyde-solution")
        problem = sample.prompt.rpartition("Problem: ")[2].rpartition("\n")[0]
        assert sample.answer == f"a {operand(problem)[1]} b ="
        assert sample.answer in sample.reply
        assert traits(sample.reply) == (True, True)


@pytest.mark.parametrize("skill", [skill for skill in SKILLS if skill != "relevance"])
def test_about_a_foreign_question_nothing_is_written(skill: Skill) -> None:
    for seed in range(20):
        assert foreign_skill_sample(seeded(seed), SPLIT, skill).reply == ""


def test_a_foreign_prompt_holds_nothing_of_the_world() -> None:
    prompts = [foreign_skill_sample(seeded(seed), SPLIT, "rewrite").prompt for seed in range(20)]
    assert not any(name in prompt for prompt in prompts for name in TEST_NAMES)


def test_foreign_pairs_are_related_or_not_and_the_world_is_foreign_to_them() -> None:
    rng = seeded("foreign")
    samples = [foreign_skill_sample(rng, SPLIT, "relevance") for _ in range(200)]
    assert {sample.reply for sample in samples} == {"[[1]]", "[[4]]"}
    for sample in samples:
        found = RELEVANCE.search(sample.prompt)
        assert found
        words, told = set(found["question"].split()), set(found["problem"].split())
        if sample.reply == "[[4]]":
            assert told <= words
        else:
            assert len(words & told) < len(words)


def test_samples_are_about_the_names_that_they_are_given() -> None:
    training = Split(TRAIN_NAMES, TEST_TEMPLATES)
    rng = seeded("names")
    for skill in SKILLS:
        for _ in range(30):
            prompt = skill_sample(rng, training, skill).prompt
            assert not {name for _, name, _ in ABOUT.findall(prompt)} & set(TEST_NAMES)
