"""What a person sees while a job runs, and what a report says in words."""

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from configparser import RawConfigParser
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from click.testing import Result
from rich.console import Console

from mathrag.cli.demo import merge_counts
from mathrag.cli.output import Exit, describe_wait, summarise
from mathrag.cli.progress_bars import ProgressBars
from services.orchestrator.reports.comparison import EXAMPLE as COMPARISON
from shared.pages.formatting import format_accuracy, format_counts, take_last_line
from shared.pages.lines import build_lines, describe_lapses, format_cost, format_stage_counts, list_retrieval
from tests.unit.commands import COUNTS, JOB, Handler, Server, mathrag
from tests.unit.commands import job as commands_job
from tests.unit.mathrag.cli.published_runs import EXPERIMENT, METHODS, TEXTS, write_runs
from tests.unit.reproductions import write


def job(state: str = "running", in_progress: int = 3, **stages: tuple[int, int]) -> dict[str, Any]:
    counted_stages = {role: {"done": done, "total": total} for role, (done, total) in stages.items()}
    counts = {"total": 4, "in_progress": in_progress}
    return {"name": "first", "state": state, "request_counts": counts, "stages": counted_stages}


def test_a_summary_has_every_stage_and_the_samples() -> None:
    assert summarise(job(judge=(2, 5), generate=(0, 1))) == "first  running  judge 2/5  generate 0/1  samples 1/4"


def test_a_summary_names_what_nobody_serves_and_what_to_do() -> None:
    shown = summarise(job() | {"unserved": ["judge"]})
    assert shown.startswith("first  running  samples 1/4  no guard serves judge as pinned when the job was submitted")
    assert shown.endswith("restore the model and restart the guard, or cancel and submit again")
    terminal = io.StringIO()
    bars = ProgressBars(Console(file=terminal, force_terminal=True, width=200))
    bars.show(job() | {"unserved": ["judge"]})
    bars.show(job() | {"unserved": ["judge"]})
    bars.close()
    assert terminal.getvalue().count("no guard serves judge") == 1


def test_bars_appear_with_their_stage_and_show_the_time_left() -> None:
    terminal = io.StringIO()
    bars = ProgressBars(Console(file=terminal, force_terminal=True, width=100))
    bars.show(job(judge=(2, 5)))
    bars.show(job("completed", 0, judge=(5, 5), generate=(4, 4)))
    bars.close()
    shown = terminal.getvalue()
    assert all(name in shown for name in ("judge", "generate", "samples", "5/5", "4/4", "eta"))


def test_several_jobs_are_shown_as_one() -> None:
    shown = merge_counts([job(generate=(1, 2)), job("completed", 0, retrieve=(3, 3), generate=(2, 2))])
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


# Whole numbers are read without typer's converter; what it refuses is refused all the same.


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "greater than or equal to 1"),
        ("-3", "greater than or equal to 1"),
        ("x", "valid integer"),
        ("1.5", "integer"),
    ],
)
def test_a_number_that_an_option_does_not_take_is_refused(value: str, words: str) -> None:
    ended = mathrag("plan", "--dataset", "d", "--limit", value)
    assert ended.exit_code == Exit.USAGE
    assert words in " ".join(ended.output.replace("│", " ").split())


# `mathrag reproduce published`: what is sent of the published runs, what is printed, and what is said of bad files.

NAMES = [f"published-{method}" for method in METHODS]


class Service:
    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        """By name, in the order in which they were imported; their number is their place."""
        self.graders: dict[str, str] = {}
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.posted: list[str] = []
        self.state = "completed"
        self.refusal: tuple[int, dict[str, Any]] | None = None
        """The answer to every upload of a dataset."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        query = dict(request.url.params)
        if request.method == "POST":
            self.posted.append(request.url.path)
            self.lines[query["name"]] = [msgspec.json.decode(line) for line in request.content.splitlines()]
        match request.url.path.split("/")[2:]:
            case ["datasets"]:
                status, answer = self.refusal or (201, {"name": query["name"], "items": 2})
                return httpx2.Response(status, json=answer)
            case ["jobs", "import"]:
                return httpx2.Response(202, json=self.add(query["name"], query["dataset"], query["grader"]))
            case ["jobs"]:
                found = [job for name, job in self.jobs.items() if name == query["name"]]
                return httpx2.Response(200, json={"data": found, "next_cursor": None})
            case ["jobs", id_, "report"]:
                return httpx2.Response(200, json=self.report(self.find(id_)))
            case ["jobs", id_]:
                return httpx2.Response(200, json={**self.find(id_), "state": self.state})
        return httpx2.Response(200, json=COMPARISON)

    def add(self, name: str, dataset: str, grader: str, pipeline: str = "imported") -> dict[str, Any]:
        id_ = f"{len(self.jobs):08}{JOB['id'][8:]}"
        self.graders[name] = grader
        self.jobs[name] = {**JOB, "id": id_, "name": name, "dataset": dataset, "pipeline": pipeline, "reason": "cut"}
        return {**self.jobs[name], "request_counts": COUNTS}

    def find(self, id_: str) -> dict[str, Any]:
        return next(job for job in self.jobs.values() if job["id"] == id_)

    def report(self, job: dict[str, Any]) -> dict[str, Any]:
        used = {"pipeline": job["pipeline"], "dataset": job["dataset"]}
        theirs = {"right": 3, "scored": 4, "differing": 1, "samples": [0]}
        accuracy = {"value": 0.9, "low": 0.826, "high": 0.945, "items": 100, "correct": 450, "graded": 500}
        return {"accuracy": accuracy, "grader": self.graders[job["name"]], "settings": used, "theirs": theirs}


@pytest.fixture
def service(server: Server, monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    server(made)
    monkeypatch.setenv("MATHRAG_URL", "https://rag.example.org")
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_runs(tmp_path)
    write(tmp_path / "train.jsonl", range(9))
    return tmp_path


def published(data: Path, *options: str) -> Result:
    return mathrag("reproduce", "published", "--data", str(data), *options)


def column(lines: Iterable[dict[str, Any]], *names: str) -> list[Any]:
    return [tuple(line[name] for name in names) for line in lines]


def test_the_questions_are_a_dataset_with_the_solutions_of_maths_training_set(data: Path, service: Service) -> None:
    training = data / "train.jsonl"
    training.write_text(training.read_text().replace("What is 1 + 1?", "What is  1 +\\n1?"))
    ended = published(data)
    assert ended.exit_code == Exit.DONE, ended.output
    asked = service.lines["published"]
    assert column(asked, "unique_id", "problem") == [
        ("train/prealgebra/1.json", "What is 1 + 1?"), ("train/prealgebra/2.json", "What is 2 + 2?")
    ]  # fmt: skip
    assert [each["solution"] for each in asked] == ["It is \\boxed{2}.", "It is \\boxed{4}."]


def test_each_method_is_a_job_of_its_answers_with_the_authors_verdicts(data: Path, service: Service) -> None:
    published(data)
    assert list(service.jobs) == NAMES
    assert set(service.graders.values()) == {"math-dataset"}
    for name in NAMES:
        assert column(service.lines[name], "id", "repeat", "text", "score") == [
            ("train/prealgebra/1.json", 0, TEXTS[0], 1), ("train/prealgebra/2.json", 0, TEXTS[1], 0),
            ("train/prealgebra/1.json", 1, TEXTS[0], 1), ("train/prealgebra/2.json", 1, TEXTS[2], 1),
        ]  # fmt: skip


def test_both_verdicts_and_the_comparison_with_the_gate_are_printed(data: Path, service: Service) -> None:
    ended = published(data)
    rows = [line.split("  ") for line in ended.stdout.splitlines() if "75.0 %" in line]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        [method, "75.0 %", "90.0 % (82.6 to 94.5), mean of 100 items, 500 answers", "1 of 4"] for method in METHODS
    ]
    assert "gate  dense    not separable at n = 500: +0.8 points" in ended.stdout


def test_the_gate_is_what_every_method_is_compared_with(data: Path, server: Server, service: Service) -> None:
    requests = server(service)
    published(data)
    (asked,) = [request for request in requests if request.url.path == "/v1/comparison"]
    ids = [job["id"] for job in service.jobs.values()]
    assert asked.url.params.multi_items() == [*(("job", id_) for id_ in ids), ("baseline", ids[-1])]


def test_json_has_all_figures_and_nothing_else_on_standard_output(data: Path, service: Service) -> None:
    found = msgspec.json.decode(published(data, "--json").stdout)
    assert (found["experiment"], found["grader"]) == (EXPERIMENT, "math-dataset")
    assert column(found["methods"], "method", "published") == [(method, 0.75) for method in METHODS]
    assert found["comparison"] == COMPARISON


def test_a_second_run_imports_nothing(data: Path, service: Service) -> None:
    first = published(data)
    service.posted.clear()
    second = published(data)
    assert (service.posted, second.stdout) == (["/v1/datasets"], first.stdout)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--grader", "math"), "published-dense-math"),
        (("--experiment", "20251125_000000"), "published-dense-20251125_000000"),
        (("--name", "again"), "again-dense"),
    ],
)
def test_other_options_are_other_jobs(data: Path, service: Service, options: tuple[str, str], name: str) -> None:
    published(data)
    assert published(data, *options).exit_code == Exit.DONE
    assert list(service.jobs)[len(METHODS)] == name


@pytest.mark.parametrize(
    ("dataset", "grader", "pipeline"),
    [
        ("other", "math-dataset", "imported"),
        ("published", "text", "imported"),
        ("published", "math-dataset", "dense"),
    ],
)
def test_a_name_that_another_job_has_is_refused(
    data: Path, service: Service, dataset: str, grader: str, pipeline: str
) -> None:
    service.add("published-sparse", dataset, grader, pipeline)
    ended = published(data)
    assert ended.exit_code == Exit.CONFLICT
    said = f"job published-sparse exists, and is of pipeline {pipeline}, dataset {dataset} and grader {grader}"
    assert said in ended.stderr
    assert "fix: choose another name: --name NAME" in ended.stderr


def test_a_dataset_with_other_questions_is_refused_before_any_job(data: Path, service: Service) -> None:
    problem = {"type": "urn:mathrag:conflict", "detail": "dataset 'published' exists", "hint": "choose another name"}
    service.refusal = 409, problem
    ended = published(data)
    assert (ended.exit_code, service.posted) == (Exit.CONFLICT, ["/v1/datasets"])


def test_a_job_that_did_not_complete_has_no_table(data: Path, service: Service) -> None:
    service.state = "cancelled"
    ended = published(data)
    assert (ended.exit_code, ended.stdout) == (Exit.UNREACHABLE, "")
    assert "job published-dense is cancelled: cut" in ended.stderr


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("runs.csv", None, "there is no file"),
        ("items.jsonl", '{"item": 1, "problem": "x"}\n', "items.jsonl, line 1: Object missing required field"),
        ("responses.jsonl", '{"response": 1,\n', "responses.jsonl, line 1: "),
        ("responses.jsonl", '{"response": 7, "text": ""}\n', "names number 1 of responses.jsonl"),
        ("runs.csv", "experiment,run,method,item,response,published_correct\nx,1,bm25,1,1,1\n", "runs.csv, line 2: "),
        ("runs.csv", "experiment,run,method,item,response,published_correct\nx,1,dense,1,1,maybe\n", "line 2: "),
        ("train.jsonl", None, "contains none of train.jsonl"),
        ("train.jsonl", '{"problem": "What is 1 + 1?", "solution": "2"}\n', "lacks 1 of the 2 questions"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_before_anything_is_sent(
    data: Path, service: Service, file: str, text: str | None, said: str
) -> None:
    (data / file).unlink()
    if text is not None:
        (data / file).write_text(text)
    ended = published(data)
    assert said in ended.stderr
    assert (ended.exit_code in (Exit.NOT_FOUND, Exit.INVALID), service.posted) == (True, [])


def test_an_experiment_without_runs_is_refused_with_those_that_there_are(data: Path, service: Service) -> None:
    ended = published(data, "--experiment", "1999")
    assert "has no runs of dense, sparse, hybrid, mathrag-gate in experiment '1999'" in ended.stderr
    assert f"{EXPERIMENT}, 20251125_000000" in ended.stderr


def test_the_training_set_may_lie_elsewhere(data: Path, service: Service) -> None:
    (data / "train.jsonl").rename(data / "math.jsonl")
    assert published(data, "--problems", str(data / "math.jsonl")).exit_code == Exit.DONE


# One question from the command line: what is found for it, and what a pipeline answers.

HIT = {
    "id": "algebra/17", "hash": "9f2c", "problem": "What is 2+2?", "text": "4", "truncated": False, "rank": 1,
    "score": 0.5, "dense_rank": 2, "dense_score": 0.7, "sparse_rank": 1, "sparse_score": 8.4, "relevance": None,
    "paths": None,
}  # fmt: skip
FOUND = {"corpus": "math", "mode": "hybrid", "hits": [HIT], "duplicates": [], "action": None, "decisions": []}
ASKED = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "url": "/v1/jobs/x", "state": "running", "pipeline": "hybrid",
    "price": {"loads": 1, "load_s": None, "loads_back": 0, "calls": {"generate": 1}, "calls_before": 0},
}  # fmt: skip
SAMPLE = {
    "outcome": {"answer": "5", "trace": {"decisions": [{"stage": "rerank", "action": "none", "fallback": "timeout"}]}},
    "text": "So it is 5.", "failure": None, "detail": None,
    "documents": {"9f2c": {"problem": "What is 2+2?", "text": "4"}},
}  # fmt: skip


def answering(state: str = "completed", sample: object = SAMPLE) -> Handler:
    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path.endswith("/samples/0"):
            return httpx2.Response(200, json=sample)
        if path.startswith("/v1/jobs/"):
            return httpx2.Response(200, json=commands_job(state, done=2))
        if path == "/v1/corpora":
            return httpx2.Response(200, json={"data": [{"name": "math"}], "next_cursor": None})
        return httpx2.Response(200, json=FOUND) if path == "/v1/search" else httpx2.Response(202, json=ASKED)

    return answer


def test_a_search_prints_documents_with_their_ranks(server: Server) -> None:
    requests = server(answering())
    ended = mathrag("search", "What is 2+3?", "--k", "3", "--set", "rrf_k=10")
    assert ended.exit_code == Exit.DONE, ended.output
    assert "1. algebra/17  score 0.5000 (dense 2, sparse 1)" in ended.stdout
    sent = msgspec.json.decode(requests[-1].content)
    assert (sent["corpus"], sent["k"], sent["params"]) == ("math", 3, {"rrf_k": 10})


def test_a_chat_shows_progress_and_then_the_answer_with_its_documents(server: Server) -> None:
    server(answering())
    ended = mathrag("chat", "What is 2+3?", "--corpus", "math")
    assert ended.exit_code == Exit.DONE, ended.output
    assert "hybrid: generate 1 at most, 1 model to load first" in ended.stderr
    for words in ("So it is 5.", "answer          5", "What is 2+2? 4", "left out: timeout"):
        assert words in ended.stdout


def test_a_chat_that_failed_says_why_and_exits_with_a_finding(server: Server) -> None:
    failed = {**SAMPLE, "outcome": None, "text": None, "failure": "context_exceeded", "detail": "too long"}
    server(answering(sample=failed))
    ended = mathrag("chat", "What is 2+3?")
    assert ended.exit_code == Exit.FINDING
    assert "context_exceeded: too long" in ended.stdout


def test_the_version_is_printed() -> None:
    ended = mathrag("--version")
    assert ended.exit_code == Exit.DONE
    assert ended.stdout.startswith(f"mathrag {version('mathrag-gate')}")


def test_datasets_and_corpora_are_shown_and_previewed(server: Server) -> None:
    item = {"index": 0, "id": "a", "question": "x" * 1000, "gold": "5", "subject": None, "level": None}
    server(lambda _: httpx2.Response(200, json={"data": [item], "next_cursor": None}))
    shown = mathrag("dataset", "preview", "items").stdout
    assert ("x ..." in shown, "gold" in shown) == (True, True)
    assert "x" * 1000 in mathrag("dataset", "preview", "items", "--json").stdout
    corpus = {"name": "docs", "documents": 3, "indexed": True, "hash": "ab", "created_at": "2026-11-22T08:00:00Z"}
    server(lambda _: httpx2.Response(200, json=corpus))
    assert "documents       3" in mathrag("corpus", "show", "docs").stdout


# `mathrag service install`: the text of the unit, and what is refused.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("SUDO_USER", raising=False)
    return tmp_path


def print_unit(*options: str) -> str:
    ended = mathrag("service", "install", "--print", *options)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def parse_unit(text: str) -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def test_the_unit_runs_the_stack_in_the_foreground_and_stops_it_in_order(folder: Path) -> None:
    unit = parse_unit(print_unit("--data-dir", "data", "--port", "18241"))
    run = unit["Service"]
    assert run["ExecStart"] == (
        f'"{sys.executable}" "-m" "mathrag.cli.main" "up" "--data-dir" "{folder}/data" "--port" "18241"'
    )
    assert run["WorkingDirectory"] == str(folder)
    assert (run["KillMode"], run["OOMPolicy"], run["UMask"]) == ("mixed", "continue", "0077")
    assert (run["Restart"], run["RestartPreventExitStatus"]) == (
        "on-failure", f"{Exit.USAGE.value} {Exit.INVALID.value}",
    )  # fmt: skip
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_system_runs_the_stack_as_the_user_who_called_sudo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    assert parse_unit(print_unit())["Service"]["User"] == "alice"
    assert "User" not in parse_unit(print_unit("--user"))["Service"]


def test_a_unit_of_a_user_belongs_to_no_target_of_the_system(folder: Path) -> None:
    unit = print_unit("--user")
    assert parse_unit(unit)["Install"]["WantedBy"] == "default.target"
    assert "network-online" not in unit


def test_characters_that_systemd_replaces_are_written_so_that_it_does_not(folder: Path) -> None:
    run = parse_unit(print_unit("--data-dir", '50% "$HOME" \\n'))["Service"]
    assert f'"--data-dir" "{folder}/50%% \\"$$HOME\\" \\\\n"' in run["ExecStart"]


def test_a_folder_with_a_line_break_is_refused(folder: Path) -> None:
    ended = mathrag("service", "install", "--print", "--data-dir", "a\nExecStartPre=/bin/false")
    assert (ended.exit_code, "cannot hold" in ended.stderr, ended.stdout) == (Exit.INVALID, True, "")


def test_paths_of_the_configuration_are_in_the_unit_and_secrets_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", "other.yaml")
    monkeypatch.setenv("MATHRAG_SERVICE_KEY", "topsecret")
    ended = mathrag("service", "install", "--user")
    unit = (folder / "config" / "systemd" / "user" / "mathrag.service").read_text()
    assert f'Environment="MATHRAG_CONFIG={folder}/other.yaml"' in unit
    assert 'Environment="PATH=/usr/bin:/bin"' in unit
    assert "topsecret" not in unit + ended.output
    assert "does not set MATHRAG_SERVICE_KEY" in ended.stderr


def test_a_unit_is_written_once_and_replaced_only_when_that_is_asked_for(folder: Path) -> None:
    ended = mathrag("service", "install", "--user", "--json")
    written = Path(json.loads(ended.stdout)["unit"])
    assert written == folder / "config" / "systemd" / "user" / "mathrag.service"
    before = written.read_text()
    again = mathrag("service", "install", "--user", "--port", "9000")
    assert (again.exit_code, "--force" in again.stderr) == (Exit.CONFLICT, True)
    assert written.read_text() == before
    forced = mathrag("service", "install", "--user", "--port", "9000", "--force")
    assert "systemctl --user enable --now mathrag" in forced.stdout
    assert '"--port" "9000"' in written.read_text()


def test_systemd_accepts_the_unit(folder: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd-analyze is not installed")
    unit = folder / "mathrag.service"
    unit.write_text(print_unit("--data-dir", '50% "$HOME"'))
    done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr}")
    assert (done.returncode, "mathrag.service" in done.stderr) == (0, False), done.stderr
