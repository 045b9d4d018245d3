"""Question sets over REST: made of a graph, held-out facts and maybe a bank, or refused with the next command."""

import gzip
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest

from shared.replies import Atom, Rule
from shared.storage import rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin
from tests.integration.api import Api, serving
from tests.integration.scene import rows

pytestmark = pytest.mark.anyio

GRAPH = b"""{"relation": "met", "phrase": "has met"}
{"subject": "a", "relation": "met", "object": "b", "time": "2014-09-20"}
{"subject": "b", "relation": "met", "object": "c", "time": "2014-09-21"}
{"subject": "a", "relation": "saw", "object": "c", "time": "2014-09-22"}
"""
FACTS = b"a\tmet\tc\t2014-09-25\na\tmet\tb\t2014-09-25\nb\tsaw\ta\t2014-09-26\n"
RULE = Rule(head=Atom("met", 0, 1), body=(Atom("saw", 0, 1),), support=1, body_size=2, confidence=0.5)
QUERY = "SELECT query FROM items i JOIN datasets d ON d.id = i.dataset_id WHERE d.name = 'q' ORDER BY ordinal"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url) as serving_api:
        reply = await serving_api.http.post("/v1/graphs", params={"name": "g"}, content=GRAPH)
        assert reply.status_code == 201, reply.text
        yield serving_api


async def make(api: Api, content: bytes = FACTS, name: str = "q", **query: Any) -> httpx2.Response:
    return await api.http.post("/v1/datasets/from-graph", params={"name": name, "graph": "g", **query}, content=content)


async def store_bank(database: Database, name: str, graph_hash: str | None, found: Sequence[Rule] = (RULE,)) -> None:
    async def batches() -> AsyncIterator[Sequence[Rule]]:
        yield found

    await rules.create_imported(database, name, ImportOrigin("tlogic", graph_hash), batches())


async def test_a_question_set_is_a_dataset_with_the_rules_that_lead_there(api: Api, database: Database) -> None:
    graph = await api.get("/v1/graphs/g")
    await store_bank(database, "bank", graph["hash"])
    bank = await api.get("/v1/rules/bank")
    reply = await make(api, rules="bank", side="object")
    made = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (201, "/v1/datasets/q")
    assert (made["items"], made["grader"], made["hash"]) == (2, "text", (await api.get("/v1/datasets/q"))["hash"])
    assert made["counts"] == {
        "available": 2, "answers": 3, "answered_by_graph": 0, "unnamed_answers": 0, "not_after_graph": 0,
        "with_leads": 1, "with_documents": 1,
        "left_out": {"repeated": 0, "known": 0, "unknown_relation": 0, "unknown_entity": 0, "many_answers": 0,
                     "answered": 0, "long": 0},
    }  # fmt: skip
    items = {item["relation"]: item for item in (await api.get("/v1/datasets/q/items"))["data"]}
    assert (items["met"]["question"], items["met"]["gold"]) == ("On 2014-09-25, a has met whom or what?", "b")
    assert (items["met"]["gold_documents"], items["saw"]["gold_documents"]) == ({"2": 1}, None)
    queries = {query["relation"]: query for (query,) in await rows(database, QUERY)}
    assert queries["met"] == {
        "relation": "met", "entity": "a", "time": "2014-09-25", "bank": bank["hash"],
        "leads": [{"rule": 0, "documents": ["2"]}],
    }  # fmt: skip


async def test_the_same_command_again_is_harmless_however_the_facts_are_packed(api: Api) -> None:
    first = await make(api, limit=2)
    again = await make(api, gzip.compress(FACTS), limit=2)
    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
    other = await make(api, limit=2, grader="set")
    assert (other.status_code, other.json()["hint"]) == (409, "choose another name")


async def test_templates_come_with_the_facts(api: Api) -> None:
    template = (
        b'{"relation": "met", "object_question": "Whom met {subject}?", "subject_question": "Who met {object}?"}\n'
    )
    fact = b'{"subject": "c", "relation": "met", "object": "b", "time": "2014-09-25"}\n'
    assert (await make(api, template + fact)).status_code == 201
    asked = [item["question"] for item in (await api.get("/v1/datasets/q/items"))["data"]]
    assert sorted(asked) == ["On 2014-09-25, Who met b?", "On 2014-09-25, Whom met c?"]
    refused = await make(api, fact + template.replace(b"{subject}", b"{who}"), name="r")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:mathrag:invalid_line")
    assert "upload, line 2: `object_question` has the slot {who}" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("content", "query", "status", "said"),
    [
        (b"a\tmet\tc\n", {}, 422, "each fact has no time, but graph 'g' has a date"),
        (b"a\tmet\tc\t7\n", {}, 422, "each fact has a whole number as time, but graph 'g' has a date"),
        (b"a\tmet\tb\t2014-09-20\n", {}, 422, "yield no question"),
        (b"a\tmet\n", {}, 422, "line 1: has 2 columns"),
        (FACTS, {"graph": "gg"}, 404, "no graph 'gg'"),
        (FACTS, {"rules": "none"}, 404, "none"),
        (FACTS, {"rules": "foreign"}, 409, "bank 'foreign' is of another graph than 'g'"),
        (FACTS, {"rules": "other-heads"}, 422, "bank 'other-heads' has no rule for any relation of the facts"),
        (FACTS, {"side": "both ends"}, 422, "side"),
        (FACTS, {"grader": "math"}, 422, "grader"),
        (FACTS, {"limit": 0}, 422, "limit"),
    ],
)
async def test_what_makes_no_questions_is_refused(
    api: Api, database: Database, content: bytes, query: dict[str, Any], status: int, said: str
) -> None:
    await store_bank(database, "foreign", "ab" * 32)
    likes = Rule(head=Atom("likes", 0, 1), body=RULE.body, support=1, body_size=2, confidence=0.5)
    await store_bank(database, "other-heads", None, [likes])
    reply = await make(api, content, **query)
    assert (reply.status_code, said in reply.json()["detail"]) == (status, True), reply.text
    assert (await api.get("/v1/datasets"))["data"] == []


async def test_a_bank_that_is_being_mined_has_no_rules_yet(api: Api) -> None:
    body = {"name": "bank", "graph": "g", "mining": {"miner": "tlogic"}}
    assert (await api.http.post("/v1/rules", json=body)).status_code == 202
    reply = await make(api, rules="bank")
    assert (reply.status_code, reply.json()["hint"]) == (409, "wait for it")


async def test_uploaded_items_name_their_relation(api: Api) -> None:
    lines = [{"question": "Whom?", "relation": "met"}, {"question": "Who?", "query": {"relation": "saw"}}]
    assert (await api.upload("datasets", "u", [*lines, {"question": "Why?"}])).status_code == 201
    assert [item["relation"] for item in (await api.get("/v1/datasets/u/items"))["data"]] == ["met", "saw", None]
