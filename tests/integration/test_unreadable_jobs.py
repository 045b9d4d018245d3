"""Jobs that this release cannot read are listed with the others, and each says in words what cannot be read."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.storage.database import Database
from tests.faults.recording import Seen
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.conftest import Plant

pytestmark = pytest.mark.anyio

RENAMED = b'{"candidates":7,"gate":{"tua":0.3}}'
SAID = "its parameters cannot be read by this release: Object contains unknown field `tua` - at `$.gate`"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        for name in ("old", "new"):
            await serving_api.job("mathrag-gate", name=name, repeats=2, params={"gate": {"min_pairs": 5}})
        await finished(database)
        yield serving_api


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
    seen.note("it is listed with its stored parameters, and says which name is unknown; the other jobs are whole")


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
