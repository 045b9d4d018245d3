"""Labels over REST: sets drawn from jobs, blind tasks, labels that are only added, export and agreement."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from sqlalchemy.exc import DBAPIError

from shared.audit import check
from shared.calls import Request
from shared.replies import Rated, Reply
from shared.runtime import archiving, purge
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.test_access import KEYED, sent

pytestmark = pytest.mark.anyio


SETS = "/v1/labels/sets"
HIDDEN = ("system", "rating", "correct", "judge", "model", "score")
"""Names of what a blind labeller is not shown."""


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    await judged(empty_api, database)
    return empty_api


async def judged(api: Api, database: Database, **fields: Any) -> None:
    await api.job("mathrag-gate", params={"quality": "judge"}, **fields)
    await finished(database)


async def make(api: Api, status: int = 201, **fields: Any) -> Any:
    reply = await api.http.post(SETS, json={"name": "set", "job": "a-job", **fields})
    assert reply.status_code == status, reply.text
    return reply.json()


async def post(api: Api, number: int, key: str | None = None, name: str = "set", **label: Any) -> httpx2.Response:
    headers = sent(key) if key else {}
    return await api.http.post(f"{SETS}/{name}/tasks/{number}/labels", json=label, headers=headers)


async def give(api: Api, number: int, key: str | None = None, **label: Any) -> Any:
    reply = await post(api, number, key, **label)
    assert reply.status_code == 201, reply.text
    return reply.json()


async def exported(api: Api, name: str = "set") -> list[Any]:
    reply = await api.http.get(f"{SETS}/{name}/export")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_a_set_is_drawn_from_the_documents_that_the_judge_rated(api: Api, database: Database) -> None:
    made = await make(api, size=1000)
    rated = await scene.scalar(
        database,
        "SELECT count(DISTINCT convert_from(request, 'UTF8')::jsonb #>> '{values,document,doc}') FROM calls"
        " WHERE role = 'judge'",
    )
    assert (made["tasks"], made["eligible"], made["what"], made["purged"]) == (rated, rated, "documents", False)
    assert made["scale"] == [1, 2, 3, 4, 5]
    task = await api.get(f"{SETS}/set/tasks/1", blind=False)
    document = next(each for each in scene.DOCUMENTS if each.hash == task["content"]["document"])
    assert (task["content"]["problem"], task["content"]["text"]) == (document.problem, document.text)
    reply = await scene.scalar(
        database,
        "SELECT convert_from(a.reply, 'UTF8')::jsonb ->> 'rating' FROM calls c JOIN attempts a ON a.call_id = c.id"
        " WHERE convert_from(c.request, 'UTF8')::jsonb #>> '{values,document,doc}' = :document",
        document=document.hash,
    )
    assert task["system"] == int(str(reply))


async def test_a_seed_draws_the_same_and_another_one_others(api: Api) -> None:
    await make(api, size=3)
    await make(api, name="again", size=3)
    await make(api, name="larger", size=4)
    await make(api, name="other", size=3, seed=1)
    drawn = {
        name: [(await api.get(f"{SETS}/{name}/tasks/{n}"))["content"]["document"] for n in (1, 2, 3)]
        for name in ("set", "again", "larger", "other")
    }
    assert drawn["set"] == drawn["again"] == drawn["larger"]
    assert drawn["set"] != drawn["other"]


async def test_the_same_again_is_the_same_set_and_another_under_its_name_is_refused(api: Api) -> None:
    first = await make(api, size=3)
    assert (await make(api, 200, size=3))["hash"] == first["hash"]
    assert "choose another name" in (await make(api, 409, size=4))["hint"]
    assert [each["name"] for each in (await api.get(SETS))["data"]] == ["set"]


async def test_a_blind_task_says_nothing_of_what_the_system_said(api: Api) -> None:
    for what in ("documents", "answers"):
        await make(api, name=what, what=what)
        task = (await api.get(f"{SETS}/{what}/next"))["task"]
        assert task["system"] is None
        shown = {*task, *task["content"]} - {"system"}
        assert not [name for name in shown for hidden in HIDDEN if hidden in name]
        assert (await api.get(f"{SETS}/{what}/next", blind=False))["task"]["system"] is not None


async def test_answers_are_labelled_with_the_grader_s_verdict_hidden(api: Api, database: Database) -> None:
    made = await make(api, what="answers")
    assert (made["tasks"], made["scale"]) == (5, ["wrong", "tie", "right"])
    for number in range(1, 6):
        task = await api.get(f"{SETS}/set/tasks/{number}", blind=False)
        content = task["content"]
        right = [content["answer"]] == content["golds"]
        assert task["system"] == ("right" if right else "wrong")
        assert content["question"] == f"What is {task['item']} plus {task['item']}?"


async def test_relevance_is_labelled_for_each_question(api: Api, database: Database) -> None:
    await api.job("crag", name="corrective")
    await finished(database)
    made = await make(api, what="relevance", job="corrective", size=1000)
    pairs = "SELECT count(*) FROM calls WHERE convert_from(request, 'UTF8')::jsonb ->> 'template' LIKE 'relevance@%'"
    assert made["tasks"] == await scene.scalar(database, pairs)
    task = (await api.get(f"{SETS}/set/next"))["task"]
    assert task["content"]["question"].startswith("What is ")
    assert "relevance" in (await make(api, 409, name="none", what="relevance"))["detail"]


async def test_next_goes_on_with_what_is_not_labelled(api: Api) -> None:
    await make(api, size=3)
    await give(api, 1, value=4)
    await give(api, 2, abstained=True, note="cannot read it")
    found = await api.get(f"{SETS}/set/next")
    assert (found["task"]["number"], found["done"], found["tasks"]) == (3, 2, 3)
    await give(api, 3, value=1)
    assert (await api.get(f"{SETS}/set/next")) == {"task": None, "done": 3, "tasks": 3}
    mine = (await api.get(f"{SETS}/set/tasks/2"))["label"]
    assert (mine["value"], mine["abstained"], mine["note"]) == (None, True, "cannot read it")


async def test_every_label_is_kept_and_the_last_one_counts(api: Api) -> None:
    await make(api, size=2)
    await give(api, 1, value=4)
    await give(api, 1, value=2, blind=False, note="I looked")
    assert (await post(api, 1, value=2, blind=False, note="I looked")).status_code == 200
    lines = await exported(api)
    assert [(line["value"], line["blind"], line["counts"]) for line in lines] == [(4, True, False), (2, False, True)]
    assert {line["labeller"] for line in lines} == {"local"}
    assert (await api.get(f"{SETS}/set/agreement"))["majority"]["confusion"][3] != [0] * 5
    assert (await api.get(f"{SETS}/set/agreement", blind=False))["majority"]["confusion"][1] != [0] * 5


async def test_a_label_that_cannot_be_used_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    await make(api, size=2)
    for label, said in (
        ({"value": 6}, "not on the scale: 1, 2, 3, 4, 5"),
        ({"value": "right"}, "not on the scale"),
        ({"value": True}, "value"),
        ({"value": 2.5}, "value"),
        ({}, "either a `value` or `abstained: true`"),
        ({"value": 3, "abstained": True}, "either"),
        ({"value": 3, "note": "x" * 1_000_000}, "2000 characters"),
        ({"value": 3, "note": "a\x00b"}, "u0000"),
        ({"value": 3, "labeller": "somebody else"}, "labeller"),
    ):
        with subtests.test(label=label):
            reply = await post(api, 1, **label)
            assert (reply.status_code, said in reply.text) == (422, True), reply.text[:500]
            assert await exported(api) == []


async def test_another_set_s_task_is_not_found(api: Api) -> None:
    await make(api, size=2)
    await make(api, name="larger", size=3)
    assert "its tasks are 1 to 2" in (await post(api, 3, value=3)).text
    assert (await post(api, 3, value=3, name="larger")).status_code == 201
    assert (await post(api, 1, value=3, name="larger-2")).status_code == 404
    assert (await post(api, 0, value=3)).status_code == 422
    assert (await post(api, 1 << 40, value=3)).status_code == 422


async def test_two_who_label_at_once_are_kept_apart(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    async with serving(database, redis_url) as open_api:
        await judged(open_api, database)
        await make(open_api, size=5)
    ana, ben = [await keys.create_key(database, "local", name, {Scope.SUBMIT}) for name in ("ana", "ben")]
    reader = await keys.create_key(database, "local", "reader", {Scope.READ})
    async with serving(database, redis_url, KEYED) as api:
        given = [post(api, number, key, value=3) for number in range(1, 6) for key in (ana, ben) for _ in range(2)]
        assert {reply.status_code for reply in await asyncio.gather(*given)} <= {200, 201}
        assert (await post(api, 1, reader, value=3)).status_code == 403
        found = (await api.http.get(f"{SETS}/set", headers=sent(reader))).json()
    assert [(each["labeller"], each["labels"]) for each in found["labellers"]] == [("ana", 5), ("ben", 5)]


async def test_agreement_says_how_far_people_and_judge_agree(api: Api, database: Database) -> None:
    made = await make(api, size=1000)
    for number in range(1, made["tasks"] + 1):
        task = await api.get(f"{SETS}/set/tasks/{number}", blind=False)
        await give(api, number, value=task["system"])
    found = await api.get(f"{SETS}/set/agreement")
    assert found["majority"]["same"] == found["labelled"] == made["tasks"]
    assert found["majority"]["weighted_kappa"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found["with_system"]["interval"]["value"] == 1.0
    assert (found["people"]["tasks"], found["people"]["interval"]["value"]) == (0, None)
    assert "labels of two people" in found["people"]["note"]
    assert found["disagreements"] == []
    assert f"the same of {made['tasks']} of {made['tasks']} documents" in found["words"]


async def test_without_labels_there_is_a_sentence_and_no_figure(api: Api) -> None:
    await make(api)
    found = await api.get(f"{SETS}/set/agreement")
    assert found["words"] == "None of the documents has been labelled yet."
    assert found["majority"]["kappa"]["value"] is None
    await give(api, 1, value=3)
    found = await api.get(f"{SETS}/set/agreement")
    assert found["majority"]["kappa"]["value"] is None
    assert "begin at 10" in found["majority"]["note"]


async def test_a_live_job_and_one_without_ratings_have_nothing_to_label(api: Api, database: Database) -> None:
    await api.job(name="live")
    assert "only an ended job can be labelled" in (await make(api, 409, job="live"))["detail"]
    await api.http.post("/v1/jobs/live/cancel")
    await scene.repair(database)
    assert "none of its answers was graded" in (await make(api, 409, job="live", what="answers"))["detail"]
    said = await make(api, 409, job="live")
    assert "rated the reasoning of no document" in said["detail"]
    assert (await make(api, 404, job="nowhere"))["detail"] == "no job 'nowhere'"


async def test_what_a_set_holds_outlives_its_job_and_its_documents(
    api: Api, database: Database, owner_url: str
) -> None:
    await make(api, size=3)
    before = await api.get(f"{SETS}/set/tasks/1")
    owner = Database(owner_url, pinned=False)
    try:
        (job,) = await purge.find_jobs(owner, ["a-job"])
        await purge.purge(owner, job, "operator")
        removed = await purge.remove_unused(owner, "operator")
    finally:
        await owner.close()
    assert removed.documents == len(scene.DOCUMENTS)
    assert (await api.get(f"{SETS}/set"))["purged"] is True
    assert await api.get(f"{SETS}/set/tasks/1") == before
    await give(api, 1, value=2)
    assert (await make(api, 200, size=3))["tasks"] == 3


async def test_nobody_changes_a_set_a_task_or_a_label(api: Api, database: Database) -> None:
    await make(api, size=2)
    await give(api, 1, value=3)
    for statement in (
        "UPDATE label_sets SET seed = 7", "UPDATE label_tasks SET system = '5'", "UPDATE labels SET value = '5'",
        "DELETE FROM label_sets", "DELETE FROM label_tasks", "DELETE FROM labels",
    ):  # fmt: skip
        with pytest.raises(DBAPIError, match="permission denied"):
            await scene.attempt(database, statement)


def with_nul(request: Request) -> Reply:
    reply = scene.by_rule(request)
    return Rated(rating=reply.rating, text="\x00[[3]]") if isinstance(reply, Rated) else reply


async def test_a_judge_that_writes_nul_can_be_labelled(database: Database, empty_api: Api) -> None:
    await scene.furnish(database)
    await empty_api.job("mathrag-gate", params={"quality": "judge"})
    await scene.drain(database, scene.ScriptedExecutor(with_nul))
    assert (await make(empty_api))["tasks"] > 0


# A judge that is calibrated by labels: a job takes what its ratings are worth, and keeps it.

JUDGED = {"quality": "judge"}
BY_LABELS = {"quality": "judge", "gate": {"labels": "set"}}
JUDGEMENTS = "SELECT count(*) FROM calls WHERE role = 'judge'"


@pytest.fixture
async def labelled_api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    await empty_api.job("mathrag-gate", params=JUDGED)
    await finished(database)
    reply = await empty_api.http.post(SETS, json={"name": "set", "job": "a-job", "size": 1000})
    assert reply.status_code == 201
    return empty_api


async def say(labelled_api: Api, number: int, value: int, *, blind: bool = True) -> None:
    label = {"value": value, "blind": blind}
    reply = await labelled_api.http.post(f"{SETS}/set/tasks/{number}/labels", json=label)
    assert reply.status_code in (200, 201), reply.text


async def labelled(labelled_api: Api, worth: dict[int, int]) -> Any:
    made = await labelled_api.get(f"{SETS}/set")
    for number in range(1, made["tasks"] + 1):
        task = await labelled_api.get(f"{SETS}/set/tasks/{number}", blind=False)
        await say(labelled_api, number, worth[task["system"]])
    return await labelled_api.get(f"{SETS}/set/calibration")


async def refused(labelled_api: Api, status: int, **fields: Any) -> str:
    body = {"name": "refused", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", **fields}
    reply = await labelled_api.http.post("/v1/jobs", json=body)
    assert reply.status_code == status, reply.text
    return str(reply.json()["detail"])


async def qualities(labelled_api: Api, job: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for index in range(5):
        sample = await labelled_api.get(f"/v1/jobs/{job}/samples/{index}")
        found |= {each["document"]: each["quality"] for each in sample["outcome"]["trace"]["candidates"]}
    return found


async def test_a_job_scores_documents_by_what_people_say_the_ratings_are_worth(
    labelled_api: Api, database: Database
) -> None:
    worth = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4}
    found = await labelled(labelled_api, worth)
    seen = {each["rating"]: each["worth"] for each in found["ratings"] if each["tasks"]}
    assert seen == {rating: worth[rating] for rating in seen}
    before = await scene.scalar(database, JUDGEMENTS)
    job = await labelled_api.job("mathrag-gate", name="by-labels", params=BY_LABELS)
    await finished(database)
    assert await scene.scalar(database, JUDGEMENTS) == before
    pinned = (await labelled_api.get(f"/v1/jobs/{job['id']}"))["params"]["gate"]["calibrated"]
    assert pinned == {"hash": found["hash"], "ratings": [each["worth"] for each in found["ratings"]]}
    raw, calibrated = await qualities(labelled_api, "a-job"), await qualities(labelled_api, "by-labels")
    assert calibrated == {document: (worth[round(4 * quality) + 1] - 1) / 4 for document, quality in raw.items()}
    assert calibrated != raw
    assert await check(database, job["id"]) == []


async def test_the_gate_compares_rules_with_the_calibrated_judge(labelled_api: Api, database: Database) -> None:
    await labelled(labelled_api, {1: 1, 2: 1, 3: 2, 4: 2, 5: 4})
    job = await labelled_api.job("mathrag-gate", name="by-labels", params={"gate": {"labels": "set", "min_pairs": 2}})
    await finished(database)
    prepared = await scene.scalar(database, "SELECT prepared FROM jobs WHERE name = 'by-labels'")
    scores = json.loads(bytes(prepared))["judge_scores"]  # type: ignore[call-overload]
    assert scores
    assert set(scores) <= {0.0, 0.25, 0.75}
    assert await check(database, job["id"]) == []


async def test_a_label_that_comes_later_makes_another_judge_and_changes_no_job(
    labelled_api: Api, database: Database
) -> None:
    first = await labelled(labelled_api, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    job = await labelled_api.job("mathrag-gate", name="by-labels", params=BY_LABELS)
    await finished(database)
    for number in range(1, 6):
        await say(labelled_api, number, 2)
    later = await labelled_api.get(f"{SETS}/set/calibration")
    assert later["hash"] != first["hash"]
    again = await labelled_api.http.post(f"/v1/jobs/{job['id']}/requeue", headers={"If-Match": "*"})
    assert again.status_code == 202, again.text
    assert again.json()["params"]["gate"]["calibrated"]["hash"] == first["hash"]
    anew = await labelled_api.job("mathrag-gate", name="anew", params=BY_LABELS)
    assert anew["params"]["gate"]["calibrated"]["hash"] == later["hash"]


async def test_an_archived_job_keeps_the_calibration_of_its_judge(
    labelled_api: Api, database: Database, owner: Database
) -> None:
    found = await labelled(labelled_api, {1: 1, 2: 1, 3: 2, 4: 2, 5: 4})
    (job,) = await purge.find_jobs(owner, ["a-job"])
    await archiving.archive(owner, job, "a-test")
    await purge.remove_unused(owner, "a-test")
    assert await scene.scalar(database, JUDGEMENTS) == 0
    assert await labelled_api.get(f"{SETS}/set/calibration") == found
    later = await labelled_api.job("mathrag-gate", name="by-labels", params=BY_LABELS)
    assert later["params"]["gate"]["calibrated"]["hash"] == found["hash"]


async def test_ratings_that_people_see_the_other_way_round_are_worth_the_same(labelled_api: Api) -> None:
    found = await labelled(labelled_api, {1: 5, 2: 4, 3: 3, 4: 2, 5: 1})
    assert len({each["worth"] for each in found["ratings"]}) == 1
    await say(labelled_api, 1, 5, blind=False)
    assert (await labelled_api.get(f"{SETS}/set/calibration"))["hash"] == found["hash"]


async def test_too_few_labels_and_other_kinds_are_refused(labelled_api: Api) -> None:
    for number in range(1, 10):
        await say(labelled_api, number, 3)
    assert "9 tasks have a blind label, and a calibration needs 10" in await refused(
        labelled_api, 409, params=BY_LABELS
    )
    await labelled_api.http.post(SETS, json={"name": "answers", "job": "a-job", "what": "answers"})
    assert (await labelled_api.http.get(f"{SETS}/answers/calibration")).status_code == 409
    assert "answers" in await refused(labelled_api, 409, params={"gate": {"labels": "answers"}})
    assert "no label set 'nowhere'" in await refused(labelled_api, 404, params={"gate": {"labels": "nowhere"}})


async def test_another_judge_and_what_was_filled_in_by_hand_are_refused(labelled_api: Api, database: Database) -> None:
    found = await labelled(labelled_api, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    assert "not by this job's judge" in await refused(
        labelled_api, 422, params=BY_LABELS, models={"judge": "a-generator"}
    )
    assert "not by this job's judge" in await refused(
        labelled_api, 422, params={**BY_LABELS, "anchors": {"positive": "Well done."}}
    )
    by_hand = {"gate": {"calibrated": {"hash": found["hash"], "ratings": [5, 5, 5, 5, 5]}}}
    assert "the service fills it in at submission" in await refused(labelled_api, 422, params=by_hand)


async def test_whose_ratings_they_were_is_not_known_once_the_job_is_purged(labelled_api: Api, owner_url: str) -> None:
    await labelled(labelled_api, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    owner = Database(owner_url, pinned=False)
    try:
        (job,) = await purge.find_jobs(owner, ["a-job"])
        await purge.purge(owner, job, "operator")
    finally:
        await owner.close()
    assert "its job was purged" in await refused(labelled_api, 409, params=BY_LABELS)


async def test_a_pipeline_without_a_gate_takes_no_labels(labelled_api: Api) -> None:
    said = await refused(labelled_api, 422, pipeline="closed-book", params={"gate": {"labels": "set"}})
    assert "gate.labels" in said
