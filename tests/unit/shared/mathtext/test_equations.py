import contextlib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mathtext.approximation import Unsuitable, approximate
from shared.mathtext.equations import LONGEST, MOST_EQUATIONS, arithmetic, equations, formulas, verify
from shared.mathtext.reading import readings, symbolic, tokens
from shared.replies import Verified
from tests.unit.cases import named

# Equations of a text: where they stand, how chains and lines are cut, and whether they hold.


def verdicts(text: str) -> list[bool | None]:
    return [checked.holds for checked in arithmetic(text)]


def test_equations_are_found_where_they_stand() -> None:
    cases = [
        ("So $3+4=7$.", [True]),
        ("So $3+4=8$.", [False]),
        ("So 3+4=7, so 2*5=11.", [True, False]),
        (r"\[2\cdot 3 = 6 = 7\]", [True, False]),
        (r"\[2\cdot 3 = 6 = 7 - 2\]", [True, False]),
        (r"\(x = 3+4 = 7\)", [None, True]),
        ("$$1+1=2$$ and $1+1=3$", [True, False]),
        (r"\begin{align*} x &= 3+4 \\ &= 8 \end{align*}", [None, False]),
        (r"\begin{align*} 1+1 &= 2 \\ 3 &= 2+1 \end{align*}", [True, True]),
        (r"\begin{align*} 6 &= 1+2 \\ &\quad + 3 \\ &= 6 \end{align*}", [True, True]),
        (r"\[\begin{aligned} 10 &= 4 \\ &\qquad+6 \end{aligned}\]", [True]),
        (r"\begin{align*} 72 &= 6\cdot 12 \\ -12 &= 6 - 18 \end{align*}", [True, True]),
        (r"\begin{align*} 10 &= 12 \\ &- 2 = 10 \end{align*}", [True, True]),
        (r"\begin{align*} 5 &= 1 + \\ &\phantom{=} 2+2 \end{align*}", [True]),
        (r"$\boxed{x = 2+3 = 6}$", [None, False]),
        (r"$2+3=\boxed{5}$", [True]),
        (r"$1+1=2 \implies 2+2=5$", [True, False]),
        (r"$1+1=2 \text{ and } 2+2=5$", [True, False]),
        (r"$1+1=2,\quad 2+2=5$", [True, False]),
        ("步骤1：3+4=7，所以 5*5=26。", [True, False]),
        ("<<5*3=16>>16", [False]),
        ("$a < 2+2 = 5$", [False]),
        ("$2+3 = x = 6$", [None, False]),
        ("$2+3 = x = y = 5$", [None, None, True]),
        ("$2+3 < x = 6$", [None]),
        (r"$2+3 = \cdots = 6$", [None, None]),
        (r"$2+2 \ne 5$", []),
        ("$\\frac{1}{3} \\approx 0.33$", []),
        ("no equation at all", []),
        ("", []),
    ]  # fmt: skip
    wrong = {text: found for text, expected in cases if (found := named(verdicts, text)) != expected}
    assert wrong == {}


def test_what_may_be_right_is_not_called_wrong() -> None:
    texts = [
        "$x^2 = 9$", "$f(2) = 5$", "$A = 3$", r"$\text{Area} = 12$", "half of 12 = 6", "the sum of 3 and 4 = 7",
        "6 = 2 times 3", "the number 12 = 6", r"$5\text{ hours} = 300\text{ minutes}$", r"$5050 = 1+2+\cdots+100$",
        "$0 = 5$, which is impossible", "$-6 = 2$", r"$\frac{2}{3} = 0.67$", r"$3.14 \cdot 7 = 22$", r"$x = \pm 3$",
        r"$1/0 = 1$",
        r"$(1,2) = (1,3)$", r"$9^{9^{9^{9}}} = 1$", "$5:00 = 300$", "$ = 5$", "$5 =$", r"$\sqrt{2} = 3$", "2 x 3 = 6",
        r"$3(5\text{ cents}) = \$0.15$", "$1/5 = 20$ percent",
        "sqrt(16) = 5", "3 + log(100) = 6", "3 = 2 sqrt 4", "floor[2] = 3",
        r"the units digit of $7\cdot 3 = 1$", r"modulo 5, $2 \cdot 4 = 3$", r"$2 \equiv 7$ \pmod{n}",
        r"$2\equiv 8 \pmod n$",
    ]  # fmt: skip
    assert {text: found for text in texts if {True, False} & set(found := named(verdicts, text))} == {}


@pytest.mark.parametrize(
    "equation",
    [
        "1/3 = 0.3", "1/3 = 0.33", "1/7 = 0.14", "5/7 = 0.71", "2/3 = 0.67", "22/7 = 3.14", "1/6 = 0.17", "5/8 = 0.62",
        "5/8 = 0.63", "1000/7 = 142.9", "0.67 = 2/3", "-1/3 = -0.33", r"1/3 = 33\%", r"1/3 = 33.3\%", r"2/3 = 67\%",
        r"3 \cdot 0.33 = 1", r"7 \cdot 3.14 = 22", r"2^{40} = 1.1 \cdot 10^{12}", r"2 \cdot 0.33 = \frac{2}{3}",
        r"\frac13\text{ m} = 0.33\text{ m}",
    ],
)  # fmt: skip
def test_what_rounds_to_the_written_digits_is_not_refuted(equation: str) -> None:
    assert verdicts(f"So ${equation}$.") == [None]


@pytest.mark.parametrize(
    "equation",
    [
        "1/3 = 0.34", "1/3 = 0.332", "1/3 = 0.334", "1/7 = 0.15", "5/7 = 0.72", "2/3 = 0.66", "22/7 = 3.15",
        "1/6 = 0.16", "5/8 = 0.64", "1000/7 = 142.8", "0.66 = 2/3", "-1/3 = -0.34", r"1/3 = 34\%", r"1/3 = 33.4\%",
        r"2/3 = 66\%", r"3 \cdot 0.5 = 3", r"2^{40} = 1.2 \cdot 10^{12}", r"1/3 = 33/100", "10/3 = 3",
        r"\frac13\text{ m} = 0.34\text{ m}", "1/2 = 0.55",
    ],
)  # fmt: skip
def test_what_does_not_round_to_the_written_digits_is_refuted(equation: str) -> None:
    assert verdicts(f"So ${equation}$.") == [False]


def test_of_two_decimals_the_coarser_one_is_rounded() -> None:
    assert verdicts("$x = 1/3 = 0.333 = 0.33$") == [None, None, None]
    assert verdicts("$x = 1/3 = 0.333 = 0.34$") == [None, None, False]
    assert verdicts("$1/2 = 0.5 = 0.50$") == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        "$1000 \\cdot 2000 = 2$ million", "$10^6 \\cdot 3 \\cdot 10^6 = 3$ trillion", "$5 \\cdot 12 = 3$ score",
        "$12 + 12 = 2$ dozen", "$1/2 + 1/4 = 3$ quarters", "$1/4 = 25$ hundredths", "$1 + 1/2 = 3$ halves",
        "$3 + 6 = 3$ squared", "$1/4 = 25$ pct", "thrice 4 = 12", "3 quarters = 3/4", "16 = 2 doubled twice",
    ],
)  # fmt: skip
def test_a_number_that_a_word_goes_on_with_is_not_refuted(text: str) -> None:
    assert False not in verdicts(text)


def test_congruences_are_decided_by_the_modulus_that_they_name() -> None:
    cases = [
        (r"$7^{2} \equiv 4 \pmod 5$", True), (r"$7^2 \equiv 3 \pmod{5}$", False), (r"$17 \bmod 5 = 2$", True),
        (r"$17 \bmod 5 = 3$", False), (r"$2^{-1} \equiv 3 \pmod{5}$", True), (r"$2^{-1} \equiv 3 \pmod{4}$", None),
        (r"$12 \equiv 5 \text{ (mod 7)}$", None), (r"$12 \equiv 5\ (\text{mod}\ 7)$", True),
    ]  # fmt: skip
    wrong = {
        text: found
        for text, expected in cases
        if (found := named(verdicts, text)) != ([] if "(mod 7)}" in text else [expected])
    }
    assert wrong == {}


def test_what_a_program_assigns_is_no_claim() -> None:
    assert verdicts("Here:\n```python\n1 + 1 = 3\n```\nso 2 + 2 = 4.") == [True]
    assert verdicts("```\n1 + 1 = 3") == []


def test_an_equation_says_how_it_is_written() -> None:
    checked = arithmetic(r"We get $x = 2 + 3 = \boxed{6}$, so 1+1=3.")
    assert [each.text for each in checked] == ["x = 2 + 3", r"2 + 3 = \boxed{6}", "1+1=3"]


def test_unread_equations_are_counted_too() -> None:
    assert [each.read for each in equations(r"$\sum_i i = 5$, $1=1$")] == [False, True]


def test_drawings_are_no_mathematics() -> None:
    assert equations("[asy] size(5); 2+2 = 5; [/asy] $1+1=2$ [asy] 1+1=3;")[0].text == "1+1=2"
    assert len(equations("[asy] a=1; [/asy] $1+1=2$ [asy] 1+1=3;")) == 1


def test_a_delimiter_that_is_never_closed_hides_nothing() -> None:
    texts = ["$1+1=2", r"\[1+1=2", "1+1=2$", r"\$1+1=2", r"\begin{align*}1+1=2"]
    assert {text: found for text in texts if (found := named(verdicts, text)) != [True]} == {}


def test_a_formula_says_where_it_stands() -> None:
    text = "So 1+1=2 and $3=4$ or \\[5=6\\]."
    assert all(text[each.start :].startswith(each.text) for each in formulas(text))
    assert [each.text.strip() for each in formulas(text)] == ["1+1=2", "3=4", "5=6"]


def test_hostile_texts_end() -> None:
    texts = [
        "$" + "{" * 50_000 + "=", "$" + "1=" * 50_000 + "$", "1=" * 50_000, "$1=1$" * 20_000, "[asy]" * 20_000,
        "$9^9^9^9=1$" * 500, "$" + "9" * 100_000 + "=1$", "\\begin{align*}" * 5000, "$" * 50_000, "=" * 50_000,
        "$" + "\\frac" * 500 + "=1$", "$" + "x" * 3000 + "=1$", "$1" + "\\\\=1" * 900 + "$", "(" * 50_000 + "=1",
        "a " * 30_000 + "= 1", "$" + "1/2x" * 900 + "=1$", "1,234," * 10_000 + "=1", "\\text{" * 20_000 + "=",
    ]  # fmt: skip
    found = {(text[:20], len(text)): len(named(arithmetic, text)) for text in texts}
    assert {text: count for text, count in found.items() if count > MOST_EQUATIONS} == {}


def test_a_formula_that_is_too_long_is_not_read() -> None:
    assert verdicts("$1=" + "1+" * LONGEST + "1$") == [None]


@given(st.text("0123456789+-*/^_(){}[]|!%,.=\\$ abmodpfrctex\n&", max_size=200))
def test_no_text_raises_in_equations(text: str) -> None:
    assert all(checked.holds in (True, False, None) for checked in arithmetic(text))


@given(st.integers(-999, 999), st.integers(-999, 999), st.integers(1, 9))
def test_right_sums_are_right_and_changed_ones_wrong(left: int, right: int, change: int) -> None:
    assert verdicts(f"$({left}) + ({right}) = {left + right}$") == [True]
    assert verdicts(f"$({left}) + ({right}) = {left + right + change}$") == [False]


# What SymPy decides: irrational numbers, identities, and what it must not be asked.


def read(formula: str) -> Any:
    return readings(tokens(formula))[0]


def verdict(text: str) -> bool | None:
    found = verify(text)
    assert found.verified + found.refuted + found.unknown == 1
    return True if found.verified else False if found.refuted else None


def test_numbers_that_are_not_rational_are_compared() -> None:
    cases = [
        (r"$\sqrt{8} = 2\sqrt{2}$", True),
        (r"$\sqrt{8} = 3\sqrt{2}$", False),
        (r"$\sqrt{3+2\sqrt{2}} = 1+\sqrt{2}$", True),
        (r"$\sqrt[3]{-16} = -2\sqrt[3]{2}$", True),
        (r"$\frac{1}{\sqrt{3}} = \frac{\sqrt{3}}{3}$", True),
        (r"$\cos 60^\circ = \frac12$", True),
        (r"$\cos 60^\circ = \frac13$", False),
        (r"$\sin^2 15^\circ + \cos^2 15^\circ = 1$", True),
        (r"$\sin\frac{\pi}{6} = 0.5$", True),
        (r"$2\pi \cdot 3 = 6\pi$", True),
        (r"$2\pi \cdot 3 = 5\pi$", False),
        (r"$\log_2 8 = 3$", True),
        (r"$\log_2 8 = 4$", False),
        (r"$\lfloor 10\pi \rfloor = 31$", True),
        (r"$\sqrt{2} = 1.414$", None),
        (r"$\pi = 3.14$", None),
        (r"$\sqrt{2} = 1.5$", False),
        (r"$\sqrt{2} = 1.4$", None),
        (r"$\sqrt{2} = 1.42$", False),
        (r"$\sqrt{2} = 1.413$", False),
        (r"$\pi = 3.15$", False),
        (r"$25\pi = 25 \cdot 3.14$", None),
        (r"$\sqrt{2} = 2 \cdot 0.75$", False),
        (r"$\frac{1}{1800!} = \frac{1}{1802!}$", False),
        (r"$1-\frac{1}{2024!} = 1-\frac{1}{2025!}$", False),
        (r"$\frac{\sqrt2}{10^{50}} = \frac{\sqrt3}{10^{50}}$", False),
        (r"$\sqrt{2}^{-2001} = \sqrt{2}^{-2003}$", False),
        (r"$\sqrt{2} + 10^{-80} = \sqrt2$", False),
        (r"$\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt{6}} = 0$", True),
        (r"$\sin 30 = 0.5$", None),
        (r"$\log 100 = 2$", None),
        (r"$180^\circ = \pi$", None),
        (r"$\arctan 1 = 45^\circ$", None),
        ("$0 = 8$", None),
        ("$-6 = 2$", None),
        (r"$\cos 20^\circ (1 + 1) = 2 \cos 20^\circ$", True),
        (r"$\cos 2\pi = 1$", True),
        (r"$\frac{\pi}{3} = \frac{180^\circ}{\pi} \cdot \frac{\pi}{3}$", None),
    ]
    wrong = {text: found for text, expected in cases if (found := named(verdict, text)) is not expected}
    assert wrong == {}


def test_what_holds_for_all_values_is_verified_and_a_condition_is_not_refuted() -> None:
    cases = [
        ("$(a+b)^2 = a^2+2ab+b^2$", True),
        ("$(a+b)^2 = a^2+ab+b^2$", None),
        (r"$\frac{x^2-1}{x-1} = x+1$", True),
        (r"$\sin 2x = 2\sin x\cos x$", True),
        ("$2x = 6$", None),
        ("$x = 5$", None),
        (r"$\sqrt{x^2} = x$", None),
        ("$x_1 + x_2 = x_2 + x_1$", True),
        (r"$\alpha + \alpha = 2\alpha$", True),
        ("$x^{99} = x^{99}$", None),
        ("$(x+1)^{9^{9^9}} = 1$", None),
        (r"$5\text{ hours} = 300\text{ minutes}$", None),
        (r"$2\text{ m} + 3\text{ m} = 5\text{ m}$", True),
        (r"$f(x) = x^2$", None),
    ]
    wrong = {text: found for text, expected in cases if (found := named(verdict, text)) is not expected}
    assert wrong == {}


def test_the_imaginary_unit_is_one_where_it_is_said_to_be() -> None:
    assert verify("$(2+i)(2-i) = 5$") == Verified(verified=1, refuted=0, unknown=0)
    assert verify("$(2+i)(2-i) = 6$") == Verified(verified=0, refuted=0, unknown=1)
    assert verify("Complex numbers: $(2+i)(2-i) = 6$") == Verified(verified=0, refuted=1, unknown=0)


def test_a_document_is_counted_equation_by_equation() -> None:
    text = r"We have $x = 2+3 = 5$, so $\sqrt{50} = 5\sqrt{2}$ and $\sum_i i = 3$. But $1+1=3$."
    assert verify(text) == Verified(verified=2, refuted=1, unknown=2)
    assert verify("") == Verified(verified=0, refuted=0, unknown=0)


def test_sympy_is_not_given_what_it_would_compute_for_ever() -> None:
    formulas = [
        "9^{9^{9^{9}}}", "2^{99999}", r"x^{25}", r"2^{x^{y}}", r"\log 3", r"\sin 30", r"\binom{x}{2}", "x!",
        r"\gcd(x,2)",
    ]  # fmt: skip
    given_to_sympy = {}
    for formula in formulas:
        expression = named(read, formula)
        with contextlib.suppress(Unsuitable):
            given_to_sympy[formula] = named(symbolic, expression)
    assert given_to_sympy == {}


def test_approximations_are_what_the_expression_is_at_a_point() -> None:
    cases = [
        (r"\frac{x+1}{2}", 1.5), ("x^2 - x", 2), (r"|-x|", 2), (r"\sqrt{x+2}", 2), ("3!", 6), (r"\pi - \pi", 0),
        (r"\log_2 x", 1), (r"\ln 1", 0), (r"\cos(x-x)", 1), (r"\sec 0 + \csc 1 \cdot \sin 1 + \cot 1 \cdot \tan 1", 3),
    ]  # fmt: skip
    wrong = {
        formula: found
        for formula, expected in cases
        if (found := named(approximate, named(read, formula), {"x": 2 + 0j})) != pytest.approx(expected)
    }
    assert wrong == {}


def test_what_has_no_approximation_says_so() -> None:
    formulas = ["1/0", "9^{9^{9}}", "171!", "(1/2)!", r"\log 3", r"30^\circ", r"\ln 0"]
    approximated = {}
    for formula in formulas:
        expression = named(read, formula)
        with contextlib.suppress(ArithmeticError, ValueError):
            approximated[formula] = named(approximate, expression, {})
    assert approximated == {}


@given(st.text("0123456789+-*/^_(){}[]|!%,.=\\$ abisncoxrtpfqlg\n&", max_size=80))
def test_no_text_raises_in_verification(text: str) -> None:
    found = verify(text)
    assert min(found.verified, found.refuted, found.unknown) >= 0


def test_names_are_never_evaluated() -> None:
    text = "__import__('os').system('false') = 1, exec(1) = 1, $\\text{lambda}: x = 1$, S.Half = 1, $E = I$"
    assert verify(text).verified == verify(text).refuted == 0


def test_sympy_is_imported_only_by_whom_needs_it() -> None:
    code = "import sys; import shared.runtime.pins, shared.mathtext.equations; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
