"""Constants that are told apart by as many digits as it takes."""

import pytest

from shared.mathtext.approximation import Undecided, Unsuitable, constant, same_constant
from shared.mathtext.equivalence import compare
from shared.mathtext.expressions import Expression
from shared.mathtext.reading import readings, tokens
from tests.unit.cases import named

NAMES = {"i": "j", "e": "e"}


def read(formula: str) -> Expression:
    return readings(tokens(formula))[0]


def same(one: str, other: str) -> bool:
    return same_constant(read(one), read(other), NAMES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\sqrt2+\sqrt3-\sqrt{5+2\sqrt6}", "0"), (r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}", "1"), ("e^{i\\pi}", "-1"),
        (r"\sqrt{2}^{-2001}", r"\frac{1}{2^{1000}\sqrt2}"), (r"\cos 36^\circ", r"\frac{1+\sqrt5}{4}"),
        (r"\sqrt[3]{-16}", r"-2\sqrt[3]{2}"), (r"\lfloor \sqrt2\sqrt2 \rfloor", "2"), (r"\lfloor 10\pi \rfloor", "31"),
        (r"\log_2 \sqrt8", "1.5"), (r"\sqrt{-4}", "2i"), (r"\sqrt2\cdot5!", r"120\sqrt2"),
        (r"\binom{5}{2}\pi", r"10\pi"), (r"\pi\cdot 5\%", r"\frac{\pi}{20}"),
    ],
)  # fmt: skip
def test_what_is_the_same_constant_is_told_to_be(one: str, other: str) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("e^{-1000}", "e^{-1001}"), (r"\sqrt2-\frac{1}{2024!}", r"\sqrt2"), (r"\ln(1+10^{-70})", "0"),
        (r"\sqrt2-\frac{1}{2024!}", r"\sqrt2-\frac{1}{2025!}"),
        (r"\frac{\sqrt2}{10^{50}}", r"\frac{\sqrt3}{10^{50}}"), (r"\pi+10^{-3000}", r"\pi"), ("2^{1000000}", "5"),
        (r"\sqrt2+\sqrt3-\sqrt{5+2\sqrt6}", "10^{-90}"), (r"e^{\pi\sqrt{163}}", "262537412640768744"),
        (r"(1+\sqrt2)^{99999}", r"(1+\sqrt2)^{99998}"), (r"i\cdot10^{-70}", r"2i\cdot10^{-70}"),
    ],
)  # fmt: skip
def test_what_differs_far_behind_the_point_is_told_apart(one: str, other: str) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        ("2^{1000000}", "4^{500000}", Undecided), (r"\sqrt2\cdot2^{1000000}+1", r"\sqrt2\cdot4^{500000}", Undecided),
        (r"\tan 90^\circ", "5", Unsuitable), ("9^{9^{9^9}}", "5", Unsuitable), (r"\sin 30", "0.5", Unsuitable),
        (r"\log 100", "2", Unsuitable), ("x", "x", Unsuitable), (r"\frac{1}{\sqrt2\sqrt2-2}", "5", ArithmeticError),
        (r"\ln 0", "0", (ArithmeticError, ValueError)), ("30000!", "1", Unsuitable),
        (r"\sin 10^{99999}\pi", "0", Unsuitable), (r"\sqrt2!", "1", Unsuitable),
        (r"\binom{\sqrt2}{2}", "1", Unsuitable), (r"\lfloor 10^{400}\pi \rfloor", "1", Unsuitable),
    ],
)  # fmt: skip
def test_what_cannot_be_told_says_so(one: str, other: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        named(same, one, other)


def test_an_answer_that_no_number_of_digits_decides_has_no_verdict() -> None:
    assert compare(r"\sqrt2\cdot2^{1000000}+1", r"\sqrt2\cdot4^{500000}") is None


def test_a_constant_has_the_digits_that_are_asked_for() -> None:
    assert str(constant(read(r"\sqrt2"), digits=30)).startswith("1.4142135623")
    assert abs(constant(read(r"\sqrt2"), digits=90) ** 2 - 2) < 1e-15
