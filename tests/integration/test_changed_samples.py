"""Samples that changed between two jobs: which they are, page by page, and one of them as both answered it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant
from tests.integration.test_comparison import Answered, answered, right

pytestmark = pytest.mark.anyio
__all__ = ["answered"]
AT = "/v1/comparison/samples"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, 10)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


async def indexes(api: Api, **query: Any) -> list[int]:
    return [each["index"] for each in (await api.get(AT, **query))["data"]]


async def test_gains_are_the_left_jobs_and_losses_the_right_ones(api: Api, answered: Answered) -> None:
    await answered(one=[0, 1, 2, 5], two=[2, 3, 5])
    both = {"left": "one", "right": "two"}
    assert await indexes(api, **both) == [0, 1, 3]
    assert await indexes(api, **both, only="gained") == [0, 1]
    assert await indexes(api, **both, only="lost") == [3]
    assert await indexes(api, left="two", right="one", only="gained") == [3]
    found = await api.get(AT, **both)
    (pair,) = (await api.get("/v1/comparison", job=["one", "two"]))["pairs"]
    assert (found["gained"], found["lost"]) == (pair["gained"], pair["lost"]) == (2, 1)
    assert (found["left_name"], found["right_name"]) == ("one", "two")
    first = found["data"][0]
    assert (first["left"]["correct"], first["right"]["correct"], first["gold"]) == (True, False, "0")


async def test_pages_follow_each_other_and_count_all(api: Api, answered: Answered) -> None:
    await answered(one=range(7), two=[])
    first = await api.get(AT, left="one", right="two", limit=4)
    rest = await api.get(AT, left="one", right="two", limit=4, cursor=first["next_cursor"])
    assert [each["index"] for each in first["data"] + rest["data"]] == list(range(7))
    assert rest["next_cursor"] is None
    assert first["gained"] == rest["gained"] == 7
    for other in ({"left": "two", "right": "one"}, {"left": "one", "right": "two", "only": "gained"}):
        reply = await api.http.get(AT, params={**other, "cursor": first["next_cursor"]})
        assert reply.status_code == 400


async def test_repeats_are_matched_with_repeats(api: Api, database: Database, plant: Plant) -> None:
    await api.job(name="thrice", repeats=3, params={"generate": {"temperature": 0.8}})
    await api.job(name="twice", repeats=2, params={"generate": {"temperature": 0.8}})
    await finished(database)
    for repeat in range(3):
        await right(plant, "thrice", [4], repeat=repeat)
    await right(plant, "twice", [4])
    await right(plant, "twice", [], repeat=1)
    found = await api.get(AT, left="thrice", right="twice")
    assert [(each["index"], each["repeat"]) for each in found["data"]] == [(4, 1)]


async def test_questions_are_matched_by_content_in_another_dataset(
    api: Api, database: Database, plant: Plant, answered: Answered
) -> None:
    await answered(one=range(10))
    await scene.add_dataset(database, 10, "moved", changed=frozenset({9}))
    moved = await scene.scalar(database, "SELECT id FROM datasets WHERE name = 'moved'")
    await plant("UPDATE items SET ordinal = 100 + ordinal WHERE dataset_id = :moved", moved=moved)
    await plant("UPDATE items SET ordinal = (ordinal + 1) % 10 WHERE dataset_id = :moved", moved=moved)
    await plant(
        "UPDATE items i SET hash = o.hash, question = o.question FROM items o"
        " WHERE o.dataset_id = i.dataset_id AND i.dataset_id = :moved AND o.ordinal = 1 AND i.ordinal = 2",
        moved=moved,
    )
    await api.job(name="two", dataset="moved")
    await finished(database)
    await right(plant, "two", range(7))
    await plant(
        "UPDATE outcomes SET correct = NULL FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND j.name = 'two' AND s.ordinal = 9"
    )
    found = await api.get(AT, left="one", right="two")
    assert [(each["index"], each["right_index"]) for each in found["data"]] == [(6, 7), (7, 8)]


async def test_one_question_stands_with_both_provenances_and_what_their_prompts_differ_in(
    api: Api, database: Database
) -> None:
    await api.job("dense", name="dense")
    await api.job("closed-book", name="closed")
    await finished(database)
    found = await api.get(f"{AT}/3", left="dense", right="closed")
    assert (found["left_name"], found["left"]["index"], found["right"]["index"]) == ("dense", 3, 3)
    assert found["left"]["question"] == found["right"]["question"]
    only = [line["text"] for line in found["prompts"]["lines"] if line["side"] == "left"]
    assert any("Therefore" in line for line in only)
    assert not found["prompts"]["cut"]


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("", {"left": "one", "right": "one"}, 422, "the same job"),
        ("", {"left": "one"}, 422, "right"),
        ("", {"left": "one", "right": "none"}, 404, "no job 'none'"),
        ("", {"left": "one", "right": "two", "only": "both"}, 422, "only"),
        ("/10", {"left": "one", "right": "two"}, 404, "no common sample 10"),
        ("/1", {"left": "one", "right": "two", "repeat": 1}, 404, "repeat 1"),
        ("/1", {"left": "one", "right": "two", "repeat": -1}, 422, "repeat"),
    ],
)
async def test_what_is_not_there_is_refused(
    api: Api, database: Database, path: str, query: dict[str, Any], status: int, said: str
) -> None:
    for name in ("one", "two"):
        await api.job(name=name)
    await finished(database)
    reply = await api.http.get(AT + path, params=query)
    assert reply.status_code == status
    assert said in reply.text
