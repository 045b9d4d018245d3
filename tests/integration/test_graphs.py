"""Graphs over REST: stored with their corpus or not at all, and usable when the upload is answered."""

import errno
import gzip
import hashlib
import io
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.errors import Conflict
from shared.runtime import purge as purging
from shared.settings import Limits
from shared.storage import graphs
from shared.storage.database import Database
from tests.integration.api import Api, serving
from tests.integration.scene import SETTINGS, run_sql, scalar
from tests.integration.stored_graph import loaded
from tests.unit.shared.ingest.graph_uploads import FACTS, REFUSED, TIMED

pytestmark = pytest.mark.anyio

NOTHING = "SELECT (SELECT count(*) FROM graphs) + (SELECT count(*) FROM corpora) + (SELECT count(*) FROM documents)"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def send(api: Api, content: bytes, name: str = "g", media: str = "", **query: Any) -> httpx2.Response:
    headers = {"content-type": media} if media else {}
    return await api.http.post("/v1/graphs", params={"name": name, **query}, content=content, headers=headers)


async def test_a_graph_and_its_corpus_are_stored_and_indexed(api: Api, database: Database, tmp_path: Path) -> None:
    reply = await send(api, FACTS + FACTS + b"c\tlikes\ta\n")
    made = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (201, "/v1/graphs/g")
    assert (made["facts"], made["repeated"], made["documents"], made["corpus"]) == (3, 2, 3, "g")
    assert [request.url.path for request in api.asked] == ["/indexes"]
    documents = (await api.get("/v1/corpora/g/documents"))["data"]
    assert [(each["id"], each["text"]) for each in documents] == [
        ("0", "a knows b."), ("1", "b knows c."), ("2", "c likes a.")
    ]  # fmt: skip
    found = await loaded(database, made["id"], tmp_path)
    np.testing.assert_array_equal(found.triples, [[0, 0, 1], [1, 0, 2], [2, 1, 0]])
    assert (found.times, found.entities, found.relations) == (None, ["a", "b", "c"], ["knows", "likes"])


async def test_a_graph_is_found_and_listed(api: Api) -> None:
    await send(api, FACTS, "first")
    await send(api, TIMED, "second")
    shown = await api.get("/v1/graphs/second")
    assert (shown["time_unit"], shown["first_time"], shown["last_time"]) == ("day", "2014-09-20", "2014-09-20")
    assert shown["hash"] == hashlib.sha256(TIMED).hexdigest()
    page = await api.get("/v1/graphs", limit=1)
    assert page["data"] == [shown]
    following = await api.get("/v1/graphs", limit=1, cursor=page["next_cursor"])
    assert ([each["name"] for each in following["data"]], following["next_cursor"]) == (["first"], None)


async def test_a_name_that_is_almost_right_is_answered_with_the_right_one(api: Api) -> None:
    await send(api, FACTS, "kinship")
    reply = await api.http.get("/v1/graphs/kinshp")
    assert (reply.status_code, "kinship" in reply.json()["hint"]) == (404, True)


async def test_the_same_upload_again_is_harmless_however_it_is_packed(api: Api) -> None:
    first = (await send(api, FACTS)).json()
    for content in (FACTS, gzip.compress(FACTS), b"\xef\xbb\xbf" + FACTS.replace(b"\n", b"\r\n")):
        again = await send(api, content)
        assert (again.status_code, again.json()) == (200, first)
    assert len(api.asked) == 4


async def test_other_facts_under_the_name_are_a_conflict(api: Api, database: Database) -> None:
    await send(api, FACTS)
    for other in (b"a\tknows\tb\n", b"b\tknows\tc\na\tknows\tb\n", b"a\tknows\tb\t1\nb\tknows\tc\t1\n"):
        reply = await send(api, other)
        assert (reply.status_code, reply.json()["detail"]) == (409, "graph 'g' exists with other facts")
    assert await scalar(database, "SELECT facts FROM graphs") == 2


async def test_another_corpus_of_the_name_is_a_conflict(api: Api, database: Database) -> None:
    await api.upload("corpora", "g", [{"id": "x", "text": "Something else."}])
    assert (await send(api, FACTS)).status_code == 409
    assert await scalar(database, "SELECT count(*) FROM graphs") == 0
    await send(api, FACTS, "h")
    refused = await send(api, FACTS, "h", inverse="true")
    assert (refused.status_code, "corpus 'h' exists with other documents" in refused.json()["detail"]) == (409, True)


async def test_inverse_facts_are_documents_too(api: Api) -> None:
    phrase = b'{"relation": "knows", "phrase": "knows", "inverse": "is known by"}\n'
    body = phrase + b'{"subject": "a", "relation": "knows", "object": "b"}\n'
    made = (await send(api, body, media="application/x-ndjson", inverse="true")).json()
    assert (made["facts"], made["documents"]) == (1, 2)
    documents = (await api.get("/v1/corpora/g/documents"))["data"]
    assert [(each["id"], each["text"]) for each in documents] == [
        ("0", "a knows b."), ("0-inverse", "b is known by a.")
    ]  # fmt: skip


async def test_a_media_type_says_what_the_first_character_cannot(api: Api) -> None:
    body = b"{a}\tknows\tb\n"
    assert (await send(api, body)).status_code == 422
    assert (await send(api, body, media="text/tab-separated-values")).status_code == 201
    form = await send(api, body, media="multipart/form-data; boundary=x")
    assert (form.status_code, "--data-binary" in form.json()["hint"]) == (422, True)


async def test_what_cannot_be_used_is_a_problem_of_its_line_and_stores_nothing(api: Api, database: Database) -> None:
    for upload in REFUSED:
        reply = await send(api, upload.content)
        problem = reply.json()
        assert (reply.status_code, problem["line"], problem["type"]) == (422, upload.line, "urn:mathrag:invalid_line")
        assert upload.said in problem["detail"], upload.what
    empty = await send(api, b"")
    assert (empty.status_code, empty.json()["detail"]) == (422, "upload has no facts")
    assert await scalar(database, NOTHING) == 0


@pytest.mark.parametrize(
    ("limits", "content", "said"),
    [
        ({"upload_rows": 2}, FACTS * 2, "limits.upload_rows"),
        ({"upload_bytes": 10}, FACTS, "limits.upload_bytes"),
        ({"decompressed_bytes": 1000}, gzip.compress(FACTS * 1000), "limits.decompressed_bytes"),
    ],
)
async def test_what_is_too_large_is_refused(
    database: Database, redis_url: str, limits: dict[str, int], content: bytes, said: str
) -> None:
    settings = SETTINGS.model_copy(update={"limits": Limits(**limits)})
    async with serving(database, redis_url, settings) as api:
        reply = await send(api, content)
    assert (reply.status_code, said in reply.json()["hint"]) == (413, True)
    assert await scalar(database, NOTHING) == 0


class FullDisk(io.BytesIO):
    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_an_upload_that_finds_no_room_is_answered_so_and_the_next_one_is_stored(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(tempfile, "TemporaryFile", FullDisk)
        reply = await send(api, FACTS)
    assert (reply.status_code, reply.json()["type"]) == (507, "urn:mathrag:out_of_space")
    assert "No space left on device" in reply.json()["detail"]
    assert await scalar(database, NOTHING) == 0
    assert (await send(api, FACTS)).status_code == 201


NO_ROOM = text("DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$")


async def no_room(*_: Any, **__: Any) -> None:
    raise asyncpg.DiskFullError("could not extend file")


@pytest.mark.parametrize("where", ["statement", "copy"])
async def test_a_database_without_room_is_answered_so_and_nothing_is_stored(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with monkeypatch.context() as full:
        if where == "statement":
            full.setattr(graphs, "INSERT", NO_ROOM)
        else:
            full.setattr(asyncpg.Connection, "copy_records_to_table", no_room)
        reply = await send(api, FACTS)
    assert (reply.status_code, reply.json()["detail"]) == (507, "the disk of PostgreSQL is full; nothing was stored")
    assert await scalar(database, NOTHING) == 0
    assert (await send(api, FACTS)).status_code == 201


async def test_a_deleted_graph_leaves_an_ordinary_corpus(api: Api) -> None:
    await send(api, FACTS)
    gone = await api.http.delete("/v1/graphs/g")
    assert (gone.status_code, gone.json()) == (
        200, {"deleted": "g", "corpus": "g", "hint": "mathrag corpus delete g"}
    )  # fmt: skip
    assert (await api.http.get("/v1/graphs/g")).status_code == 404
    assert (await api.http.delete("/v1/graphs/g")).status_code == 404
    assert (await api.get("/v1/corpora/g"))["documents"] == 2
    assert (await send(api, FACTS)).status_code == 201


@pytest.fixture
async def owner(owner_url: str) -> AsyncIterator[Database]:
    owner = Database(owner_url, pinned=False)
    yield owner
    await owner.close()


async def test_a_graph_that_rules_were_mined_from_is_kept(api: Api, owner: Database) -> None:
    await send(api, FACTS)
    columns = "name, state, graph_id, miner, limits"
    await run_sql(owner, f"INSERT INTO rule_banks ({columns}) SELECT 'b', 'mining', id, 'amie', '{{}}' FROM graphs")  # noqa: S608
    refused = await api.http.delete("/v1/graphs/g")
    assert (refused.status_code, refused.json()["detail"]) == (409, "rule banks were mined from graph 'g': b")


async def test_the_corpus_of_a_graph_goes_after_the_graph(api: Api, owner: Database) -> None:
    await send(api, FACTS)
    with pytest.raises(Conflict, match="belongs to graph 'g'") as caught:
        await purging.delete(owner, "corpus", "g", "somebody")
    assert caught.value.hint == "mathrag graph delete g"
    await api.http.delete("/v1/graphs/g")
    await purging.delete(owner, "corpus", "g", "somebody")


async def test_a_purge_of_what_is_unused_leaves_the_corpora_of_graphs(api: Api, owner: Database) -> None:
    await send(api, FACTS)
    assert (await purging.delete_unused(owner, "somebody"))["corpora"] == []
    await api.http.delete("/v1/graphs/g")
    assert (await purging.delete_unused(owner, "somebody"))["corpora"] == ["g"]


async def test_stored_facts_are_final(api: Api, database: Database, owner: Database) -> None:
    await send(api, FACTS)
    changes = ("UPDATE graphs SET facts = 3", "UPDATE graph_blocks SET content = ''")
    for statement in (*changes, "DELETE FROM graph_blocks"):
        with pytest.raises(DBAPIError, match="permission denied"):
            await scalar(database, statement)
    for statement in changes:
        with pytest.raises(DBAPIError, match="is final"):
            await scalar(owner, statement)
