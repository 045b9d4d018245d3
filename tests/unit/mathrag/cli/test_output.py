"""`mathrag experiment`: what it reads, asks, shows, and how it ends."""

import json
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import msgspec
import pytest
import yaml

from mathrag.cli import output
from mathrag.cli.output import Exit, Failed, parse_parameters
from mathrag.client import address as address_module
from mathrag.client import waiting
from mathrag.client.client import Client
from mathrag.client.waiting import follow_experiment
from mathrag.stack import control
from services.orchestrator.api.experiments import EXAMPLE as EXPERIMENT
from services.orchestrator.api.experiments import PLAN
from services.orchestrator.api.experiments import REPORT as EXPERIMENT_REPORT
from services.orchestrator.api.gpus import EMPTIED, QUARANTINED
from services.orchestrator.api.gpus import EXAMPLE as GPUS_EXAMPLE
from services.orchestrator.api.plans import ANSWER
from services.orchestrator.reports.comparison import EXAMPLE as COMPARISON
from shared.experiments import EXAMPLE, Experiment, schema
from shared.settings import REPOSITORY
from tests.unit.commands import JOB, Server, job, mathrag, refuses, says

RUNNING = {**EXPERIMENT, "state": "running", "jobs": {"running": 1}, "eta_seconds": 12}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(EXAMPLE))
    return file


def test_a_file_is_submitted_whole_and_once(server: Server, file: Path) -> None:
    requests = server(says(RUNNING, 202))
    ended = mathrag("experiment", "run", str(file))
    assert (ended.exit_code, requests[0].method, requests[0].url.path) == (0, "POST", "/v1/experiments")
    assert msgspec.json.decode(requests[0].content) == EXAMPLE
    assert requests[0].headers["idempotency-key"]
    assert "experiment gate-or-not is submitted: 1 cell, 1 job" in ended.stdout
    assert "mathrag experiment watch gate-or-not" in ended.stdout


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_reuse_on_the_command_line_goes_before_that_of_the_file(server: Server, file: Path, verb: str) -> None:
    requests = server(refuses(422, "invalid", "no"))
    mathrag("experiment", verb, str(file), "--reuse", "none")
    assert msgspec.json.decode(requests[0].content) == {**EXAMPLE, "reuse": "none"}


@pytest.mark.parametrize(("content", "said", "code"), [
    (None, "no file", Exit.NOT_FOUND), ("a: [", "line 1, column 5", Exit.INVALID),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_not_sent(
    server: Server, tmp_path: Path, content: str | None, said: str, code: Exit
) -> None:
    requests = server(says(RUNNING))
    if content is not None:
        (tmp_path / "e.yaml").write_text(content)
    ended = mathrag("experiment", "run", str(tmp_path / "e.yaml"))
    assert (ended.exit_code, said in ended.stderr, requests) == (code, True, [])


def test_a_refusal_is_shown_with_its_fix(server: Server, file: Path) -> None:
    server(refuses(422, "invalid", "`grid.gate.tua`: there is no such parameter", "fields of `params.gate`: tau"))
    ended = mathrag("experiment", "run", str(file))
    assert ended.exit_code == Exit.INVALID
    assert "`grid.gate.tua`" in ended.stderr
    assert "fix: fields of `params.gate`: tau" in ended.stderr


def test_a_plan_is_asked_for_without_making_anything(server: Server, file: Path) -> None:
    requests = server(says(PLAN))
    ended = mathrag("experiment", "plan", str(file))
    assert (ended.exit_code, requests[0].url.path) == (0, "/v1/experiments/plan")
    lines = ended.stdout.splitlines()
    assert lines[0] == "gate-or-not: 4 cells, 4 jobs, 2000 samples"
    assert ["judge", "7500", "11000"] in [line.split() for line in lines]
    assert "for these calls: 1 model loads, 5 s (measured)" in lines
    assert "world-judge: memory declared; a load measured (its last loads here)" in ended.stdout
    assert f"  note: {PLAN['notes'][0]}" in lines


def test_cells_are_shown_with_their_jobs(server: Server) -> None:
    refused = {**EXPERIMENT["grid"][0], "state": "refused", "job": None, "job_name": None, "refused": "both 0"}
    server(says({**EXPERIMENT, "grid": [*EXPERIMENT["grid"], refused]}))
    lines = mathrag("experiment", "show", "gate-or-not").stdout.splitlines()
    assert lines[0] == "gate-or-not  completed  jobs 1 completed  samples 500/500"
    assert lines[2].split() == ["0", "math-500", "dense", "context_size=1", "0", "gate-or-not-dense-1", "completed"]
    assert "  refused: both 0" in lines


def test_a_report_has_a_row_for_every_cell_and_says_what_differs(server: Server) -> None:
    compared = {"pooled": COMPARISON, "datasets": {"world-1": COMPARISON}}
    requests = server(says({**EXPERIMENT_REPORT, "comparisons": compared, "notes": ["beware"]}))
    said = mathrag("experiment", "report", "gate-or-not").stdout
    assert requests[0].url.path == "/v1/experiments/gate-or-not/report"
    assert "61.0 % (56.7 to 65.2), 305 of 500" in said
    assert "calls made      generate 500, grade 500, retrieve 500" in said
    assert [line.split()[:2] for line in said.splitlines() if "VERDICT" in line] == [
        ["world-1", "AGAINST"], ["ALL", "DATASETS"],
    ]  # fmt: skip
    assert COMPARISON["pairs"][0]["words"] in said
    assert "note: beware" in said


def test_a_report_by_another_measure_has_its_column(server: Server) -> None:
    requests = server(says({**EXPERIMENT_REPORT, "measure": "answer@10"}))
    said = mathrag("experiment", "report", "gate-or-not", "--measure", "answer@10").stdout
    assert requests[0].url.params["measure"] == "answer@10"
    assert "ANSWER@10 (95 %)" in said
    assert "61.0 % (56.7 to 65.2), 500 items" in said


def test_a_report_without_comparisons_is_no_less(server: Server) -> None:
    server(says(EXPERIMENT_REPORT))
    assert mathrag("experiment", "report", "gate-or-not").exit_code == 0


@pytest.mark.parametrize(("verb", "following"), [("cancel", "show"), ("resume", "watch")])
def test_a_change_says_how_it_stands_and_what_to_run_next(server: Server, verb: str, following: str) -> None:
    requests = server(says(RUNNING, 202))
    ended = mathrag("experiment", verb, "gate-or-not")
    assert [request.url.path for request in requests] == [f"/v1/experiments/gate-or-not/{verb}"]
    assert "gate-or-not  running  jobs 1 running  samples 500/500  eta 12 s" in ended.stdout
    assert f"mathrag experiment {following} gate-or-not" in ended.stdout


def test_a_bare_noun_lists(server: Server) -> None:
    server(says({"data": [EXPERIMENT], "next_cursor": None}))
    line = mathrag("experiment").stdout.splitlines()[1]
    assert line.split() == ["6b0c1e9e", "gate-or-not", "completed", "1", "1", "completed"]
    server(says({"data": [], "next_cursor": None}))
    assert "mathrag experiment run" in mathrag("experiment", "list").stdout


def test_watching_ends_as_the_experiment_does(server: Server) -> None:
    server(says(EXPERIMENT))
    assert mathrag("experiment", "watch", "gate-or-not").exit_code == 0
    server(says({**EXPERIMENT, "state": "failed"}))
    ended = mathrag("experiment", "watch", "gate-or-not", "--json")
    assert (ended.exit_code, msgspec.json.decode(ended.stdout)["state"]) == (Exit.FINDING, "failed")


def test_whoever_watches_waits_for_a_server_that_is_away_for_a_while(server: Server) -> None:
    answers = iter([RUNNING, None, RUNNING, EXPERIMENT])

    def answer(request: httpx2.Request) -> httpx2.Response:
        found = next(answers)
        if found is None:
            raise httpx2.ConnectError("away", request=request)
        return httpx2.Response(200, json=found)

    requests = server(answer)
    with Client("http://127.0.0.1:1") as client:
        states = [
            found["state"]
            for found in follow_experiment(client, "gate-or-not", sleep=lambda _: None, clock=lambda: 0.0)
        ]
    assert states == ["running", "running", "completed"]
    assert [request.url.path.rsplit("/", 1)[1] for request in requests] == ["gate-or-not", *[EXPERIMENT["id"]] * 3]


def test_a_server_that_stays_away_ends_the_watch(server: Server) -> None:
    answers = iter([RUNNING])

    def answer(request: httpx2.Request) -> httpx2.Response:
        if (found := next(answers, None)) is None:
            raise httpx2.ConnectError("away", request=request)
        return httpx2.Response(200, json=found)

    server(answer)
    times = iter(range(0, 10_000, 30))
    with Client("http://127.0.0.1:1") as client, pytest.raises(Failed, match="no answer"):
        list(follow_experiment(client, "e", sleep=lambda _: None, clock=lambda: next(times)))


def test_the_schema_is_committed_as_it_is() -> None:
    assert (REPOSITORY / "experiment-schema.json").read_text("utf-8") == schema() + "\n"
    assert mathrag("experiment", "schema").stdout == schema() + "\n"


@pytest.mark.parametrize(("change", "valid"), [
    ({}, True), ({"params": {"gate": {"tau": 0.3}}}, True), ({"params": {"gate": {"tua": 0.3}}}, False),
    ({"params": {"candidates": "ten"}}, False), ({"grid": {"rrf_k": []}}, False), ({"naem": "x"}, False),
    ({"variants": [{"name": "x", "pipeline": "dense", "params": {"no": 1}}]}, False), ({"variants": []}, False),
])  # fmt: skip
def test_an_editor_knows_what_may_stand_in_a_file(change: dict[str, Any], valid: bool) -> None:
    validator = jsonschema_rs.Draft202012Validator(msgspec.json.decode(schema()))
    assert validator.is_valid({**EXAMPLE, **change}) is valid


def test_the_example_of_the_page_is_an_experiment() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "experiments.md").read_text("utf-8")
    shown = page.split('```yaml title="gate-or-not.yaml"\n', 1)[1].split("```", 1)[0]
    assert shown.startswith("# yaml-language-server: $schema=")
    Experiment(**yaml.safe_load(shown))
    assert jsonschema_rs.Draft202012Validator(msgspec.json.decode(schema())).is_valid(yaml.safe_load(shown))


# Devices, models and pipelines on the command line.


def test_a_device_is_shown_with_what_it_holds_and_why(server: Server) -> None:
    server(says([GPUS_EXAMPLE]))
    shown = mathrag("gpu").stdout
    assert "cpu:0: open" in shown
    assert "96 declared, 41.5 measured, of 160" in shown
    assert "open, epoch 12, 8 calls in flight" in shown
    assert "world-judge, because drained, loaded in 0.42 s" in shown


def test_a_drained_device_says_why_and_how_to_use_it_again(server: Server) -> None:
    server(says(EMPTIED))
    shown = mathrag("gpu", "status", "cpu:0").stdout
    assert "driver update" in shown
    assert "next: mathrag gpu release cpu:0" in shown


def test_a_guard_that_does_not_answer_is_said(server: Server) -> None:
    away = {"reachable": False, "state": None, "epoch": None, "in_flight": None, "detail": "refused"}
    server(says([{**GPUS_EXAMPLE, "guard": away}]))
    assert "does not answer: refused" in mathrag("gpu").stdout


@pytest.mark.parametrize("verb", ["drain", "release", "retry"])
def test_the_only_device_need_not_be_named(server: Server, verb: str) -> None:
    requests = server(lambda r: httpx2.Response(200, json=[GPUS_EXAMPLE] if r.method == "GET" else EMPTIED))
    assert mathrag("gpu", verb).exit_code == 0
    assert [request.url.raw_path for request in requests] == [b"/v1/gpus", f"/v1/gpus/cpu%3A0/{verb}".encode()]


@pytest.mark.parametrize(
    ("found", "said"),
    [(QUARANTINED, "device cpu:0 is tried again"), (GPUS_EXAMPLE, "device cpu:0 is open, not quarantined")],
)
def test_a_retry_says_whether_there_is_anything_to_try(server: Server, found: object, said: str) -> None:
    server(says(found, 202))
    assert mathrag("gpu", "retry", "cpu:0").stdout.splitlines()[0] == said


def test_a_quarantined_device_says_how_to_try_it_again(server: Server) -> None:
    server(says(QUARANTINED))
    assert "next: mathrag gpu retry cpu:0" in mathrag("gpu", "status", "cpu:0").stdout


def test_of_several_devices_one_must_be_named(server: Server) -> None:
    requests = server(says([{"device": "a"}, {"device": "b"}]))
    ended = mathrag("gpu", "drain")
    assert (ended.exit_code, "a, b" in ended.stderr) == (Exit.USAGE, True)
    assert len(requests) == 1


def test_the_reason_goes_along(server: Server) -> None:
    requests = server(says(EMPTIED, 202))
    assert msgspec.json.decode(mathrag("gpu", "drain", "cpu:0", "--reason", "r", "--json").stdout) == EMPTIED
    assert msgspec.json.decode(requests[0].content) == {"reason": "r"}


def test_models_are_listed_with_their_roles(server: Server) -> None:
    model = {"name": "m", "driver": "process", "default_for": ["judge"], "context": 1024, "footprint_mib": 96}
    server(says([{**model, "registered": True, "digest": "ab" * 32}]))
    assert mathrag("model").stdout.splitlines()[1].split() == ["m", "process", "judge", "1024", "96", "yes", "ab" * 6]


def test_pipelines_are_listed_with_what_they_do(server: Server) -> None:
    found = [{"name": "dense", "summary": "Retrieve, then generate.", "calibrated": False, "hash": "cd" * 32}]
    server(says(found))
    assert "Retrieve, then generate." in mathrag("pipeline").stdout
    assert msgspec.json.decode(mathrag("pipeline", "list", "--json").stdout) == found


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
    assert ("no file" in ended.stderr, requests) == (True, [])


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


# The command line against a server that says what a test tells it to.


def test_a_submission_sends_what_was_asked_for(server: Server) -> None:
    requests = server(says(JOB, 202))
    options = ("--name", "first", "--dataset", "d", "--corpus", "c", "--pipeline", "dense", "--repeats", "3")
    more = ("--set", "gate.tau=0.3", "--set", "candidates=5", "--model", "judge=j", "--reuse", "none")
    ended = mathrag("job", "submit", *options, *more)
    assert ended.exit_code == 0
    assert "mathrag job watch 6b0c1e9e" in ended.stdout
    assert msgspec.json.decode(requests[0].content) == {
        "name": "first", "dataset": "d", "corpus": "c", "pipeline": "dense", "repeats": 3, "reuse": "none",
        "params": {"gate": {"tau": 0.3}, "candidates": 5}, "models": {"judge": "j"}, "rank": 100, "metadata": {},
    }  # fmt: skip


def test_parameters_are_json_where_they_can_be_and_text_elsewhere() -> None:
    settings = ["anchors.negative=no = steps", 'anchors.positive="1"', "gate.items=3", "gate.tau=-0.5"]
    assert parse_parameters(settings) == {
        "anchors": {"negative": "no = steps", "positive": "1"},
        "gate": {"items": 3, "tau": -0.5},
    }


@pytest.mark.parametrize("setting", ["tau", "=1", "gate..tau=1", ".=1"])
def test_a_setting_that_is_no_pair_is_a_usage_error(setting: str) -> None:
    ended = mathrag("job", "submit", "--name", "a", "--dataset", "d", "--pipeline", "p", "--set", setting)
    assert ended.exit_code == output.Exit.USAGE
    assert "key=value" in ended.stderr


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(404, "not_found", 3), (422, "invalid", 4), (422, "invalid_line", 4), (413, "too_large", 4), (409, "conflict", 5),
     (503, "unavailable", 6), (500, "internal", 7), (418, "teapot", 7)],
)  # fmt: skip
def test_a_problem_becomes_words_and_an_exit_code(server: Server, status: int, kind: str, code: int) -> None:
    server(refuses(status, kind, "so it is", "do this"))
    ended = mathrag("job", "show", "first")
    assert (ended.exit_code, ended.stdout) == (code, "")
    assert ended.stderr == "error: so it is\n  fix: do this\n"


def test_errors_are_json_where_json_was_asked_for(server: Server) -> None:
    server(refuses(404, "not_found", "no job 'x'"))
    ended = mathrag("job", "show", "x", "--json")
    error = {"kind": "not_found", "message": "no job 'x'", "hint": None}
    assert msgspec.json.decode(ended.stderr) == {"error": error}


def test_a_server_that_is_not_there_is_said_to_be_unreachable(server: Server) -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    server(refused)
    ended = mathrag("job", "list")
    assert ended.exit_code == output.Exit.UNREACHABLE
    assert "no answer from http" in ended.stderr
    assert "mathrag up" in ended.stderr


@pytest.mark.parametrize("address", ["example.org", "ftp://example.org", "http://", "http://["])
def test_an_address_that_is_none_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("MATHRAG_URL", address)
    ended = mathrag("job", "list")
    assert (ended.exit_code, address in ended.stderr) == (output.Exit.USAGE, True)


def test_a_defect_of_ours_has_its_own_exit_code(server: Server) -> None:
    server(says({"data": [{}], "next_cursor": None}))
    ended = mathrag("job", "list")
    assert (ended.exit_code, ended.stderr.startswith("error: KeyError")) == (output.Exit.INTERNAL, True)


def test_an_interrupted_watch_leaves_the_job_alone(server: Server) -> None:
    def interrupt(_: httpx2.Request) -> httpx2.Response:
        raise KeyboardInterrupt

    requests = server(interrupt)
    assert mathrag("job", "watch", "first").exit_code == output.Exit.INTERRUPTED
    assert [request.method for request in requests] == ["GET"]


def test_another_server_is_recognised_as_such(server: Server) -> None:
    server(lambda _: httpx2.Response(502, text="<html>"))
    ended = mathrag("job", "list")
    assert (ended.exit_code, "answered 502" in ended.stderr) == (output.Exit.INTERNAL, True)


def test_references_are_one_part_of_the_path(server: Server) -> None:
    requests = server(says(job("completed")))
    assert mathrag("job", "show", "a/../b?c").exit_code == 0
    assert requests[0].url.raw_path == b"/v1/jobs/a%2F..%2Fb%3Fc"


def _write_state(data_dir: Path, phase: address_module.Phase) -> None:
    address_module.write_state(
        data_dir, address_module.State(pid=1, url="http://127.0.0.1:9", phase=phase, children=())
    )


def test_the_address_is_the_environments_then_the_running_stacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("MATHRAG_URL", "MATHRAG_DATA_DIR", "MATHRAG_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert address_module.url() == address_module.DEFAULT
    (data_dir := tmp_path / ".mathrag").mkdir()
    _write_state(data_dir, "running")
    assert address_module.url() == "http://127.0.0.1:9"
    _write_state(data_dir, "stopped")
    assert address_module.url() == address_module.DEFAULT
    monkeypatch.setenv("MATHRAG_URL", "http://example.org/")
    assert address_module.url() == "http://example.org"


def test_a_data_folder_that_is_named_leads_to_the_stack_that_runs_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    with control.hold(tmp_path):
        _write_state(tmp_path, "running")
        assert address_module.url(tmp_path) == "http://127.0.0.1:9"
        monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path))
        assert address_module.url() == "http://127.0.0.1:9"


@pytest.mark.parametrize("phase", [None, "stopped", "running"])
def test_a_command_never_goes_to_another_stack_than_that_of_the_named_folder(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: address_module.Phase | None
) -> None:
    if phase:
        _write_state(tmp_path, phase)
    monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path))
    requests = server(says(job("cancelled")))
    ended = mathrag("job", "cancel", "first")
    assert (ended.exit_code, requests) == (output.Exit.UNREACHABLE, [])
    assert f"no stack runs on {tmp_path}" in ended.stderr
    assert f"mathrag up --detach --data-dir {tmp_path}" in ended.stderr


def test_a_command_for_a_stack_that_is_starting_is_told_to_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path))
    requests = server(says(job("cancelled")))
    with control.hold(tmp_path):
        _write_state(tmp_path, "starting")
        ended = mathrag("job", "cancel", "first")
    assert (ended.exit_code, requests) == (output.Exit.UNREACHABLE, [])
    assert f"mathrag status --data-dir {tmp_path}" in ended.stderr


def test_watching_prints_one_line_per_change_and_ends_with_the_job(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_S", 0)
    looks = iter([job("running"), job("running"), job("running", 1), job("completed", 2)])

    def answer(request: httpx2.Request) -> httpx2.Response:
        no_stream = request.url.path.endswith("/events")
        return httpx2.Response(404, json={}) if no_stream else httpx2.Response(200, json=next(looks))

    server(answer)
    ended = mathrag("job", "watch", "first")
    assert ended.exit_code == 0
    assert [line for line in ended.stdout.splitlines() if "samples " in line and "first" in line] == [
        "first  running  samples 0/2", "first  running  samples 1/2", "first  completed  samples 2/2",
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_job_that_did_not_complete_exits_with_1(server: Server, state: str) -> None:
    server(says(job(state)))
    assert mathrag("job", "watch", "first").exit_code == output.Exit.FINDING


def test_json_is_all_that_is_printed_when_it_was_asked_for(server: Server) -> None:
    server(says(job("completed", 2)))
    assert msgspec.json.decode(mathrag("job", "watch", "first", "--json").stdout) == job("completed", 2)


def test_an_audit_with_violations_exits_with_1_and_names_their_rows(server: Server) -> None:
    rows = [f"attempts {number}" for number in range(17, 24)]
    broken = {"invariant": "I5", "message": "answered without a claim", "rows": rows}
    violation = {**broken, "items": [3, 7], "item_count": 4}
    server(says({"clean": False, "violations": [violation]}))
    ended = mathrag("audit", "first")
    assert ended.exit_code == output.Exit.FINDING
    assert "I5: answered without a claim\n  items 3, 7 and 2 more: mathrag sample show first 3\n" in ended.stdout
    assert "attempts 21 and 2 more\n" in ended.stdout
    server(says({"clean": True, "violations": []}))
    assert mathrag("audit", "first").exit_code == 0


def test_an_audit_counts_what_a_changed_pipeline_does_not_replay_apart_from_violations(server: Server) -> None:
    note = "pipeline changed: the job ran version 0a of `dense`, this program has 1b"
    finding = {"invariant": "I18", "message": "m", "rows": ["samples 1"], "items": [], "source_changed": True}
    server(says({"clean": False, "violations": [finding], "source_changed": note}))
    ended = mathrag("audit", "first")
    assert ended.exit_code == output.Exit.FINDING
    assert ended.stdout.splitlines()[-2:] == [note, "job first: pipeline changed: 1 findings"]
    server(says({"clean": True, "violations": [], "source_changed": note}))
    ended = mathrag("audit", "first")
    assert (ended.exit_code, ended.stdout) == (0, f"{note}\njob first: clean\n")


def test_results_are_passed_through_as_they_are(server: Server) -> None:
    server(lambda _: httpx2.Response(200, content=b'{"index":0}\n{"index":1}\n'))
    assert mathrag("job", "results", "first").stdout == '{"index":0}\n{"index":1}\n'


def test_lists_follow_the_cursor_to_the_end(server: Server) -> None:
    row = {"items": 1, "grader": None, "created_at": "2026-11-21T08:00:00Z"}
    pages = {None: ("a", "x"), "x": ("b", None)}

    def page(request: httpx2.Request) -> httpx2.Response:
        name, cursor = pages[request.url.params.get("cursor")]
        return httpx2.Response(200, json={"data": [{**row, "name": name}], "next_cursor": cursor})

    server(page)
    assert [line.split()[0] for line in mathrag("dataset", "list").stdout.splitlines()] == ["NAME", "a", "b"]


def test_help_shows_defaults_that_settings_decide() -> None:
    assert "default: 8080" in " ".join(mathrag("up", "--help").output.split())


# `mathrag plan`: what it asks, what it shows, and how it ends.

REFUSED = {
    "name": "together", "residencies": [], "loads": 2, "flips": 0, "seconds": 9.0, "basis": "assumed",
    "refused": "192 MiB (a 96 with slots: 4, b 96 with slots: 4) of 160 on cpu:0",
}  # fmt: skip
HOPELESS: dict[str, Any] = {"chosen": None, "why": "b fits nowhere", "others": [REFUSED], "resident": {"cpu:0": []}}


def test_a_job_is_planned_by_its_name(server: Server) -> None:
    requests = server(says({**ANSWER, "others": [REFUSED], "resident": {"cpu:0": ["world-judge"]}}))
    ended = mathrag("plan", "first")
    assert (ended.exit_code, requests[0].method, requests[0].url.path) == (0, "GET", "/v1/jobs/first/plan")
    assert "the only way that fits" in ended.stdout
    assert "cpu:0 holds world-judge now" in ended.stdout
    assert "world-judge x8" in ended.stdout
    assert "memory declared; a load measured (its last loads here); a call measured (its last calls)" in ended.stdout
    assert "192 MiB (a 96 with slots: 4, b 96 with slots: 4) of 160 on cpu:0" in ended.stdout


def test_a_job_that_is_not_submitted_is_asked_as_a_job_is(server: Server) -> None:
    requests = server(says(ANSWER))
    arguments = ("--pipeline", "p", "--dataset", "d", "--corpus", "c", "--repeats", "2", "--set", "gate.tau=0.3")
    assert mathrag("plan", *arguments, "--model", "judge=j", "--budget", "12000").exit_code == 0
    assert requests[0].url.path == "/v1/plan"
    assert msgspec.json.decode(requests[0].content) == {
        "job": {
            "name": "plan", "dataset": "d", "corpus": "c", "pipeline": "p", "repeats": 2,
            "params": {"gate": {"tau": 0.3}}, "models": {"judge": "j"},
        },
        "devices": [{"id": "gpu:0", "budget_mib": 12_000}],
    }  # fmt: skip


def test_models_are_asked_for_by_preset(server: Server) -> None:
    requests = server(says(ANSWER))
    models = ("--models", "judge=qwen2.5-0.5b:f16", "--models", "generate=qwen2.5-7b")
    options = ("--context", "4096", "--parallel", "4", "--kv", "q8_0", "--calls", "9", "--budget", "1", "--budget", "2")
    assert mathrag("plan", *models, *options).exit_code == 0
    same = {"context": 4096, "parallel": 4, "kv": "q8_0", "calls": 9}
    assert msgspec.json.decode(requests[0].content) == {
        "models": [
            {"role": "judge", "preset": "qwen2.5-0.5b", "quantisation": "f16", **same},
            {"role": "generate", "preset": "qwen2.5-7b", **same},
        ],
        "devices": [{"id": "gpu:0", "budget_mib": 1}, {"id": "gpu:1", "budget_mib": 2}],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give exactly one of"),
        (("first", "--models", "judge=x"), "give exactly one of"),
        (("--dataset", "d"), "both --dataset and --pipeline"),
        (("--models", "qwen"), "key=value"),
    ],
)
def test_a_question_must_be_one(server: Server, arguments: tuple[str, ...], said: str) -> None:
    requests = server(says(ANSWER))
    ended = mathrag("plan", *arguments)
    assert (ended.exit_code, said in ended.stderr) == (Exit.USAGE, True)
    assert not requests


def test_where_nothing_fits_the_command_says_so(server: Server) -> None:
    server(says(HOPELESS))
    ended = mathrag("plan", "first")
    assert (ended.exit_code, "b fits nowhere" in ended.stdout) == (Exit.FINDING, True)


def test_a_job_that_wants_nothing_is_no_finding(server: Server) -> None:
    server(says({"chosen": None, "why": "no model is wanted", "others": [], "resident": {"cpu:0": []}}))
    assert mathrag("plan", "first").exit_code == 0


def test_a_program_gets_it_as_it_is(server: Server) -> None:
    server(says(ANSWER))
    assert msgspec.json.decode(mathrag("plan", "first", "--json").stdout) == ANSWER


# `mathrag plugin`: a package to begin with, and what is said of those that are installed.

LISTED = [
    {
        "kind": "pipeline", "name": "vote", "distribution": "mathrag-vote", "version": "1.0", "hash": "ab" * 32,
        "state": "ready", "detail": "", "fix": "", "jobs": [],
    },
    {
        "kind": "pipeline", "name": "gone", "distribution": "mathrag-gone", "version": "1.0", "hash": "cd" * 32,
        "state": "missing", "detail": "it is not installed", "fix": "pip install mathrag-gone==1.0", "jobs": ["first"],
    },
]  # fmt: skip


def test_the_list_says_of_a_bad_one_what_is_wrong_who_waits_and_what_to_do(server: Server) -> None:
    server(says(LISTED))
    said = mathrag("plugin").output
    assert said.splitlines()[1].split() == ["pipeline", "vote", "mathrag-vote", "1.0", "abababababab", "ready"]
    assert said.splitlines()[-1] == (
        "pipeline gone: it is not installed; jobs wait for it: first; fix: pip install mathrag-gone==1.0"
    )


def test_a_new_package_names_its_entry_point(tmp_path: Path) -> None:
    assert mathrag("plugin", "new", "pipeline", "best-of-two", "--out", str(tmp_path)).exit_code == 0
    project = tomllib.loads((tmp_path / "mathrag-best-of-two" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "mathrag-best-of-two"
    assert project["entry-points"] == {"mathrag.pipelines": {"best-of-two": "mathrag_best_of_two:run"}}


def test_a_program_learns_where_the_new_package_is(tmp_path: Path) -> None:
    written = json.loads(mathrag("plugin", "new", "grader", "units", "--out", str(tmp_path), "--json").stdout)
    assert (written["kind"], written["name"]) == ("grader", "units")
    assert (Path(written["folder"]) / "pyproject.toml").is_file()


@pytest.mark.parametrize("name", ["Best", "best_of", "-best", "best-", "a" * 42, "class", "../up", "a b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    done = mathrag("plugin", "new", "pipeline", "--out", str(tmp_path), "--", name)
    assert done.exit_code != 0
    assert "is not a valid name of a plug-in" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["template", "rubric"])
def test_a_kind_that_is_a_file_has_no_package(tmp_path: Path, kind: str) -> None:
    done = mathrag("plugin", "new", kind, "mine", "--out", str(tmp_path))
    assert done.exit_code == Exit.INVALID
    assert f"a {kind} is a file, not a package" in done.output
    assert f"plugins.{kind}s" in done.output
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mathrag-vote").mkdir()
    assert "exists" in mathrag("plugin", "new", "pipeline", "vote", "--out", str(tmp_path)).output
    assert not list((tmp_path / "mathrag-vote").iterdir())
