"""Thumbs and notes of people about samples: the API, the pages, lists and exports."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from shared.runtime import purge
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import look, rows, send, sign_in, text, token
from tests.integration.test_access import KEYED, sent

pytestmark = pytest.mark.anyio
SAMPLE = "/v1/jobs/a-job/samples/1"


async def give(api: Api, key: str | None = None, path: str = SAMPLE, **body: Any) -> httpx2.Response:
    return await api.http.patch(f"{path}/note", json=body, headers=sent(key) if key else {})


def said(notes: Any) -> list[tuple[str, str | None, str]]:
    return [(each["author"], each["thumb"], each["note"]) for each in notes]


async def test_what_is_left_out_of_a_change_stays_and_what_is_taken_back_is_gone(api: Api, database: Database) -> None:
    await api.job()
    await finished(database)
    assert said((await give(api, thumb="down")).json()) == [("local", "down", "")]
    assert said((await give(api, note="the gold answer is wrong")).json()) == [
        ("local", "down", "the gold answer is wrong")
    ]
    assert said((await api.get(SAMPLE))["notes"]) == [("local", "down", "the gold answer is wrong")]
    assert said((await give(api, thumb="none")).json()) == [("local", None, "the gold answer is wrong")]
    assert said((await give(api, note="")).json()) == []
    assert (await api.get(SAMPLE))["notes"] == []


async def test_a_note_that_cannot_be_kept_is_refused(api: Api, database: Database) -> None:
    await api.job()
    await finished(database)
    assert (await give(api, thumb="sideways")).status_code == 422
    assert (await give(api, note="x" * 2001)).status_code == 422
    assert (await give(api, note="a\0b")).status_code == 422
    assert (await give(api, path="/v1/jobs/a-job/samples/5", thumb="up")).status_code == 404
    assert (await give(api, path="/v1/jobs/absent/samples/1", thumb="up")).status_code == 404
    assert await scene.rows(database, "SELECT * FROM sample_notes") == []


async def test_people_do_not_change_each_others_notes(keyed: Api, database: Database) -> None:
    ana, ben = [await keys.create_key(database, "local", name, {Scope.SUBMIT}) for name in ("ana", "ben")]
    reader = await keys.create_key(database, "local", "reader", {Scope.READ})
    given = [give(keyed, ana, thumb="up"), give(keyed, ben, thumb="down", note="no"), give(keyed, ana, note="yes")]
    assert {reply.status_code for reply in await asyncio.gather(*given)} == {200}
    assert (await give(keyed, reader, thumb="up")).status_code == 403
    found = (await keyed.http.get(SAMPLE, headers=sent(reader))).json()
    assert said(found["notes"]) == [("ana", "up", "yes"), ("ben", "down", "no")]
    (row,) = (await keyed.http.get("/v1/jobs/a-job/samples?noted=true", headers=sent(reader))).json()["data"]
    assert (row["index"], row["thumbs_up"], row["thumbs_down"], row["notes"]) == (1, 1, 1, "ana: yes\nben: no")


async def test_exports_have_the_notes(api: Api, database: Database) -> None:
    job = await api.job()
    await finished(database)
    await give(api, thumb="down", note='=SUM(1), "quoted"\nand a line')
    exported = await api.http.get(f"/v1/jobs/{job['id']}/results", params={"format": "csv"})
    found = list(csv.DictReader(io.StringIO(exported.text, newline="")))
    assert [(row["thumbs_up"], row["thumbs_down"]) for row in found] == [("0", "0"), ("0", "1"), *[("0", "0")] * 3]
    assert [row["notes"] for row in found] == ["", 'local: =SUM(1), "quoted"\nand a line', "", "", ""]
    parquet = await api.http.get(f"/v1/jobs/{job['id']}/results", params={"format": "parquet"})
    assert parquet.status_code == 200


async def test_a_note_changes_nothing_that_was_recorded(api: Api, database: Database) -> None:
    job = await api.job()
    await finished(database)
    before = await api.http.get(f"/v1/jobs/{job['id']}/provenance")
    await give(api, thumb="down", note="wrong")
    assert (await api.http.get(f"/v1/jobs/{job['id']}/provenance")).content == before.content
    assert (await api.get(f"/v1/jobs/{job['id']}/audit"))["clean"]


@pytest.fixture
async def keyed(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    await scene.submit_job(database, "closed-book")
    await finished(database)
    async with serving(database, redis_url, KEYED) as keyed_api:
        yield keyed_api


async def test_the_page_of_a_sample_takes_thumb_and_note(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.READ)
    assert 'name="thumb"' not in await text(keyed, "/jobs/a-job/samples/1")
    await sign_in(keyed, database, Scope.READ, Scope.SUBMIT)
    form = {
        "csrf": token(await text(keyed, "/jobs/a-job/samples/1")),
        "note": "a <b>bold</b> claim\r\nof two lines",
        "thumb": "down",
    }
    path = "/jobs/a-job/samples/1/note"
    reply = await send(keyed, path, form)
    assert (reply.status_code, reply.headers["location"]) == (303, "/jobs/a-job/samples/1")
    page = await text(keyed, "/jobs/a-job/samples/1")
    assert ">a &lt;b&gt;bold&lt;/b&gt; claim\nof two lines</textarea>" in page
    assert 'value="none" title="take back a thumb down"' in page
    assert [row[:18] for row in rows(await text(keyed, "/jobs/a-job/samples?noted=true"))] == ["1 What is 1 plus 1"]
    assert (await send(keyed, path, {**form, "back": "https://elsewhere"})).headers["location"].startswith("/jobs/")
    assert (await send(keyed, path, {**form, "csrf": "x"})).status_code == 403


async def test_thumbs_are_given_in_the_table_of_answers(api: Api, database: Database) -> None:
    await api.job()
    await finished(database)
    back = "/compare/answers?jobs=a-job&kind=wrong#question-2"
    reply = await send(api, "/jobs/a-job/samples/1/note", {"thumb": "up", "back": back})
    assert (reply.status_code, reply.headers["location"]) == (303, back)
    page = await text(api, "/compare/answers?jobs=a-job")
    assert page.count('aria-pressed="true"') == 1
    assert 'action="/jobs/a-job/samples/1/note"' in page
    assert "/compare/answers?jobs=a-job#question-1" in page
    assert (await look(api, "/compare/answers?jobs=a-job")).status_code == 200


async def test_notes_go_with_the_job_that_is_purged(api: Api, database: Database, owner: Database) -> None:
    await api.job()
    await finished(database)
    await give(api, note="gone soon")
    (job,) = await purge.find_jobs(owner, ["a-job"])
    await purge.purge(owner, job, "operator")
    assert await scene.rows(database, "SELECT * FROM sample_notes") == []
