"""What `run` uploads, and which names and paths it tells apart."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.client.client import Client
from mathrag.client.errors import Conflict, Failed, Invalid, NotFound
from tests.unit.commands import Server, refuses, says
from tests.unit.mathrag.client.both import ADDRESS, by_both
from tests.unit.mathrag.client.test_connection import VIEW
from tests.unit.mathrag.client.test_uploads import MADE

pytestmark = pytest.mark.anyio

QUESTIONS = [{"question": "What is 1 + 1?", "answer": "2"}]


class Having:
    """A server that has these collections, takes uploads, and accepts every job."""

    def __init__(self, *stored: str) -> None:
        self.stored = set(stored)
        self.uploaded: list[str] = []
        self.jobs: list[Any] = []
        self.indexed = True
        self.warnings: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        kind = request.url.path.split("/")[2]
        if kind == "jobs":
            self.jobs.append(msgspec.json.decode(request.content))
            return says({**VIEW, "warnings": self.warnings}, 202)(request)
        if request.method == "GET":
            _, _, _, name = request.url.path.split("/")
            found = {"name": name, "indexed": self.indexed}
            return (says(found) if name in self.stored else refuses(404, "not_found", "no"))(request)
        name = request.url.params["name"]
        self.stored.add(name)
        self.uploaded.append(f"{kind} {name}")
        return says({**MADE, "name": name, "items": 1, "alternatives": 0, "warnings": self.warnings}, 201)(request)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "q.jsonl").write_bytes(msgspec.json.encode(QUESTIONS[0]) + b"\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nA passage.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def run_by_both(server: Server, having: Having, dataset: Any, **options: Any) -> list[Any]:
    server(having)
    return await by_both(lambda client: client.run("crag", dataset=dataset, **options))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("corpus", ["docs", "docs/", "./docs", Path("docs")], ids=repr)
async def test_the_same_files_are_uploaded_once(server: Server, corpus: str | Path) -> None:
    having = Having()
    await run_by_both(server, having, "q.jsonl", corpus=corpus, candidates=5, crag={"upper": 0.8})
    dataset, stored = having.uploaded
    assert dataset.startswith("datasets q-")
    assert stored.startswith("corpora docs-")
    for job in having.jobs:
        assert job.pop("name").startswith("crag-")
        assert f"datasets {job['dataset']}" == dataset
        assert f"corpora {job['corpus']}" == stored
        assert (job["pipeline"], job["params"]) == ("crag", {"candidates": 5, "crag": {"upper": 0.8}})
    assert len(having.jobs) == 2


async def test_changed_content_and_another_grader_get_a_name_of_their_own(server: Server, folder: Path) -> None:
    having = Having()
    await run_by_both(server, having, "q.jsonl")
    await run_by_both(server, having, "q.jsonl", grader="exact", grading={"rating": 4})
    (folder / "q.jsonl").write_text('{"question": "What?", "answer": "2"}\n')
    await run_by_both(server, having, folder / "q.jsonl")
    assert len(set(having.uploaded)) == 3
    assert having.jobs[2]["params"] == {"grading": {"rating": 4, "grader": "exact"}}


@pytest.mark.parametrize("rows", [QUESTIONS, tuple(QUESTIONS)], ids=["list", "tuple"])
async def test_rows_are_uploaded(server: Server, rows: Any) -> None:
    having = Having()
    await run_by_both(server, having, rows)
    (uploaded,) = having.uploaded
    assert uploaded.startswith("datasets rows-")


async def test_rows_that_can_be_read_once_are_hashed_and_sent(server: Server) -> None:
    requests = server(Having())
    with Client(ADDRESS) as client:
        client.run("crag", dataset=iter(QUESTIONS))
    assert requests[1].content == msgspec.json.encode(QUESTIONS[0]) + b"\n"


async def test_a_corpus_without_its_indexes_is_uploaded_again(server: Server, folder: Path) -> None:
    having = Having("questions")
    having.indexed = False
    await run_by_both(server, having, "questions", corpus=folder / "docs")
    assert len(having.uploaded) == 2


async def test_stored_collections_are_named(server: Server) -> None:
    class Named:
        name = "notes"

    having = Having("math-500")
    await run_by_both(server, having, "math-500", corpus=Named())
    assert having.uploaded == []
    assert {(job["dataset"], job["corpus"]) for job in having.jobs} == {("math-500", "notes")}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("dataset", "kind", "said"),
    [
        ("q.jsonl", Conflict, r"'q.jsonl' is both a stored dataset and .* \(write './q.jsonl' for the file"),
        ("qq.jsonl", NotFound, r"no dataset 'qq.jsonl' is stored, and .* has no file or folder of this name"),
        ("./qq.jsonl", NotFound, "file or folder 'qq.jsonl'"),
        (Path("qq.jsonl"), NotFound, "file or folder 'qq.jsonl'"),
        ("", Invalid, "is empty"),
        ("bad.txt", Invalid, "'bad.txt' has no known layout"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_a_job_is_submitted(
    server: Server, folder: Path, dataset: Any, kind: type[Failed], said: str
) -> None:
    (folder / "bad.txt").write_text("What is 1 + 1?\n")
    having = Having("q.jsonl")
    for failed in await run_by_both(server, having, dataset):
        assert isinstance(failed, kind)
        with pytest.raises(kind, match=said):
            raise failed
    assert having.jobs == having.uploaded == []


async def test_warnings_of_the_server_are_warnings_of_python(server: Server) -> None:
    having = Having()
    having.warnings = ["1 item has no expected answer"]
    server(having)
    with Client(ADDRESS) as client, pytest.warns(UserWarning, match="no expected answer") as warned:
        client.run("crag", dataset=QUESTIONS)
    assert {each.filename for each in warned} == {__file__}


async def test_files_of_a_folder_that_are_not_read_are_a_warning(server: Server, folder: Path) -> None:
    (folder / "docs" / "picture.png").write_bytes(b"")
    server(Having())
    with Client(ADDRESS) as client, pytest.warns(UserWarning, match="not read: picture.png"):
        client.run("crag", dataset=QUESTIONS, corpus="docs/")
