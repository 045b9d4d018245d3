"""Synonyms and corrections from the dictionary."""

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.rewriting import Dictionary, is_generic, is_one_edit_apart, make_dictionary
from shared.rag.text import find_formulas
from shared.settings import REPOSITORY

MATH = REPOSITORY.parent / "shared" / "data" / "math" / "train.jsonl"


@pytest.fixture(scope="module")
def shipped() -> Dictionary:
    return make_dictionary({})


@pytest.mark.parametrize(
    ("question", "synonyms"),
    [
        (
            "What is the GCD of 12 and 18?",
            ("greatest common divisor", "greatest common factor", "highest common factor"),
        ),
        ("How many primes are there?", ("prime number",)),
        ("Is 7 a prime number?", ()),
        ("What is the chance of rain?", ("probability", "likelihood")),
        ("Find $gcd(a, b)$.", ()),
        ("What is a zigzag?", ()),
    ],
)
def test_synonyms_of_the_terms_in_a_question(shipped: Dictionary, question: str, synonyms: tuple[str, ...]) -> None:
    assert shipped.synonyms(question) == synonyms


def test_a_chinese_question_gets_english_names_too(shipped: Dictionary) -> None:
    assert shipped.synonyms("这两个素数的和") == ("质数", "prime number", "prime")


def test_a_question_is_not_drowned_in_synonyms(shipped: Dictionary) -> None:
    many = shipped.synonyms("gcd, lcm, prime, divisor, remainder, integer, probability, permutation")
    assert len(many) == 8
    assert many[0] == "greatest common divisor"


def test_a_job_brings_its_own_terms() -> None:
    own = make_dictionary({"snark number": ("boojum", "蛇鲨数")})
    assert own.synonyms("Find the boojum") == ("snark number",)
    assert own.synonyms("蛇鲨数是多少个呢") == ("snark number", "boojum")
    assert own.correct("find the bojum").corrections == {}
    assert own.correct("find the booojum").corrections == {"booojum": "boojum"}
    assert own.synonyms("gcd")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("probablity", "probability"),
        ("traingle", "triangle"),
        ("perimiter", "perimeter"),
        ("hypotenusee", "hypotenuse"),
    ],
)
def test_a_misspelt_term_is_put_right(shipped: Dictionary, typed: str, meant: str) -> None:
    assert shipped.correct(f"Find the {typed} of it") == (f"Find the {meant} of it", {typed: meant})


@pytest.mark.parametrize(
    "question",
    [
        "the friction of a victor in a factory",
        "triangles, averaged values and circled numbers",
        "Hector Radiuss and Trapezoidd",
        r"Find $\text{perimiter}$ and perimiter_1",
        "fractoin" * 2,
        "a prme",
        "直角三角型和锐角三角形",
    ],
)
def test_what_is_not_surely_wrong_stays(shipped: Dictionary, question: str) -> None:
    assert shipped.correct(question) == (question, {})


def test_a_word_near_two_terms_stays() -> None:
    own = make_dictionary({"snarkle": (), "snarkie": ()})
    assert own.correct("the snarkue").corrections == {}


@pytest.mark.skipif(not MATH.exists(), reason="the MATH dataset is not here")
def test_no_right_word_of_math_is_corrected(shipped: Dictionary) -> None:
    with MATH.open() as lines:
        questions = [json.loads(line)["problem"] for line in islice(lines, 2000)]
    corrections = [shipped.correct(question).corrections for question in questions]
    assert [found for found in corrections if found] == []


@pytest.mark.parametrize(
    ("left", "right", "near"),
    [
        ("angle", "angles", True),
        ("angle", "anle", True),
        ("angle", "ankle", True),
        ("angle", "agnle", True),
        ("angle", "angle", False),
        ("angle", "elgna", False),
        ("angle", "agnel", False),
        ("aa", "aaaa", False),
        ("", "a", True),
    ],
)
def test_one_edit(left: str, right: str, near: bool) -> None:
    assert is_one_edit_apart(left, right) is is_one_edit_apart(right, left) is near


WORDS = st.text("abc", max_size=6)


@given(WORDS, WORDS)
def test_one_edit_is_what_one_edit_makes(left: str, right: str) -> None:
    made = {left[:i] + c + left[j:] for i in range(len(left) + 1) for j in (i, i + 1) for c in ("", *"abc")}
    made |= {left[:i] + left[i + 1] + left[i] + left[i + 2 :] for i in range(len(left) - 1)}
    assert is_one_edit_apart(left, right) is (right in made and right != left)


@given(
    st.lists(st.sampled_from(["probablity", "$probablity$", r"\(traingle\)", "求", "and", "x^traingle"]), max_size=6)
)
def test_no_formula_is_corrected(parts: list[str]) -> None:
    asked = " ".join(parts)
    held = [asked[start:end] for start, end in find_formulas(asked)]
    put_right = make_dictionary({}).correct(asked).question
    assert [put_right[start:end] for start, end in find_formulas(put_right)] == held
    assert put_right.count("x^traingle") == asked.count("x^traingle")


def test_generic_words_are_known_in_lower_case() -> None:
    assert is_generic("what")
    assert is_generic("测试")
    assert not is_generic("prime")
