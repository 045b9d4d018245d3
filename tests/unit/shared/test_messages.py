"""What is said when something is wrong: no secrets, the right command, the right word."""

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from services.orchestrator.api import routes
from shared import installation
from shared.access.filters import refuse
from shared.errors import Unavailable
from shared.messages import find_nearest, format_count, make_hint, redact
from shared.models.chat import ChatFailed
from shared.replies import FailureKind
from shared.shapes import issue_key
from tests.unit.asgi import ask
from tests.unit.services.test_judge import ends, retrieve_call

pytestmark = pytest.mark.anyio

# Failures, reasons and problems become rows and answers, so they hold no secret, whoever wrote their words.

KEY = issue_key().key
SAID = (
    "no answer from postgresql+asyncpg://mathrag_app:hush@db:5432/mathrag, redis://:hush@redis:6379/0 "
    f"nor https://user:hush@models.example/v1; sent Authorization: Bearer hush and {KEY}"
)


def assert_harmless(words: str) -> None:
    assert "hush" not in words
    assert KEY not in words
    assert "mathrag_app" in words
    assert "db:5432" in words


def test_what_is_no_secret_stays() -> None:
    for text in ("http://127.0.0.1:8080/v1", "a:b@c", "$x:y@z$", ""):
        assert redact(text) == text


def test_a_model_servers_failure() -> None:
    failed = ChatFailed(FailureKind.BACKEND_ERROR, SAID)
    assert_harmless(failed.detail)
    assert_harmless(str(failed))


@pytest.mark.parametrize("status", [500, None])
async def test_a_retrievers_failure(status: int | None) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if status is None:
            raise httpx2.ConnectError(SAID)
        return httpx2.Response(status, text=SAID)

    (end,) = await ends(answer, retrieve_call("q"))
    assert_harmless(str(end))


async def test_a_problem() -> None:
    app = FastAPI()
    routes.answer_problems(app)

    @app.get("/")
    async def route() -> None:
        raise Unavailable(SAID)

    assert_harmless((await ask(lambda _: app)).json()["detail"])


async def test_a_refusal() -> None:
    def refusing(_: object) -> Any:
        return lambda scope, receive, send: refuse(Unavailable(SAID), scope, receive, send)

    assert_harmless((await ask(refusing)).json()["detail"])


# The command that installs an extra fits how this installation came about.


def installed_from(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    known = SimpleNamespace(version="9.8.7", read_text=lambda name: noted if name == installation.ORIGIN else None)
    monkeypatch.setattr(installation, "distribution", lambda _: known)


def words(extra: str) -> list[str]:
    python, *rest = shlex.split(installation.install_command(extra))
    assert python == sys.executable
    return rest


def test_a_wheel_is_named_by_its_path_even_with_blanks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "my files" / "mathrag_gate-9.8.7-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    installed_from(monkeypatch, json.dumps({"url": wheel.as_uri(), "archive_info": {"hash": "sha256=00"}}))
    assert words("embedded") == ["-m", "pip", "install", f"{wheel}[embedded]"]


def test_a_clone_stays_one_that_is_edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed_from(monkeypatch, json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}))
    assert words("report") == ["-m", "pip", "install", "--editable", f"{tmp_path}[report]"]


@pytest.mark.parametrize("noted", [None, json.dumps({"url": "file:///gone/mathrag_gate-9.8.7-py3-none-any.whl"})])
def test_a_wheel_that_is_not_here_is_named_as_it_is_called(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    installed_from(monkeypatch, noted)
    assert words("server")[-1] == "mathrag_gate-9.8.7-py3-none-any.whl[server]"


# What somebody probably meant is said, and nothing where that cannot be known.

KNOWN = ("hybrid", "dense", "sparse", "mathrag-gate")


@pytest.mark.parametrize(
    ("written", "meant"), [("hybird", "hybrid"), ("HYBRID", "hybrid"), ("mathrag_gate", "mathrag-gate"), ("xyz", None)]
)
def test_the_nearest_name_is_found_whatever_its_case(written: str, meant: str | None) -> None:
    assert find_nearest(written, KNOWN) == meant


def test_a_hint_says_in_any_case_where_all_names_are() -> None:
    assert make_hint("hybird", KNOWN, "mathrag pipeline list") == (
        "did you mean 'hybrid'? Otherwise: mathrag pipeline list"
    )
    assert make_hint("xyz", KNOWN, "mathrag pipeline list") == "mathrag pipeline list"


# Counts with their nouns.


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("cell",), "0 cells"),
        (1, ("cell",), "1 cell"),
        (2, ("cell",), "2 cells"),
        (1, ("line was", "lines were"), "1 line was"),
        (3, ("line was", "lines were"), "3 lines were"),
    ],
)
def test_only_one_takes_the_singular(count: int, words: tuple[str, ...], said: str) -> None:
    assert format_count(count, *words) == said
