"""What is said when something is wrong: no secrets, the right command, the right word."""

import importlib.metadata
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from mathrag import installation
from mathrag.errors import Unavailable
from mathrag.messages import find_nearest, format_count, make_hint, redact
from services.orchestrator.api import routes
from shared.access.filters import refuse
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


CLIENT_WHEEL, SERVER_WHEEL = "mathrag-9.8.7-py3-none-any.whl", "mathrag_gate-9.8.7-py3-none-any.whl"


def installed_from(monkeypatch: pytest.MonkeyPatch, **noted: str | None) -> None:
    """Pretend that these distributions are installed, with what pip noted of their origin."""

    def find(name: str) -> SimpleNamespace:
        key = name.replace("-", "_")
        if key not in noted:
            raise PackageNotFoundError(name)
        return SimpleNamespace(read_text=lambda file: noted[key] if file == installation.ORIGIN else None)

    monkeypatch.setattr(importlib.metadata, "distribution", find)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "9.8.7")


def make_wheels(folder: Path, *names: str) -> dict[str, str]:
    """Make empty files, and return what pip notes of a distribution that it installed from one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return {
        name: json.dumps({"url": (folder / name).as_uri(), "archive_info": {"hash": "sha256=00"}}) for name in names
    }


def words(requirement: str) -> list[str]:
    python, *rest = shlex.split(installation.install_command(requirement))
    assert python == sys.executable
    assert rest[:3] == ["-m", "pip", "install"]
    return rest[3:]


def test_a_wheel_is_named_by_its_path_even_with_blanks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    noted = make_wheels(folder, CLIENT_WHEEL, SERVER_WHEEL)
    installed_from(monkeypatch, mathrag=noted[CLIENT_WHEEL], mathrag_gate=noted[SERVER_WHEEL])
    assert words("mathrag-gate[embedded]") == [f"{folder / SERVER_WHEEL}[embedded]"]
    assert words("mathrag[mcp]") == [f"{folder / CLIENT_WHEEL}[mcp]"]


def test_the_server_is_installed_from_the_wheel_beside_that_of_the_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noted = make_wheels(tmp_path, CLIENT_WHEEL)
    installed_from(monkeypatch, mathrag=noted[CLIENT_WHEEL])
    assert words("mathrag-gate") == [SERVER_WHEEL]
    make_wheels(tmp_path, SERVER_WHEEL)
    assert words("mathrag-gate") == [str(tmp_path / SERVER_WHEEL)]


def test_a_clone_stays_one_that_is_edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mathrag").mkdir()
    client, server = (
        json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})
        for folder in (tmp_path / "mathrag", tmp_path)
    )
    installed_from(monkeypatch, mathrag=client)
    assert words("mathrag-gate[zh]") == ["--editable", f"{tmp_path}[zh]"]
    installed_from(monkeypatch, mathrag=client, mathrag_gate=server)
    assert words("mathrag-gate[zh]") == ["--editable", f"{tmp_path}[zh]"]
    assert words("mathrag[mcp]") == ["--editable", f"{tmp_path / 'mathrag'}[mcp]"]


def test_a_clone_that_is_not_edited_is_named_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mathrag").mkdir()
    installed_from(monkeypatch, mathrag=json.dumps({"url": (tmp_path / "mathrag").as_uri(), "dir_info": {}}))
    assert words("mathrag-gate[zh]") == [f"{tmp_path}[zh]"]


@pytest.mark.parametrize("noted", [None, json.dumps({"url": f"file:///gone/{SERVER_WHEEL}"})])
def test_a_wheel_that_is_not_here_is_named_as_it_is_called(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    installed_from(monkeypatch, mathrag=None, mathrag_gate=noted)
    assert words("mathrag-gate[embedded]") == [f"{SERVER_WHEEL}[embedded]"]


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
