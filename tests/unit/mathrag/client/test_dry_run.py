"""Requests that are shown and not sent."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from mathrag.cli.command_groups import LocalCommand
from mathrag.client.dry_run import curl
from tests.unit.commands import JOB, Server, command_of, mathrag, says

pytestmark = pytest.mark.anyio

SUBMIT = ("job", "submit", "--name", 'it\'s "mine" $HOME', "--dataset", "d", "--pipeline", "dense")
MUTATIONS = {"index", "orphans", "submit", "cancel", "pause", "resume", "requeue", "drain", "release", "retry"}
NOUNS = ("corpus", "dataset", "job", "sample", "pipeline", "model", "gpu")


@pytest.mark.parametrize("noun", NOUNS)
def test_every_command_that_calls_the_api_can_be_shown_as_curl(noun: str) -> None:
    for name in command_of(noun).commands:
        command = command_of(noun, name)
        if isinstance(command, LocalCommand):
            continue
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--print-curl" in options, f"{noun} {name}"
        assert ("--dry-run" in options) == (name in MUTATIONS), f"{noun} {name}"


def test_nothing_is_sent(server: Server) -> None:
    requests = server(says(JOB))
    for option in ("--print-curl", "--dry-run"):
        assert mathrag("job", "cancel", "first", option).exit_code == 0
    assert not requests
    mathrag("job", "cancel", "first")
    assert len(requests) == 1


def test_a_shell_reads_back_what_would_be_sent(server: Server) -> None:
    server(says(JOB))
    words = shlex.split(mathrag(*SUBMIT, "--print-curl").stdout)
    assert words[0] == "curl"
    assert words[words.index("--request") + 1] == "POST"
    assert msgspec.json.decode(words[words.index("--data-raw") + 1])["name"] == 'it\'s "mine" $HOME'
    assert "content-type: application/json" in words
    assert words[-1].endswith("/v1/jobs")


def test_the_key_is_named_and_not_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server(says(JOB))
    monkeypatch.setenv("MATHRAG_API_KEY", "mrg_secret")
    shown = mathrag("job", "show", "first", "--print-curl").stdout
    assert '--header "Authorization: Bearer $MATHRAG_API_KEY"' in shown
    assert "mrg_secret" not in shown
    assert "mrg_secret" not in mathrag("job", "cancel", "first", "--dry-run").stdout


def test_the_key_is_sent_as_a_bearer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = server(says(JOB))
    monkeypatch.setenv("MATHRAG_API_KEY", "mrg_secret")
    assert "mrg_secret" not in mathrag("job", "show", "first").output
    assert requests[0].headers["authorization"] == "Bearer mrg_secret"


def test_a_dry_run_shows_method_address_and_body() -> None:
    shown = msgspec.json.decode(mathrag("gpu", "drain", "cpu:0", "--reason", "driver", "--dry-run").stdout)
    assert (shown["method"], shown["body"]) == ("POST", {"reason": "driver"})
    assert shown["url"].endswith("/v1/gpus/cpu%3A0/drain")


def test_an_export_is_shown_file_by_file(tmp_path: Path) -> None:
    lines = mathrag("job", "export", "first", "--to", str(tmp_path / "out"), "--print-curl").stdout.splitlines()
    outputs = [words[words.index("--output") + 1] for words in map(shlex.split, lines)]
    assert [Path(output).name for output in outputs] == [
        "job.json", "report.json", "results.jsonl", "provenance.jsonl", "audit.json",
    ]  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_an_upload_is_read_from_standard_input() -> None:
    request = httpx2.Request("POST", "http://h/v1/corpora?name=a%20b", content=iter([b"{}\n"]))
    assert shlex.split(curl(request))[-3:] == ["--upload-file", "-", "http://h/v1/corpora?name=a%20b"]


def test_brackets_in_an_address_are_no_pattern() -> None:
    assert "--globoff" in curl(httpx2.Request("GET", "http://[::1]:8080/v1/jobs"))
    assert "--globoff" not in curl(httpx2.Request("GET", "http://h/v1/jobs"))


def test_the_only_device_is_not_looked_up_when_nothing_may_be_sent(server: Server) -> None:
    requests = server(says([{"device": "cpu:0"}]))
    assert "DEVICE" in mathrag("gpu", "drain", "--dry-run").stderr
    assert not requests


def test_every_command_speaks_json() -> None:
    silent = {" ".join(path) for path, command in commands() if "--json" not in command}
    assert silent == {"completion", "demo", "mcp"}


def commands(*path: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    for name in command_of(*path).commands:
        command = command_of(*path, name)
        if hasattr(command, "commands"):
            yield from commands(*path, name)
        else:
            yield (*path, name), {option for parameter in command.params for option in parameter.opts}
