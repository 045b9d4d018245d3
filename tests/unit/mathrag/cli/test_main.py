"""The command line as a whole: where it asks, how it ends, what it completes."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from click import Context

from mathrag import errors
from mathrag.cli import output
from mathrag.cli.output import CODES, Exit, parse_parameters, split_pairs
from mathrag.client import address as address_module
from mathrag.client import waiting
from mathrag.client.errors import Failed, failure
from mathrag_gate.stack import control
from shared.settings import REPOSITORY
from tests.unit.cases import named
from tests.unit.commands import JOB, Server, command_of, job, mathrag, refuses, says

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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["gate.tau=0.3", "gate.tau=0.4"], "--set gate.tau=0.4: `gate.tau` already has a value"),
        (["gate=1", "gate.tau=0.4"], "--set gate.tau=0.4: `gate` already has a value"),
    ],
)
def test_a_parameter_that_is_given_twice_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(Failed) as refused:
        parse_parameters(settings)
    assert (refused.value.message, bool(refused.value.hint)) == (message, True)
    with pytest.raises(Failed, match="`judge` already has a value"):
        split_pairs(["judge=a", "judge=b"], "--model")


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
    assert "KEY=VALUE" in ended.stderr


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
    assert (ended.exit_code, "answered with status 502" in ended.stderr) == (output.Exit.INTERNAL, True)


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
    assert f"no stack is running in {tmp_path}" in ended.stderr
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
    words = mathrag("up", "--help").output.replace("│", " ").split()
    assert "(default: `port` in the settings, or 8080)" in " ".join(words)


# How commands end: every kind of error has an exit code, and the documentation has the table.

HANDS = Path(output.__file__).parent.parent
ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


def raised() -> Iterator[str]:
    for file in HANDS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Failed"), args=[ast.Constant(value=str(kind)), *_]):
                    yield kind


def test_every_error_of_the_service_has_an_exit_code() -> None:
    assert [error for error in ERRORS if error.kind not in CODES] == []


def test_every_error_of_the_command_line_has_an_exit_code() -> None:
    kinds = set(raised())
    assert kinds
    assert kinds <= set(CODES)


def test_the_table_of_exit_codes_is_documented_as_it_is() -> None:
    text = (REPOSITORY / "docs" / "reference" / "exit-codes.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| [^|]*\| ([^|]*)\|$", text, re.MULTILINE)
    documented = {int(code): set(re.findall(r"`(\w+)`", kinds)) for code, kinds in rows}
    assert documented == {code: {kind for kind, given in CODES.items() if given is code} for code in Exit}


def test_a_problem_of_the_server_ends_with_the_code_of_its_kind(server: Server) -> None:
    wrong = {}
    for kind, code in CODES.items():
        server(refuses(400, kind, "no", "do"))
        ended = named(mathrag, "job", "show", kind, "--json")
        said = ended.exit_code, named(msgspec.json.decode, ended.stderr), ended.stdout
        if said != (code, {"error": {"kind": kind, "message": "no", "hint": "do"}}, ""):
            wrong[kind] = said
    assert wrong == {}


def test_a_kind_that_nobody_knows_is_internal(server: Server) -> None:
    server(refuses(400, "brand_new", "?"))
    assert mathrag("job", "show", "first").exit_code == Exit.INTERNAL


def test_an_unforeseen_error_is_a_defect_with_its_name() -> None:
    assert (failure(KeyError("x")).kind, failure(KeyError("x")).message) == ("internal", "KeyError: 'x'")


def test_settings_that_are_wrong_are_the_users_to_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.setenv("MATHRAG_PORT", "many")
    ended = mathrag("job", "list")
    assert ended.exit_code == Exit.INVALID
    assert "MATHRAG_PORT" in ended.stderr
    assert "mathrag config validate" in ended.stderr


def test_a_settings_file_that_is_wrong_is_said_where_no_stack_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.yaml").write_text("port: many\n")
    monkeypatch.setenv("MATHRAG_CONFIG", "wrong.yaml")
    ended = mathrag("job", "list")
    assert (ended.exit_code, "wrong.yaml, line 1" in ended.stderr) == (Exit.INVALID, True)


# What a shell is told.


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --command")]
)
def test_each_shell_has_its_script(shell: str, mark: str) -> None:
    assert mark in mathrag("completion", shell).stdout


def test_the_script_is_answered() -> None:
    environment = {"_MATHRAG_COMPLETE": "complete_bash", "COMP_WORDS": "mathrag job pa", "COMP_CWORD": "2"}
    called = "from mathrag.cli.main import app; app(prog_name='mathrag')"
    ended = subprocess.run(
        [sys.executable, "-c", called], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["pause"]


def offered_jobs(typed: str) -> list[tuple[str, str]]:
    (argument,) = (each for each in command_of("job", "show").params if each.param_type_name == "argument")
    return [(each.value, each.help) for each in argument.shell_complete(Context(command_of("job", "show")), typed)]


def test_jobs_are_offered_by_name_and_by_id(server: Server) -> None:
    server(says({"data": [JOB], "next_cursor": None}))
    assert offered_jobs("fi") == [("first", "dense, running")]
    assert offered_jobs("6b") == [(JOB["id"], "dense, running")]


def test_a_shell_is_told_nothing_when_the_server_is_away(server: Server) -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    server(refused)
    assert offered_jobs("") == []


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
