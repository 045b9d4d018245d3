"""`make bench`: the history of figures, regressions, the generated page, and the refusal on a busy machine."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from shared.pages.pages import find_block_names, rewrite_blocks
from tools.bench import Rows, goals
from tools.bench.goals import (
    BUSY,
    PARTS,
    GoalPart,
    HistoryEntry,
    add,
    find_previous,
    make_blocks,
    read_history,
    run_part,
)

CALLS = "calls"


def entry(figure: float, part: str = CALLS, cores: int = 2, date: str = "2026-12-01") -> HistoryEntry:
    return HistoryEntry(
        date=date, commit="abc", cores=cores, load=0.5, others=1.0, part=part, figure=figure, goal=PARTS[part].goal,
        seconds=60, rows=["A sentence.", {"measured": "floor", "rounds, s": [1.25, 1.5]}],
    )  # fmt: skip


def line_of(history: list[HistoryEntry], part: str = CALLS) -> list[str]:
    lines = make_blocks(history)["goals"].splitlines()
    return next(line for line in lines if line.startswith(f"| `{part}` ")).strip("| ").split(" | ")


def measure(*figures: float) -> GoalPart:
    def run() -> Rows:
        yield {"measured": "floor", "rounds, s": [1.25, 1.5]}
        yield from figures

    return PARTS["floor"]._replace(run=run)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "performance.md"
    file.write_text("By hand.\n\n<!-- goals: computed -->\n<!-- end -->\n<!-- floor: computed -->\n<!-- end -->\n")
    return file


@pytest.fixture
def run(page: Path, tmp_path: Path) -> Callable[..., None]:
    def run_watched(part: GoalPart, *others: float) -> None:
        watched = iter(others or (0.0, 0.0))
        run_part(part, page=page, history=tmp_path / "history.jsonl", watch=lambda: next(watched))

    return run_watched


def test_entries_are_read_back_in_the_order_of_their_addition(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    assert read_history(file) == []
    for figure in (900.0, 1600.0):
        add(file, entry(figure))
    assert read_history(file) == [entry(900.0), entry(1600.0)]


def test_the_previous_figure_is_that_of_the_same_part_on_as_many_cores() -> None:
    history = [entry(1.0), entry(2.0, cores=8), entry(3.0, part="floor")]
    assert find_previous(history, entry(9.0)) == entry(1.0)
    assert find_previous(history, entry(9.0, cores=4)) is None


def test_a_figure_that_misses_its_goal_is_bold() -> None:
    assert line_of([entry(1400.0)])[3:5] == ["at least 1,500 calls/s", "**1,400 calls/s**"]
    assert line_of([entry(1500.0)])[4] == "1,500 calls/s"
    assert line_of([entry(1.11, "floor")], "floor")[3:5] == ["at most 1.1", "**1.11**"]
    assert line_of([entry(1.1, "floor")], "floor")[4] == "1.1"
    assert line_of([entry(1.023, "slow")], "slow")[3:5] == ["at most 1.02", "**1.023**"]


@pytest.mark.parametrize(
    ("part", "before", "now", "words"),
    [
        (CALLS, 2000.0, 1600.0, "2,000 calls/s, **now 25% worse**"),
        (CALLS, 2000.0, 1800.0, "2,000 calls/s"),
        (CALLS, 2000.0, 3000.0, "2,000 calls/s"),
        ("floor", 1.0, 1.2, "1, **now 20% worse**"),
        ("floor", 1.0, 1.1, "1"),
        ("floor", 1.0, 0.5, "1"),
    ],
)
def test_a_figure_that_is_worse_by_more_than_15_per_cent_is_marked(
    part: str, before: float, now: float, words: str
) -> None:
    assert line_of([entry(before, part), entry(now, part)], part)[5] == words


def test_the_table_has_the_newest_figure_of_every_part_and_a_dash_for_the_rest() -> None:
    history = [entry(1600.0), entry(1700.0, date="2026-12-02")]
    assert line_of(history)[4:] == ["1,700 calls/s", "1,600 calls/s", "2026-12-02"]
    assert line_of(history, "floor")[4:] == ["-", "-", "-"]


def test_a_part_that_was_removed_stays_in_the_history_only() -> None:
    removed = msgspec.structs.replace(entry(1.0), part="removed")
    assert "removed" not in make_blocks([removed])
    assert "removed" not in make_blocks([removed])["goals"]


def test_the_page_shows_raw_rounds_with_their_origin() -> None:
    lines = make_blocks([entry(1600.0)])[CALLS].splitlines()
    assert "2026-12-01, commit abc, 2 cores, load average 0.5 before, 1 % used by other programs, 60 s." in lines[0]
    assert lines[-3:] == ["| measured | rounds, s |", "|---|---|", "| floor | 1.25, 1.5 |"]


def test_a_result_is_written_to_history_and_page_and_its_ratio_is_printed_last(
    run: Callable[..., None], page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(measure(1.07))
    (written,) = read_history(tmp_path / "history.jsonl")
    assert (written.part, written.figure, written.goal) == ("floor", 1.07, 1.1)
    assert written.rows == [{"measured": "floor", "rounds, s": [1.25, 1.5]}]
    text = page.read_text()
    assert text.startswith("By hand.")
    assert "| 1.07 | - |" in text
    assert "| floor | 1.25, 1.5 |" in text
    printed = capsys.readouterr().out
    assert "(compared with: two bare loops over its prompts): 1.07; goal: at most 1.1" in printed
    assert printed.splitlines()[-1] == "ratio: 1.07"


def test_a_regression_is_printed(run: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    run(measure(1.0))
    run(measure(1.3))
    assert "1.3; goal: at most 1.1, MISSED; before: 1, **now 30% worse**" in capsys.readouterr().out


@pytest.mark.parametrize("others", [(BUSY + 1, 0.0), (0.0, BUSY + 1)])
def test_a_result_of_a_busy_machine_is_printed_with_the_reason_and_not_written(
    run: Callable[..., None], page: Path, tmp_path: Path, others: tuple[float, float],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    before = page.read_text()
    run(measure(1.07), *others)
    assert page.read_text() == before
    assert read_history(tmp_path / "history.jsonl") == []
    *_, reason, ratio = capsys.readouterr().out.splitlines()
    assert "other programs used {:.0f} % of the processors before and {:.0f} % after".format(*others) in reason
    assert "the limit is 10 %" in reason
    assert ratio == "ratio: 1.07"


def test_a_benchmark_that_gives_no_figure_writes_nothing(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(measure())
    assert read_history(tmp_path / "history.jsonl") == []
    assert capsys.readouterr().out.splitlines()[-1] == "floor has no figure"


def test_the_ratio_of_a_figure_with_a_unit_is_that_to_its_goal() -> None:
    assert PARTS[CALLS].ratio(750.0) == 0.5
    assert PARTS["floor"].ratio(1.3) == 1.3


def test_the_committed_page_has_a_place_for_every_part_and_agrees_with_the_history() -> None:
    text = goals.PAGE.read_text("utf-8")
    assert sorted(find_block_names(text)) == sorted(["goals", *PARTS])
    assert rewrite_blocks(text, make_blocks(read_history(goals.HISTORY))) == text
