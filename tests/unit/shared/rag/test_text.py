import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.fusion import measure_diversity
from shared.rag.text import (
    TermWeights,
    are_alike,
    cosine,
    estimate_tokens,
    extract_terms,
    find_formulas,
    make_shingles,
    split_sentences,
)
from tests.unit.datasets import DATA, needs

# Sentences of texts with mathematics, in English and Chinese, and how many tokens a text has.


PIECES = st.sampled_from(
    [
        "Let ", "x. ", "Y ", "3.14 ", "e.g. ", "$", "$$", r"\[", r"\]", r"\(", r"\)", "{", "}", r"\begin{align}",
        r"\end{align}", "! ", "? ", ".", "\n", "\n\n", "1. ", "好。", "吗？", "”", r"\$", "\\", "[asy]", "[/asy]",
        "So ",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("One", ["One"]),
        ("One. Two! Three?", ["One. ", "Two! ", "Three?"]),
        ("It is 3.14. Then 40,000.5 follow.", ["It is 3.14. ", "Then 40,000.5 follow."]),
        ("See Fig. 3, e.g. the left one. Next.", ["See Fig. 3, e.g. the left one. ", "Next."]),
        ("A proof by J. Smith is known. It is short.", ["A proof by J. Smith is known. ", "It is short."]),
        ('He said "yes." She left.', ['He said "yes." ', "She left."]),
        ("1. First add. 2 is even.\n2. Then halve.", ["1. First add. ", "2 is even.\n", "2. Then halve."]),
        ("The end\n\nA new one", ["The end\n\n", "A new one"]),
        ("a line\nthat goes on. Then", ["a line\nthat goes on. ", "Then"]),
        ("a wing in a slipstream . an experiment", ["a wing in a slipstream . ", "an experiment"]),
        ("Why?! Because.", ["Why?! ", "Because."]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Let $x = 1. y$ be. So.", ["Let $x = 1. y$ be. ", "So."]),
        ("Let $ x. y $ be. So.", ["Let $ x. y $ be. ", "So."]),
        (r"We have \[x = 5. y\] here. So.", [r"We have \[x = 5. y\] here. ", "So."]),
        (r"We have \[x = 5.\]Find it.", [r"We have \[x = 5.\]", "Find it."]),
        (r"It is $x = 5.$ Then", ["It is $x = 5.$ ", "Then"]),
        (r"It is $$x = 5.$$ Then", ["It is $$x = 5.$$ ", "Then"]),
        (
            "\\begin{align*}\na. \\\\\n\n\\begin{matrix} b. c \\end{matrix}\n\\end{align*} d. e",
            ["\\begin{align*}\na. \\\\\n\n\\begin{matrix} b. c \\end{matrix}\n\\end{align*} d. ", "e"],
        ),
        (r"So \boxed{a. b}. End", [r"So \boxed{a. b}. ", "End"]),
        ("[asy]\ndraw(a); // it. is\n\nlabel(b);\n[/asy] So. End", [
            "[asy]\ndraw(a); // it. is\n\nlabel(b);\n[/asy] So. ", "End"
        ]),
    ],
)  # fmt: skip
def test_no_sentence_ends_inside_a_formula(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_an_amount_of_money_begins_no_formula() -> None:
    assert split_sentences("It costs $5. She pays $6. Done.") == ["It costs $5. ", "She pays $6. ", "Done."]
    assert split_sentences(r"It costs \$5. She pays \$6.") == [r"It costs \$5. ", r"She pays \$6."]


def test_what_never_closes_is_no_formula() -> None:
    assert split_sentences(r"Let $x. So \[y. And {z. End") == ["Let $x. ", r"So \[y. ", "And {z. ", "End"]


def test_chinese_sentences_need_no_blank() -> None:
    text = "鸭子每天下 16 颗蛋。她吃 3.5 颗！“真的？”他问。"
    assert split_sentences(text) == ["鸭子每天下 16 颗蛋。", "她吃 3.5 颗！", "“真的？”", "他问。"]


@given(TEXTS)
def test_nothing_is_lost_and_no_formula_is_cut(text: str) -> None:
    found = split_sentences(text)
    assert "".join(found) == text
    assert all(found)
    ends = {sum(map(len, found[:count])) for count in range(1, len(found))}
    assert not any(start < end < stop for end in ends for start, stop in find_formulas(text))


@given(TEXTS)
def test_formulas_are_in_order_and_apart(text: str) -> None:
    spans = find_formulas(text)
    assert all(start < end for start, end in spans)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))


@pytest.mark.parametrize("hostile", ["!" * 50_000 + "x", r"\[" * 20_000 + "}" * 20_000, "$a" * 20_000, ". " * 20_000])
def test_a_hostile_text_is_cut_in_a_moment(hostile: str) -> None:
    assert "".join(split_sentences(hostile)) == hostile


@needs("math")
def test_every_solution_of_math_comes_back_whole() -> None:
    with (DATA / "math" / "train.jsonl").open(encoding="utf-8") as file:
        solutions = [json.loads(line)["solution"] for line, _ in zip(file, range(1000), strict=False)]
    found = [split_sentences(solution) for solution in solutions]
    assert ["".join(each) for each in found] == solutions
    assert sum(len(each) > 1 for each in found) > 800


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), (" \n", 0), ("four", 1), ("fives", 2), ("x^2", 3), (r"\frac", 2), ("每天下16", 5)]
)
def test_tokens_are_letters_by_four_and_signs_by_one(text: str, expected: int) -> None:
    assert estimate_tokens(text) == expected


@given(TEXTS, TEXTS)
def test_two_texts_never_have_more_tokens_together_than_apart(left: str, right: str) -> None:
    assert estimate_tokens(left + right) <= estimate_tokens(left) + estimate_tokens(right)


# Texts that say the same, and how different the documents of a list are.

TEXT = "the product of all of the roots of this monic polynomial is its last coefficient"


def test_shingles_are_three_neighbours() -> None:
    assert make_shingles("abcd") == {("a", "b", "c"), ("b", "c", "d")}
    assert make_shingles("ab") == {("a", "b")}
    assert make_shingles("") == frozenset()


def test_texts_are_alike_from_four_fifths_on() -> None:
    ten = make_shingles("abcdefghijkl")
    assert len(ten) == 10
    assert are_alike(ten, make_shingles("abcdefghij"))
    assert not are_alike(ten, make_shingles("abcdefghi"))
    assert not are_alike(frozenset(), frozenset())
    assert not are_alike(ten, frozenset())


def test_copies_are_not_diverse_and_strangers_are() -> None:
    assert measure_diversity([TEXT, TEXT, TEXT]) == pytest.approx(0)
    assert measure_diversity(["one two", "three four"]) == 1
    assert 0 < measure_diversity([TEXT, "the roots of this polynomial are real"]) < 1


def test_one_document_is_not_diverse() -> None:
    assert measure_diversity([TEXT]) == measure_diversity([]) == 0


def test_order_does_not_change_diversity() -> None:
    texts = [TEXT, "the roots are real", "music"]
    assert measure_diversity(texts) == pytest.approx(measure_diversity(texts[::-1]))


# Texts as weighted terms.


def test_terms_are_words_numbers_and_commands() -> None:
    assert extract_terms(r"The \frac{1}{2} of 40,000 = Émile's x_1!") == [
        "the", r"\frac", "1", "2", "of", "40,000", "émile", "s", "x", "1",
    ]  # fmt: skip


def test_chinese_becomes_pairs() -> None:
    assert extract_terms("鸭子每天下 16 颗蛋 好") == ["鸭子", "子每", "每天", "天下", "16", "颗蛋", "好"]


def test_idf_follows_its_formula() -> None:
    weights = TermWeights([["a", "b"], ["a", "a"], ["a"]])
    assert weights.idf("a") == 1.0
    assert weights.idf("b") == pytest.approx(math.log(4 / 2) + 1)
    assert weights.idf("unseen") == pytest.approx(math.log(4) + 1)


def test_a_vector_has_length_one_and_counts_terms() -> None:
    vector = TermWeights([["a"], ["b"]]).vector(["a", "a", "b"])
    assert vector["a"] == pytest.approx(2 * vector["b"])
    assert math.hypot(*vector.values()) == pytest.approx(1)


def test_a_text_without_terms_is_like_nothing() -> None:
    weights = TermWeights([[]])
    assert weights.vector([]) == {}
    assert cosine({}, {}) == cosine({}, {"a": 1.0}) == 0.0


def test_cosines_lie_between_nothing_shared_and_the_same() -> None:
    weights = TermWeights([["a", "b"], ["b", "c"], ["d"]])
    ab, bc, d = (weights.vector(each) for each in (["a", "b"], ["b", "c"], ["d"]))
    assert cosine(ab, ab) == pytest.approx(1.0)
    assert cosine(ab, d) == 0.0
    assert 0 < cosine(ab, bc) == cosine(bc, ab) < 1
