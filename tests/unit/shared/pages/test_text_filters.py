"""Texts of people and of the code on a page: everything is shown, and nothing of it acts."""

import pytest

from shared.pages import formatting

HOSTILE = '<img src=x onerror="alert(1)">'


def test_what_stands_between_backticks_is_code() -> None:
    assert formatting.mark_code("see `a <b>` and 1 ` 2") == "see <code>a &lt;b&gt;</code> and 1 ` 2"
    assert "<img" not in formatting.mark_code(f"`{HOSTILE}` {HOSTILE}")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, '<span class="faint">none</span>'),
        ("", '<span class="faint">empty</span>'),
        (False, "<code>false</code>"),
        (0, "<code>0</code>"),
        ([], "<code>[]</code>"),
        ("rrf", "<code>rrf</code>"),
        ({"größe": [1, None]}, "<code>{&#34;größe&#34;: [1, null]}</code>"),
        (HOSTILE, "<code>&lt;img src=x onerror=&#34;alert(1)&#34;&gt;</code>"),
        ("a\u202eb", '<code>a<span class="hidden-character">U+202E</span>b</code>'),
    ],
)
def test_a_value_is_written_as_on_a_command_line(value: object, shown: str) -> None:
    assert formatting.format_value(value) == shown


@pytest.mark.parametrize(
    ("answer", "typeset"),
    [
        ("\\frac{1}{2}", '<span class="math">$\\frac{1}{2}$</span>'),
        ("x^2", '<span class="math">$x^2$</span>'),
        ("$x^2$", '<span class="math">$x^2$</span>'),
        ("\\boxed{7}", '<span class="math">\\boxed{7}</span>'),
        ("12", "12"),
        ("snake_case", "snake_case"),
    ],
)
def test_an_answer_is_typeset_where_it_is_mathematics_without_saying_so(answer: str, typeset: str) -> None:
    assert formatting.mark_formula(answer) == typeset
