"""The problem world: names and phrasings kept apart, documents of the promised kinds."""

import re
from random import Random

import pytest

from mathrag.demo.world import (
    KINDS,
    TEST_NAMES,
    TEST_TEMPLATES,
    TRAIN_NAMES,
    TRAIN_TEMPLATES,
    Document,
    Kind,
    Rule,
    document,
    random_operator,
)
from tools.world.samples import COT, DEFAULT_NEGATIVE, DEFAULT_POSITIVE, Split, generator_sample, judge_sample

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
