"""Two devices on one machine: a guard each, a stage each, and what becomes of one where the other's guard is killed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from shared.storage.database import Database
from tests.running import JUDGED, RunningStack, mathrag, running_stack

JUDGE, GENERATOR = "cpu:0", "cpu:1"
"""Where the shipped models are placed: equal ones on equal devices, the judge first."""
JOB = {"reuse": "none", "params": JUDGED}
"""Every job computes everything anew."""

RESIDENCIES = "SELECT epoch, cause, state, opened_at, closed_at FROM residencies WHERE device = :device ORDER BY epoch"
WORKED = """
    SELECT min(a.started_at), max(a.ended_at) FROM attempts a JOIN calls c ON c.id = a.call_id
    WHERE c.role = :role AND a.device = :device AND a.accepted"""
LAPSED = "SELECT DISTINCT c.role FROM attempts a JOIN calls c ON c.id = a.call_id WHERE a.outcome = 'lapsed'"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("devices")
    config = folder / "mathrag.yaml"
    config.write_text(f"devices: [{{id: '{GENERATOR}'}}]\n")
    with running_stack(folder / "data", MATHRAG_CONFIG=str(config)) as stack:
        stack.furnish(folder / "world", items=120)
        yield stack


def rows(stack: RunningStack, sql: str, **values: Any) -> list[Any]:
    async def read() -> list[Any]:
        database = Database(stack.database_url(), pinned=False)
        async with database.transaction() as connection:
            found = list(await connection.execute(text(sql), values))
        await database.close()
        return found

    return asyncio.run(read())


@pytest.fixture(scope="module")
def undisturbed(pair: RunningStack) -> str:
    job = pair.submit("undisturbed", **JOB)
    pair.assert_whole(job)
    return job


def test_a_job_loads_each_device_once_and_both_work_at_the_same_time(pair: RunningStack, undisturbed: str) -> None:
    assert pair.get(f"/v1/jobs/{undisturbed}/report")["model_loads"] == 2
    (judge,), (generator,) = (rows(pair, RESIDENCIES, device=device) for device in (JUDGE, GENERATOR))
    assert {(each.cause, each.state, each.closed_at) for each in (judge, generator)} == {("first", "open", None)}
    ((_, judged),) = rows(pair, WORKED, role="judge", device=JUDGE)
    ((generates, _),) = rows(pair, WORKED, role="generate", device=GENERATOR)
    assert generates < judged


@pytest.mark.usefixtures("undisturbed")
def test_another_job_loads_nothing(pair: RunningStack) -> None:
    pair.assert_whole(pair.submit("another", **JOB))
    assert [len(rows(pair, RESIDENCIES, device=device)) for device in (JUDGE, GENERATOR)] == [1, 1]


@pytest.mark.usefixtures("undisturbed")
def test_every_device_is_shown(pair: RunningStack) -> None:
    assert {"guard", "guard-2"} <= {child["name"] for child in pair.status()["stack"]["children"]}
    shown = mathrag("gpu", MATHRAG_URL=pair.url)
    assert "cpu:0: open\n  models          world-judge" in shown.stdout, shown.stdout
    assert "cpu:1: open\n  models          world-generator" in shown.stdout, shown.stdout
    checks = {check["name"]: check for check in pair.get("/readyz")["checks"]}
    assert checks["guard cpu:1"]["ok"]
    assert checks["device cpu:1"]["detail"] == "cpu:1: open"


def test_a_guard_that_is_killed_costs_its_own_device_only(pair: RunningStack) -> None:
    job = pair.submit("killed", reuse="none", repeats=5, params={**JUDGED, "generate": {"temperature": 0.7}})
    pair.wait(job, lambda document: document["stages"].get("generate", {}).get("done", 0) >= 5)
    before = rows(pair, RESIDENCIES, device=JUDGE)
    pair.kill("guard-2")  # most of its 600 answers are still to come
    pair.assert_whole(job)
    assert rows(pair, RESIDENCIES, device=JUDGE) == before
    reopened = rows(pair, RESIDENCIES, device=GENERATOR)
    assert [each.state for each in reopened] == ["closed", "open"]
    assert {role for (role,) in rows(pair, LAPSED)} <= {"generate"}
