"""The worked comparison: paired tests, and words that rank only what the test separates."""

from typing import Any

import pytest

from bench.comparison import COLUMNS, Row, line, table
from bench.pairs import Pair, paired, words


def report(**changed: Any) -> dict[str, Any]:
    """What the API says about a job, as far as the table shows it."""
    return {
        "state": "completed", "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}, "failures": {},
        "extraction": {"ok": 100}, "calls_made": {"retrieve": 100, "judge": 0, "generate": 100}, "model_loads": 1,
        "seconds": 12.3, "refused": 0, "fallbacks": {}, "retrieval": None, **changed,
    }  # fmt: skip


def row(name: str, right: int, of: int = 100, **changed: Any) -> Row:
    """A job that has its first so many items right."""
    return Row(name, "", report(**changed), clean=True, verdicts={item: item < right for item in range(of)})


def test_a_pair_counts_the_items_on_which_two_pipelines_differ() -> None:
    """Items that both have right, or both wrong, say nothing about the difference."""
    first = {0: True, 1: True, 2: False, 3: False, 4: True}
    second = {0: True, 1: False, 2: True, 3: False, 4: False}
    assert paired(first, second) == Pair(gained=2, lost=1, items=5)


def test_an_item_that_one_of_them_has_no_verdict_for_is_in_no_pair() -> None:
    """A failed sample is no wrong answer."""
    assert paired({0: True, 1: True}, {1: False, 2: True}) == Pair(gained=1, lost=0, items=1)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (3, 3, 1.0),
        (5, 0, 2 * 0.5**5),
        (9, 1, 2 * (1 + 10) * 0.5**10),
    ],
)
def test_the_p_value_is_the_exact_one_over_the_items_that_differ(gained: int, lost: int, p: float) -> None:
    """Worked out by hand from the binomial distribution; items on which both agree do not count."""
    assert Pair(gained, lost, 1000).p == pytest.approx(p)


def test_words_rank_only_what_the_test_separates() -> None:
    """Above 0.05 nothing is said."""
    assert words(Pair(30, 2, 100), 0.0001) == "better (+30 -2 of 100, p < 0.001)"
    assert words(Pair(2, 30, 100), 0.02) == "worse (+2 -30 of 100, p = 0.020)"
    assert words(Pair(30, 2, 100), 0.06) == "not separable (+30 -2 of 100, p = 0.060)"


def test_the_table_compares_every_pipeline_with_dense_and_corrects_for_their_number() -> None:
    """The baseline itself has no test."""
    rows = [row("dense", 40), row("crag", 46), row("hybrid", 46), row("closed-book", 40)]
    lines = table(rows).splitlines()
    assert "| - |" in lines[0]
    assert "not separable (+6 -0 of 100, p = 0.094)" in lines[1]  # 0.03125 alone, three tests
    assert "not separable (+0 -0 of 100, p = 1.000)" in lines[3]


def test_a_line_shows_failures_refusals_fallbacks_and_the_calls_of_each_role() -> None:
    """Each in its own column; what did not happen is left out."""
    figures = {
        "failures": {"truncated": 2}, "refused": 8, "fallbacks": {"rerank": {"not_configured": 3}},
        "retrieval": {"final": {"nDCG@10": {"value": 0.61234}}},
    }  # fmt: skip
    shown = line(row("enhanced", 50, **figures), Pair(10, 0, 100), 0.002)
    cells = [cell.strip() for cell in shown.strip("|").split("|")]
    assert dict(zip(COLUMNS, cells, strict=True)) == {
        "pipeline": "enhanced",
        "accuracy (Wilson 95 %)": "50.0 % (40.0 to 60.0)",
        "against dense (McNemar, Holm)": "better (+10 -0 of 100, p = 0.002)",
        "nDCG@10": "0.612",
        "failed": "truncated 2",
        "refused": "8",
        "fallbacks": "rerank: not_configured 3",
        "calls made": "retrieve 100, generate 100",
        "loads": "1",
        "seconds": "12",
        "audit": "clean",
    }


def test_a_pipeline_that_the_service_refuses_stands_in_the_table_with_its_reason() -> None:
    """It is not left out silently."""
    refused = Row("self-rag", "the model has no reflection tokens", None, clean=True, verdicts={})
    lines = table([row("dense", 40), refused]).splitlines()
    assert lines[1].startswith("| self-rag | not run: the model has no reflection tokens | -")
    assert lines[1].count("|") == lines[0].count("|")


def test_a_job_that_failed_as_a_whole_stands_there_with_its_reason() -> None:
    """Its figures would be those of nothing."""
    failed = Row("crag", "the fallback corpus is gone", report(state="failed"), clean=True, verdicts={})
    assert "not run: the fallback corpus is gone" in table([failed])


def test_accuracy_without_a_single_verdict_is_no_number() -> None:
    """Nothing graded is not nothing right."""
    nothing = row("dense", 0, of=0, accuracy={"value": None, "low": 0.0, "high": 1.0})
    assert "| n/a |" in table([nothing])
