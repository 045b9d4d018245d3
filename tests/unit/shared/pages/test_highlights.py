"""Words of a question in a text: what is marked, and that nothing of the text acts."""

import re

import pytest

from shared.pages.formatting import extract_terms, highlight


@pytest.mark.parametrize(
    ("question", "text", "marked"),
    [
        ("prime numbers", "Primes and PRIME numbers", ["PRIME", "numbers"]),
        ("3.14 or 12", "3.14, 3, 12 and 112", ["3.14", "12"]),
        (r"\frac of", r"write \frac and \fraction", [r"\frac"]),
        ("解二次方程", "一元二次方程的解", ["二次方程"]),
        ("解", "一元的解", []),
        ("x", "x_1 and max", ["x"]),
        ("", "nothing", []),
    ],
)
def test_whole_words_are_marked_whatever_their_case(question: str, text: str, marked: list[str]) -> None:
    assert re.findall(r"<mark>(.*?)</mark>", str(highlight(text, extract_terms(question)))) == marked


def test_a_formula_is_marked_as_a_whole_and_typeset() -> None:
    shown = str(highlight("so $a+b$ and $c$", extract_terms("a")))
    assert shown == 'so <mark><span class="math">$a+b$</span></mark> and <span class="math">$c$</span>'


def test_the_text_stays_whole_and_escaped() -> None:
    text = "<script>prime</script> \u202e $x<y$ & prime"
    shown = str(highlight(text, extract_terms("prime script x")))
    assert "<script>" not in shown
    assert "U+202E" in shown
    plain = re.sub(r"</?(mark|span)[^>]*>", "", shown)
    assert plain == "&lt;script&gt;prime&lt;/script&gt; U+202E $x&lt;y$ &amp; prime"
