"""The Python client on files, against the application and a real database."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from fastapi import FastAPI

from mathrag import AsyncClient
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.integration import scene
from tests.integration.api import Api, finished

pytestmark = pytest.mark.anyio

THREE_LINES = """
from mathrag import Client
c = Client()
print(c.compare(c.run("dense", dataset="q.jsonl", corpus="docs/"), c.run("sparse", dataset="q.jsonl", corpus="docs/")))
"""


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    """An application with models, and a retriever that gives each new corpus the indexes of the scene."""
    await scene.furnish(database)
    retriever = FastAPI()

    @retriever.post("/indexes")
    async def build() -> dict[str, Any]:
        await scene.run_sql(
            database,
            "UPDATE corpora c SET dense_index = made.dense_index, sparse_index = made.sparse_index FROM corpora made"
            " WHERE made.name = 'docs' AND c.dense_index IS NULL",
        )
        return {}

    empty_api.retriever = httpx2.ASGITransport(app=retriever)
    return empty_api


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    lines = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(5)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "sums.md").write_text("# Sums\n\nOne plus one is 2.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@asynccontextmanager
async def working(database: Database) -> AsyncIterator[None]:
    """Scripted workers run what is submitted during the block."""

    async def work() -> None:
        while True:
            await finished(database)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        yield
        tasks.cancel_scope.cancel()


async def names(api: Api, what: str) -> list[str]:
    return [each["name"] for each in (await api.get(f"/v1/{what}"))["data"]]


@pytest.mark.usefixtures("files")
async def test_three_lines_upload_files_once_and_compare_two_pipelines(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve_app(api.app) as url, working(database):
        monkeypatch.setenv("MATHRAG_URL", url)
        for _ in range(2):
            defined: dict[str, Any] = {}
            await to_thread.run_sync(exec, THREE_LINES, defined)
            defined["c"].close()
    finding, head, dense, sparse, pair = capsys.readouterr().out.splitlines()[:5]
    assert finding.startswith("No two are separable at n = 5")
    assert head == "Accuracy with 95 % intervals:"
    assert dense.split("-")[0].strip() == "dense"
    assert sparse.split("-")[0].strip() == "sparse"
    assert " against sparse-" in pair
    datasets, corpora = await names(api, "datasets"), await names(api, "corpora")
    assert sorted(each.rpartition("-")[0] or each for each in datasets) == ["items", "q"]
    assert sorted(each.rpartition("-")[0] or each for each in corpora) == ["docs", "docs"]
    assert len(await names(api, "jobs")) == 4


async def test_the_asynchronous_client_runs_changed_files_and_rows(api: Api, database: Database, files: Path) -> None:
    rows = [{"question": "What is 1 plus 1?", "answer": "2"}]
    async with serve_app(api.app) as url, working(database), AsyncClient(url) as client:
        first = await client.run("closed-book", dataset=files / "q.jsonl")
        (files / "q.jsonl").write_text('{"question": "What is 1 plus 1?", "answer": "2"}\n')
        second = await client.run("closed-book", dataset="q.jsonl", grader="exact")
        third = await client.run("closed-book", dataset=rows, name="rows")
        found = await client.compare(first, second, "rows", baseline=third)
        assert len({first.view.dataset, second.view.dataset, third.view.dataset}) == 3
        assert [each.name for each in found.jobs] == ["rows", first.name, second.name]
        assert (await second.report()).grader == "exact"
