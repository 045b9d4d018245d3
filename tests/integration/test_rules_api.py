"""Rule banks: mined, read from files and written, and followed by jobs."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import numpy as np
import pytest
from sqlalchemy.exc import DBAPIError

from mathrag.errors import Conflict, Invalid, NotFound
from services.judge import executors
from shared.audit import check
from shared.calls import Amie, Estimate, Request, TemporalSimple
from shared.ingest import amie
from shared.params import Params
from shared.replies import Atom, CorpusRecord, Document, Generated, Reply, Rule
from shared.rules import miners
from shared.rules.graph import Graph
from shared.runtime import purge
from shared.runtime import worker as worker_runtime
from shared.runtime.mining import BankRequest, mine
from shared.runtime.submit import repeat_submission, submit
from shared.samples import FactQuery, Library, Outcome, Sample, Steps
from shared.settings import Limits, Settings, Workers
from shared.storage import graphs, rules
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin, RuleBank
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import EmptyDatabase
from tests.integration.rule_banks import (
    FollowingRules,
    StuckPool,
    add_bank,
    add_graph,
    ask_for,
    mining_worker,
    request,
    seal,
    store_graph,
    work,
)
from tests.integration.scene import SETTINGS, by_rule, drain, furnish, rows, scalar, submit_job

pytestmark = pytest.mark.anyio


ATTEMPTS = "SELECT count(*) FROM attempts"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_runtime, "MINING_S", 0.01)
    monkeypatch.setattr(miners, "memory_bytes", lambda *_: 100 << 20)


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await store_graph(database)
    return empty_api


async def post(api: Api, status: int, **fields: Any) -> Any:
    reply = await api.http.post("/v1/rules", json=request(**fields))
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_a_bank_is_mined_by_a_job_with_a_sample_for_each_relation(api: Api, database: Database) -> None:
    started = await post(api, 202)
    assert (started["state"], started["relations"], started["memory_mib"], api.woken) == ("mining", 3, 200, 1)
    assert (await api.get(f"/v1/jobs/{started['job']}"))["request_counts"]["total"] == 3
    await work(database)
    bank = await api.get("/v1/rules/bank")
    assert (bank["state"], bank["rules"], bank["graph"], bank["miner"]) == ("ready", 5, "g", "amie")
    assert bank["limits"]["min_support"] == 2
    found = (await api.get("/v1/rules/bank/rules"))["data"]
    assert [rule["head"][0] for rule in found] == ["owns 2"] * 2 + ["likes 3"] * 3
    assert await check(database, started["job"]) == []


async def test_the_job_is_shown_and_its_dataset_is_in_no_list(api: Api, database: Database) -> None:
    await post(api, 202)
    assert (await api.get("/v1/datasets"))["data"] == []
    (job,) = (await api.get("/v1/jobs"))["data"]
    assert (job["name"], job["pipeline"]) == ("mine-bank", "mine-rules")
    assert job["metadata"] == {"rules": "bank", "graph": "g"}
    assert "mine-rules" not in {each["name"] for each in await api.get("/v1/pipelines")}


async def test_rules_come_in_pages_by_head_and_confidence(api: Api, database: Database) -> None:
    await post(api, 202)
    await work(database)
    first = await api.get("/v1/rules/bank/rules", limit=1, min_confidence=0.5)
    second = await api.get("/v1/rules/bank/rules", limit=1, min_confidence=0.5, cursor=first["next_cursor"])
    assert [page["data"][0]["pca_confidence"] for page in (first, second)] == [0.5, 2 / 3]
    assert second["next_cursor"] is None
    of_likes = await api.get("/v1/rules/bank/rules", head="likes 3")
    assert len(of_likes["data"]) == 3


async def test_the_same_again_is_the_same_bank(api: Api, database: Database) -> None:
    first = await post(api, 202)
    assert (await post(api, 202))["job"] == first["job"]
    await work(database)
    assert (await post(api, 200))["hash"] is not None
    await post(api, 202, name="other")
    await work(database)
    banks = (await api.get("/v1/rules"))["data"]
    assert [bank["name"] for bank in banks] == ["other", "bank"]
    assert len({bank["hash"] for bank in banks}) == 1
    assert await scene.scalar(database, ATTEMPTS) == 3


async def test_the_same_name_with_other_limits_is_refused(api: Api) -> None:
    await post(api, 202)
    assert "choose another name" in (await post(api, 409, min_support=3))["hint"]


async def test_banks_of_two_runs_are_equal_byte_for_byte(
    api: Api, database: Database, empty_database: EmptyDatabase
) -> None:
    seen = []
    for processes in (1, 2):
        await post(api, 202)
        await work(database, processes)
        seen.append(await scene.rows(database, "SELECT hash, rule FROM rules r JOIN rule_banks b ON b.id = r.bank_id"))
        await asyncio.to_thread(empty_database)
        await store_graph(database)
    assert seen[0] == seen[1] != []


async def test_a_cancelled_bank_is_mined_again_from_where_it_was(api: Api, database: Database) -> None:
    started = await post(api, 202)
    refused = await api.http.delete("/v1/rules/bank")
    assert (refused.status_code, "being mined" in refused.text) == (409, True)
    await api.http.post(f"/v1/jobs/{started['job']}/cancel")
    await scene.repair(database)
    await scene.repair(database)
    await seal(database)
    bank = await api.get("/v1/rules/bank")
    assert (bank["state"], "cancelled" in bank["reason"]) == ("cancelled", True)
    again = await post(api, 202)
    assert again["job"] != started["job"]
    await work(database)
    assert (await api.get("/v1/rules/bank"))["state"] == "ready"


async def test_a_relation_in_work_is_given_up_when_its_job_is_cancelled(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "CHECK_S", 0.02)
    started = await post(api, 202)
    await scene.advance(database)
    stop, pool = asyncio.Event(), StuckPool()
    executor = executors.MineExecutor(database, pool)
    working = asyncio.create_task(mining_worker(database, executor, 2, stop).mine())
    await pool.asked.wait()
    await api.http.post(f"/v1/jobs/{started['job']}/cancel")
    async with asyncio.timeout(20):
        while (await api.get(f"/v1/jobs/{started['job']}"))["state"] != "cancelled":
            await scene.repair(database)
    stop.set()
    await working
    await executor.close()
    assert await scene.scalar(database, ATTEMPTS) == 0


@pytest.mark.parametrize(
    ("relation", "words"),
    [("out of memory", "`workers.mining_mib`"), ("refused", "no such relation"), ("ends", "exit status 3")],
)
async def test_a_relation_that_cannot_be_mined_fails_the_bank_in_words(
    database: Database, empty_api: Api, monkeypatch: pytest.MonkeyPatch, relation: str, words: str
) -> None:
    monkeypatch.setattr("shared.runtime.queue.BACKOFF_S", (0.0, 0.0))
    await store_graph(database, relations=["likes 3", relation])
    await post(empty_api, 202)
    await work(database)
    bank = await empty_api.get("/v1/rules/bank")
    assert (bank["state"], bank["hash"], bank["rules"]) == ("failed", None, 0)
    assert relation in bank["reason"]
    assert words in bank["reason"]
    assert "mine it again" in bank["reason"]
    tries = await scene.scalar(database, ATTEMPTS)
    assert tries == (4 if relation == "ends" else 2)
    await post(empty_api, 202)
    await work(database)
    assert await scene.scalar(database, ATTEMPTS) == (tries if relation == "refused" else 2 * tries - 1)


async def test_a_mining_job_of_a_miner_that_is_gone_is_shown_reported_and_audited_and_ends_in_words(
    database: Database, empty_api: Api
) -> None:
    await store_graph(database, timed=True)
    asked = BankRequest(name="old", graph="g", mining=TemporalSimple())  # type: ignore[arg-type] # as it was submitted
    job = (await mine(database, scene.SETTINGS, asked)).bank.job
    assert job is not None
    assert (await empty_api.get(f"/v1/jobs/{job}"))["params"]["mining"]["window"] == 50
    await work(database)
    bank = await empty_api.get("/v1/rules/old")
    assert (bank["state"], bank["miner"]) == ("failed", "temporal-simple")
    assert "this release does not have the miner temporal-simple" in bank["reason"]
    for path in (f"/jobs/{job}", f"/jobs/{job}/samples", f"/v1/jobs/{job}/report", "/rules", "/rules/old"):
        reply = await empty_api.http.get(path)
        assert reply.status_code == 200, (path, reply.text)
    assert await check(database, job) == []


async def test_a_relation_of_any_name_is_mined(database: Database, empty_api: Api) -> None:
    names = ['"likes" 1', "属于 1", "--name 1", "a\\b' 1"]
    await store_graph(database, relations=names)
    await post(empty_api, 202)
    await work(database)
    found = (await empty_api.get("/v1/rules/bank/rules"))["data"]
    assert sorted(rule["head"][0] for rule in found) == sorted(names)


async def test_what_cannot_be_mined_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    for fields, status, words in (
        ({"graph": "h"}, 404, "no graph 'h'"),
        ({"name": "a/b"}, 422, "`name`"),
        ({"miner": "temporal-simple"}, 422, "the miners are amie, tlogic"),
        ({"miner": "tlogic"}, 422, "have no times"),
        ({"min_support": 0}, 422, "`mining.min_support`"),
        ({"min_pca_confidence": 1.5}, 422, "`mining.min_pca_confidence`"),
        ({"walks": 3}, 422, "the miner amie has no such limit"),
        ({"min_head_facts": 5}, 422, "the largest, 'sees 0', has 4"),
    ):
        with subtests.test(fields=fields):
            reply = await post(api, status, **fields)
            assert words in f"{reply['detail']} {reply.get('hint')}"
            assert (await api.get("/v1/jobs"))["data"] == (await api.get("/v1/rules"))["data"] == []


async def test_mining_that_may_take_too_much_memory_is_refused_with_the_numbers(
    database: Database, redis_url: str
) -> None:
    await store_graph(database)
    settings = scene.SETTINGS.model_copy(update={"workers": Workers(miners=3, mining_mib=256)})
    async with serving(database, redis_url, settings) as api:
        reply = await post(api, 413)
    assert "300 MiB: 100 MiB for each of `workers.miners` (3)" in reply["detail"]
    assert "`workers.mining_mib` allows 256" in reply["detail"]


async def test_the_pipeline_that_mines_is_for_banks_alone(api: Api, database: Database) -> None:
    await scene.furnish(database)
    body = {"name": "j", "dataset": "items", "pipeline": "mine-rules"}
    refused = await api.http.post("/v1/jobs", json=body)
    assert (refused.status_code, refused.json()["hint"]) == (422, "create one with mathrag rules mine")
    started = await post(api, 202)
    await work(database)
    again = await api.http.post(f"/v1/jobs/{started['job']}/requeue")
    assert (again.status_code, "mathrag rules mine" in again.json()["hint"]) == (409, True)


async def test_a_bank_is_deleted_with_its_rules(api: Api, database: Database) -> None:
    await post(api, 202)
    await work(database)
    assert (await api.http.delete("/v1/rules/bank")).status_code == 200
    assert await scene.scalar(database, "SELECT count(*) FROM rules") == 0
    assert (await api.http.get("/v1/rules/bank")).status_code == 404
    await post(api, 202)
    await work(database)
    assert await scene.scalar(database, ATTEMPTS) == 3


def follows_rules(sample: Sample, _params: Params, _library: Library) -> Steps:
    yield Estimate(question=sample.question)
    return scene.ended(None)


async def test_a_job_pins_the_content_of_a_bank(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.install(monkeypatch, "follows-rules", follows_rules)
    await scene.furnish(database)
    body = {"name": "j", "dataset": "items", "pipeline": "follows-rules", "params": {"rules": "bank"}}
    unknown = await api.http.post("/v1/jobs", json=body)
    assert (unknown.status_code, "no rule bank 'bank'" in unknown.text) == (404, True)
    await post(api, 202)
    unsealed = await api.http.post("/v1/jobs", json=body)
    assert (unsealed.status_code, "is mining" in unsealed.text) == (409, True)
    await work(database)
    job = (await api.http.post("/v1/jobs", json=body)).json()
    pinned = await scene.scalar(
        database, "SELECT m.digest FROM jobs j JOIN models m ON encode(m.hash, 'hex') = j.pins -> 'rules' ->> 'hash'"
        " WHERE j.name = 'j'")  # fmt: skip
    assert pinned == (await api.get("/v1/rules/bank"))["hash"]
    used = await api.http.delete("/v1/rules/bank")
    assert (used.status_code, "used by live jobs: j" in used.text) == (409, True)
    await finished(database)
    assert await check(database, job["id"]) == []
    assert (await api.http.delete("/v1/rules/bank")).status_code == 200
    assert await check(database, job["id"]) == []


async def test_a_purge_of_chats_leaves_mining_alone(api: Api, database: Database, owner_url: str) -> None:
    await post(api, 202)
    await work(database)
    owner = Database(owner_url, pinned=False)
    try:
        assert await purge.find_outdated(owner, None, 0, online=True) == []
        (job,) = await purge.find_outdated(owner, None, 0)
        await purge.purge(owner, job, "a-test")
    finally:
        await owner.close()
    bank = await api.get("/v1/rules/bank")
    assert (bank["state"], bank["job"]) == ("ready", None)
    assert len((await api.get("/v1/rules/bank/rules"))["data"]) == 5


async def test_a_sealed_bank_takes_no_further_rules(api: Api, database: Database) -> None:
    await post(api, 202)
    await work(database)
    for statement in (
        "INSERT INTO rules SELECT bank_id, 99, head, certainty, rule FROM rules LIMIT 1",
        "UPDATE rule_banks SET state = 'mining', hash = NULL",
        "DELETE FROM rules",
    ):
        with pytest.raises(DBAPIError):
            await scene.attempt(database, statement)


async def test_imported_rules_are_a_bank_as_well(database: Database) -> None:
    async def batches(*sizes: int) -> AsyncIterator[list[Rule]]:
        found = [Rule(head=Atom("r", 0, 1), body=(), support=n, body_size=9, confidence=0.1) for n in range(sum(sizes))]
        for size in sizes:
            yield [found.pop(0) for _ in range(size)]

    bank, new = await rules.create_imported(database, "b", ImportOrigin("amie"), batches(2, 3))
    assert (bank.state, bank.rules, bank.graph, new) == ("ready", 5, None, True)
    assert await rules.create_imported(database, "b", ImportOrigin("amie"), batches(5)) == (bank, False)
    with pytest.raises(Conflict, match="other rules"):
        await rules.create_imported(database, "b", ImportOrigin("amie"), batches(4))
    with pytest.raises(Invalid, match="no rules"):
        await rules.create_imported(database, "c", ImportOrigin("amie"), batches())
    read = [rule.support async for batch in rules.read_rules(database, bank) for rule in batch]
    assert read == [0, 1, 2, 3, 4]


# Rule banks from files and as files: all or nothing, the same again is harmless, a copy has the same hash.

FIGURES = "\t0.25\t0.5\t0.625\t5\t10\t8\t?a\n"
AMIE = f"?b  knows  ?a   => ?a  knows  ?b{FIGURES}?a  met  ?h  ?h  met  ?b   => ?a  knows  ?b{FIGURES}"
TEMPORAL = Rule(head=Atom("knows", 0, 1), body=(Atom("met", 0, 1),), support=5, body_size=10, confidence=0.5,
                kind="xy", curve=(0.1, -2e-9))  # fmt: skip
GRAPH = Graph(triples=np.array([[0, 0, 1]], np.int32), times=None, entities=["a", "b"], relations=["knows"])


async def imported(empty_api: Api, content: str | bytes, name: str = "mine", **query: Any) -> httpx2.Response:
    return await empty_api.http.post("/v1/rules/import", params={"name": name, **query}, content=content)


async def exported(empty_api: Api, name: str = "mine", **query: Any) -> str:
    reply = await empty_api.http.get(f"/v1/rules/{name}/export", params=query)
    assert reply.status_code == 200, reply.text
    return reply.text


async def test_amies_file_becomes_a_bank_and_again_the_same_packed(empty_api: Api) -> None:
    made = await imported(empty_api, AMIE)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/rules/mine")
    bank = made.json()
    assert (bank["state"], bank["miner"], bank["rules"], bank["graph"]) == ("ready", "amie", 2, None)
    page = await empty_api.get("/v1/rules/mine/rules", head="knows")
    assert [rule["head"][0] for rule in page["data"]] == ["knows", "knows"]
    again = await imported(empty_api, gzip.compress(AMIE.encode()))
    assert (again.status_code, again.json()) == (200, bank)


async def test_a_file_of_another_format_than_the_named_one_is_refused(empty_api: Api) -> None:
    assert (await imported(empty_api, AMIE, format="amie")).status_code == 201
    refused = await imported(empty_api, AMIE, "other", format="json")
    assert (refused.status_code, refused.json()["detail"]) == (422, "`format`: the file is amie, not json")


async def test_a_name_that_has_other_rules_is_refused(empty_api: Api) -> None:
    await imported(empty_api, AMIE)
    refused = await imported(empty_api, AMIE.splitlines(keepends=True)[0])
    assert (refused.status_code, refused.json()["hint"]) == (409, "choose another name")


async def test_a_mined_bank_and_the_import_of_its_export_have_the_same_hash(empty_api: Api, database: Database) -> None:
    async def batches() -> AsyncIterator[list[Rule]]:
        yield [amie.parse_rule(line) for line in AMIE.splitlines()]

    origin = ImportOrigin("amie", "ab" * 32, Amie(min_support=3))
    mined, _ = await rules.create_imported(database, "mined", origin, batches())
    copy = (await imported(empty_api, await exported(empty_api, "mined"), "copy")).json()
    assert (copy["hash"], copy["limits"]["min_support"], copy["graph_hash"]) == (mined.hash, 3, "ab" * 32)
    assert copy["hash"] != (await imported(empty_api, AMIE)).json()["hash"]


async def test_a_bank_of_a_miner_of_an_earlier_release_is_listed_shown_and_copied(
    empty_api: Api, database: Database
) -> None:
    bank = await store_temporal(database)
    (listed,) = (await empty_api.get("/v1/rules"))["data"]
    assert (listed["miner"], listed["limits"]["window"]) == ("temporal-simple", 7)
    (rule,) = (await empty_api.get("/v1/rules/old/rules"))["data"]
    assert (rule["kind"], rule["curve"]) == ("xy", [0.1, -2e-9])
    assert (await empty_api.http.get("/rules/old")).status_code == 200
    copy = (await imported(empty_api, await exported(empty_api, "old"), "copy")).json()
    assert (copy["hash"], copy["limits"]["window"]) == (bank.hash, 7)


async def test_a_bank_is_read_in_batches(empty_api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    name = (await imported(empty_api, AMIE)).json()["name"]
    monkeypatch.setattr(rules, "BATCH", 1)
    async with database.transaction() as connection:
        bank = await rules.get_bank(connection, name)
    assert [len(batch) async for batch in rules.read_rules(database, bank)] == [1, 1]


async def test_an_export_of_a_deleted_bank_breaks_off_instead_of_ending_early(
    empty_api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = (await imported(empty_api, AMIE)).json()["name"]
    monkeypatch.setattr(rules, "BATCH", 1)
    async with database.transaction() as connection:
        bank = await rules.get_bank(connection, name)
    batches = rules.read_rules(database, bank)
    assert len(await anext(batches)) == 1
    await rules.delete(database, name)
    with pytest.raises(NotFound, match="was deleted while it was read"):
        await anext(batches)


async def test_a_bank_is_exported_as_amie_prints_it(empty_api: Api) -> None:
    bank = (await imported(empty_api, AMIE)).json()
    written = await exported(empty_api, format="amie")
    assert written.splitlines()[0] == (
        "?b  knows  ?a   => ?a  knows  ?b\t0.250000000\t0.500000000\t0.625000000\t5\t10\t8\t?a"
    )
    assert (await imported(empty_api, written, "copy")).json()["hash"] == bank["hash"]


async def store_temporal(database: Database) -> RuleBank:
    """Store a bank as a release with the miner `temporal-simple` did."""

    async def batches() -> AsyncIterator[list[Rule]]:
        yield [TEMPORAL]

    origin = ImportOrigin("temporal-simple", "cd" * 32, TemporalSimple(window=7))
    bank, _ = await rules.create_imported(database, "old", origin, batches())
    return bank


async def test_what_amies_columns_cannot_hold_is_refused_before_the_answer_begins(
    empty_api: Api, database: Database
) -> None:
    await store_temporal(database)
    refused = await empty_api.http.get("/v1/rules/old/export", params={"format": "amie"})
    assert (refused.status_code, refused.json()["hint"]) == (422, "export as json")


async def test_an_edited_copy_is_refused(empty_api: Api, database: Database) -> None:
    await imported(empty_api, AMIE)
    edited = (await exported(empty_api)).replace('"support":5', '"support":6')
    refused = await imported(empty_api, edited, "copy")
    assert refused.status_code == 422
    assert "the rules have the hash" in refused.json()["detail"]
    assert await scalar(database, "SELECT count(*) FROM rule_banks") == 1


async def test_rules_with_relations_that_the_graph_does_not_have_are_refused(
    empty_api: Api, database: Database
) -> None:
    async def documents() -> AsyncIterator[list[CorpusRecord]]:
        yield [CorpusRecord(external_id="0", document=Document(text="A fact."), meta={})]

    await graphs.create(database, "g", graphs.GraphFacts(GRAPH, None), documents())
    many = "".join(f"?a  r{number}  ?b   => ?a  knows  ?b{FIGURES}" for number in range(7))
    refused = (await imported(empty_api, many, graph="g")).json()
    assert refused["detail"] == (
        "the rules name 7 relations that graph 'g' does not have: 'r0', 'r1', 'r2', 'r3', 'r4' and 2 more"
    )
    assert await scalar(database, "SELECT count(*) FROM rule_banks") == 0
    assert (await imported(empty_api, f"?b  knows  ?a   => ?a  knows  ?b{FIGURES}", graph="g")).status_code == 201
    assert (await imported(empty_api, many, "other", graph="no-such")).status_code == 404


async def test_what_cannot_be_imported_is_refused_and_nothing_is_stored(empty_api: Api, database: Database) -> None:
    for content, query, said in (
        (AMIE + AMIE, {}, "upload, line 3: the rule occurs twice; remove one"),
        (AMIE.replace("10", "x"), {}, "upload, line 1: `Body size` is 'x', not a whole number"),
        ("10\t5\t0.5\tknows(X,Y) <= met(X,Y)\n", {}, "upload has no rules in AMIE's columns"),
        ('{"3": []}', {}, "upload, line 1: is not the header of a bank that this release can read"),
        (gzip.compress(AMIE.encode())[:-12], {}, "upload, line 1: the gzip file is truncated or damaged"),
        (AMIE, {"name": "a b"}, "name"),
    ):
        refused = await imported(empty_api, content, **{"name": "mine", **query})
        assert (refused.status_code, said in refused.json()["detail"]) == (422, True), said
    assert await scalar(database, "SELECT count(*) FROM rule_banks") == 0


async def test_more_than_the_operator_allows_is_refused(database: Database, redis_url: str) -> None:
    for limits in (Limits(upload_bytes=50), Limits(upload_rows=1)):
        async with serving(database, redis_url, SETTINGS.model_copy(update={"limits": limits})) as empty_api:
            assert (await imported(empty_api, AMIE)).status_code == 413


async def test_a_bank_that_is_not_there_is_not_exported(empty_api: Api) -> None:
    assert (await empty_api.http.get("/v1/rules/mine/export")).status_code == 404


# Jobs that follow rules: what is refused, what is filled in, how they run, and what their report and audit say.

VISIT = FactQuery(relation="Make_a_visit", entity="Ann")
GRAPH_HASH = b"g" * 32
JOB = {"name": "j", "dataset": "items", "corpus": "docs", "pipeline": "rulerag"}


@pytest.fixture
async def rule_api(database: Database, empty_api: Api) -> Api:
    await furnish(database, needs_lease=False)
    await add_graph(database, digest=GRAPH_HASH)
    await add_bank(database, graph=GRAPH_HASH.hex())
    return empty_api


async def refused(rule_api: Api, status: int = 422, **fields: Any) -> str:
    reply = await rule_api.http.post("/v1/jobs", json={**JOB, **fields})
    assert reply.status_code == status, reply.text
    return reply.text


async def stored(database: Database) -> Params:
    raw = await scalar(database, "SELECT params FROM jobs ORDER BY id DESC LIMIT 1")
    return msgspec.json.decode(raw, type=Params)  # type: ignore[arg-type]


async def test_a_job_without_a_bank_is_refused_with_the_command(rule_api: Api) -> None:
    for fields in ({}, {"corpus": None}):
        said = await refused(rule_api, **fields)
        assert "needs a rule bank" in said
        assert "mathrag rules list" in said
    await rule_api.job("rulerag", params={"rulerag": {"most": 0}})


async def test_a_bank_of_another_graph_is_refused_with_both_names(rule_api: Api, database: Database) -> None:
    await add_bank(database, name="other", graph="ab" * 32)
    await add_bank(database, name="unknown")
    said = await refused(rule_api, params={"rules": "other"})
    assert "'other' was mined from graph with the hash abababababab, and the corpus holds graph 'docs'" in said
    assert "mathrag rules mine --graph docs" in said
    await rule_api.job("rulerag", params={"rules": "unknown"})
    assert "nowhere" in await refused(rule_api, 404, params={"rules": "nowhere"})


async def test_a_corpus_that_is_no_graphs_is_accepted(database: Database) -> None:
    await furnish(database)
    await add_bank(database, graph="ab" * 32)
    await submit_job(database, "rulerag", params={"rules": "bank"})
    assert (await stored(database)).rulerag.phrases == ""


async def test_the_graphs_phrases_are_filled_in_and_cannot_be_named(rule_api: Api, database: Database) -> None:
    job = await rule_api.job("rulerag", params={"rules": "bank"})
    phrases = (await stored(database)).rulerag.phrases
    assert len(phrases) == 64
    assert "the service fills it in at submission" in await refused(
        rule_api, params={"rules": "bank", "rulerag": {"phrases": phrases}}
    )
    await drain(database, FollowingRules(database))
    assert (await repeat_submission(database, job["id"])).params.rulerag.phrases == phrases
    reply = await rule_api.http.post(f"/v1/jobs/{job['id']}/requeue")
    assert reply.status_code == 202, reply.text


async def test_without_a_judge_model_none_is_asked_and_no_query_can_be_written(database: Database) -> None:
    await furnish(database)
    await add_bank(database)
    settings = Settings(roles={"generate": "a-generator"}, database_url="unused")
    submission = scene.Submission(**JOB, params=Params(rules="bank"))
    await submit(database, settings, submission)
    assert (await stored(database)).rulerag.ask is False
    rewritten = msgspec.convert({"rules": "bank", "rulerag": {"query": "rewritten"}}, Params)
    with pytest.raises(Invalid, match="needs a judge model"):
        await submit(database, settings, msgspec.structs.replace(submission, name="k", params=rewritten))


async def test_items_whose_relations_have_no_rule_are_counted_in_a_warning(rule_api: Api, database: Database) -> None:
    await ask_for(database, VISIT)
    assert "warnings" not in await rule_api.job("rulerag", params={"rules": "bank"})
    await ask_for(database, FactQuery(relation="Fly"))
    job = await rule_api.job("rulerag", params={"rules": "bank"}, limit=3)
    assert job["warnings"] == [
        "3 of 3 items ask for relations that no rule of bank 'bank' leads to: they are searched for plainly"
    ]


MODES: tuple[dict[str, Any], ...] = (
    {}, {"use": "retrieval"}, {"use": "generation"}, {"query": "rewritten"}, {"cot": True}, {"index": "dense"},
    {"index": "sparse"}, {"order": "random"}, {"order": "worst", "most": 1}, {"most": 0}, {"support": 1000},
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_job_in_every_mode_completes_and_its_audit_is_clean(database: Database, mode: dict[str, Any]) -> None:
    await furnish(database, needs_lease=False)
    await add_bank(database)
    await ask_for(database, VISIT)
    params = {"rules": "bank", "rulerag": {"support": 1, "most": 3, **mode}}
    job = await submit_job(database, "rulerag", params=params)
    await drain(database, FollowingRules(database))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    assert await check(database, job) == []
    for (raw,) in await rows(database, "SELECT outcome FROM outcomes"):
        decisions = msgspec.json.decode(raw, type=Outcome).trace.decisions  # type: ignore[call-overload]
        # The scripted searches leave no near-duplicate out.
        actions = [(each.stage, each.action) for each in decisions if each.stage != "duplicates"]
        plain = mode.get("most") == 0 or "support" in mode
        action = "prompt" if mode.get("use") == "generation" else "search"
        rules = 0 if plain else 1 if mode.get("most") == 1 else 3
        assert actions == [("relation", "none" if mode.get("most") == 0 else "named"), *[("rule", action)] * rules]


def judge(request: Request) -> Reply:
    if request.role == "write":
        return Generated(text=str(request.values["relations"]).splitlines()[0])
    return by_rule(request)


async def test_questions_that_name_no_relation_ask_the_judge_model(rule_api: Api, database: Database) -> None:
    params = {"rules": "bank", "context_size": 2, "rulerag": {"support": 1, "question": False}}
    job = await rule_api.job("rulerag", params=params)
    await drain(database, FollowingRules(database, judge))
    report = await rule_api.get(f"/v1/jobs/{job['id']}/report")
    guided = report["guided"]
    assert (guided["bank"], guided["relations"], guided["unguided"]) == ("bank", {"judge": 5}, 0)
    assert guided["with_rules"] == report["accuracy"]
    assert [(each["number"], each["samples"]) for each in guided["rules"]] == [(3, 5)]
    assert guided["rules"][0]["documents"] > 0
    sample = await rule_api.get(f"/v1/jobs/{job['id']}/samples/0")
    assert all(each["paths"] == {"rule 3": each["rank"]} for each in sample["outcome"]["trace"]["candidates"])
    assert await check(database, job["id"]) == []


async def test_a_job_of_another_pipeline_reports_no_rules(rule_api: Api, database: Database) -> None:
    job = await rule_api.job("dense")
    await drain(database, FollowingRules(database))
    assert (await rule_api.get(f"/v1/jobs/{job['id']}/report"))["guided"] is None


async def test_a_bank_that_goes_away_fails_samples_that_need_it_and_nothing_else(database: Database) -> None:
    await furnish(database, items=1)
    await add_bank(database)
    await ask_for(database, VISIT)
    await submit_job(database, "rulerag", params={"rules": "bank"})
    with pytest.raises(Conflict, match="used by live jobs"):
        await stored_rules.delete(database, "bank")
    await scene.run_sql(database, "DELETE FROM rule_banks")
    executor = FollowingRules(database)
    for _ in range(4):
        await drain(database, executor)
        await scene.let_pauses_pass(database)
    ((failure, detail),) = await rows(database, "SELECT failure, detail FROM samples")
    assert failure == "backend_error"
    assert "requeue the job" in str(detail)
