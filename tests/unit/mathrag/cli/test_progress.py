"""What a person sees while a job runs, and what a report says in words."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from mathrag.cli.demo import merge_counts
from mathrag.cli.output import describe_wait, summarise
from mathrag.cli.progress_bars import ProgressBars
from shared.pages.formatting import format_accuracy, format_counts, take_last_line
from shared.pages.lines import build_lines, describe_lapses, format_cost, format_stage_counts, list_retrieval


def job_of(state: str = "running", in_progress: int = 3, **stages: tuple[int, int]) -> dict[str, Any]:
    counted_stages = {role: {"done": done, "total": total} for role, (done, total) in stages.items()}
    counts = {"total": 4, "in_progress": in_progress}
    return {"name": "first", "state": state, "request_counts": counts, "stages": counted_stages}


def test_a_summary_has_every_stage_and_the_samples() -> None:
    assert summarise(job_of(judge=(2, 5), generate=(0, 1))) == "first  running  judge 2/5  generate 0/1  samples 1/4"


def test_a_summary_names_what_nobody_serves_and_what_to_do() -> None:
    shown = summarise(job_of() | {"unserved": ["judge"]})
    assert shown.startswith("first  running  samples 1/4  no guard serves judge as pinned when the job was submitted")
    assert shown.endswith("restore the model and restart the guard, or cancel and submit again")
    terminal = io.StringIO()
    bars = ProgressBars(Console(file=terminal, force_terminal=True, width=200))
    bars.show(job_of() | {"unserved": ["judge"]})
    bars.show(job_of() | {"unserved": ["judge"]})
    bars.close()
    assert terminal.getvalue().count("no guard serves judge") == 1


def test_bars_appear_with_their_stage_and_show_the_time_left() -> None:
    terminal = io.StringIO()
    bars = ProgressBars(Console(file=terminal, force_terminal=True, width=100))
    bars.show(job_of(judge=(2, 5)))
    bars.show(job_of("completed", 0, judge=(5, 5), generate=(4, 4)))
    bars.close()
    shown = terminal.getvalue()
    assert all(name in shown for name in ("judge", "generate", "samples", "5/5", "4/4", "eta"))


def test_several_jobs_are_shown_as_one() -> None:
    shown = merge_counts([job_of(generate=(1, 2)), job_of("completed", 0, retrieve=(3, 3), generate=(2, 2))])
    assert summarise(shown) == "all jobs  1 running  retrieve 3/3  generate 3/4  samples 5/8"


def test_an_accuracy_is_said_with_its_interval_and_its_counts() -> None:
    figure = {"value": 0.61, "low": 0.567, "high": 0.652, "correct": 305, "graded": 500}
    assert format_accuracy(figure) == "61.0 % (56.7 to 65.2), 305 of 500"
    assert format_accuracy({**figure, "value": None}) == "nothing was graded"


def test_counts_leave_out_what_did_not_happen() -> None:
    assert format_counts({"ok": 4, "missing": 0, "unbalanced": 1}) == "ok 4, unbalanced 1"


@pytest.mark.parametrize(("text", "line"), [("a\nb\n", "b"), ("a", "a"), ("", ""), (None, None)])
def test_a_traceback_is_shown_by_its_last_line(text: str | None, line: str | None) -> None:
    assert take_last_line(text) == line


def test_a_report_in_words_names_every_figure() -> None:
    figure = {"value": 0.5, "low": 0.1, "high": 0.9, "correct": 1, "graded": 2}
    stage = {"made": 2, "reused": 1, "executed": 2, "seconds": 1.25}
    report = {
        "reason": None, "request_counts": {"completed": 2, "failed": 1, "total": 3}, "accuracy": figure,
        "grader": "math", "score": None, "answer_at": {"answer@1": figure},
        "strict": figure, "disagreements": 1, "endings": {"correct": 1, "logic": 1, "failed": 1},
        "extraction": {"ok": 2}, "extracted_by": {"boxed": 1, "stated": 1}, "truncated": 1,
        "theirs": {"right": 2, "scored": 2, "differing": 1, "samples": [7]}, "truncated_by": {"repetition": 1},
        "failures": {"timeout": 1},
        "contamination": {"items": 3, "affected": 1, "share": 1 / 3, "among": figure, "others": figure},
        "grading_failures": {}, "parse_failures": 3, "repeatability": None,
        "bootstrap": {"value": 0.5, "low": 0.0, "high": 1.0},
        "repeats": {"accuracies": [0.5], "mean": 0.5, "std": None},
        "unscored": 0, "duplicates_dropped": 2, "gate": None,
        "model_loads": 2, "model_calls": 4, "calls_made": {"judge": 2}, "calls_reused": {},
        "calls_lapsed": 0, "stages": {"judge": stage}, "cost": {"made": 0.0021, "all": 12.3, "models": {}},
        "by_level": {"5": figure}, "by_subject": {}, "refused": 0, "decisions": {}, "fallbacks": {}, "retrieval": None,
    }  # fmt: skip
    said = dict(build_lines(report))
    assert said["accuracy"] == "50.0 % (10.0 to 90.0), 1 of 2 [math-verify, Wilson 95 %]"
    assert said["answer@1"] == "50.0 % (10.0 to 90.0), 1 of 2 [an answer in the first document, Wilson 95 %]"
    assert said["endings"] == "correct 1, logic 1, failed 1"
    assert said["extraction"] == "ok 2; 1 truncated (repetition 1)"
    assert said["found by"] == "boxed 1, stated 1"
    assert said["their scores"] == "right in 2 of 2; this job's grader differs on 1 (items 7)"
    assert said["contamination"].startswith("1 of 3 items (33.3 %): accuracy 50.0 %")
    assert said["scoring"] == "3 judge replies without a rating, 2 near-duplicates dropped"
    assert (said["failures"], said["calls made"], said["calls reused"]) == ("timeout 1", "judge 2", "none")
    assert (said["model loads"], said["seconds"]) == (2, "judge 1.2")
    assert said["cost"] == "made calls $0.002100, all calls $12.30"
    assert not {"retrieval", "reranking"} & said.keys()


@pytest.mark.parametrize("cost", [None, {"made": None, "all": None, "models": {"unpriced": None}}])
def test_a_cost_that_is_unknown_is_left_out(cost: Any) -> None:
    assert format_cost(cost) is None


def test_a_report_says_of_lapsed_calls_that_they_ran_again_alone() -> None:
    assert describe_lapses(3) == "3, which may have run twice; each ran again alone, with no call beside it"
    assert describe_lapses(0) is None


def test_a_report_in_words_says_what_methods_did_and_how_good_their_documents_were() -> None:
    mean = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 80}
    changed = {"value": 0.02, "low": -0.01, "high": 0.05, "adjusted": 0.2, "separable": False, "n": 80}
    found = {"items": 80, "absent": 3, "final": {"nDCG@10": mean}, "reranking": {"nDCG@10": changed}, "context": mean}
    assert dict(list_retrieval(found)) == {
        "retrieval": "nDCG@10 0.5000, Recall@context 0.5000; 80 items",
        "not in corpus": "3 relevant documents",
        "reranking": "nDCG@10 +0.0200 (-0.0100 to +0.0500), p = 0.2000: not separable on 80 queries",
    }
    same = {**changed, "value": 0, "low": 0, "high": 0}
    assert "reranking" not in dict(list_retrieval({**found, "reranking": {"nDCG@10": same}}))
    assert "reranking" not in dict(list_retrieval({**found, "reranking": {}}))
    assert format_stage_counts({"crag": {"ambiguous": 1, "correct": 4}, "rewrite": {"timeout": 2}}) == (
        "crag: ambiguous 1, correct 4; rewrite: timeout 2"
    )


def test_what_a_job_waits_for_is_part_of_its_line() -> None:
    away = {
        "what": "Elasticsearch at 127.0.0.1:9200",
        "since": "2026-11-22T12:04:10Z",
        "next_try": "2026-11-22T12:05:08Z",
    }
    now = datetime(2026, 11, 22, 12, 5, tzinfo=UTC)
    since = datetime(2026, 11, 22, 12, 4, tzinfo=UTC).astimezone()
    assert describe_wait(away, now) == f"for Elasticsearch at 127.0.0.1:9200 since {since:%H:%M}, next try in 8 s"
    assert describe_wait(away, now + timedelta(seconds=9)).endswith(", trying now")
