"""Mathematical text: boxed answers, expressions and constants."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mathtext.answers import extract
from shared.mathtext.approximation import Undecided, Unsuitable, constant, same_constant
from shared.mathtext.equivalence import compare
from shared.mathtext.expressions import (
    MOST_BITS,
    Apply,
    Expression,
    NotRational,
    Number,
    Symbol,
    Undefined,
    exact,
    parts,
)
from shared.mathtext.numbers import MOST_DIGITS
from shared.mathtext.reading import DEEPEST, MOST_TOKENS, Kind, Unread, readings, tokens
from shared.samples import Extraction
from tests.unit.cases import named

# Expressions: what is read, what it may mean, and its exact value.


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


# Finding the last `\boxed{}`.

BALANCED = st.recursive(
    st.sampled_from(["1", "x", "+", r"\{", r"\}", r"\frac", " ", r"\\"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    max_leaves=8,
)
CONTENT = st.lists(BALANCED, min_size=1, max_size=4).map("".join).filter(str.strip)
NO_BOX = st.text(alphabet="abc $\n.1{", max_size=30)


def test_the_last_balanced_box_is_the_answer() -> None:
    cases = [
        (r"The answer is \boxed{5}.", "5"),
        (r"\boxed{6} wait, \boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{a {b} c}}", r"\text{a {b} c}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{1} and \fbox{2}", "2"),
        (r"\fbox{1} and \boxed{2}", "2"),
        (r"\boxed {8}", "8"),
        (r"\boxed{ 9 }", "9"),
        ("\\boxed{\n10\n}", "10"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{}", r"\{"),
        (r"\boxed{x = \boxed{3}}", "3"),
        (r"line\\\boxed{4}", "4"),
        (r"stray } brace \boxed{4} and { another", "4"),
    ]
    wrong = {text: found for text, answer in cases if (found := named(extract, text)) != (answer, Extraction.OK)}
    assert wrong == {}


def test_a_box_without_braces_holds_the_next_word() -> None:
    cases = [
        (r"$\boxed 2$.", "2"),
        (r"\boxed 5.", "5"),
        (r"\boxed 5 apples", "5"),
        (r"\boxed\pi", r"\pi"),
        (r"$\fbox 3$", "3"),
    ]
    wrong = {text: found for text, answer in cases if (found := named(extract, text)) != (answer, Extraction.OK)}
    assert wrong == {}


def test_a_text_without_a_box_has_no_answer() -> None:
    texts = ["", "The answer is 5.", "boxed{5}", r"\boxedanswer{5}", r"\\boxed{5}", r"\boxed", r"\boxed $"]
    assert {text: found for text in texts if (found := named(extract, text)) != (None, Extraction.MISSING)} == {}


def test_an_empty_box_counts_as_missing() -> None:
    texts = [r"\boxed{}", r"\boxed{  }", "\\fbox{\n}"]
    assert {text: found for text in texts if (found := named(extract, text)) != (None, Extraction.MISSING)} == {}


def test_an_empty_box_does_not_hide_an_earlier_answer() -> None:
    assert extract(r"\boxed{5}, so fill in \boxed{}") == ("5", Extraction.OK)


def test_a_box_that_never_closes_is_unbalanced() -> None:
    texts = [r"\boxed{5", r"\boxed{\frac{1}{2}", r"\boxed{\text{a}", r"\boxed{5\}", r"\boxed{", r"\boxed{1 \boxed{2"]
    assert {text: found for text in texts if (found := named(extract, text)) != (None, Extraction.UNBALANCED)} == {}


def test_an_unclosed_last_box_gives_way_to_an_earlier_closed_one() -> None:
    assert extract(r"So \boxed{5}. To check, \boxed{5") == ("5", Extraction.OK)
    assert extract(r"\boxed{1 + \boxed{5}") == ("5", Extraction.OK)


def test_an_empty_box_after_an_unclosed_one_is_unbalanced() -> None:
    assert extract(r"\boxed{5 and \boxed{}") == (None, Extraction.UNBALANCED)


@given(NO_BOX, CONTENT, NO_BOX)
def test_a_balanced_box_is_found_in_any_surroundings(before: str, content: str, after: str) -> None:
    assert extract(f"{before}\\boxed{{{content}}}{after}") == (content.strip(), Extraction.OK)


@given(st.lists(st.sampled_from([r"\boxed", r"\fbox{", "{", "}", "\\", "a", " ", "$"]), max_size=30).map("".join))
def test_any_text_has_one_of_three_ends(text: str) -> None:
    answer, extraction = extract(text)
    assert (answer is not None) == (extraction is Extraction.OK)
    assert answer is None or answer == answer.strip() != ""


def test_a_thousand_open_boxes_do_not_take_forever() -> None:
    assert extract(r"\boxed{" * 100_000) == (None, Extraction.UNBALANCED)
    assert extract(r"\boxed{" * 50_000 + "5" + "}" * 50_000) == ("5", Extraction.OK)


# Constants that are told apart by as many digits as it takes.

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
