"""`mathrag corpus orphans`: unused indexes are listed, and deleted where that is confirmed."""

import json

import httpx2
import pytest
from typer.testing import CliRunner

from mathrag.cli.main import app
from mathrag.client import client

NAME = "mathrag-dense-51c9"


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.method, request.url.path))
        return httpx2.Response(200, json={"orphans": [NAME], "deleted": request.method == "DELETE"})

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    return seen


@pytest.mark.parametrize(
    ("options", "method", "said"),
    [([], "GET", f"unused: {NAME}\n"), (["--delete", "--yes"], "DELETE", f"deleted: {NAME}\n")],
)
def test_orphans_are_listed_and_deleted_only_when_told(
    requested: list[tuple[str, str]], options: list[str], method: str, said: str
) -> None:
    ended = CliRunner().invoke(app, ["corpus", "orphans", *options])
    assert (ended.exit_code, ended.stdout, requested) == (0, said, [(method, "/v1/indexes/orphans")])


def test_the_answer_is_given_as_json(requested: list[tuple[str, str]]) -> None:
    ended = CliRunner().invoke(app, ["corpus", "orphans", "--json"])
    assert json.loads(ended.stdout) == {"orphans": [NAME], "deleted": False}


def test_nothing_is_deleted_without_a_yes(requested: list[tuple[str, str]]) -> None:
    ended = CliRunner().invoke(app, ["corpus", "orphans", "--delete"])
    assert (ended.exit_code, "--yes" in ended.stderr) == (2, True)
    assert [method for method, _ in requested] == ["GET"]
