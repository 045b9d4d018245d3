"""A judge that is calibrated by labels: a job takes what its ratings are worth, and keeps it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.audit import check
from shared.runtime import purge
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio
SETS = "/v1/labels/sets"
JUDGED = {"quality": "judge"}
BY_LABELS = {"quality": "judge", "gate": {"labels": "set"}}
JUDGEMENTS = "SELECT count(*) FROM calls WHERE role = 'judge'"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        await serving_api.job("mathrag-gate", params=JUDGED)
        await finished(database)
        reply = await serving_api.http.post(SETS, json={"name": "set", "job": "a-job", "size": 1000})
        assert reply.status_code == 201
        yield serving_api


async def say(api: Api, number: int, value: int, *, blind: bool = True) -> None:
    label = {"value": value, "blind": blind}
    reply = await api.http.post(f"{SETS}/set/tasks/{number}/labels", json=label)
    assert reply.status_code in (200, 201), reply.text


async def labelled(api: Api, worth: dict[int, int]) -> Any:
    made = await api.get(f"{SETS}/set")
    for number in range(1, made["tasks"] + 1):
        task = await api.get(f"{SETS}/set/tasks/{number}", blind=False)
        await say(api, number, worth[task["system"]])
    return await api.get(f"{SETS}/set/calibration")


async def refused(api: Api, status: int, **fields: Any) -> str:
    body = {"name": "refused", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", **fields}
    reply = await api.http.post("/v1/jobs", json=body)
    assert reply.status_code == status, reply.text
    return str(reply.json()["detail"])


async def qualities(api: Api, job: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for index in range(5):
        sample = await api.get(f"/v1/jobs/{job}/samples/{index}")
        found |= {each["document"]: each["quality"] for each in sample["outcome"]["trace"]["candidates"]}
    return found


async def test_a_job_scores_documents_by_what_people_say_the_ratings_are_worth(api: Api, database: Database) -> None:
    worth = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4}
    found = await labelled(api, worth)
    seen = {each["rating"]: each["worth"] for each in found["ratings"] if each["tasks"]}
    assert seen == {rating: worth[rating] for rating in seen}
    before = await scene.scalar(database, JUDGEMENTS)
    job = await api.job("mathrag-gate", name="by-labels", params=BY_LABELS)
    await finished(database)
    assert await scene.scalar(database, JUDGEMENTS) == before
    pinned = (await api.get(f"/v1/jobs/{job['id']}"))["params"]["gate"]["calibrated"]
    assert pinned == {"hash": found["hash"], "ratings": [each["worth"] for each in found["ratings"]]}
    raw, calibrated = await qualities(api, "a-job"), await qualities(api, "by-labels")
    assert calibrated == {document: (worth[round(4 * quality) + 1] - 1) / 4 for document, quality in raw.items()}
    assert calibrated != raw
    assert await check(database, job["id"]) == []


async def test_the_gate_compares_rules_with_the_calibrated_judge(api: Api, database: Database) -> None:
    await labelled(api, {1: 1, 2: 1, 3: 2, 4: 2, 5: 4})
    job = await api.job("mathrag-gate", name="by-labels", params={"gate": {"labels": "set", "min_pairs": 2}})
    await finished(database)
    prepared = await scene.scalar(database, "SELECT prepared FROM jobs WHERE name = 'by-labels'")
    scores = json.loads(bytes(prepared))["judge_scores"]  # type: ignore[call-overload]
    assert scores
    assert set(scores) <= {0.0, 0.25, 0.75}
    assert await check(database, job["id"]) == []


async def test_a_label_that_comes_later_makes_another_judge_and_changes_no_job(api: Api, database: Database) -> None:
    first = await labelled(api, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    job = await api.job("mathrag-gate", name="by-labels", params=BY_LABELS)
    await finished(database)
    for number in range(1, 6):
        await say(api, number, 2)
    later = await api.get(f"{SETS}/set/calibration")
    assert later["hash"] != first["hash"]
    again = await api.http.post(f"/v1/jobs/{job['id']}/requeue", headers={"If-Match": "*"})
    assert again.status_code == 202, again.text
    assert again.json()["params"]["gate"]["calibrated"]["hash"] == first["hash"]
    anew = await api.job("mathrag-gate", name="anew", params=BY_LABELS)
    assert anew["params"]["gate"]["calibrated"]["hash"] == later["hash"]


async def test_ratings_that_people_see_the_other_way_round_are_worth_the_same(api: Api) -> None:
    found = await labelled(api, {1: 5, 2: 4, 3: 3, 4: 2, 5: 1})
    assert len({each["worth"] for each in found["ratings"]}) == 1
    await say(api, 1, 5, blind=False)
    assert (await api.get(f"{SETS}/set/calibration"))["hash"] == found["hash"]


async def test_too_few_labels_and_other_kinds_are_refused(api: Api) -> None:
    for number in range(1, 10):
        await say(api, number, 3)
    assert "9 tasks have a blind label, and a calibration needs 10" in await refused(api, 409, params=BY_LABELS)
    await api.http.post(SETS, json={"name": "answers", "job": "a-job", "what": "answers"})
    assert (await api.http.get(f"{SETS}/answers/calibration")).status_code == 409
    assert "answers" in await refused(api, 409, params={"gate": {"labels": "answers"}})
    assert "no label set 'nowhere'" in await refused(api, 404, params={"gate": {"labels": "nowhere"}})


async def test_another_judge_and_what_was_filled_in_by_hand_are_refused(api: Api, database: Database) -> None:
    found = await labelled(api, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    assert "another judge" in await refused(api, 422, params=BY_LABELS, models={"judge": "a-generator"})
    assert "another judge" in await refused(api, 422, params={**BY_LABELS, "anchors": {"positive": "Well done."}})
    by_hand = {"gate": {"calibrated": {"hash": found["hash"], "ratings": [5, 5, 5, 5, 5]}}}
    assert "filled in at submission" in await refused(api, 422, params=by_hand)


async def test_whose_ratings_they_were_is_not_known_once_the_job_is_purged(api: Api, owner_url: str) -> None:
    await labelled(api, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    owner = Database(owner_url, pinned=False)
    try:
        (job,) = await purge.find_jobs(owner, ["a-job"])
        await purge.purge(owner, job, "operator")
    finally:
        await owner.close()
    assert "its job was purged" in await refused(api, 409, params=BY_LABELS)


async def test_a_pipeline_without_a_gate_takes_no_labels(api: Api) -> None:
    said = await refused(api, 422, pipeline="closed-book", params={"gate": {"labels": "set"}})
    assert "gate.labels" in said
