"""Hendrycks' string rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mathtext.mathematics import equal_strict, normalise
from tests.unit.cases import named

STRICT_PIECES = st.sampled_from(
    [
        r"\frac",
        r"\sqrt",
        r"\dfrac",
        "1",
        "2",
        "x",
        "{",
        "}",
        "/",
        "=",
        " ",
        r"\text{ ",
        r"\left",
        ".",
        "0",
        "%",
        r"\%",
        r"\$",
    ]
)
LATEX = st.lists(STRICT_PIECES, max_size=8).map("".join)


def test_the_published_pairs_are_equal() -> None:
    pairs = [
        (r"\tfrac{1}{2} +\! \frac1{72}", r"\\dfrac{1}{2} +\frac{1}{72}"),
        (r"10\text{ units}", "10 "),
        ("10", r"\$10"),
        (r"\left(x-2\right)\left(x+2\right)", "(x-2)(x+2)"),
        ("0.1", ".1"),
        (r"10\%", "10"),
        (r"10\sqrt{3} + \sqrt4", r"10\sqrt3 + \sqrt{4}"),
        (r"\frac34i", r"\frac{3}{4}i"),
        (r"\tfrac83", r"\frac{8}{3}"),
        ("1/2", r"\frac{1}{2}"),
    ]
    assert [pair for pair in pairs if not named(equal_strict, *pair)] == []


def test_the_published_pairs_are_different() -> None:
    pairs = [
        (r"\tfrac{1}{2} + \frac1{72}", r"\\frac{1}{2} + 2/3"),
        ("10, 4, -2", "4, 10, -2"),
        ("10, 4, 2", "4, 12, 2"),
        (r"10\text{ units}", "100 "),
        ("0.1, 4, 2", "4, .1, 2"),
        ("5x - 7y + 11z + 4 = 0", "x + y - z + 2 = 0"),
    ]
    assert [pair for pair in pairs if named(equal_strict, *pair)] == []


def test_each_rule_by_itself() -> None:
    cases = [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        (r"\frac{72}1", r"\frac{72}1"),
        (r"\frac12\frac34", r"\frac{1}{2}\frac{3}{4}"),
        ("0.5", r"\frac{1}{2}"),
        (".5", r"\frac{1}{2}"),
        ("-3/4", r"\frac{-3}{4}"),
        ("a/b", "a/b"),
        ("1/2/3", "1/2/3"),
        ("01/2", "01/2"),
        ("x=5", "5"),
        ("x = 5", "5"),
        ("xy=5", "5"),
        ("xyz=5", "xyz=5"),
        ("x=y=5", "x=y=5"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"90^\circ", "90"),
        (r"90^{\circ}", "90"),
        (r"\$1{,}000", "1{,}000"),
        ("50%", "50"),
        (r"\left[ 0, 1 \right)", "[0,1)"),
        (r"(.5, {.25})", "(.5,{0.25})"),
        ("a\nb", "ab"),
        (r"12\text{ cm}^2", "12"),
        ("", ""),
    ]
    wrong = {text: found for text, normal in cases if (found := named(normalise, text)) != normal}
    assert wrong == {}


def test_strict_means_no_algebra() -> None:
    pairs = [("2/4", "1/2"), ("5.0", "5"), ("1,000", "1000"), (r"\text{yes}", "yes"), ("(1,2)", "[1,2]"), ("", "0")]
    assert [pair for pair in pairs if named(equal_strict, *pair)] == []


@pytest.mark.parametrize("broken", [r"5\text{ cm}\text{ long}", r"3\sqrt", r"\frac", r"2\frac "])
def test_what_the_rules_cannot_read_only_equals_itself(broken: str) -> None:
    assert equal_strict(broken, broken)
    assert not equal_strict(broken, broken + " ")
    assert not equal_strict(broken.split("\\")[0], broken)


@given(LATEX, LATEX)
def test_equality_is_reflexive_and_symmetric(one: str, other: str) -> None:
    assert equal_strict(one, one)
    assert equal_strict(one, other) == equal_strict(other, one)


@given(st.text(), st.text())
def test_any_text_can_be_compared(one: str, other: str) -> None:
    assert equal_strict(one, other) == equal_strict(other, one)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_reads_the_same_in_every_spelling(a: int, b: int) -> None:
    spellings = [
        f"{a}/{b}",
        rf"\frac{{{a}}}{{{b}}}",
        rf"\dfrac{{{a}}}{{{b}}}",
        rf"\tfrac {{{a}}} {{{b}}}",
        f"x={a}/{b}",
    ]
    assert all(equal_strict(one, other) for one in spellings for other in spellings)
    assert not equal_strict(f"{a}/{b}", f"{a}/{b + 1}")
