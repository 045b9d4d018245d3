"""Jobs on the command line: changed, asked again, listed, watched, imported, compared, taken away as files."""

import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from rich.console import Console

from mathrag.cli.job import export_files, list_ending_rows, print_report
from mathrag.cli.output import Exit, describe_wait, summarise
from mathrag.cli.progress_bars import ProgressBars, Steps
from mathrag.formatting import format_accuracy, format_counts, take_last_line
from mathrag.report_lines import build_lines, describe_lapses, format_cost, format_stage_counts, list_retrieval
from mathrag_gate.cli.demo import measure_progress
from services.orchestrator.api.examples import make_example
from tests.unit.commands import JOB, Handler, Server, job, mathrag, refuses, says

# What the command line does with jobs besides watching: change, ask again, list, take away as files.


@pytest.mark.parametrize(("verb", "state", "following"), [
    ("pause", "paused", "job resume 6b0c1e9e"), ("resume", "running", "job watch 6b0c1e9e"),
    ("cancel", "cancelling", "job show 6b0c1e9e"),
])  # fmt: skip
def test_a_change_says_how_the_job_stands_and_what_to_run_next(
    server: Server, verb: str, state: str, following: str
) -> None:
    requests = server(says(job(state), 202))
    ended = mathrag("job", verb, "first")
    assert [(request.method, request.url.path) for request in requests] == [("POST", f"/v1/jobs/first/{verb}")]
    assert f"job first is {state}" in ended.stdout
    assert following in ended.stdout


@pytest.mark.parametrize("arguments", [(), ("first", "second")])
def test_a_change_needs_exactly_one_target(server: Server, arguments: tuple[str, ...]) -> None:
    requests = server(says(JOB))
    assert mathrag("job", "cancel", *arguments).exit_code == Exit.USAGE
    assert not requests


def test_a_job_is_asked_for_once_however_often_the_request_arrives(server: Server) -> None:
    requests = server(says(JOB, 202))
    for _ in range(2):
        mathrag("job", "requeue", "first")
    mathrag("job", "requeue", "first", "--idempotency-key", "mine")
    keys = [request.headers["idempotency-key"] for request in requests]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_a_job_is_measured_by_the_judge_that_was_named(server: Server) -> None:
    requests = server(says({**JOB, "name": "first-measured"}, 202))
    options = ("--metric", "faithfulness", "--metric", "claims", "--name", "mine", "--model", "judge=large")
    ended = mathrag("job", "measure", "first", *options, "--set", "metrics.unit=claims")
    sent = msgspec.json.decode(requests[0].content)
    metrics = {"unit": "claims", "names": ["faithfulness", "claims"]}
    assert requests[0].url.path == "/v1/jobs/first/measure"
    assert sent == {"name": "mine", "params": {"metrics": metrics}, "models": {"judge": "large"}}
    assert "job first-measured is submitted" in ended.stdout


def test_measuring_needs_a_metric(server: Server) -> None:
    requests = server(says(JOB, 202))
    ended = mathrag("job", "measure", "first")
    assert (ended.exit_code, "--metric faithfulness" in ended.stderr) == (Exit.USAGE, True)
    assert not requests


def test_metadata_and_rank_go_along(server: Server) -> None:
    requests = server(says(JOB, 202))
    given = ("--name", "n", "--dataset", "d", "--pipeline", "dense", "--metadata", "run=1", "--rank", "3")
    mathrag("job", "submit", *given)
    sent = msgspec.json.decode(requests[0].content)
    assert (sent["metadata"], sent["rank"]) == ({"run": "1"}, 3)


def test_a_bare_noun_lists(server: Server) -> None:
    requests = server(says({"data": [JOB], "next_cursor": None}))
    ended = mathrag("job", "--state", "running", "--pipeline", "dense")
    assert dict(requests[0].url.params) == {"limit": "50", "state": "running", "pipeline": "dense"}
    assert ended.stdout.splitlines()[1].split()[:2] == ["6b0c1e9e", "first"]
    assert "Commands" in mathrag("job", "--help").stdout


def test_a_list_stops_where_it_was_told_to(server: Server) -> None:
    server(says({"data": [JOB, JOB], "next_cursor": "more"}))
    assert len(msgspec.json.decode(mathrag("job", "--limit", "3", "--json").stdout)) == 3


@pytest.mark.parametrize(("options", "said"), [((), "job submit"), (("--state", "failed"), "No job matches")])
def test_an_empty_list_says_why(server: Server, options: tuple[str, ...], said: str) -> None:
    server(says({"data": [], "next_cursor": None}))
    assert said in mathrag("job", "list", *options).stdout


def test_samples_are_listed_with_their_verdicts(server: Server) -> None:
    row = {
        "index": 7, "repeat": 0, "state": "completed", "answer": "5", "gold": "6", "correct": False, "strict": True,
        "ending": "ungraded",
    }  # fmt: skip
    requests = server(says({"data": [row], "next_cursor": None}))
    shown = ["7", "0", "completed", "5", "6", "no", "yes", "ungraded"]
    assert mathrag("sample", "list", "first").stdout.splitlines()[1].split() == shown
    assert "differing" not in requests[0].url.params
    assert mathrag("sample", "list", "first", "--differing").stdout.splitlines()[1].split() == shown
    assert requests[1].url.params["differing"] == "true"


SAMPLE = {"index": 0, "repeat": 0, "state": "completed", "documents": {}, "notes": []}


def test_a_sample_shows_how_many_calls_were_computed_at_once_and_what_lapsed(server: Server) -> None:
    times = {"started_at": "2026-11-20T10:00:00Z", "ended_at": "2026-11-20T10:00:01.5Z"}
    step = {
        "position": 1, "slot": 0, "created": True, "role": "generate", "key": "ab" * 32, "model": "m",
        "attempt": {"outcome": "value", "epoch": 12, "concurrency": 1, **times},
        "other_attempts": [{"outcome": "lapsed"}, {"outcome": "timeout"}],
    }  # fmt: skip
    names = ("question", "gold", "outcome", "text", "ending", "failure", "detail")
    found = {**SAMPLE, **dict.fromkeys(names), "steps": [step]}
    requests = server(says(found))
    head, row = mathrag("sample", "show", "first", "0").stdout.splitlines()[-2:]
    assert "prompts" not in requests[0].url.params
    cells = dict(zip(re.split(r"  +", head.strip()), re.split(r"  +", row.strip()), strict=True))
    assert (cells["AT ONCE"], cells["LAPSES"], cells["SECONDS"]) == ("1", "1", "1.500")
    requests = server(says({**found, "steps": [{**step, "prompt": "What is 2+2?"}]}))
    assert "\nprompt 1.0 generate\nWhat is 2+2?\n" in mathrag("sample", "show", "first", "0", "--prompts").stdout
    assert requests[0].url.params["prompts"] == "true"


@pytest.mark.parametrize(
    ("outcome", "said"), [({"answer_rank": 3}, "at rank 3"), ({"answer_rank": None}, "in no candidate"), ({}, None)]
)
def test_a_sample_says_where_an_answer_was_found(server: Server, outcome: dict[str, object], said: str | None) -> None:
    names = ("question", "gold", "text", "ending", "failure", "detail")
    found = {**SAMPLE, **dict.fromkeys(names), "steps": []}
    server(says({**found, "outcome": outcome}))
    lines = mathrag("sample", "show", "first", "0").stdout.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if "answer found" in line] == ([said] if said else [])


def exporting(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=request.url.raw_path)


def test_an_export_holds_everything_as_it_was_sent(server: Server, tmp_path: Path) -> None:
    server(exporting)
    ended = mathrag("job", "export", "first", "--to", str(tmp_path / "out"), "--format", "csv", "--json")
    files = ["job.json", "report.json", "results.csv", "provenance.jsonl", "audit.json"]
    assert msgspec.json.decode(ended.stdout)["files"] == files
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(files)
    assert (tmp_path / "out" / "results.csv").read_bytes() == b"/v1/jobs/first/results?format=csv"


def test_an_export_replaces_nothing_unless_it_is_forced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("mine")
    requests = server(exporting)
    refused = mathrag("job", "export", "first", "--to", str(tmp_path))
    assert (refused.exit_code, "report.json" in refused.stderr, requests) == (Exit.CONFLICT, True, [])
    assert mathrag("job", "export", "first", "--to", str(tmp_path), "--force").exit_code == Exit.DONE
    assert (tmp_path / "report.json").read_text() == "/v1/jobs/first/report"


def _breaks_off(request: httpx2.Request) -> httpx2.Response:
    def content() -> Any:
        yield b"some"
        raise httpx2.ReadError("gone", request=request)

    return httpx2.Response(200, content=content())


@pytest.mark.parametrize(("handler", "code"), [
    (_breaks_off, Exit.UNREACHABLE), (refuses(409, "conflict", "still running"), Exit.CONFLICT),
])  # fmt: skip
def test_an_export_that_fails_leaves_no_half_file(server: Server, tmp_path: Path, handler: Handler, code: Exit) -> None:
    server(handler)
    assert mathrag("job", "export", "first", "--to", str(tmp_path)).exit_code == code
    assert not list(tmp_path.iterdir())


def test_the_parts_of_a_job_are_addressed_whatever_its_name_holds() -> None:
    assert all(each.path.startswith("/v1/jobs/a%2Fb") for each in export_files("a/b", "jsonl").values())


@pytest.mark.parametrize("body", [b"", b'{"index":0}\n', b'{"index":0}\n{"index":1}\n'])
def test_results_are_one_document_when_json_was_asked_for(server: Server, body: bytes) -> None:
    server(lambda _: httpx2.Response(200, content=(bytes([byte]) for byte in body)))
    found = msgspec.json.decode(mathrag("job", "results", "first", "--json").stdout)
    assert found == [{"index": index} for index in range(body.count(b"\n"))]


def test_results_are_asked_for_in_a_format(server: Server) -> None:
    requests = server(lambda _: httpx2.Response(200, content=b"PAR1"))
    assert mathrag("job", "results", "first", "--format", "parquet").stdout == "PAR1"
    assert requests[0].url.params["format"] == "parquet"


# What a person sees while a job runs, and what a report says in words.


def job_of(state: str = "running", in_progress: int = 3, **stages: tuple[int, int]) -> dict[str, Any]:
    counted_stages = {role: {"done": done, "total": total} for role, (done, total) in stages.items()}
    counts = {"total": 4, "in_progress": in_progress}
    return {"name": "first", "state": state, "request_counts": counts, "stages": counted_stages}


def test_a_summary_has_every_stage_and_the_samples() -> None:
    assert summarise(job_of(judge=(2, 5), generate=(0, 1))) == "first  running  judge 2/5  generate 0/1  samples 1/4"


def test_a_summary_names_what_nobody_serves_and_what_to_do() -> None:
    shown = summarise(job_of() | {"unserved": ["judge"]})
    assert shown.startswith(
        "first  running  samples 1/4  no guard serves judge in the version that the job pinned when it was submitted"
    )
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


def test_the_progress_of_jobs_counts_every_generation_from_the_start() -> None:
    assert measure_progress([job_of(), job_of()]) == 0
    assert measure_progress([job_of(judge=(5, 10), generate=(0, 1))]) == 10 / (20 + 4 * 5)
    assert measure_progress([job_of("completed", 0, generate=(4, 4)), job_of(retrieve=(3, 3))]) == 0.5
    assert measure_progress([job_of(judge=(3, 3), generate=(4, 4))]) == 1
    assert measure_progress([job_of(judge=(5, 10)) | {"pipeline": "measured"}]) == 0.5


def test_the_steps_of_a_command_are_a_few_lines_without_a_terminal_and_one_line_on_it() -> None:
    lines, terminal = io.StringIO(), io.StringIO()
    for console in (Console(file=lines), Console(file=terminal, force_terminal=True, width=100)):
        with Steps(console) as steps:
            steps.show("starting", 0)
            for eighths in range(1, 8):
                steps.show("answering", eighths / 8)
            steps.show("writing", 0.96)
    shown = [re.sub(r"about .* left", "about N left", line) for line in lines.getvalue().splitlines()]
    assert [line.split()[:2] for line in shown] == [
        ["0%", "starting"], ["12%", "answering"], ["38%", "answering"], ["62%", "answering"], ["88%", "answering"],
        ["96%", "writing"],
    ]  # fmt: skip
    assert [line.endswith("(about N left)") for line in shown] == [False, False, True, True, True, True]
    assert "writing" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K"), "the line is removed at the end"


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
    assert (
        describe_lapses(3) == "3, which may have run twice; each was repeated alone, without other calls in the batch"
    )
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
    searched_nothing = {**found, "absent": 0, "final": {}, "reranking": {}}
    assert dict(list_retrieval(searched_nothing)) == {"retrieval": "Recall@context 0.5000; 80 items"}
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


# `mathrag job import`: what is sent, and what is said of a file that cannot be used.

TABLE = "qid;prediction\na;1\nb;2\n"
MAPPED = ("--column", "id=qid", "--column", "answer=prediction")


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "theirs.csv"
    path.write_text(TABLE)
    return str(path)


def test_a_table_is_sent_as_lines_with_its_mapping(server: Server, table: str) -> None:
    requests = server(says(job("running"), 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED)
    (request,) = requests
    assert (request.method, request.url.path) == ("POST", "/v1/jobs/import")
    assert request.url.params.get_list("column") == ["id=qid", "answer=prediction"]
    assert [msgspec.json.decode(line) for line in request.content.splitlines()] == [
        {"qid": "a", "prediction": "1"}, {"qid": "b", "prediction": "2"},
    ]  # fmt: skip
    assert "job watch 6b0c1e9e" in ended.stdout


def test_documents_and_metrics_of_an_import_go_along(server: Server, tmp_path: Path) -> None:
    requests = server(says(job("running"), 202))
    path = tmp_path / "ragas.csv"
    path.write_text("user_input,response,retrieved_contexts\nWhat?,4,\"['a', 'b']\"\n")
    options = ("--metric", "faithfulness", "--metric", "claims", "--model", "judge=large")
    mathrag("job", "import", "theirs", "--dataset", "d", "--from", str(path), *options)
    (request,) = requests
    assert request.url.params.get_list("metric") == ["faithfulness", "claims"]
    assert request.url.params.get_list("model") == ["judge=large"]
    assert msgspec.json.decode(request.content) == {
        "user_input": "What?", "response": "4", "retrieved_contexts": ["a", "b"],
    }  # fmt: skip


def test_a_refused_line_is_named_as_in_the_file(server: Server, table: str) -> None:
    server(refuses(422, "invalid_line", "upload, line 2: no item of the dataset has the id 'b'"))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED)
    assert "theirs.csv, line 3: no item" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--column", "answr=x"), "answr"), (("--column", "id=other"), "the header has no known field")],
)
def test_a_wrong_mapping_is_refused(server: Server, table: str, arguments: tuple[str, ...], said: str) -> None:
    server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *arguments)
    assert (ended.exit_code != Exit.DONE, said in ended.stderr) == (True, True)


def test_an_option_that_a_log_makes_useless_is_refused(server: Server, table: str) -> None:
    requests = server(says(JOB, 202))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", table, "--layout", "inspect")
    ended = mathrag(*command, "--delimiter", "comma")
    assert ended.exit_code == Exit.INVALID
    assert ("`delimiter` would be ignored" in ended.stderr, requests) == (True, [])


def test_a_file_that_is_not_there_is_said_so(server: Server, tmp_path: Path) -> None:
    requests = server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", str(tmp_path / "none.csv"))
    assert ("the file does not exist" in ended.stderr, requests) == (True, [])


def test_a_log_of_inspect_needs_its_layout(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log.eval"
    log.write_bytes(b"PK\x03\x04")
    server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", str(log))
    assert "name its layout: inspect" in ended.stderr


def test_samples_that_cannot_be_sent_are_named_and_are_a_finding(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "samples.jsonl"
    rows = [{"doc_id": 0, "resps": [["4"]]}, {"doc_id": 1, "resps": [[["-0.26", "False"]]]}]
    log.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    requests = server(says(job("running"), 202))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", str(log), "--layout", "lm-eval")
    ended = mathrag(*command, "--on-error", "skip")
    assert ended.exit_code == Exit.FINDING
    assert "warning: samples.jsonl, line 2: is of a task that compares likelihoods" in ended.stderr
    assert "job watch" in ended.stdout
    assert [msgspec.json.decode(line)["index"] for line in requests[0].content.splitlines()] == [0]


def test_a_sample_that_failed_in_the_other_system_is_sent_with_its_error(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    failed = {"id": "b", "output": {"choices": []}, "error": {"message": "no route"}}
    log.write_bytes(msgspec.json.encode({"samples": [failed]}))
    requests = server(says({**job("running"), "warnings": ["upload, line 1: has no answer: no route"]}, 202))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", str(log), "--layout", "inspect")
    assert "warning: log.json, line 1: has no answer: no route" in mathrag(*command).stderr
    assert msgspec.json.decode(requests[0].content)["error"] == {"message": "no route"}


def test_where_no_sample_holds_an_answer_the_reasons_stand_above_the_error(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "samples.jsonl"
    log.write_bytes(msgspec.json.encode({"doc_id": 1, "resps": [[["-0.26", "False"]]]}))
    server(refuses(422, "invalid", "the upload holds no answers"))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", str(log), "--layout", "lm-eval")
    ended = mathrag(*command, "--on-error", "skip")
    assert ended.exit_code == Exit.INVALID
    reason, error = ended.stderr.splitlines()[:2]
    assert ("compares likelihoods" in reason, error) == (True, "error: the upload holds no answers")


def test_lines_that_the_server_left_out_are_named_as_in_the_file(server: Server, table: str) -> None:
    server(says({**job("running"), "warnings": ["upload, line 2: no item of the dataset has the id 'b'"]}, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED, "--on-error", "skip")
    assert "warning: theirs.csv, line 3: no item" in ended.stderr


# Jobs side by side, as a person reads them.

REPORT = make_example("Report")
EXAMPLE = make_example("Comparison")


def row(output: str, *cells: str) -> str:
    return next(line for line in output.splitlines() if line.split()[: len(cells)] == list(cells))


def test_jobs_and_pairs_are_tables_with_the_verdict_in_words(server: Server) -> None:
    requests = server(says(EXAMPLE))
    ended = mathrag("job", "compare", "gate", "dense", "--baseline", "dense")
    assert ended.exit_code == Exit.DONE, ended.output
    (request,) = requests
    assert request.url.path == "/v1/comparison"
    assert request.url.params.multi_items() == [("job", "gate"), ("job", "dense"), ("baseline", "dense")]
    assert "62.0 % (57.7 to 66.1), 310 of 500" in row(ended.stdout, "gate", "mathrag-gate")
    assert "not separable at n = 500: +0.8 points" in row(ended.stdout, "gate", "dense")
    assert row(ended.stdout, "arithmetic").split() == ["arithmetic", "61", "58"]
    assert "gate (rows) against dense (columns): endings of the same samples" in ended.stdout
    assert row(ended.stdout, "logic", "12").split() == ["logic", "12", "1", "2", "116"]
    assert row(ended.stdout, "arithmetic", "5").split() == ["arithmetic", "5", "-", "53", "-"]


def test_json_is_what_the_api_said(server: Server) -> None:
    server(says(EXAMPLE))
    ended = mathrag("job", "compare", "gate", "dense", "--json")
    assert msgspec.json.decode(ended.stdout) == EXAMPLE


def test_a_refusal_is_shown_with_its_reason(server: Server) -> None:
    server(refuses(409, "conflict", "jobs 'a' and 'b' have no item in common that both have a verdict for"))
    ended = mathrag("job", "compare", "a", "b")
    assert ended.exit_code != Exit.DONE
    assert "no item in common" in ended.output


def test_a_job_without_a_verdict_stands_in_the_table(server: Server) -> None:
    blank: dict[str, Any] = {"value": None, "low": 0.0, "high": 1.0, "correct": 0, "graded": 0}
    young = {**EXAMPLE["jobs"][1], "accuracy": blank, "bootstrap": None, "items": 0, "endings": {}}
    pair = {**EXAMPLE["pairs"][0], "items": 0, "effect": None, "words": "nothing to compare"}
    server(says({**EXAMPLE, "jobs": [EXAMPLE["jobs"][0], young], "pairs": [pair], "notes": ["not final"]}))
    ended = mathrag("job", "compare", "gate", "dense")
    assert "nothing was graded" in row(ended.stdout, "gate", "mathrag-gate")
    assert "nothing to compare" in ended.stdout
    assert "note: not final" in ended.stdout


def test_endings_of_either_job_have_a_row() -> None:
    jobs = [{"endings": {"correct": 3}}, {"endings": {"correct": 1, "logic": 2}}, {"endings": {"refused": 1}}]
    assert list(list_ending_rows(jobs)) == [("correct", 3, 1, 0), ("logic", 0, 2, 0), ("refused", 0, 0, 1)]


def test_a_report_of_answers_that_could_not_be_read_warns_before_the_accuracy(capsys) -> None:  # type: ignore[no-untyped-def]
    print_report(REPORT)
    assert "warning" not in capsys.readouterr().out
    wrong = {**REPORT["accuracy"], "value": 0.0, "correct": 0}
    print_report({**REPORT, "extraction": {"missing": 500}, "accuracy": wrong})
    out = capsys.readouterr().out
    said = "In 500 of 500 answers no final answer could be found, so 0.0 % says nothing about the system"
    assert said in row(out, "warning")
    assert out.index(said) < out.index("  accuracy ")


def test_a_report_shows_the_spread_of_repeats_apart_from_the_intervals(capsys) -> None:  # type: ignore[no-untyped-def]
    print_report(REPORT)
    assert "  repeats " not in (alone := capsys.readouterr().out)
    assert "56.6 to 65.2 [over items, 95 %]" in row(alone, "bootstrap")
    print_report({**REPORT, "repeats": {"accuracies": [0.86, 0.88, None], "mean": 0.87, "std": 0.01414}})
    assert "87.00 %, std 1.41 [by repeat 86.0, 88.0, -; not an interval]" in row(capsys.readouterr().out, "repeats")


def test_another_measure_is_asked_for_and_has_a_column_beside_accuracy(server: Server) -> None:
    lacking = {**EXAMPLE["jobs"][1], "measured": {"value": None, "low": None, "high": None, "n": 0}}
    found = {**EXAMPLE, "measure": "score", "jobs": [EXAMPLE["jobs"][0], lacking]}
    requests = server(says(found))
    ended = mathrag("job", "compare", "gate", "dense", "--measure", "score")
    assert requests[0].url.params["measure"] == "score"
    assert "SCORE (95 %)" in row(ended.stdout, "NAME")
    assert "61.2 % (56.9 to 65.4), 500 items" in row(ended.stdout, "dense", "dense")
    assert "not measured" in row(ended.stdout, "gate", "mathrag-gate")
    assert "d = +0.02" in row(ended.stdout, "gate", "dense")
