"""Rule banks over REST: mined by a job, sealed after it, listed, deleted; and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from services.judge import executors
from shared.audit import check
from shared.calls import Estimate, TemporalSimple
from shared.errors import Conflict, Invalid
from shared.params import Params
from shared.replies import Atom, Rule
from shared.rules import miners
from shared.runtime import purge
from shared.runtime import worker as worker_runtime
from shared.runtime.mining import BankRequest, mine
from shared.samples import Library, Sample, Steps
from shared.settings import Workers
from shared.storage import rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import EmptyDatabase
from tests.integration.mining import StuckPool, mining_worker, request, seal, store_graph, work

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
    database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch, relation: str, words: str
) -> None:
    monkeypatch.setattr("shared.runtime.queue.BACKOFF_S", (0.0, 0.0))
    await store_graph(database, relations=["likes 3", relation])
    async with serving(database, redis_url) as api:
        await post(api, 202)
        await work(database)
        bank = await api.get("/v1/rules/bank")
        assert (bank["state"], bank["hash"], bank["rules"]) == ("failed", None, 0)
        assert relation in bank["reason"]
        assert words in bank["reason"]
        assert "mine it again" in bank["reason"]
        tries = await scene.scalar(database, ATTEMPTS)
        assert tries == (4 if relation == "ends" else 2)
        await post(api, 202)
        await work(database)
        assert await scene.scalar(database, ATTEMPTS) == (tries if relation == "refused" else 2 * tries - 1)


async def test_a_mining_job_of_a_miner_that_is_gone_is_shown_reported_and_audited_and_ends_in_words(
    database: Database, redis_url: str
) -> None:
    await store_graph(database, timed=True)
    asked = BankRequest(name="old", graph="g", mining=TemporalSimple())  # type: ignore[arg-type] # as it was submitted
    job = (await mine(database, scene.SETTINGS, asked)).bank.job
    assert job is not None
    async with serving(database, redis_url) as api:
        assert (await api.get(f"/v1/jobs/{job}"))["params"]["mining"]["window"] == 50
        await work(database)
        bank = await api.get("/v1/rules/old")
        assert (bank["state"], bank["miner"]) == ("failed", "temporal-simple")
        assert "this release has no miner temporal-simple" in bank["reason"]
        for path in (f"/jobs/{job}", f"/jobs/{job}/samples", f"/v1/jobs/{job}/report", "/rules", "/rules/old"):
            reply = await api.http.get(path)
            assert reply.status_code == 200, (path, reply.text)
    assert await check(database, job) == []


async def test_a_relation_of_any_name_is_mined(database: Database, redis_url: str) -> None:
    names = ['"likes" 1', "属于 1", "--name 1", "a\\b' 1"]
    await store_graph(database, relations=names)
    async with serving(database, redis_url) as api:
        await post(api, 202)
        await work(database)
        found = (await api.get("/v1/rules/bank/rules"))["data"]
        assert sorted(rule["head"][0] for rule in found) == sorted(names)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"graph": "h"}, 404, "no graph 'h'"),
        ({"name": "a/b"}, 422, "`name`"),
        ({"miner": "temporal-simple"}, 422, "the miners are amie, tlogic"),
        ({"miner": "tlogic"}, 422, "have no times"),
        ({"min_support": 0}, 422, "`mining.min_support`"),
        ({"min_pca_confidence": 1.5}, 422, "`mining.min_pca_confidence`"),
        ({"walks": 3}, 422, "the miner amie has no such limit"),
        ({"min_head_facts": 5}, 422, "the largest, 'sees 0', has 4"),
    ],
)
async def test_what_cannot_be_mined_is_refused(api: Api, fields: dict[str, Any], status: int, words: str) -> None:
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
    assert (refused.status_code, refused.json()["hint"]) == (422, "mathrag rules mine")
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
