"""Where two prompts differ: what is left out, what is cut."""

from services.orchestrator.reports.comparison import MOST_CHARACTERS, MOST_LINES, compare_prompts


def told(left: str, right: str) -> list[tuple[str, str]]:
    return [(line.side, line.text) for line in compare_prompts(left, right).lines]


def test_equal_prompts_have_no_lines() -> None:
    found = compare_prompts("a\nb", "a\nb")
    assert (found.lines, found.cut) == ([], False)


def test_what_differs_stands_among_three_equal_lines() -> None:
    equal = [f"line {n}" for n in range(10)]
    left, right = "\n".join([*equal, "old", *equal]), "\n".join([*equal, "new", "newer", *equal])
    before, after = [("both", line) for line in equal[-3:]], [("both", line) for line in equal[:3]]
    assert told(left, right) == [
        ("gap", "7 equal lines"), *before, ("left", "old"), ("right", "new"), ("right", "newer"), *after,
        ("gap", "7 equal lines"),
    ]  # fmt: skip


def test_long_prompts_are_cut_and_say_so() -> None:
    long = "x" * MOST_CHARACTERS
    assert compare_prompts(long + "a", long + "b").cut
    assert not compare_prompts(long, "y" + long[1:]).cut
    many = "\n".join("x" * MOST_LINES)
    assert compare_prompts(many + "\na", many).cut
    assert compare_prompts(many + "\na", many).lines == []


def test_empty_lines_and_no_line_differ() -> None:
    assert told("a", "a\n") == [("both", "a"), ("right", "")]
    assert told("", "a") == [("left", ""), ("right", "a")]
