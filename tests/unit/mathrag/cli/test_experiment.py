"""`mathrag experiment`: what it reads, asks, shows, and how it ends."""

from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import msgspec
import pytest
import yaml

from mathrag.cli.output import Exit, Failed
from mathrag.client.client import Client
from mathrag.client.waiting import follow_experiment
from services.orchestrator.api.examples import make_example
from shared.experiments import EXAMPLE, Experiment, schema
from shared.settings import REPOSITORY
from tests.unit.commands import Server, mathrag, refuses, says

EXPERIMENT = make_example("ExperimentView")
PLAN = make_example("ExperimentPlan")
EXPERIMENT_REPORT = make_example("ExperimentReport")
COMPARISON = make_example("Comparison")

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
    (None, "cannot be read: No such file or directory", Exit.NOT_FOUND), ("a: [", "line 1, column 5", Exit.INVALID),
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
    server(refuses(422, "invalid", "`grid.gate.tua`: unknown parameter", "fields of `params.gate`: tau"))
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
