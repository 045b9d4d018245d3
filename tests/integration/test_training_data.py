"""Training data over REST: of a dataset that was made from a graph, with the bank whose rules lead to its answers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from services.orchestrator.api import datasets
from shared.storage.database import Database
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

GRAPH = "".join(f"p{at}\tmet\tq{at}\np{at}\tsued\tq{(at + 3) % 9}\n" for at in range(9)) + "p0\tknows\tp1\n"
FACTS = "".join(f"p{at}\tknows\tq{at}\n" for at in range(5))
RULES = "?a  met  ?b   => ?a  knows  ?b\t0.5\t0.5\t0.5\t5\t10\t10\t?a\n"
OTHER_RULES = RULES.replace("met", "sued")


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url) as serving_api:
        await send(serving_api, "/v1/graphs", GRAPH, name="g")
        await send(serving_api, "/v1/rules/import", RULES, name="bank")
        await send(serving_api, "/v1/rules/import", OTHER_RULES, name="other")
        await send(serving_api, "/v1/datasets/from-graph", FACTS, name="led", graph="g", rules="bank")
        yield serving_api


async def send(api: Api, path: str, content: str, **query: str) -> None:
    reply = await api.http.post(path, params=query, content=content)
    assert reply.status_code == 201, reply.text


async def export(api: Api, dataset: str = "led", **query: Any) -> httpx2.Response:
    return await api.http.get(
        f"/v1/datasets/{dataset}/training", params={"rules": "bank", "graph": "g", **query}
    )  # fmt: skip


async def lines(api: Api, **query: Any) -> list[Any]:
    reply = await export(api, **query)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_each_question_and_rule_comes_with_its_documents(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await lines(api)
    items = (await api.get("/v1/datasets/led/items"))["data"]
    assert [line["query"] for line in found] == [item["question"] for item in items]
    asked = next(line for line in found if "p3" in line["query"])
    assert asked["rule"] == "[Entity1, met, Entity2] leads to [Entity1, knows, Entity2]"
    assert asked["positives"] == ["p3 met q3."]
    assert set(asked["negatives"]) == {"p3 sued q6.", "p0 knows p1."}
    monkeypatch.setattr(datasets, "BATCH", 3)
    assert await lines(api) == found


async def test_the_other_forms_tell_the_same(api: Api) -> None:
    triplet = next(line for line in await lines(api, **{"as": "triplets"}) if " p3 " in f" {line['anchor']}")
    assert (triplet["positive"], triplet["negative"]) in [
        ("p3 met q3.", each) for each in ("p3 sued q6.", "p0 knows p1.")
    ]
    instructions = await lines(api, **{"as": "instructions"})
    assert {line["answer"] for line in instructions} == {*(f"p{at}" for at in range(5)), *(f"q{at}" for at in range(5))}
    messages = await lines(api, **{"as": "messages", "cot": "true"})
    assert "leads to [Entity1, knows, Entity2]\np" in messages[0]["messages"][1]["content"]


async def test_a_limit_draws_questions_by_the_seed(api: Api) -> None:
    whole, part = (
        [json.dumps(line) for line in await lines(api)],
        [json.dumps(each) for each in await lines(api, limit=4)],
    )
    assert len(part) == 4
    assert part == [line for line in whole if line in part]
    drawn = {tuple(line["query"] for line in await lines(api, limit=4, seed=seed)) for seed in range(5)}
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("dataset", "query", "status", "said"),
    [
        ("led", {"rules": "other"}, 409, "another bank than 'other'"),
        ("led", {"rules": "none"}, 404, "no rule bank 'none'"),
        ("none", {}, 404, "no dataset 'none'"),
        ("led", {"graph": "none"}, 404, "no graph 'none'"),
        ("led", {"graph": ""}, 404, "no graph ''"),
        ("plain", {}, 422, "'plain' has no questions about a graph"),
        ("unled", {}, 422, "no rule leads to an answer of dataset 'unled'"),
        ("led", {"as": "poems"}, 422, "as"),
        ("led", {"limit": 0}, 422, "limit"),
    ],
)
async def test_what_cannot_be_exported_is_refused_with_the_reason(
    api: Api, dataset: str, query: dict[str, Any], status: int, said: str
) -> None:
    await api.upload("datasets", "plain", [{"question": "1 + 1?", "answer": "2"}])
    await send(api, "/v1/datasets/from-graph", "p0\tmet\tq5\n", name="unled", graph="g", limit="1")
    reply = await export(api, dataset, **query)
    assert reply.status_code == status, reply.text
    assert said in reply.text


async def test_the_graph_of_an_imported_bank_must_be_named(api: Api) -> None:
    reply = await api.http.get("/v1/datasets/led/training", params={"rules": "bank"})
    assert (reply.status_code, "--graph" in reply.json()["hint"]) == (422, True)
