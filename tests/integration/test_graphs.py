"""Graphs: over REST, in the database, and as what rules are found over."""

import errno
import gzip
import hashlib
import io
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import numpy as np
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from mathrag.errors import Conflict, NotFound
from services.judge import graphs as judge_graphs
from services.judge.executors import NO_BANK, NO_PHRASES, RulesExecutor
from shared.calls import FindRules, RuleChoice
from shared.params import Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.replies import Atom, CorpusRecord, Document, FoundRules, Reply
from shared.rules.graph import Graph
from shared.runtime import pins
from shared.runtime import purge as purging
from shared.runtime.queue import ClaimedCall
from shared.settings import Limits
from shared.storage import graphs as stored_graphs
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from tests.integration.api import Api, serving
from tests.integration.rule_banks import BANK, PHRASES, add_bank, add_graph, rule
from tests.integration.scene import SETTINGS, furnish, run_sql, scalar
from tests.unit.shared.ingest.graph_uploads import FACTS, REFUSED, TIMED

# Graphs over REST: stored with their corpus or not at all, and usable when the upload is answered.


pytestmark = pytest.mark.anyio

NOTHING = "SELECT (SELECT count(*) FROM graphs) + (SELECT count(*) FROM corpora) + (SELECT count(*) FROM documents)"


@pytest.fixture
def api(empty_api: Api) -> Api:
    return empty_api


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
            full.setattr(stored_graphs, "INSERT", NO_ROOM)
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


# Calls that find rules, over a bank in the database.

NONE = FoundRules(relation=None)


async def pin(database: Database, bank: str) -> Pin:
    async with database.transaction() as connection:
        return await pins.pin_identity(connection, pins.bank_identity(bank))


def look(relation: str = "", question: str = "", **fields: Any) -> FindRules:
    choice = {name: fields.pop(name) for name in ("confidence", "support", "order", "seed") if name in fields}
    return FindRules(
        relation=relation, question=question, choice=RuleChoice(**{"most": fields.pop("most", 20), **choice}), **fields
    )


async def find(executor: RulesExecutor, pinned: Pin, *calls: FindRules) -> list[Reply]:
    binding = Binding(pins={"rules": pinned}, params=Params())
    claimed = [
        ClaimedCall(id=number, key=b"", role="rules", model_id=pinned.model_id, request=bind(call, binding, 0).body)
        for number, call in enumerate(calls)
    ]
    return [answer.reply async for answer in executor.run(claimed, None)]


def numbers(reply: Reply) -> list[int]:
    assert isinstance(reply, FoundRules)
    return [found.number for found in reply.rules]


@pytest.fixture
async def bank(database: Database) -> Pin:
    return await pin(database, await add_bank(database))


async def test_rules_of_a_relation_come_in_order_with_the_words_for_what_they_name(
    database: Database, bank: Pin
) -> None:
    (reply,) = await find(RulesExecutor(database), bank, look("Make_a_visit"))
    assert isinstance(reply, FoundRules)
    assert (reply.relation, numbers(reply)) == ("Make_a_visit", [2, 1, 0])
    assert [found.rule for found in reply.rules] == [BANK[2], BANK[1], BANK[0]]
    assert reply.phrases == {
        "Consult": "consult", "Like": "like", "Make_a_visit": "make a visit", "Own": "own",
    }  # fmt: skip


async def test_a_chunk_is_answered_call_by_call(database: Database, bank: Pin) -> None:
    found = await find(
        RulesExecutor(database), bank,
        look("Consult"), look("Like"), look(question="Whom did Ann CONSULT?"), look(question="Who owns it? Own!"),
        look(question="Why?"), look(), look("Make_a_visit", most=1),
        look("Make_a_visit", confidence=0.9, order="worst"),
    )  # fmt: skip
    assert [numbers(reply) for reply in found] == [[3], [], [3], [], [], [], [2], [1, 2]]
    relations = [reply.relation for reply in found if isinstance(reply, FoundRules)]
    assert relations == ["Consult", "Like", "Consult", "Own", None, None, "Make_a_visit", "Make_a_visit"]
    assert found[4] == NONE
    assert found[5] == FoundRules(relation=None, phrases={"Consult": "consult", "Make_a_visit": "make a visit"})


async def test_a_graphs_phrases_name_relations_in_either_direction(database: Database, bank: Pin) -> None:
    await furnish(database)
    phrases = await add_graph(database)
    calls = [
        look(question=asked, phrases=phrases)
        for asked in ("Did Ann travel to Cuba?", "Who did host Ann?", "Make a visit!")
    ]
    first, second, third = await find(RulesExecutor(database), bank, *calls)
    assert numbers(first) == numbers(second) == [2, 1, 0]
    assert third == NONE
    assert isinstance(first, FoundRules)
    assert first.phrases["Make_a_visit"] == PHRASES["Make_a_visit"].phrase


async def test_temporal_rules_serve_the_end_that_is_asked_for(database: Database) -> None:
    rules = [rule(Atom("r", 0, 1), Atom("b", 0, 1)), rule(Atom("r", 1, 0), Atom("b", 0, 1))]
    temporal = await pin(database, await add_bank(database, rules, "t", "tlogic"))
    static = await pin(database, await add_bank(database, rules, "s"))
    calls = [look("r", side="object"), look("r", side="subject"), look("r")]
    executor = RulesExecutor(database)
    assert [numbers(reply) for reply in await find(executor, temporal, *calls)] == [[0], [1], [0, 1]]
    assert [numbers(reply) for reply in await find(executor, static, *calls)] == [[0, 1]] * 3


async def test_the_same_call_has_the_same_reply_whoever_answers_it_and_beside_whatever(
    database: Database, bank: Pin
) -> None:
    calls = [
        look(relation, order=order, seed=seed, confidence=confidence, support=2)
        for relation in ("Make_a_visit", "Consult")
        for order in ("best", "worst", "random")
        for seed in (1, 2)
        for confidence in (0.0, 0.5)
    ]
    executor = RulesExecutor(database)
    forward, backward = await find(executor, bank, *calls), await find(RulesExecutor(database), bank, *calls[::-1])
    assert forward == backward[::-1] == await find(executor, bank, *calls)
    assert forward == [(await find(RulesExecutor(database), bank, call))[0] for call in calls]


async def test_random_rules_are_of_the_whole_bank_and_keep_the_thresholds(database: Database, bank: Pin) -> None:
    calls = [look("Make_a_visit", order="random", seed=seed, most=2) for seed in range(30)]
    drawn = [numbers(reply) for reply in await find(RulesExecutor(database), bank, *calls)]
    assert {number for found in drawn for number in found} == {0, 1, 2, 3}
    assert all(len(set(found)) == 2 for found in drawn)
    (reply,) = await find(RulesExecutor(database), bank, look("Like", order="random", support=2, confidence=0.5))
    assert sorted(numbers(reply)) == [1, 2]


async def test_a_bank_that_is_gone_or_phrases_that_are_gone_are_a_passing_failure(
    database: Database, bank: Pin
) -> None:
    executor = RulesExecutor(database)
    (missing, found) = await find(executor, bank, look("Consult", phrases="ab" * 32), look("Consult"))
    assert (missing, numbers(found)) == (NO_PHRASES, [3])
    await stored_rules.delete(database, "bank")
    assert await find(executor, bank, look("Consult"), look()) == [NO_BANK, NO_BANK]
    assert all("requeue" in failure.detail for failure in (NO_BANK, NO_PHRASES))


async def test_a_chunk_takes_few_statements_however_many_calls_it_has(database: Database, bank: Pin) -> None:
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    executor = RulesExecutor(database)
    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        counts = []
        for calls in (_named(50), _named(50), _random(50)):
            seen.clear()
            await find(executor, bank, *calls)
            counts.append(len([statement for statement in seen if "rule" in statement]))
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert counts == [3, 1, 3]


def _named(count: int) -> Sequence[FindRules]:
    return [look(("Consult", "Make_a_visit")[number % 2], most=number % 5) for number in range(count)]


def _random(count: int) -> Sequence[FindRules]:
    return [look("Consult", order="random", seed=number, most=2) for number in range(count)]


# Graphs in the database: arrays and names come back as they were, whatever the blocks.


async def loaded(database: Database, graph: int, folder: Path) -> Graph:
    """The graph with this row id, as a process that mines it sees it: written into `folder` and mapped from there."""
    async with database.transaction() as connection:
        await judge_graphs.write_graph(connection, graph, folder)
    found = judge_graphs.map_graph(folder)
    return found._replace(entities=list(found.entities), relations=list(found.relations))


STATIC = Graph(
    triples=np.array([[0, 0, 1], [1, 0, 2], [2, 1, 0]], np.int32),
    times=None,
    entities=["Ångström", 'the "Duke"', "東京"],
    relations=["knows", "Make_statement"],
)
TEMPORAL = STATIC._replace(times=np.array([735000, -1, 735000], np.int64))


async def documents() -> AsyncIterator[list[CorpusRecord]]:
    yield [CorpusRecord(external_id="0", document=Document(text="A fact."), meta={})]


@pytest.mark.parametrize("graph", [STATIC, TEMPORAL], ids=["static", "temporal"])
async def test_a_graph_comes_back_from_blocks_of_any_size(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graph: Graph
) -> None:
    monkeypatch.setattr(stored_graphs, "BLOCK_BYTES", 24)
    unit = None if graph.times is None else "step"
    made = await stored_graphs.create(database, "g", stored_graphs.GraphFacts(graph, unit), documents())  # type: ignore[arg-type]
    assert await scalar(database, "SELECT count(*) FROM graph_blocks WHERE part = 'triples'") == 2
    back = await loaded(database, made.graph.id, tmp_path)
    assert (back.entities, back.relations) == (graph.entities, graph.relations)
    np.testing.assert_array_equal(back.triples, graph.triples)
    if graph.times is None:
        assert back.times is None
    else:
        np.testing.assert_array_equal(back.times, graph.times)


async def test_a_graph_says_its_counts_its_times_and_its_largest_relations(database: Database) -> None:
    made = await stored_graphs.create(database, "g", stored_graphs.GraphFacts(TEMPORAL, "step"), documents())
    found = await stored_graphs.get(database, "g")
    assert made.new
    assert made.graph == found
    assert (found.facts, found.entities, found.relations, found.corpus) == (3, 3, 2, "g")
    assert (found.time_unit, found.first_time, found.last_time) == ("step", "-1", "735000")
    assert [(each.relation, each.facts) for each in found.largest] == [("knows", 2), ("Make_statement", 1)]
    assert (await stored_graphs.list_graphs(database, 10)).data == [found]


async def test_a_deleted_graph_leaves_its_corpus_and_no_block(database: Database) -> None:
    await stored_graphs.create(database, "g", stored_graphs.GraphFacts(STATIC, None), documents())
    await stored_graphs.delete(database, "g")
    assert await scalar(database, "SELECT count(*) FROM graph_blocks") == 0
    assert await scalar(database, "SELECT count(*) FROM corpora") == 1
    with pytest.raises(NotFound):
        await stored_graphs.get(database, "g")
