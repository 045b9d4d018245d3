"""What repeats the code is generated from it, and the check names what is not as the code says."""

import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from pydantic import Field

from services.orchestrator.api.routes import route
from services.orchestrator.app import build
from shared import settings
from shared.settings import REPOSITORY, Settings
from shared.shapes import Scope


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(REPOSITORY / ".ci" / "generate")
    names = runpy.run_path(str(REPOSITORY / ".ci" / "generate" / "__main__.py"))
    application = cache(lambda: build(Settings(database_url="unused")))
    for module in (names["answers"], names["tables"], names["reference"].api_pages):
        monkeypatch.setattr(module, "build", lambda _: application())
    return names


def test_what_is_committed_is_what_is_generated(generator: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert generator["main"](["--check"]) == 0, capsys.readouterr().out


def test_a_stale_file_is_named_by_the_check_and_then_written(
    generator: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.md"
    file.write_text("old")
    main = generator["main"]
    main.__globals__.update(list_files=lambda: [(file, "new")], REPOSITORY=tmp_path)
    assert main(["--check"]) == 1
    assert file.read_text() == "old"
    assert "table.md is not as the code says: make generate" in capsys.readouterr().out
    assert main([]) == 0
    assert file.read_text() == "new"
    assert main(["--check"]) == 0


def test_a_new_setting_stands_in_every_text(generator: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Workers(settings.Workers):
        naps: int = Field(default=7, description="Naps of a worker (docs/how-to/scaling.md).")

    class More(settings.Settings):
        workers: Workers = Workers()

    generated = generator["list_files"].__globals__
    reference = generator["reference"]
    for module in (reference, generated["settings_example"], generated["config"]):
        monkeypatch.setattr(module, "Settings", More)
    monkeypatch.setattr(generator["answers"], "answers", str)
    monkeypatch.setattr(reference.api_pages, "pages", lambda: iter(()))
    monkeypatch.setattr(reference.commands, "page", str)
    texts = {file.name: text for file, text in generator["list_files"]()}
    assert "\n  naps: 7 # Naps of a worker (docs/how-to/scaling.md).\n" in texts["mathrag.example.yaml"]
    assert (
        "| `workers.naps` | 7 | Naps of a worker ([Scale, back up, upgrade, size](../how-to/scaling.md)). |"
        in texts["settings.md"]
    )
    assert '"naps": {' in texts["config-schema.json"]


def test_a_new_route_stands_in_the_table_of_routes(generator: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter(prefix="/v1/shelves")

    @route(router, "GET", "/{shelf}", Scope.READ, "Get a shelf", {})
    async def get(shelf: str, wide: bool = False, limit: int = 5) -> None:
        """By name (docs/how-to/api.md#tags).

        More of it.
        """

    @route(router, "POST", "", None, "Is there room?", {})
    async def ask() -> None:
        """Answers at once."""

    application = FastAPI(openapi_url=None)
    application.include_router(router)
    tables = generator["tables"]
    monkeypatch.setattr(tables, "build", lambda _: application)
    *_, first, second = tables.table(("method",), tables.routes(), "how-to/api.md").splitlines()
    assert first == "| GET | `/v1/shelves/{shelf}?wide=&limit=` | `read` | Get a shelf. By name ([tags](#tags)). |"
    assert second == "| POST | `/v1/shelves` | none | Is there room? Answers at once. |"
