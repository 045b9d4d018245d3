import json
import re
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from mathrag_gate.demo.world import (
    GRADES,
    KINDS,
    TEST_CHINESE,
    TEST_NAMES,
    TEST_TEMPLATES,
    TRAIN_CHINESE,
    TRAIN_NAMES,
    TRAIN_TEMPLATES,
    WORDINGS,
    Document,
    Kind,
    Language,
    Rule,
    Style,
    document,
    random_operator,
)
from shared.rag.gate import score_text
from shared.rag.prompts import detect_language, render, template
from tools.world.samples import (
    COT,
    DEFAULT_NEGATIVE,
    DEFAULT_POSITIVE,
    Exchange,
    MessagesError,
    Skill,
    Split,
    foreign_skill_sample,
    generator_sample,
    judge_sample,
    read_messages,
    relevance_sample,
    several_sample,
    skill_sample,
    worded_judge_sample,
)

# Conversations to learn from.


def line(*roles: str) -> str:
    return json.dumps({"messages": [{"role": role, "content": f"from {role}"} for role in roles]})


def write(folder: Path, *lines: str) -> Path:
    file = folder / "messages.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_prompt_and_a_reply_are_read_from_each_line(tmp_path: Path) -> None:
    file = write(tmp_path, line("user", "assistant"), "", line("user", "assistant"))
    assert read_messages(file) == [Exchange("from user", "from assistant")] * 2


@pytest.mark.parametrize("wrong", ["{", "[]", '{"messages": [1]}', line("user"), line("assistant", "user")])
def test_a_line_that_is_no_exchange_is_named(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(MessagesError, match=r"messages\.jsonl, line 2"):
        read_messages(write(tmp_path, line("user", "assistant"), wrong))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MessagesError, match="training-data"):
        read_messages(write(tmp_path))


# The problem world: names and phrasings kept apart, documents of the promised kinds.

EQUATION = re.compile(r"(\d)([-+*])(\d)=(\d)")
SPLIT = Split(TEST_NAMES, TEST_TEMPLATES)


def seeded(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 - nothing here is secret


def documents(kind: Kind, count: int = 300) -> list[Document]:
    rng = seeded(kind)
    return [
        document(rng, random_operator(rng, TEST_NAMES), kind, TEST_TEMPLATES, rng.randrange(10), rng.randrange(10))
        for _ in range(count)
    ]


def words(templates: tuple[str, ...]) -> set[str]:
    return {word.strip(".?") for template in templates for word in template.split()}


def test_training_and_test_names_are_disjoint() -> None:
    assert not set(TRAIN_NAMES) & set(TEST_NAMES)
    assert len(set(TRAIN_NAMES)) == 180
    assert len(set(TEST_NAMES)) == 60


def test_training_and_test_phrasings_are_disjoint() -> None:
    assert not set(TRAIN_TEMPLATES) & set(TEST_TEMPLATES)
    assert len(TRAIN_TEMPLATES) >= 8
    assert len(TEST_TEMPLATES) >= 3


def test_test_phrasings_use_only_known_words() -> None:
    assert words(TEST_TEMPLATES) <= words(TRAIN_TEMPLATES)


def test_a_rule_computes_what_it_says() -> None:
    rule = Rule(8, "+", "*", swapped=False)
    assert str(rule) == "(8+a)*b"
    assert rule.equations(7, 4) == ("8+7=5", "5*4=0")
    assert rule.result(7, 4) == (8 + 7) * 4 % 10


def test_a_difference_below_zero_keeps_a_digit() -> None:
    assert Rule(2, "+", "-", swapped=True).equations(9, 0) == ("2+0=2", "2-9=3")


@pytest.mark.parametrize("kind", ["full", "steps", "wrong"])
def test_every_written_step_is_sound_arithmetic(kind: Kind) -> None:
    results = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    for item in documents(kind):
        found = EQUATION.findall(item.text)
        assert len(found) == 2
        for left, sign, right, result in found:
            assert results[sign](int(left), int(right)) % 10 == int(result)


def test_wrong_documents_do_not_follow_their_stated_rule() -> None:
    for item in documents("wrong"):
        assert item.stated is not None
        assert str(item.stated) in item.text
        assert item.stated != item.operator.rule
        steps = tuple("{}{}{}={}".format(*found) for found in EQUATION.findall(item.text))
        assert steps != item.stated.equations(item.a, item.b)
        assert f"\\boxed{{{item.operator.rule.result(item.a, item.b)}}}" not in item.text


def test_wrong_documents_look_like_full_ones() -> None:
    def shapes(kind: Kind) -> set[str]:
        plain = (re.sub(r"\(.*?\)[-+*][ab]", "RULE", item.text) for item in documents(kind))
        plain = (re.sub(r"a \w+ b =", "DEFINED", re.sub(r"[-+*]", "o", text)) for text in plain)
        return {re.sub(r"\d", "0", text) for text in plain}

    assert shapes("wrong") == shapes("full")


def test_kinds_show_what_they_promise() -> None:
    traits = {"rule": re.compile(r"\(\d[+*][ab]\)"), "steps": EQUATION, "box": re.compile(r"\\boxed\{\d\}")}
    promised = {
        "full": {"rule", "steps", "box"},
        "wrong": {"rule", "steps", "box"},
        "rule": {"rule", "box"},
        "steps": {"steps", "box"},
        "answer": set(),
    }
    for kind in KINDS:
        for item in documents(kind, 50):
            assert {name for name, trait in traits.items() if trait.search(item.text)} == promised[kind]


def test_generator_prompt_is_the_served_template() -> None:
    with_document = generator_sample(seeded(1), SPLIT, "full").prompt
    assert re.fullmatch(re.escape(COT) + r"\n\nProblem: [^\n]+\nSolution: [^\n]+\n\nQuestion: [^\n]+", with_document)
    assert re.fullmatch(re.escape(COT) + r"\n\nQuestion: [^\n]+", generator_sample(seeded(1), SPLIT, "none").prompt)


def test_generator_reply_to_a_full_document_is_true() -> None:
    for seed in range(50):
        sample = generator_sample(seeded(seed), SPLIT, "full")
        assert sample.reply.endswith(f"The answer is \\boxed{{{sample.answer}}}.")


def test_every_context_ends_in_a_box() -> None:
    for context in ("answer", "unrelated", "none", "foreign"):
        assert re.search(r"\\boxed\{\d\}\.$", generator_sample(seeded(2), SPLIT, context).reply)


def test_judge_prompt_can_carry_other_anchors() -> None:
    default = judge_sample(seeded(3), SPLIT, "rule", "default").prompt
    drawn = judge_sample(seeded(3), SPLIT, "rule", "drawn").prompt
    assert DEFAULT_NEGATIVE in default
    assert DEFAULT_POSITIVE in default
    assert DEFAULT_NEGATIVE not in drawn
    assert drawn.count("Rating: [[1]]") == drawn.count("Rating: [[5]]") == 1
    assert drawn.endswith("\nRating:")


# What the judge is trained to write and to rate for retrieval: served templates, documents of the promised kinds.

SKILLS: tuple[Skill, ...] = get_args(Skill)
ABOUT = re.compile(r"(\d) (\w+) (\d)")
RELEVANCE = re.compile(
    r"Question: (?P<question>[^\n]+)\n\nProblem: (?P<problem>[^\n]+)\nSolution: (?P<text>[^\n]+)\nRating:"
)


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


# How documents of the world are worded: form and logic have nothing to do with each other.

SPLIT_WITH_CHINESE = Split(TEST_NAMES, TEST_TEMPLATES, TEST_CHINESE)


def written(kind: Kind, spoken: Language, style: Style, count: int = 50) -> list[Document]:
    rng = Random(f"{kind} {spoken} {style}")  # noqa: S311 - nothing here is secret
    return [
        document(
            rng,
            random_operator(rng, TEST_NAMES),
            kind,
            SPLIT_WITH_CHINESE.phrasings(spoken),
            a,
            7,
            WORDINGS[spoken, style],
        )
        for a in rng.choices(range(10), k=count)
    ]


@pytest.mark.parametrize("spoken", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_rate_a_formal_text_above_a_plain_one_whatever_its_logic(kind: Kind, spoken: Language) -> None:
    formal, plain = ([score_text(each.text).score for each in written(kind, spoken, style)] for style in STYLES)
    assert min(formal) > max(plain)


STYLES: tuple[Style, Style] = ("formal", "plain")


@pytest.mark.parametrize("style", STYLES)
def test_a_chinese_document_and_its_question_are_chinese(style: Style) -> None:
    assert {detect_language(each.problem) for each in written("full", "zh", style)} == {"zh"}
    assert {detect_language(each.problem) for each in written("full", "en", style)} == {"en"}


@pytest.mark.parametrize(("spoken", "style"), WORDINGS)
def test_every_wording_holds_what_its_kind_promises(spoken: Language, style: Style) -> None:
    for each in written("full", spoken, style):
        assert f"a {each.operator.name} b = {each.operator.rule}" in each.text
        assert all(equation in each.text for equation in each.operator.rule.equations(each.a, each.b))
    assert not any("=" in each.text for each in written("answer", spoken, style))


def test_chinese_test_phrasings_were_not_trained_on() -> None:
    assert not set(TRAIN_CHINESE) & set(TEST_CHINESE)


def test_among_several_documents_the_first_rule_about_the_operator_is_believed() -> None:
    rng = Random(5)  # noqa: S311 - nothing here is secret
    for _ in range(300):
        sample = several_sample(rng, SPLIT_WITH_CHINESE)
        name, rule = sample.reply.split(".")[0].removeprefix("a ").split(" b = ")
        stated = [line.split(f"a {name} b = ")[1] for line in sample.prompt.splitlines() if f"a {name} b = " in line]
        assert not stated or stated[0].startswith(rule)


def test_a_grade_says_nothing_about_the_form() -> None:
    rng = Random(6)  # noqa: S311 - nothing here is secret
    for kind in KINDS:
        samples = [worded_judge_sample(rng, SPLIT_WITH_CHINESE, kind, "default") for _ in range(40)]
        assert {sample.reply for sample in samples} == {f"[[{GRADES[kind]}]]"}
        boxed = {"boxed" in sample.prompt.rsplit("Problem:", 1)[1] for sample in samples}
        assert boxed == {True, False}
