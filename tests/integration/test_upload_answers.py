"""What an upload is answered: every defect with its line, good lines without the bad ones where that is asked for."""

import io
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import Request
from pyarrow import parquet

from services.orchestrator.api import uploads
from shared.errors import BadRequest
from shared.ingest.rows import Format
from shared.settings import Limits
from shared.storage.database import Database
from tests.integration.api import Api, serving
from tests.integration.scene import scalar
from tests.unit.shared.ingest.test_uploads import as_csv, as_jsonl, as_parquet
from tests.unit.upload_defects import CSV, LINES, PARQUET, WHOLE

pytestmark = pytest.mark.anyio

DOCUMENTS: list[dict[str, Any]] = [{"id": "a", "text": "x", "problem": "p"}, {"id": "b", "text": "y", "problem": "q"}]
NOTHING = "SELECT (SELECT count(*) FROM corpora) + (SELECT count(*) FROM documents) + (SELECT count(*) FROM datasets)"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def send(api: Api, what: str, content: bytes, media: str = "", **query: Any) -> httpx2.Response:
    headers = {"content-type": media} if media else {}
    return await api.http.post(f"/v1/{what}", params={"name": "mine", **query}, content=content, headers=headers)


async def test_no_body_is_an_error_of_ours(api: Api, database: Database) -> None:
    for body in [*WHOLE, *LINES]:
        reply = await send(api, "corpora", body.content, format=body.format.value)
        problem = reply.json()
        assert (reply.status_code, problem["type"], problem["line"]) == (422, "urn:mathrag:invalid_line", body.line)
        assert body.said in problem["detail"], body.what
        assert (await send(api, "datasets", body.content, format=body.format.value)).status_code in (200, 201, 409, 422)
    assert await scalar(database, "SELECT count(*) FROM corpora") == 0


@pytest.mark.parametrize("body", [each for each in LINES if each.content.startswith((CSV, PARQUET[:4]))], ids=str)
async def test_good_lines_are_stored_where_bad_ones_may_be_skipped(api: Api, body: Any) -> None:
    reply = await send(api, "corpora", body.content, on_error="skip")
    if reply.status_code == 422:
        assert reply.json()["line"] == body.line  # there was no good one
        return
    made = reply.json()
    assert (reply.status_code, made["rejected"], made["rejected_lines"][0]["line"]) == (201, 1, body.line)
    assert body.said in made["rejected_lines"][0]["message"]


@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet])
async def test_every_format_is_the_same_corpus(api: Api, written: Any) -> None:
    assert (await send(api, "corpora", as_jsonl(DOCUMENTS))).status_code == 201
    assert (await send(api, "corpora", written(DOCUMENTS))).status_code == 200


@pytest.mark.parametrize(
    ("media", "content"),
    [
        ("application/x-ndjson", as_jsonl(DOCUMENTS)),
        ("text/csv; charset=utf-8", as_csv(DOCUMENTS)),
        ("text/tab-separated-values", as_csv(DOCUMENTS, "\t")),
        ("application/vnd.apache.parquet", as_parquet(DOCUMENTS)),
        ("application/octet-stream", as_parquet(DOCUMENTS)),
        ("application/x-www-form-urlencoded", as_csv(DOCUMENTS)),
    ],
)
async def test_the_content_type_may_say_the_format(api: Api, media: str, content: bytes) -> None:
    assert (await send(api, "corpora", content, media)).status_code == 201


async def test_a_content_type_that_contradicts_the_content_is_refused(api: Api) -> None:
    assert "is parquet, not csv" in (await send(api, "corpora", as_parquet(DOCUMENTS), "text/csv")).json()["detail"]
    form = await send(api, "corpora", b"--x\r\n", "multipart/form-data; boundary=x")
    assert (form.status_code, "curl --data-binary @FILE" in form.json()["hint"]) == (422, True)


async def test_a_rejected_upload_names_all_that_is_wrong(api: Api, database: Database) -> None:
    reply = await api.upload("datasets", "mine", [{"question": "?"}, b"[]\n", {"question": 1}, {"answer": "4"}])
    problem = reply.json()
    assert (reply.status_code, problem["line"], len(problem["others"])) == (422, 2, 2)
    assert problem["others"][1] == "upload, line 4: has no question; write it into `question` (or `problem`)"
    assert "upload, line 3: `question` is a number" in problem["hint"]
    assert await scalar(database, NOTHING) == 0


async def test_skipped_lines_are_listed_up_to_a_hundred_and_counted_to_the_end(api: Api, database: Database) -> None:
    lines = [{"question": "first"}, *([b"{\n"] * 150), {"question": "last"}]
    reply = await api.upload("datasets", "mine", lines, on_error="skip")
    made = reply.json()
    assert (reply.status_code, made["items"], made["rejected"], len(made["rejected_lines"])) == (201, 2, 150, 100)
    assert made["rejected_lines"][0]["line"] == 2
    assert made["rejected_lines"][0]["message"].startswith("is not JSON")
    assert await scalar(database, "SELECT string_agg(question, ' ' ORDER BY ordinal) FROM items") == "first last"
    again = await api.upload("datasets", "mine", lines, on_error="skip")
    assert (again.status_code, again.json()) == (200, made)


async def test_skipping_everything_is_an_error(api: Api, database: Database) -> None:
    reply = await api.upload("datasets", "mine", [b"{\n", b"[]\n"], on_error="skip")
    assert (reply.status_code, reply.json()["line"], len(reply.json()["others"])) == (422, 1, 1)
    assert await scalar(database, NOTHING) == 0


@pytest.mark.parametrize("query", [{"on_error": "ignore"}, {"format": "xml"}, {"delimiter": "|"}])
async def test_an_option_that_is_none_is_refused_by_name(api: Api, query: dict[str, str]) -> None:
    reply = await send(api, "corpora", b'{"text": "x"}\n', **query)
    assert (reply.status_code, reply.json()["field"]) == (422, next(iter(query)))


async def test_damage_further_on_takes_back_what_came_before(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "BATCH", 1)
    whole = as_parquet([{"id": str(number), "text": "x"} for number in range(4)], use_dictionary=False)
    second = parquet.read_metadata(io.BytesIO(whole)).row_group(1).column(0).data_page_offset
    reply = await send(api, "corpora", whole[:second] + b"\xff" * 12 + whole[second + 12 :], on_error="skip")
    assert (reply.status_code, reply.json()["line"]) == (422, 3)
    assert "damaged or truncated Parquet file" in reply.json()["detail"]
    assert await scalar(database, NOTHING) == 0


async def test_a_client_that_goes_away_is_no_error_of_ours(api: Api, database: Database) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/v1/datasets", "headers": []}
    with pytest.raises(BadRequest, match="broke off"):
        async with uploads.spool(Request(scope, receive), Limits()):  # type: ignore[arg-type]
            pass


async def test_several_expected_answers_are_counted(api: Api, database: Database) -> None:
    lines = [{"question": "?", "golden_answers": ["4", "four"]}, {"question": "!", "golden_answers": ["5"]}]
    made = (await api.upload("datasets", "mine", lines)).json()
    assert (made["items"], made["alternatives"]) == (2, 1)
    assert await scalar(database, "SELECT string_agg(gold, ' ' ORDER BY ordinal) FROM items") == "4 5"


async def test_documents_that_another_corpus_has_are_not_stored_again(api: Api, database: Database) -> None:
    await api.upload("corpora", "one", DOCUMENTS)
    twice = [*DOCUMENTS, {"id": "c", "text": "z"}, {"id": "d", "text": "z"}]
    assert (await api.upload("corpora", "two", twice)).status_code == 201
    assert await scalar(database, "SELECT count(*) FROM documents") == 3
    assert await scalar(database, "SELECT count(*) FROM corpus_documents") == 6


def test_formats_have_the_names_of_the_contract() -> None:
    assert [each.value for each in Format] == ["auto", "jsonl", "csv", "parquet"]
