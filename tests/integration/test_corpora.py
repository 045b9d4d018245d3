"""Corpora: uploaded, indexed before the upload is answered, read page by page, deleted where no job needs them."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from sqlalchemy import text
from starlette.types import Receive, Scope, Send

from mathrag.errors import Conflict, NotFound
from mathrag.reading.lines import MAX_LINE_BYTES
from services.orchestrator.api import uploads
from shared.replies import Document
from shared.runtime import purge as purging
from shared.settings import Limits
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.scene import SETTINGS, scalar

pytestmark = pytest.mark.anyio


LINES: list[Any] = [
    {"id": "a", "problem": "What is 1 + 1?", "text": "It is 2.", "subject": "Algebra", "level": 1},
    {"id": "b", "text": "A passage."},
    {"id": "c", "text": "A passage."},
]


async def nothing_is_stored(database: Database) -> bool:
    return await scalar(database, "SELECT (SELECT count(*) FROM corpora) + (SELECT count(*) FROM documents)") == 0


async def test_documents_are_stored_once_and_in_order(empty_api: Api, database: Database) -> None:
    reply = await empty_api.upload("corpora", "mine", LINES)
    assert reply.status_code == 201
    assert reply.headers["location"] == "/v1/corpora/mine"
    assert (reply.json()["documents"], reply.json()["skipped"]) == (3, 0)
    async with database.transaction() as connection:
        members = (await connection.execute(text(
            "SELECT c.external_id, c.meta, d.problem, d.body, d.hash FROM corpus_documents c JOIN documents d"
            " USING (hash) ORDER BY c.ordinal"
        ))).all()  # fmt: skip
    assert [member.external_id for member in members] == ["a", "b", "c"]
    assert members[0].meta == {"subject": "Algebra", "level": "1"}
    assert members[0].hash.hex() == Document(problem="What is 1 + 1?", text="It is 2.").hash
    assert await scalar(database, "SELECT count(*) FROM documents") == 2


async def test_the_retriever_is_asked_for_both_indexes(empty_api: Api) -> None:
    corpus = (await empty_api.upload("corpora", "mine", LINES)).json()
    assert [(str(request.url), request.content) for request in empty_api.asked] == [
        ("http://retriever/indexes", b'{"corpus":%d}' % corpus["id"])
    ]


async def test_an_upload_whose_indexing_failed_goes_on_when_it_is_sent_again(empty_api: Api) -> None:
    empty_api.other = lambda _: httpx2.Response(500)
    refused = await empty_api.upload("corpora", "mine", LINES)
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:mathrag:unavailable")
    assert "repeat the upload" in refused.json()["hint"]
    empty_api.other = lambda _: httpx2.Response(200, json={})
    assert (await empty_api.upload("corpora", "mine", LINES)).status_code == 200
    assert len(empty_api.asked) == 2


async def test_what_the_retriever_says_is_passed_on(empty_api: Api) -> None:
    problem = {"detail": "the index cannot be written: No space left on device", "hint": "make room there"}
    empty_api.other = lambda _: httpx2.Response(503, json=problem)
    refused = (await empty_api.upload("corpora", "mine", LINES)).json()
    assert refused["detail"] == "corpus 'mine' is stored, but the index cannot be written: No space left on device"
    assert refused["hint"] == "make room there"


@pytest.mark.parametrize("path", ["/v1/corpora?name=mine", "/v1/corpora/mine/indexes"])
async def test_the_retriever_is_no_longer_asked_when_the_client_has_gone(empty_api: Api, path: str) -> None:
    await empty_api.upload("corpora", "mine", LINES)
    started, ended = anyio.Event(), anyio.Event()

    async def build_for_ever(_scope: Scope, _receive: Receive, _send: Send) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    empty_api.retriever = httpx2.ASGITransport(app=build_for_ever)
    body = b"".join(msgspec.json.encode(line) + b"\n" for line in LINES)
    async with serve_app(empty_api.app) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:

        async def ask() -> None:
            await client.post(path, content=body if "name" in path else b"")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(60):
            await ended.wait()
    empty_api.retriever = None
    assert (await empty_api.upload("corpora", "mine", LINES)).status_code == 200


async def test_indexes_are_built_again_without_an_upload(empty_api: Api) -> None:
    corpus = (await empty_api.upload("corpora", "mine", LINES)).json()["id"]
    built = {"index": 7, "kind": "dense", "signature": "ab", "documents": 2, "reused": False, "seconds": 0.1}
    empty_api.other = lambda _: httpx2.Response(200, json={"corpus": corpus, "indexes": [built]})
    reply = await empty_api.http.post("/v1/corpora/mine/indexes")
    assert (reply.status_code, reply.json()) == (200, {"corpus": corpus, "indexes": [built]})
    assert [request.content for request in empty_api.asked] == [b'{"corpus":%d}' % corpus] * 2
    assert (await empty_api.http.post("/v1/corpora/other/indexes")).status_code == 404


async def test_the_same_upload_again_is_the_same_corpus(empty_api: Api, database: Database) -> None:
    first = (await empty_api.upload("corpora", "mine", LINES)).json()
    again = await empty_api.upload("corpora", "mine", LINES)
    assert (again.status_code, again.json()) == (200, first)
    assert await scalar(database, "SELECT count(*) FROM corpus_documents") == 3


@pytest.mark.parametrize("other", [LINES[:2], LINES[::-1], [*LINES[:2], {**LINES[2], "id": "d"}]])
async def test_a_name_that_has_other_documents_is_a_conflict(empty_api: Api, other: list[Any]) -> None:
    await empty_api.upload("corpora", "mine", LINES)
    reply = await empty_api.upload("corpora", "mine", other)
    assert (reply.status_code, reply.json()["type"]) == (409, "urn:mathrag:conflict")


async def test_a_bad_line_rejects_the_upload_with_its_number(
    empty_api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    for line, words in (
        (b"{\n", "is not JSON"),
        (b"[]\n", "array"),
        ({"id": "z"}, "has no text"),
        ({"text": " "}, "empty text"),
        (b'{"text": "\xff"}\n', "not UTF-8"),
        ({"id": "a", "text": "x"}, "repeats the id 'a' of upload, line 1"),
    ):
        with subtests.test(line=line):
            reply = await empty_api.upload("corpora", "mine", [*LINES, b"\n", line])
            problem = reply.json()
            assert (reply.status_code, problem["type"], problem["line"]) == (422, "urn:mathrag:invalid_line", 5)
            assert problem["detail"].startswith("upload, line 5: ")
            assert words in problem["detail"]
            assert await nothing_is_stored(database)


async def test_a_bad_line_after_a_stored_batch_takes_the_batch_back(
    empty_api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "BATCH", 1)
    assert (await empty_api.upload("corpora", "mine", [*LINES, b"{"])).status_code == 422
    assert await nothing_is_stored(database)


async def test_lines_without_text_can_be_left_out_and_are_counted(empty_api: Api) -> None:
    reply = await empty_api.upload("corpora", "mine", [*LINES, {"id": "e", "text": ""}], skip_empty=True)
    assert (reply.json()["documents"], reply.json()["skipped"]) == (3, 1)


async def test_a_text_that_is_empty_is_refused_with_the_option_that_leaves_it_out(empty_api: Api) -> None:
    problem = (await empty_api.upload("corpora", "mine", [*LINES, {"id": "e", "text": ""}])).json()
    assert problem["detail"].startswith("upload, line 4: has an empty text; write one, or leave such lines out: --skip")
    assert problem["hint"] == "skip such lines with --skip-empty (over HTTP `skip_empty=true`)"


async def test_a_hint_names_the_way_out_only_if_some_lines_can_be_used(empty_api: Api) -> None:
    bad = {"id": "e", "text": 5}
    some = (await empty_api.upload("corpora", "mine", [*LINES, bad])).json()
    assert some["hint"] == "correct these lines, or leave them out: --on-error skip, over HTTP `on_error=skip`"
    none = (await empty_api.upload("corpora", "mine", [bad, bad])).json()
    assert ("hint" in none, len(none["others"])) == (False, 1)


async def test_documents_of_langchain_and_chosen_columns_are_texts(empty_api: Api) -> None:
    for name, line, chosen in (
        ("langchain", {"page_content": "Bern", "metadata": {"source": "x"}}, []),
        ("mine", {"Inhalt": "Bern", "Notiz": "x"}, ["text=Inhalt"]),
    ):
        reply = await empty_api.upload("corpora", name, [line], column=chosen)
        assert reply.status_code == 201
        (document,) = (await empty_api.get(f"/v1/corpora/{name}/documents"))["data"]
        assert document["text"] == "Bern"


async def test_a_document_without_an_id_gets_its_line_number(empty_api: Api, database: Database) -> None:
    await empty_api.upload("corpora", "mine", [{"text": "x"}, b"\n", {"text": "y"}])
    assert await scalar(database, "SELECT string_agg(external_id, ' ' ORDER BY ordinal) FROM corpus_documents") == "1 3"
    reply = await empty_api.upload("corpora", "other", [{"text": "x", "id": "2"}, {"text": "y"}])
    assert "repeats the id '2'" in reply.json()["detail"]


@pytest.mark.parametrize("lines", [[], [b"\n \n"]])
async def test_an_upload_without_documents_is_refused(empty_api: Api, database: Database, lines: list[bytes]) -> None:
    reply = await empty_api.upload("corpora", "mine", lines)
    assert (reply.status_code, "no documents" in reply.json()["detail"]) == (422, True)
    assert await nothing_is_stored(database)


async def test_a_name_that_cannot_be_used_is_refused(empty_api: Api) -> None:
    reply = await empty_api.upload("corpora", "a b", LINES)
    assert (reply.status_code, reply.json()["field"]) == (422, "name")


async def test_a_line_over_the_limit_is_refused_with_its_number(empty_api: Api, database: Database) -> None:
    reply = await empty_api.upload("corpora", "mine", [*LINES, {"text": "x" * MAX_LINE_BYTES}])
    assert (reply.status_code, "line 4: is longer than" in reply.json()["detail"]) == (422, True)
    assert await nothing_is_stored(database)


async def test_an_upload_over_the_limit_is_refused(database: Database, redis_url: str) -> None:
    async def undeclared() -> AsyncIterator[bytes]:
        yield b" " * 11

    settings = SETTINGS.model_copy(update={"limits": Limits(upload_bytes=10)})
    async with serving(database, redis_url, settings) as empty_api:
        for content in (b" " * 11, undeclared()):
            reply = await empty_api.http.post("/v1/corpora", params={"name": "mine"}, content=content)
            assert (reply.status_code, reply.json()["type"]) == (413, "urn:mathrag:too_large")


async def test_an_upload_of_too_many_lines_is_refused(database: Database, redis_url: str) -> None:
    settings = SETTINGS.model_copy(update={"limits": Limits(upload_rows=2)})
    async with serving(database, redis_url, settings) as empty_api:
        assert (await empty_api.upload("corpora", "mine", LINES[:2])).status_code == 201
        reply = await empty_api.upload("corpora", "more", LINES)
        assert (reply.status_code, reply.json()["type"]) == (413, "urn:mathrag:too_large")
        assert "2 lines" in reply.json()["detail"]
        assert (await empty_api.http.get("/v1/corpora/more")).status_code == 404


async def test_lists_are_newest_first_and_paged(empty_api: Api) -> None:
    for name in ("a", "b", "c"):
        await empty_api.upload("corpora", name, LINES)
    first = await empty_api.get("/v1/corpora", limit=2)
    second = await empty_api.get("/v1/corpora", limit=2, cursor=first["next_cursor"])
    assert [corpus["name"] for corpus in first["data"] + second["data"]] == ["c", "b", "a"]
    assert second["next_cursor"] is None


async def test_an_unknown_corpus_is_not_found(empty_api: Api) -> None:
    reply = await empty_api.http.get("/v1/corpora/none")
    assert (reply.status_code, reply.json()["hint"]) == (404, "mathrag corpus list")


@pytest.mark.parametrize("builds", [[{"kind": "dense", "documents": 2}, {"kind": "sparse", "documents": None}], []])
async def test_a_corpus_shows_how_far_its_builds_are(empty_api: Api, builds: list[dict[str, Any]]) -> None:
    await empty_api.upload("corpora", "mine", LINES)
    empty_api.other = lambda _: httpx2.Response(200, json=builds)
    assert (await empty_api.get("/v1/corpora/mine"))["builds"] == builds


async def test_a_corpus_is_shown_while_the_retriever_does_not_answer(empty_api: Api) -> None:
    await empty_api.upload("corpora", "mine", LINES)
    empty_api.other = lambda _: httpx2.Response(503)
    shown = await empty_api.get("/v1/corpora/mine")
    assert (shown["documents"], shown["builds"]) == (3, None)


@pytest.fixture
async def stocked_api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    await scene.run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
        " SELECT c.id, n - 1, 'doc-' || n, d.hash"
        " FROM corpora c, (SELECT hash, row_number() OVER (ORDER BY hash) n FROM documents) d",
    )
    return empty_api


# Datasets and corpora are looked into page by page, and deleted only where no job needs them.


async def test_a_dataset_is_read_page_by_page(stocked_api: Api) -> None:
    first = await stocked_api.get("/v1/datasets/items/items", limit=3)
    rest = await stocked_api.get("/v1/datasets/items/items", limit=3, cursor=first["next_cursor"])
    rows = [*first["data"], *rest["data"]]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert (rows[2]["question"], rows[2]["gold"], rest["next_cursor"]) == ("What is 2 plus 2?", "4", None)
    wrong = await stocked_api.http.get("/v1/corpora/docs/documents", params={"cursor": first["next_cursor"]})
    assert wrong.status_code == 400


async def test_a_corpus_is_read_page_by_page(stocked_api: Api) -> None:
    first = await stocked_api.get("/v1/corpora/docs/documents", limit=15)
    rest = await stocked_api.get("/v1/corpora/docs/documents", limit=15, cursor=first["next_cursor"])
    assert [row["id"] for row in [*first["data"], *rest["data"]]] == [f"doc-{number}" for number in range(1, 21)]
    assert (await stocked_api.http.get("/v1/corpora/none/documents")).status_code == 404


async def test_wrong_answers_are_listed_alone(stocked_api: Api, database: Database, plant: Plant) -> None:
    await stocked_api.job()
    await finished(database)
    await plant("UPDATE outcomes SET correct = s.ordinal = 2 FROM samples s WHERE s.id = sample_id")
    listed = (await stocked_api.get("/v1/jobs/a-job/samples"))["data"]
    wrong = (await stocked_api.get("/v1/jobs/a-job/samples", wrong="true"))["data"]
    assert {row["correct"] for row in listed} == {True, False}
    assert [row["index"] for row in wrong] == [row["index"] for row in listed if row["correct"] is False]


async def test_what_a_live_job_uses_is_not_deleted(stocked_api: Api, owner: Database) -> None:
    await stocked_api.job("hybrid", name="alive")
    for kind, name in (("dataset", "items"), ("corpus", "docs")):
        with pytest.raises(Conflict, match=r"live jobs: alive \(running\)"):
            await purging.delete(owner, kind, name, "a-test")  # type: ignore[arg-type]


async def test_a_fallback_corpus_stays_while_a_job_may_search_it(
    stocked_api: Api, owner: Database, database: Database
) -> None:
    await stocked_api.job("crag", name="falls-back", corpus="docs", params={"crag": {"fallback": "docs"}})
    await scene.run_sql(database, "UPDATE jobs SET corpus_id = NULL")
    with pytest.raises(Conflict, match="falls-back"):
        await purging.delete(owner, "corpus", "docs", "a-test")
    assert (await purging.delete_unused(owner, "a-test"))["corpora"] == []


async def test_what_an_ended_job_was_made_from_stays_until_it_is_purged(
    stocked_api: Api, owner: Database, database: Database
) -> None:
    await stocked_api.job()
    await finished(database)
    with pytest.raises(Conflict, match=r"reports of ended jobs: a-job \(completed\)"):
        await purging.delete(owner, "dataset", "items", "a-test")
    for job in await purging.find_jobs(owner, ["a-job"]):
        await purging.purge(owner, job, "a-test")
    await purging.delete(owner, "dataset", "items", "a-test")
    assert (await stocked_api.http.get("/v1/datasets/items")).status_code == 404
    done = await scene.rows(database, "SELECT actor, action, target FROM operations ORDER BY id DESC LIMIT 1")
    assert done == [("a-test", "delete", "dataset items")]


async def test_a_name_that_is_not_there_is_not_deleted(stocked_api: Api, owner: Database) -> None:
    with pytest.raises(NotFound) as refused:
        await purging.delete(owner, "corpus", "dcos", "a-test")
    assert "did you mean 'docs'?" in str(refused.value.hint)
