from collections import Counter
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.calls import MOST_SLOTS, Generate
from shared.params import Params
from shared.pipelines import registry
from shared.runtime import advance as advance_runtime
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import finish_due_jobs
from shared.samples import Library, Outcome, Sample, Steps
from shared.storage.database import Database
from tests.faults.recording import Seen
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.scene import (
    ScriptedExecutor,
    add_dataset,
    advance,
    answer,
    claim_some,
    drain,
    ended,
    furnish,
    install,
    job_states,
    rows,
    run_sql,
    sample_states,
    scalar,
    submit_job,
    without_gold,
)

# Jobs that this release cannot read are listed with the others, and each says in words what cannot be read.


pytestmark = pytest.mark.anyio

RENAMED = b'{"candidates":7,"gate":{"tua":0.3}}'
SAID = "its parameters cannot be read by this release: Object contains unknown field `tua` - at `$.gate`"


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    for name in ("old", "new"):
        await empty_api.job("mathrag-gate", name=name, repeats=2, params={"gate": {"min_pairs": 5}})
    await finished(database)
    return empty_api


async def rename_parameter(database: Database) -> None:
    await scene.run_sql(database, "UPDATE jobs SET params = :params WHERE name = 'old'", params=RENAMED)


@pytest.mark.fault("V1")
async def test_a_parameter_that_was_renamed_does_not_hide_the_list_of_jobs(
    api: Api, database: Database, seen: Seen
) -> None:
    seen.describe("the stored parameters of an ended job hold a name that this release does not know")
    await rename_parameter(database)
    new, old = (await api.get("/v1/jobs"))["data"]
    assert (old["params"], old["stored_params"], old["unreadable"]) == (
        None,
        {"candidates": 7, "gate": {"tua": 0.3}},
        SAID,
    )
    assert new["params"]["gate"]["min_pairs"] == 5
    assert {"unreadable", "stored_params"}.isdisjoint(new)
    assert (await api.get("/v1/jobs/old"))["unreadable"] == SAID
    seen.note("it is listed with its stored parameters and names the unknown one; the other jobs are complete")


@pytest.mark.parametrize("params", [b"\xff", b"[1]"])
async def test_parameters_that_are_none_at_all_are_left_out(api: Api, database: Database, params: bytes) -> None:
    await scene.run_sql(database, "UPDATE jobs SET params = :params WHERE name = 'old'", params=params)
    old = (await api.get("/v1/jobs"))["data"][1]
    assert old["params"] is None
    assert "stored_params" not in old
    assert old["unreadable"].startswith("its parameters cannot be read by this release: ")


async def test_what_is_made_of_a_job_is_shown_without_its_parameters(api: Api, database: Database) -> None:
    whole = await api.get("/v1/jobs/old/report")
    await rename_parameter(database)
    report = await api.get("/v1/jobs/old/report")
    assert report["settings"]["params"] is None
    assert report["notes"][0] == SAID
    assert report["accuracy"] == whole["accuracy"]
    assert len((await api.get("/v1/jobs/old/samples"))["data"]) == 10
    sample = await api.get("/v1/jobs/old/samples/0")
    assert (sample["state"], sample["fusion"]["rrf_k"]) == ("completed", None)
    comparison = await api.get("/v1/comparison", job=["old", "new"])
    assert f"job 'old': {SAID}" in comparison["notes"]


@pytest.mark.parametrize(("method", "path"), [("POST", "requeue"), ("GET", "plan")])
async def test_what_needs_the_parameters_is_refused_in_words(
    api: Api, database: Database, method: str, path: str
) -> None:
    await rename_parameter(database)
    reply = await api.http.request(method, f"/v1/jobs/old/{path}")
    problem = reply.json()
    assert (reply.status_code, problem["type"]) == (409, "urn:mathrag:unreadable")
    assert "cannot be read by this release: Object contains unknown field `tua`" in problem["detail"]


async def test_an_outcome_that_cannot_be_read_hides_no_other_sample(api: Api, database: Database, plant: Plant) -> None:
    await plant(
        "UPDATE outcomes SET outcome = :outcome WHERE sample_id = (SELECT min(s.id) FROM samples s"
        " JOIN jobs j ON j.id = s.job_id WHERE j.name = 'old' AND s.kind = 'item' AND s.ordinal = 0)",
        outcome=b'{"answer":4}',
    )
    await plant("UPDATE attempts SET reply = :reply WHERE outcome = 'value'", reply=b'{"type":"telegram"}')
    shown = (await api.get("/v1/jobs/old/samples"))["data"]
    broken = [row for row in shown if row["detail"] is not None]
    assert [(row["index"], row["state"], row["answer"]) for row in broken] == [(0, "completed", None)]
    assert broken[0]["detail"].startswith("its outcome cannot be read by this release: ")
    assert len(shown) == 10
    sample = await api.get("/v1/jobs/old/samples/1")
    assert sample["steps"][0]["attempt"]["reply"] is None
    assert sample["steps"][0]["attempt"]["unreadable"].startswith("the reply cannot be read by this release: ")
    assert (await api.get("/v1/jobs/old/report"))["request_counts"]["completed"] == 10


async def test_a_decision_that_cannot_be_read_hides_no_job(api: Api, database: Database) -> None:
    document: dict[str, Any] = {
        "name": "ex",
        "datasets": [{"dataset": "items", "corpus": "docs"}],
        "variants": [{"name": "gate", "pipeline": "mathrag-gate", "params": {"gate": {"min_pairs": 5}}}],
    }
    reply = await api.http.post("/v1/experiments", json=document)
    assert reply.status_code == 202, reply.text
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET prepared = :decision", decision=b'{"strategy":"dice"}')
    for job in (await api.get("/v1/jobs"))["data"]:
        assert job["gate"] is None
        assert job["unreadable"].startswith("its gate decision cannot be read by this release: ")
    assert (await api.get("/v1/experiments/ex"))["state"] == "completed"
    assert (await api.get("/v1/experiments"))["data"][0]["name"] == "ex"
    assert (await api.get("/v1/experiments/ex/report"))["rows"][0]["result"]["gate"] is None


# What one sample raises in a batch fails that sample in words, and every other sample goes on.

ENDED = "SELECT j.name, s.ordinal, s.failure FROM samples s JOIN jobs j ON j.id = s.job_id ORDER BY s.id"
DETAIL = "SELECT detail FROM samples WHERE failure = 'unreadable' ORDER BY id LIMIT 1"


def one_question(sample: Sample, _params: Params, _library: Library) -> Steps:
    yield Generate(template="cot", question=sample.question)
    return ended("fine")


async def two_jobs(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await furnish(database, items=2, name="items")
    await add_dataset(database, 2, "others", frozenset({0, 1}))
    await without_gold(database)
    install(monkeypatch, "asking", one_question)
    await submit_job(database, "asking", name="broken")
    await submit_job(database, "closed-book", name="sound", dataset="others")
    await advance(database)


async def both_end(database: Database, broken: list[tuple[str, int, str | None]]) -> str:
    await drain(database, ScriptedExecutor())
    assert await rows(database, ENDED) == [*broken, ("sound", 0, None), ("sound", 1, None)]
    assert await job_states(database) == ["completed", "completed"]
    return str(await scalar(database, DETAIL))


BOTH: list[tuple[str, int, str | None]] = [("broken", 0, "unreadable"), ("broken", 1, "unreadable")]


@pytest.mark.fault("V1")
async def test_a_pipeline_that_is_not_installed_fails_its_own_samples(
    database: Database, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    seen.describe("the pipeline of a running job is removed; samples of another job are in the same batches")
    await two_jobs(database, monkeypatch)
    monkeypatch.delitem(registry.registered, "asking")
    detail = await both_end(database, BOTH)
    assert "the job's pipeline is not installed: no pipeline 'asking'; the pipelines are " in detail
    seen.note("its samples failed as unreadable; the other job completed")


@pytest.mark.fault("V1")
@pytest.mark.parametrize(
    ("column", "value"),
    [("params", b'{"gate":{"tua":0.3}}'), ("params", b"\xff"), ("prepared", b'{"strategy":"dice"}')],
)
async def test_a_job_that_no_longer_decodes_fails_its_own_samples(
    database: Database, monkeypatch: pytest.MonkeyPatch, seen: Seen, column: str, value: bytes
) -> None:
    seen.describe("parameters or gate decision of a running job are changed to a value that no release can decode")
    await two_jobs(database, monkeypatch)
    await run_sql(database, f"UPDATE jobs SET {column} = :value WHERE name = 'broken'", value=value)  # noqa: S608
    detail = await both_end(database, BOTH)
    assert "the job's parameters, models or gate decision cannot be read by this release: " in detail
    seen.note("its samples failed as unreadable; the other job completed")


@pytest.mark.fault("V1")
async def test_a_reply_that_no_longer_decodes_fails_the_samples_that_need_it(
    database: Database, monkeypatch: pytest.MonkeyPatch, plant: Plant, seen: Seen
) -> None:
    seen.describe("a stored reply is changed to a type that this release does not know")
    await two_jobs(database, monkeypatch)
    taken = await claim_some(database)
    await answer(database, taken)
    await plant(
        "UPDATE attempts SET reply = :reply WHERE call_id ="
        " (SELECT call_id FROM steps WHERE sample_id = (SELECT min(id) FROM samples))",
        reply=b'{"type":"telegram"}',
    )
    detail = await both_end(database, [("broken", 0, "unreadable"), ("broken", 1, None)])
    assert "the reply to call" in detail
    assert "at position 0 cannot be read by this release: Invalid value 'telegram'" in detail
    await submit_job(database, "asking", name="later")
    await drain(database, ScriptedExecutor())
    assert (await rows(database, ENDED))[-2:] == [("later", 0, "unreadable"), ("later", 1, None)]
    seen.note("the samples that asked for it failed as unreadable; all others completed")


async def test_an_item_that_is_gone_fails_its_own_sample(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await two_jobs(database, monkeypatch)
    await run_sql(
        database, "DELETE FROM items WHERE ordinal = 1 AND dataset_id = (SELECT id FROM datasets WHERE name = 'items')"
    )
    detail = await both_end(database, [("broken", 0, None), ("broken", 1, "unreadable")])
    assert detail == "the sample's item is no longer in the dataset"


@pytest.mark.fault("V1")
async def test_a_calibration_that_cannot_be_read_fails_its_job_in_words(
    database: Database, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    seen.describe("the pipeline of a job in preparation is removed")
    await furnish(database, items=2)
    install(monkeypatch, "calibrated", one_question, registry.get("mathrag-gate").prepare)
    await submit_job(database, "calibrated")
    await submit_job(database, "closed-book")
    monkeypatch.delitem(registry.registered, "calibrated")
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["failed", "completed"]
    reason = str(await scalar(database, "SELECT reason FROM jobs WHERE state = 'failed'"))
    assert reason.startswith("unreadable: the job's pipeline is not installed: no pipeline 'calibrated'")
    seen.note("that job failed, and its reason names the pipeline; the other job completed")


@pytest.mark.fault("V1")
@pytest.mark.parametrize("culprits", [{3}, {0, 7, 8}, set(range(9))])
async def test_what_nobody_foresaw_fails_the_samples_that_raise_it(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seen: Seen,
    culprits: set[int],
) -> None:
    seen.describe("a pipeline ends with an answer that is a number, which stops the statement of its whole batch")

    def odd(sample: Sample, _params: Params, _library: Library) -> Steps:
        if sample.item.ordinal in culprits:
            return Outcome(answer=5, extraction="ok")  # type: ignore[arg-type]
        yield Generate(template="cot", question=sample.question)
        return ended("fine")

    install(monkeypatch, "odd", odd)
    await furnish(database, items=9)
    await without_gold(database)
    await submit_job(database, "odd")
    with caplog.at_level("ERROR"):
        assert await advance(database) == 9
    await drain(database, ScriptedExecutor())
    await finish_due_jobs(database)
    failed = await rows(database, "SELECT ordinal, failure FROM samples WHERE state = 3 ORDER BY 1")
    assert failed == [(ordinal, "internal_error") for ordinal in sorted(culprits)]
    assert await job_states(database) == ["completed"]
    logged = [record for record in caplog.records if "cannot be advanced" in record.message]
    assert len(logged) == len(culprits)
    assert all(record.exc_info for record in logged)
    assert "the log of the worker has the traceback" in str(
        await scalar(database, "SELECT max(detail) FROM samples WHERE state = 3")
    )
    seen.note("each of these samples failed as internal_error, with its traceback in the log; all others completed")


class Terminated(Exception):
    sqlstate = "57P01"


async def test_an_outage_fails_no_sample(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await furnish(database, items=3)
    await submit_job(database, "closed-book")

    async def away(*_: object) -> None:
        raise DBAPIError("SELECT 1", {}, Terminated())

    with monkeypatch.context() as patched:
        patched.setattr(advance_runtime, "record", away)
        with pytest.raises(DBAPIError):
            await Advancer(database).advance()
    assert await sample_states(database) == [0, 0, 0]
    assert await advance(database) == 3


async def test_a_schema_of_another_release_fails_no_sample(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await furnish(database, items=3)
    await submit_job(database, "closed-book")

    async def other_schema(connection: AsyncConnection, *_: object) -> None:
        await connection.execute(text("SELECT * FROM of_a_later_release"))

    with monkeypatch.context() as patched:
        patched.setattr(advance_runtime, "record", other_schema)
        with pytest.raises(DBAPIError, match="of_a_later_release"):
            await Advancer(database).advance()
    assert await sample_states(database) == [0, 0, 0]


@pytest.mark.fault("V3")
async def test_a_step_of_too_many_calls_fails_its_own_sample(
    database: Database, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    seen.describe("a pipeline asks for 32,768 calls at once")
    call = Generate(template="cot", question="?")

    def greedy(sample: Sample, _params: Params, _library: Library) -> Steps:
        yield [call] * (MOST_SLOTS + sample.item.ordinal)
        return ended("fine")

    install(monkeypatch, "greedy", greedy)
    await furnish(database, items=2)
    await without_gold(database)
    await submit_job(database, "greedy")
    await drain(database, ScriptedExecutor())
    assert await rows(database, "SELECT ordinal, failure, detail FROM samples ORDER BY 1") == [
        (0, None, None),
        (1, "pipeline_error", "the pipeline asks for 32768 calls at once; a step holds 32767"),
    ]
    seen.note("its sample failed with the number and the limit; a sample of 32,767 calls completed")


async def test_a_batch_costs_as_many_statements_whatever_its_size(database: Database) -> None:
    await furnish(database, items=30)
    await without_gold(database)
    await submit_job(database, "closed-book")
    counted: Counter[str] = Counter()
    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda *_: counted.update(["statements"]))
    event.listen(engine, "commit", lambda *_: counted.update(["commits"]))
    advancer = Advancer(database)
    await advancer.advance(limit=10)  # the job is read once
    counted.clear()
    costs = []
    for limit in (1, 15):
        assert (await advancer.advance(limit)).samples == limit
        costs.append(dict(counted))
        counted.clear()
    assert costs[0] == costs[1]
    assert costs[0]["commits"] == 1


@pytest.mark.parametrize(("commit", "failure"), [("theirs", None), ("ours", "unreadable")])
async def test_a_process_with_another_source_does_not_answer_for_the_one_that_was_submitted(
    database: Database, monkeypatch: pytest.MonkeyPatch, commit: str, failure: str | None
) -> None:
    monkeypatch.setattr(advance_runtime, "release", lambda: ("0.1.0", "ours"))
    await two_jobs(database, monkeypatch)
    changed = """UPDATE jobs SET code = code || jsonb_build_object('version', '0.1.0', 'commit', CAST(:c AS text))"""
    await run_sql(database, changed, c=commit)
    known = registry.pipeline_hash
    monkeypatch.setattr(
        registry, "pipeline_hash", lambda name, params=None: "f" * 64 if name == "asking" else known(name, params)
    )
    await drain(database, ScriptedExecutor())
    assert await rows(database, ENDED) == [
        ("broken", 0, failure), ("broken", 1, failure), ("sound", 0, None), ("sound", 1, None),
    ]  # fmt: skip
    if failure:
        detail = str(await scalar(database, DETAIL))
        assert all(word in detail for word in (known("asking")[:12], "ffffffffffff", "restart the service"))
