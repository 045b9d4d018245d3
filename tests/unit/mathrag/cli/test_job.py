"""What the command line does with jobs besides watching: change, ask again, list, take away as files."""

import re
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.cli.job import export_files
from mathrag.cli.output import Exit
from tests.unit.commands import JOB, Handler, Server, job, mathrag, refuses, says


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


def test_a_sample_shows_how_many_calls_were_computed_at_once_and_what_lapsed(server: Server) -> None:
    times = {"started_at": "2026-11-20T10:00:00Z", "ended_at": "2026-11-20T10:00:01.5Z"}
    step = {
        "position": 1, "slot": 0, "created": True, "role": "generate", "key": "ab" * 32, "model": "m",
        "attempt": {"outcome": "value", "epoch": 12, "concurrency": 1, **times},
        "other_attempts": [{"outcome": "lapsed"}, {"outcome": "timeout"}],
    }  # fmt: skip
    names = ("question", "gold", "outcome", "text", "ending", "failure", "detail")
    found = {"index": 0, "repeat": 0, "state": "completed", **dict.fromkeys(names), "documents": {}, "steps": [step]}
    requests = server(says(found))
    head, row = mathrag("sample", "show", "first", "0").stdout.splitlines()[-2:]
    assert "prompts" not in requests[0].url.params
    cells = dict(zip(re.split(r"  +", head.strip()), re.split(r"  +", row.strip()), strict=True))
    assert (cells["AT ONCE"], cells["LAPSES"], cells["SECONDS"]) == ("1", "1", "1.500")
    requests = server(says({**found, "steps": [{**step, "prompt": "What is 2+2?"}]}))
    assert "\nprompt 1.0 generate\nWhat is 2+2?\n" in mathrag("sample", "show", "first", "0", "--prompts").stdout
    assert requests[0].url.params["prompts"] == "true"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [({"answer_rank": 3}, "at rank 3"), ({"answer_rank": None}, "in no candidate"), ({}, None)],
)
def test_a_sample_says_where_an_answer_was_found(server: Server, outcome: dict[str, object], said: str | None) -> None:
    names = ("question", "gold", "text", "ending", "failure", "detail")
    found = {"index": 0, "repeat": 0, "state": "completed", **dict.fromkeys(names), "documents": {}, "steps": []}
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
