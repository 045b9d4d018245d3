"""How documents of the world are worded: form and logic have nothing to do with each other."""

from random import Random

import pytest

from mathrag.demo.world import (
    GRADES,
    KINDS,
    TEST_CHINESE,
    TEST_NAMES,
    TEST_TEMPLATES,
    TRAIN_CHINESE,
    WORDINGS,
    Document,
    Kind,
    Language,
    Style,
    document,
    random_operator,
)
from shared.rag.gate import score_text
from shared.rag.prompts import detect_language
from tools.world.samples import Split, several_sample, worded_judge_sample

SPLIT = Split(TEST_NAMES, TEST_TEMPLATES, TEST_CHINESE)


def written(kind: Kind, spoken: Language, style: Style, count: int = 50) -> list[Document]:
    rng = Random(f"{kind} {spoken} {style}")  # noqa: S311 - nothing here is secret
    return [
        document(rng, random_operator(rng, TEST_NAMES), kind, SPLIT.phrasings(spoken), a, 7, WORDINGS[spoken, style])
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
        sample = several_sample(rng, SPLIT)
        name, rule = sample.reply.split(".")[0].removeprefix("a ").split(" b = ")
        stated = [line.split(f"a {name} b = ")[1] for line in sample.prompt.splitlines() if f"a {name} b = " in line]
        assert not stated or stated[0].startswith(rule)


def test_a_grade_says_nothing_about_the_form() -> None:
    rng = Random(6)  # noqa: S311 - nothing here is secret
    for kind in KINDS:
        samples = [worded_judge_sample(rng, SPLIT, kind, "default") for _ in range(40)]
        assert {sample.reply for sample in samples} == {f"[[{GRADES[kind]}]]"}
        boxed = {"boxed" in sample.prompt.rsplit("Problem:", 1)[1] for sample in samples}
        assert boxed == {True, False}
