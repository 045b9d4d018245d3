"""One spelling for a problem, whatever it was written with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.duplicates import is_same_text, list_problem_tokens, list_tokens

PROBLEM = r"What is the smallest $x$ with $\frac{1}{2} \le x^2$?"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{2}", r"\frac12"),
        (r"\frac{1}{2}", r"\frac 1{2}"),
        (r"\frac{a}{12}", r"\cfrac a{12}"),
        (r"\frac{\pi}{2}", r"\frac\pi2"),
        (r"\frac{x+1}{2}", r"\tfrac{{x+1}}2"),
        (r"\frac{1}{2}", r"{1 \over 2}"),
        (r"\sqrt{2}", r"\sqrt2"),
        (r"\sqrt[3]{8}", r"\sqrt [3] 8"),
        (r"\binom{n}{k}", r"\dbinom nk"),
        (r"\binom{n}{k+1}", r"{n \choose k+1}"),
        ("x^{2}", "x^2"),
        ("a_{1}", "a_1"),
        (r"x^{\frac{1}{2}}", r"x^\frac12"),
        (r"60^{\circ}", r"60^\circ"),
        (r"f^{\prime\prime}(x)", "f''(x)"),
        (r"\overline{x}", r"\overline x"),
        (r"\log_{8} 2", r"\log_82"),
    ],
)
def test_an_argument_of_one_character_needs_no_braces(one: str, other: str) -> None:
    assert is_same_text(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"x \leq 3", r"x \leqslant 3"),
        (r"x \geqslant 3", "x >= 3"),
        (r"x \neq 3", r"x \not= 3"),
        (r"1, \ldots, n", r"1, \dots, n"),
        (r"1 + \cdots + n", "1 + ... + n"),
        (r"x \to 0", r"x \rightarrow 0"),
        (r"\lvert x \rvert", "|x|"),
        (r"a \mid b", "a | b"),
        (r"\left( \frac{1}{2} \right)", r"\Bigl( \frac{1}{2} \Bigr)"),
        (r"a\,b\;c\!d\quad e", "a b c d e"),
        (r"5 \text{ cm}", r"5 \mathrm{cm}"),
        (r"\textbf{Find} \emph{all} $x$", "Find all $x$"),
        (r"\operatorname{lcm}(a, b)", r"\text{lcm}(a, b)"),
        (r"\sin x", "sin x"),
        (r"2 \times 3", r"2 \cdot 3"),
        (r"a \times b", "a * b"),
        (r"a \equiv b \pmod{5}", r"a \equiv b (\bmod 5)"),
        (r"\$5 and 20\%", "$5 and 20%"),
        (r"\(x\) and \[y\]", "$x$ and $$y$$"),
        (r"\[x = 1\]", r"\begin{equation*}x = 1\end{equation*}"),
        (r"\begin{align*} x &= 1 \\ y &= 2 \end{align*}", "$x = 1$ $y = 2$"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\left(\begin{array}{c} 1 \\ 2 \\ \end{array}\right)"),
        (r"\triangle ABC", r"\triangle A B C"),
        ("1{,}000 and .5", "1,000 and 0.5"),
    ],
)
def test_synonyms_and_formatting_make_no_other_text(one: str, other: str) -> None:
    assert is_same_text(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{2}", "½"),
        (r"2\frac{3}{4}", "2¾"),
        ("x^{12}", "x¹²"),
        ("x^{-1} + a_{n}", "x⁻¹ + aₙ"),
        (r"\sqrt{2} + \sqrt{12} + \sqrt{x+1}", "√2 + √12 + √(x+1)"),
        (r"\sqrt[3]{8}", "∛8"),
        (r"x \le \pi", "x ≤ π"),
        (r"x \ge \infty, x \ne \emptyset", "x ≥ ∞, x ≠ ∅"),
        (r"2 \times 3 \div 4 \cdot 5", "2 × 3 ÷ 4 · 5"),
        (r"\angle ABC = 90^\circ", "∠ABC = 90°"),
        (r"x \in \mathbb{R}", "x ∈ ℝ"),
        (r"1, \dots, n \to \alpha", "1, …, n → α"),
        (r"\lfloor x \rfloor", "⌊x⌋"),
        ("$x + y$", "𝑥 + 𝐲"),
        ("3 + 4 = (7)", "３＋４＝（７）"),
        ("5 - 3", "5 − 3"),
        ("5-3", "5–3"),
        ('the "set" of Tom\'s', "the “set” of Tom’s"),
        ("f'(x)", "f′(x)"),
        ("a < b & c > d", "a &lt; b &amp; c &gt;&nbsp;d"),
        ("a < b", "a &#60; b"),
        ("solution", "\ufeffso\u00adlu\u200btion"),
    ],
)
def test_characters_and_entities_are_what_they_stand_for(one: str, other: str) -> None:
    assert is_same_text(one, other)


@pytest.mark.parametrize(
    "prompt",
    [
        "{}\nPlease reason step by step, and put your final answer within \\boxed{}.",
        "{} Let’s think step by step.",
        "{} Let's think step by step and output the final answer within \\boxed{}.",
        "Problem: {}",
        "**Problem 12.** {}",
        "## Question\n{}\n\n## Answer\n",
        "Q: {}\nA:",
        "Problem:\n{}\n\nSolution:",
        "Solve the following math problem: {}",
        "Answer the question below.\n\n{}",
        "Solve this problem: {}\nShow your work.",
        (
            'Solve the following math problem step by step. The last line of your response should be "Answer: $ANSWER" '
            '(without quotes).\n\n{}\n\nRemember to put your answer on its own line after "Answer:".'
        ),
        (
            "Below is an instruction that describes a task. Write a response that completes the request.\n\n"
            "### Instruction:\n{}\n\n### Response: Let's think step by step."
        ),
        "{}\n请逐步推理，并将最终答案放在\\boxed{}中。",
        "题目：{}请通过逐步推理来解答问题，并把最终答案放置于\\boxed{}中。",
        "请解答下面的数学问题：{}\n答案：",
    ],
)
@pytest.mark.parametrize("problem", [PROBLEM, "小明有3个苹果，又买了5个。他一共有几个苹果？"])
def test_a_prompt_around_a_problem_is_no_part_of_it(prompt: str, problem: str) -> None:
    assert is_same_text(prompt.replace("{}", problem, 1), problem)


@pytest.mark.parametrize(
    "text",
    [
        "Express your answer as a common fraction.",
        "Find the answer to the question that Tom asked.",
        "The frog solves the problem in 3 steps. Which one?",
        "Question the result.",
        "解方程 x = 2。",
    ],
)
def test_what_a_problem_says_itself_stays(text: str) -> None:
    assert list_problem_tokens(f"{text} {PROBLEM}") == list_tokens(f"{text} {PROBLEM}")
    assert list_problem_tokens(f"{PROBLEM} {text}") == list_tokens(f"{PROBLEM} {text}")


def test_a_text_of_instructions_alone_stays() -> None:
    assert " ".join(list_problem_tokens("Problem: Let's think step by step.")) == "problem let s think step by step"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^{n+1}", "x^n+1"),
        ("x^{12}", "x^12"),
        ("x²", "x2"),
        ("x₂", "x2"),
        ("x^{ab}", "x^ab"),
        (r"\frac{1}{23}", r"\frac{12}{3}"),
        (r"\frac{1}{2}3", r"\frac{1}{23}"),
        (r"\frac{1}{x}y", r"\frac{1}{xy}"),
        (r"2\frac{1}{2}", r"\frac{21}{2}"),
        (r"\sqrt{12}", r"\sqrt12"),
        (r"\sqrt{x+1}", r"\sqrt{x}+1"),
        (r"\sqrt[3]{x}", r"\sqrt{x}"),
        ("√12", "√1 2"),
        (r"\overline{AB}", r"\overline{A}B"),
        (r"\binom{n}{k}", r"\frac{n}{k}"),
        ("f'(x)", "f(x)"),
        (r"x \le 3", "x < 3"),
        (r"x \in A", r"x \notin A"),
        (r"\mathbf{a} \times \mathbf{b}", r"\mathbf{a} \cdot \mathbf{b}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
        (r"\{x\}", "x"),
        (r"1 + 2 + \dots + 9", "1 + 2 + 9"),
        ("0.5", "5"),
        (".5", "5"),
        ("1 2", "12"),
        ("3:5", "3 5"),
        ("20%", "20"),
        ("ℝ", "R"),
        (r"\sin x", r"\cos x"),
        ("n!", "n"),
    ],
)
def test_what_may_be_another_problem_stays_another(one: str, other: str) -> None:
    assert not is_same_text(one, other)
    assert not is_same_text(f"Compute ${one}$ now.", f"Compute ${other}$ now.")


PARTS = [
    *("\\frac", "{", "}", "^", "_", "\\sqrt", "\\sqrt[3]", "[", "]", "\\begin{array}", "\\end{cases}", "\\\\", "\\"),
    *("\\text", "x", "12", "ab", "'", "\\prime", "\\pmod", "\\choose", "-", "!", ":", "½", "²", "√", "(", ")", "$"),
    *(" ", "\n", ".", "&", "&lt;", "\u200b", "ｘ", "π", "αβγδ", "中", "。", "Problem:", "\ud800"),
]


@given(st.lists(st.sampled_from(PARTS), max_size=20).map("".join))
def test_every_text_can_be_read(text: str) -> None:
    assert all(list_problem_tokens(text))
    assert list_tokens(text) == list_tokens(f" {text}\n")


@pytest.mark.parametrize(
    "part", ["{", "^{", "\\frac", "\\frac{", "{\\choose", "sqrt(", "&a", "'", "answer**", "请", ". "]
)
def test_a_long_repetition_is_read_in_linear_time(part: str) -> None:
    assert len(list_problem_tokens(f"{part * 100_000} x 7")) >= 1
