"""Rule banks from files and as files, from the command line."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from mathrag.cli.main import app
from mathrag.client import client

BANK = {"name": "mine", "rules": 2, "miner": "amie", "state": "ready"}
Run = Callable[..., Result]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        requests.append(request)
        if request.content == b"bad":
            problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 1: is not a rule"}
            return httpx2.Response(422, json=problem)
        if request.content == b"long":
            return httpx2.Response(413, json={"type": "urn:mathrag:too_large", "detail": "upload unpacks to too much"})
        return httpx2.Response(201, json=BANK) if request.method == "POST" else httpx2.Response(200, text="one\ntwo\n")

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    return requests


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["rules", *map(str, words)])


def test_a_file_is_sent_as_it_is(asked: list[httpx2.Request], tmp_path: Path) -> None:
    file = tmp_path / "rules.tsv"
    file.write_bytes(b"\x1f\x8b packed")
    ended = run("import", "mine", "--from", file, "--graph", "g")
    assert (ended.exit_code, ended.stdout) == (0, "rule bank mine: 2 rules of amie\n  next: mathrag rules show mine\n")
    assert asked[0].content == file.read_bytes()
    assert dict(asked[0].url.params) == {"name": "mine", "format": "auto", "graph": "g"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("bad", "rules.tsv, line 1: is not a rule"),
        ("long", "rules.tsv unpacks to too much"),
    ],
)
@pytest.mark.usefixtures("asked")
def test_what_the_server_says_of_the_upload_is_said_of_the_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "rules.tsv"
    file.write_text(content)
    ended = run("import", "mine", "--from", file)
    assert (ended.exit_code, said in ended.stderr) == (4, True)


@pytest.mark.usefixtures("asked")
def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    ended = run("import", "mine", "--from", tmp_path / "none")
    assert (ended.exit_code, "none" in ended.stderr) == (4, True)


def test_a_bank_goes_to_standard_output_or_to_a_file(asked: list[httpx2.Request], tmp_path: Path) -> None:
    assert run("export", "mine", "--format", "amie").stdout == "one\ntwo\n"
    assert str(asked[0].url).endswith("/v1/rules/mine/export?format=amie")
    out = tmp_path / "bank.jsonl"
    out.write_text("mine")
    refused = run("export", "mine", "--out", out)
    assert (refused.exit_code, out.read_text()) == (5, "mine")
    assert "already exists" in refused.stderr
    assert run("export", "mine", "--out", out, "--force").exit_code == 0
    assert out.read_text() == "one\ntwo\n"
