"""The words that BM25 counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever.index import tokenise
from tests.unit.cases import named


def test_tokens() -> None:
    cases = [
        ("Find the Value", ["find", "the", "value"]),
        (r"$\frac{1}{2}$", [r"\frac", "1", "2"]),
        (r"\boxed{12}", [r"\boxed", "12"]),
        ("x^2", ["x^2", "x", "2"]),
        ("x^{10}", ["x^10", "x", "10"]),
        ("a_n", ["a_n", "a", "n"]),
        ("a_{12}", ["a_12", "a", "12"]),
        ("sin^2x", ["sin", "2", "x"]),
        ("3x+4y", ["3", "x", "4", "y"]),
        ("3.14", ["3.14"]),
        ("the end.", ["the", "end"]),
        ("it's", ["it's"]),
        ("Café naïve", ["café", "naïve"]),
        ("8 nubp 7", ["8", "nubp", "7"]),
        ("", []),
        ("+ - = $ {}", []),
    ]
    assert {text: found for text, expected in cases if (found := named(tokenise, text)) != expected} == {}


@pytest.mark.parametrize("number", ["40000", "40,000", "40{,}000", r"40,\!000"])
def test_thousands_are_one_number(number: str) -> None:
    assert tokenise(f"${number}$") == ["40000"]


def test_a_list_of_numbers_is_not_one_number() -> None:
    assert tokenise("1, 2, 30") == ["1", "2", "30"]
    assert tokenise("(1,2345)") == ["1,2345"]


def test_chinese_is_characters_and_pairs() -> None:
    assert tokenise("三角形 x") == ["三", "角", "形", "三角", "角形", "x"]
    assert tokenise("面") == ["面"]
    assert tokenise("第2题") == ["第", "2", "题"]


def test_japanese_and_korean_are_treated_alike() -> None:
    assert tokenise("カナ") == ["カ", "ナ", "カナ"]
    assert tokenise("한글") == ["한", "글", "한글"]


def test_compatibility_forms_are_one_token() -> None:
    assert tokenise("ＡＢＣ １２") == ["abc", "12"]
    assert tokenise("café") == tokenise("café")


@given(st.text())
def test_any_text_has_lower_case_tokens_without_blanks(text: str) -> None:
    for token in tokenise(text):
        assert token == token.strip()
        assert token
        assert set(tokenise(token)) >= set(tokenise(token)[:1])


@given(st.lists(st.sampled_from(["find", "x^2", r"\frac", "12", "三角"]), max_size=8))
def test_blanks_separate(words: list[str]) -> None:
    assert tokenise(" ".join(words)) == [token for word in words for token in tokenise(word)]
