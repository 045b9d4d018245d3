"""What the uploads of a key hold, and the limit of that."""

import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import httpx2
import pytest

from mathrag.errors import TooLarge
from shared.replies import CorpusRecord, Document
from shared.settings import Access, Limits
from shared.shapes import Scope
from shared.storage import corpora, keys
from shared.storage.database import Database, limit_to
from shared.storage.quota import upload_as
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

SETTINGS = scene.SETTINGS.model_copy(
    update={"access": Access(keys="required"), "limits": Limits(storage_mib_per_key=1)}
)
HALF = 512 << 10
FACTS = b"ann\tlikes\tbob\nbob\tlikes\tcid\n"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url, SETTINGS) as api:
        yield api


@pytest.fixture
async def ann(database: Database) -> dict[str, str]:
    return await make_key(database, "ann", "red")


@pytest.fixture
async def bob(database: Database) -> dict[str, str]:
    return await make_key(database, "bob", None)


async def make_key(database: Database, name: str, project: str | None) -> dict[str, str]:
    key = await keys.create_key(database, "local", name, {Scope.READ, Scope.SUBMIT}, project=project)
    return {"authorization": f"Bearer {key}"}


async def send(api: Api, key: dict[str, str], path: str, name: str, content: bytes) -> httpx2.Response:
    return await api.http.post(path, params={"name": name}, content=content, headers=key)


async def send_file(api: Api, key: dict[str, str], content: bytes) -> httpx2.Response:
    files = {"file": ("a.jsonl", content)}
    return await api.http.post("/openai/v1/files", data={"purpose": "batch"}, files=files, headers=key)


def make_line(field: str, size: int) -> bytes:
    return json.dumps({field: "x" * size}).encode()


async def load_mib(api: Api, key: dict[str, str]) -> float:
    shares = (await api.http.get("/v1/shares", headers=key)).json()
    assert shares["storage_mib_per_key"] == 1
    return float(shares["keys"][0]["storage_mib"])


async def count_rows(database: Database) -> list[tuple[Any, ...]]:
    tables = ("corpora", "datasets", "graphs", "files", "documents", "items", "graph_blocks", "file_chunks")
    counts = (f"(SELECT count(*) FROM {each})" for each in tables)  # noqa: S608
    return await scene.rows(database, f"SELECT {', '.join(counts)}")


async def test_the_texts_of_all_uploads_of_a_key_count(api: Api, ann: dict[str, str], bob: dict[str, str]) -> None:
    used = [0]

    async def upload(sent: Awaitable[httpx2.Response]) -> int:
        """Return the number of bytes that it adds."""
        reply = await sent
        assert reply.is_success, reply.text
        used.append(round(await load_mib(api, ann) * (1 << 20)))
        return used[-1] - used[-2]

    texts = {"corpora": "größer1", "graphs": "ann likes bobbob likes cid"}
    sizes = {name: len(each.encode()) for name, each in texts.items()}
    content = '{"text": "größer", "problem": "1"}'.encode()
    assert await upload(send(api, ann, "/v1/corpora", "c", content)) == sizes["corpora"] + len("{}")
    stored = await upload(send(api, ann, "/v1/datasets", "d", b'{"question": "How many?", "answer": "7"}'))
    assert stored > len('{"question":"How many?","gold":"7"}')
    numbers, names = 2 * 3 * 4, len("ann bob cid likes ")
    assert await upload(send(api, ann, "/v1/graphs", "g", FACTS)) >= sizes["graphs"] + numbers + names
    assert await upload(send_file(api, ann, b"x" * 100)) == 100
    assert await load_mib(api, bob) == 0


@pytest.mark.parametrize("kind", ["corpora", "datasets", "graphs", "files"])
async def test_an_upload_for_which_the_key_has_no_room_is_refused_and_not_stored(
    api: Api, ann: dict[str, str], bob: dict[str, str], database: Database, kind: str
) -> None:
    assert (await send(api, ann, "/v1/corpora", "first", make_line("text", HALF))).status_code == 201
    before = await count_rows(database)

    async def upload(key: dict[str, str]) -> httpx2.Response:
        if kind == "corpora":
            return await send(api, key, "/v1/corpora", "second", make_line("text", HALF + 1))
        if kind == "datasets":
            return await send(
                api, key, "/v1/datasets", "second", b"\n".join(make_line("question", 30_000) for _ in range(18))
            )
        if kind == "graphs":
            facts = b"".join(b"%d\tlikes\t%d\n" % (at, at + 1) for at in range(9_000))
            return await send(api, key, "/v1/graphs", "second", facts)
        return await send_file(api, key, b"x" * HALF)

    refused = await upload(ann)
    assert refused.status_code == 413, refused.text
    answer = refused.json()
    words = json.dumps(answer)
    assert "the uploads of the key 'ann' hold 0.5 MiB" in words
    assert "exceed `limits.storage_mib_per_key` (1 MiB), so nothing was stored" in words
    assert "delete graphs or files" in words
    assert await count_rows(database) == before
    assert (await upload(bob)).is_success


async def test_what_is_deleted_makes_room(api: Api, ann: dict[str, str]) -> None:
    first = await send_file(api, ann, b"x" * (1 << 20))
    assert (await send_file(api, ann, b"x")).status_code == 413
    await api.http.delete(f"/openai/v1/files/{first.json()['id']}", headers=ann)
    assert (await send_file(api, ann, b"x")).is_success


async def test_an_upload_that_exists_already_needs_no_room(api: Api, ann: dict[str, str]) -> None:
    line = make_line("text", HALF + 1)
    assert [(await send(api, ann, "/v1/corpora", "same", line)).status_code for _ in range(2)] == [201, 200]


async def test_what_a_key_stored_in_another_project_counts(database: Database) -> None:
    async def documents() -> AsyncIterator[list[CorpusRecord]]:
        yield [CorpusRecord(external_id="1", document=Document(problem="", text="x" * HALF), meta={})]

    with upload_as("ann", 1):
        with limit_to("red"):
            await corpora.create(database, "first", documents())
        with limit_to("blue"), pytest.raises(TooLarge):
            await corpora.create(database, "second", documents())


async def test_what_a_key_holds_is_a_metric(api: Api, ann: dict[str, str], bob: dict[str, str]) -> None:
    await send_file(api, ann, b"x" * 100)
    found = await api.http.get("/metrics", headers=bob)
    assert 'mathrag_key_storage_bytes{key="ann"} 100' in found.text
