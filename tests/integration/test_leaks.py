"""A corpus is scanned for a dataset's own questions, batch by batch."""

from collections.abc import AsyncIterator

import pytest

from services.orchestrator.reports import leaks
from shared.storage.database import Database
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio
TEN = "one two three four five six seven eight nine ten"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url) as serving_api:
        lines = [
            {"id": "near", "problem": f"{TEN} here", "text": "so it is"},
            {"id": "other", "problem": "What is music?", "text": "sound"},
            {"id": "passage", "text": TEN},
            {"id": "same", "problem": " what is 2 + 2?", "text": "4"},
            {"id": "again", "problem": "What is 2 + 2?", "text": "it is 4"},
            {"id": "late", "problem": " ", "text": "a passage, too"},
        ]
        await serving_api.upload("corpora", "mine", lines)
        await serving_api.upload(
            "datasets", "asked", [{"question": q, "answer": "4"} for q in (TEN, "Why?", "What is 2 + 2?", "No.")]
        )
        yield serving_api


@pytest.mark.parametrize(("block", "batch"), [(5000, 250), (1, 1), (2, 5)])
async def test_every_question_is_held_against_every_document(
    api: Api, monkeypatch: pytest.MonkeyPatch, block: int, batch: int
) -> None:
    monkeypatch.setattr(leaks, "BLOCK", block)
    monkeypatch.setattr(leaks, "BATCH", batch)
    found = await api.get("/v1/corpora/mine/contamination", dataset="asked")
    assert [found[name] for name in ("items", "documents", "passages", "exact", "near", "share", "pairs")] == [
        4, 6, 2, 1, 1, 0.5, 3,
    ]  # fmt: skip
    assert found["same_answer"] == 2
    assert {(each["index"], each["id"], each["exact"], each["same_answer"]) for each in found["examples"]} == {
        (0, "near", False, False), (2, "same", True, True), (2, "again", True, True),
    }  # fmt: skip


async def test_what_is_not_there_is_said(api: Api) -> None:
    for corpus, dataset in (("nobodys", "asked"), ("mine", "nobodys")):
        reply = await api.http.get(f"/v1/corpora/{corpus}/contamination", params={"dataset": dataset})
        assert (reply.status_code, "nobodys" in reply.json()["detail"]) == (404, True)
    assert (await api.http.get("/v1/corpora/mine/contamination")).status_code == 422
