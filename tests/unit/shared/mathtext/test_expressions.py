"""Expressions: what is read, what it may mean, and its exact value."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mathtext.expressions import MOST_BITS, Apply, NotRational, Number, Symbol, Undefined, exact, parts
from shared.mathtext.numbers import MOST_DIGITS
from shared.mathtext.reading import DEEPEST, MOST_TOKENS, Kind, Unread, readings, tokens
from tests.unit.cases import named


def value(formula: str, *, tex: bool = True) -> Fraction:
    return exact(readings(tokens(formula, tex=tex))[0])


def understood(formula: str) -> object:
    return readings(tokens(formula))


def outcome(formula: str) -> Fraction | type[Exception]:
    try:
        return value(formula)
    except (NotRational, Undefined, Unread) as error:
        return type(error)


def values(formula: str) -> set[Fraction]:
    return {exact(reading) for reading in readings(tokens(formula))}


def test_what_is_written_has_its_value() -> None:
    cases = [
        ("1+2*3", "7"), ("1-2-3", "-4"), ("-3^2", "-9"), ("(-3)^2", "9"), ("2^{3}^2", "512"), ("2^{-2}", "1/4"),
        ("8/4/2", "1"), ("2(3)(4)", "24"), (r"3\cdot-2", "-6"), ("+5", "5"), (r"6\div 4", "3/2"),
        (r"\frac12", "1/2"), (r"\frac{1}2", "1/2"), (r"\dfrac{3}{4}", "3/4"), (r"\frac{1+2}{3\times 4}", "1/4"),
        (r"\sqrt{16}", "4"), (r"\sqrt9", "3"), (r"\sqrt[3]{-27}", "-3"), (r"\sqrt{\frac{4}{9}}", "2/3"),
        ("4^{1/2}", "2"), (r"8^{\frac{2}{3}}", "4"), ("5!", "120"), ("3!^2", "36"), (r"\binom{5}{2}", "10"),
        (r"{5 \choose 2}", "10"), ("|2-5|", "3"), ("2|{-3}|", "6"), (r"\left|-7\right|", "7"),
        (r"\lfloor 7/2 \rfloor", "3"), (r"\lceil 7/2 \rceil", "4"), (r"\gcd(45,165)", "15"),
        (r"\text{lcm}(4, 6)", "12"), (r"\max(1,7,3)", "7"), ("1,234", "1234"), ("40{,}000", "40000"),
        (r"12,\!345", "12345"), ("3.14", "157/50"), (".5", "1/2"), (r"0.\overline{3}", "1/3"),
        (r"0.1\overline{6}", "1/6"), ("101_2", "5"), (r"\text{}7", "7"), ("ff", None), (r"\pi", None), ("2x", None),
        (r"\left(2+3\right)\!", "5"), (r"\mathbf{4}", "4"), (r"{2}{3}", "6"), ("2²", "4"), ("30^\\circ+15°", "45"),
    ]  # fmt: skip
    wrong = {
        formula: found
        for formula, expected in cases
        if (found := named(outcome, formula)) != (NotRational if expected is None else Fraction(expected))
    }
    assert wrong == {}


def test_what_may_mean_two_things_is_read_as_both() -> None:
    cases = [
        (r"2\frac{1}{2}", {"5/2", "1"}), (r"6\cdot 8\frac13", {"50", "16"}), (r"50\%", {"1/2", "50"}),
        ("6/2(3)", {"9", "1"}), (r"2\frac{3}{2}", {"3"}), (r"1.5\frac12", {"3/4"}),
    ]  # fmt: skip
    wrong = {
        formula: found
        for formula, expected in cases
        if (found := named(values, formula)) != {Fraction(each) for each in expected}
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("formula", "tex", "expected"), [("2^10", True, None), ("2^10", False, 1024), ("2^{10}", True, 1024)]
)  # fmt: skip
def test_texs_power_is_of_one_digit_and_a_plain_one_of_all(formula: str, tex: bool, expected: int | None) -> None:
    if expected is not None:
        assert value(formula, tex=tex) == expected
    else:
        with pytest.raises((Unread, NotRational)):
            value(formula, tex=tex)


def test_what_is_not_understood_is_not_read() -> None:
    formulas = [
        "", "+", "1+", "*3", "1 2", "x 2", "(1", "1)", "(1]", "2---3", "|3", r"\frac{1}", r"1+\cdots+9", r"1+\ldots",
        r"\sum_{i=1}^n i", r"x \pm 1", r"\int x", r"\sin^{-1} x", "1,2", r"\begin{pmatrix}1\end{pmatrix}", "1...2",
        r"\unknown{3}", r"\gcd 3", r"\gcd(3", r"3\&", "\\", "{1", "1}", "\x00", "12_{ab}", "12_1",
        "12_0", "9_2", "5:00",
    ]  # fmt: skip
    read = {}
    for formula in formulas:
        with contextlib.suppress(Unread):
            read[formula] = named(understood, formula)
    assert read == {}


def test_what_has_no_value_is_undefined() -> None:
    formulas = ["1/0", "0^{-1}", "0^0", "(-1)!", r"\frac{1}{2-2}", "(1/2)!"]
    assert {formula: found for formula in formulas if (found := named(outcome, formula)) is not Undefined} == {}


def test_what_is_large_or_irrational_has_no_exact_value() -> None:
    formulas = ["9^{9^{9^{9}}}", "2^{99999}", "100000!", r"\binom{5000}{2}", r"\sqrt2", r"\sqrt{-4}", "(2^{9999}+1)^9"]
    assert {formula: found for formula in formulas if (found := named(outcome, formula)) is not NotRational} == {}


def test_whole_powers_of_one_are_not_computed_step_by_step() -> None:
    assert (value("1^{9999999999}"), value("(-1)^{9999999999}"), value("0^{9999999999}")) == (1, -1, 0)


@given(st.integers(0, 10**12), st.integers(1, 7))
def test_roots_of_powers_are_exact(base: int, degree: int) -> None:
    assert value(rf"\sqrt[{degree}]{{{base**degree}}}") == base
    if degree > 1 and base > 1:
        with pytest.raises(NotRational):
            value(rf"\sqrt[{degree}]{{{base**degree + 1}}}")


SUMS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda each: f"({each[0]}{each[1]}{each[2]})"),
    max_leaves=12,
)


@given(SUMS)
def test_whole_numbers_are_computed_as_python_does(formula: str) -> None:
    assert value(formula) == eval(formula)  # noqa: S307 - made above, of digits and signs


@pytest.mark.parametrize(
    "formula", ["(" * 5000 + "1" + ")" * 5000, "\\sqrt" * 5000, "-" * 5000, "2^" * 5000 + "2", "|" * 5000]
)
def test_depth_is_bounded(formula: str) -> None:
    with pytest.raises(Unread):
        readings(tokens(formula))
    with pytest.raises(Unread):
        readings(tokens(formula)[: MOST_TOKENS - 1])


def test_what_is_as_deep_and_as_long_as_may_be_is_read() -> None:
    nested = "(" * (DEEPEST - 2) + "1" + ")" * (DEEPEST - 2)
    assert value(nested) == 1
    assert value("+".join(["1"] * (MOST_TOKENS // 2))) == MOST_TOKENS // 2


def test_numbers_are_bounded() -> None:
    assert tokens("9" * (MOST_DIGITS + 1))[0].kind is Kind.STRANGE
    assert value("9" * MOST_DIGITS).numerator.bit_length() < MOST_BITS


def test_units_are_told_from_names_and_have_powers_of_their_own() -> None:
    area = readings(tokens(r"24 \text{ cm}^2"))[0]
    assert area == Apply("*", (Number(Fraction(24)), Apply("^", (Symbol("cm", unit=True), Number(Fraction(2))))))
    assert readings(tokens(r"\text{Area}"))[0] == Symbol("Area")
    assert [part for part in parts(area) if isinstance(part, Symbol)] == [Symbol("cm", unit=True)]


@pytest.mark.parametrize("formula", ["2^.", r"\frac.5", "x^²", r"\sqrt.", "3_."])
def test_what_looks_like_the_beginning_of_a_number_is_none(formula: str) -> None:
    with pytest.raises(Unread):
        list(readings(tokens(formula)))


@given(st.text("0123456789+-*/^_(){}[]|!%,.=\\ abxfrcsqtin\n&", max_size=120))
def test_whatever_is_written_is_read_or_is_not(formula: str) -> None:
    written = tokens(formula)
    assert all(0 <= token.start < token.end <= len(formula) for token in written)
    try:
        for reading in readings(written):
            exact(reading)
    except (Unread, NotRational, Undefined):
        pass
