"""Uploads of datasets."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from shared.samples import Item
from shared.storage.database import Database
from tests.integration.api import Api
from tests.integration.scene import furnish, scalar

pytestmark = pytest.mark.anyio

LINES: list[Any] = [
    {"id": "q1", "question": "What is 1 + 1?", "answer": 2, "subject": "Algebra", "level": "Level 1"},
    {"question": "What is 2 + 2?", "gold_documents": ["a"]},
]

LEFT_OUT = ("skipped", "rejected", "rejected_lines", "alternatives", "warnings")
"""What is said about an upload, not about the dataset."""


@pytest.fixture
def api(empty_api: Api) -> Api:
    return empty_api


async def test_items_are_stored_in_order_with_all_that_is_known(api: Api, database: Database) -> None:
    reply = await api.upload("datasets", "mine", LINES)
    assert (reply.status_code, reply.json()["items"]) == (201, 2)
    async with database.transaction() as connection:
        first, second = (await connection.execute(text("SELECT * FROM items ORDER BY ordinal"))).all()
    assert (first.question, first.gold, first.subject, first.level) == ("What is 1 + 1?", "2", "Algebra", "1")
    assert (first.custom_id, first.hash.hex()) == ("q1", Item(ordinal=0, question="What is 1 + 1?", gold="2").hash)
    assert (second.gold, second.gold_documents, second.custom_id) == (None, {"a": 1}, None)


async def test_the_same_upload_again_is_the_same_dataset(api: Api) -> None:
    first = (await api.upload("datasets", "mine", LINES)).json()
    again = await api.upload("datasets", "mine", LINES)
    assert (again.status_code, again.json()) == (200, first)
    changed = [{**LINES[0], "level": 2}, LINES[1]]
    assert (await api.upload("datasets", "mine", changed)).status_code == 409


async def test_a_bad_line_rejects_the_upload_with_its_number(api: Api, database: Database) -> None:
    reply = await api.upload("datasets", "mine", [*LINES, {"answer": "4"}])
    assert (reply.status_code, reply.json()["line"]) == (422, 3)
    assert await scalar(database, "SELECT count(*) FROM datasets") == 0


async def test_two_uploads_of_one_name_at_once_are_one_dataset(api: Api, database: Database) -> None:
    replies = await asyncio.gather(*(api.upload("datasets", "mine", LINES) for _ in range(2)))
    assert sorted(reply.status_code for reply in replies) == [200, 201]
    assert await scalar(database, "SELECT count(*) FROM items") == 2


async def test_a_dataset_is_found_by_its_name(api: Api) -> None:
    stored = (await api.upload("datasets", "mine", LINES)).json()
    found = await api.get("/v1/datasets/mine")
    assert found.pop("counts")["counted"] == 2
    assert found == {field: value for field, value in stored.items() if field not in LEFT_OUT}
    assert (await api.get("/v1/datasets"))["data"] == [found]
    assert (await api.http.get("/v1/datasets/none")).status_code == 404


async def test_an_upload_without_any_expected_answer_is_told_so(api: Api) -> None:
    misspelt = [{"question": "What is 1 + 1?", "anwser": 2}, {"question": "What is 2 + 2?", "anwser": 4}]
    for status in (201, 200):
        reply = await api.upload("datasets", "mine", misspelt)
        assert reply.status_code == status
        (warning,) = reply.json()["warnings"]
        assert "no item has an expected answer" in warning
        assert "`anwser` (did you mean `answer`?)" in warning
    assert (await api.upload("datasets", "other", LINES)).json()["warnings"] == []
    by_rubric = await api.upload("datasets", "rated", misspelt, grader="rubric")
    assert by_rubric.json()["warnings"] == ["`anwser` was not read: did you mean `answer`?"]


async def test_a_job_over_a_dataset_without_any_expected_answer_is_told_so(api: Api, database: Database) -> None:
    await furnish(database)
    await api.upload("datasets", "open", [{"question": "Why?"}, {"question": "How?", "anwser": "So."}])
    await api.upload("datasets", "half", [{"question": "Why?"}, {"question": "How?", "answer": "So."}])
    said = "items of dataset '{}' has an expected answer: no answer can be graded"
    for name, fields, expected in (
        ("open", {}, ["none of the 2 " + said.format("open")]),
        ("open", {"limit": 1}, ["none of the 1 " + said.format("open")]),
        ("open", {"params": {"grading": {"grader": "rubric"}}}, None),
        ("half", {"limit": 1}, ["none of the 1 " + said.format("half")]),
        ("half", {}, None),
        ("items", {}, None),
    ):
        assert (await api.job(dataset=name, **fields)).get("warnings") == expected
    reply = await api.http.post("/v1/jobs/import?name=theirs&dataset=open", content=b'{"index": 0, "answer": "So."}')
    assert ("none of the 2 " + said.format("open")) in reply.json()["warnings"]
    places = [{"dataset": name, "corpus": "docs"} for name in ("open", "items")]
    body = {
        "name": "e",
        "datasets": places,
        "variants": [{"name": "d", "pipeline": "dense"}],
        "grid": {"candidates": [5, 6]},
    }
    reply = await api.http.post("/v1/experiments", json=body)
    assert (reply.status_code, reply.json()["warnings"]) == (202, ["none of the 2 " + said.format("open")])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("name=a&graderr=text", "graderr"),
        ("name=a&name=b", "name"),
        ("name=a&grader=text&grader=f1", "grader"),
        ("name=a&delimiter=comma", "delimiter"),
        ("name=a&format=jsonl&reader=x", "format"),
        ("name=a&delimiter=tab&reader=x", "delimiter"),
    ],
)
async def test_an_upload_with_a_parameter_that_would_be_ignored_stores_nothing(
    api: Api, database: Database, query: str, field: str
) -> None:
    reply = await api.http.post(f"/v1/datasets?{query}", content=b'{"question": "a", "answer": "b"}')
    assert (reply.status_code, reply.json()["field"]) == (422, field)
    assert await scalar(database, "SELECT count(*) FROM datasets") == 0
