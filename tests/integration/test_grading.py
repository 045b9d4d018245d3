"""Datasets that are no mathematics: uploaded with their grader, answered, graded by it, reported and audited."""

import uuid
from collections.abc import AsyncIterator

import pytest

from services.orchestrator.reports.report import report
from shared.audit import check
from shared.calls import Lane, Request, Rules
from shared.processes.grading_pool import GradingPool
from shared.rag.grading import mark
from shared.replies import Generated, Rated, Reply
from shared.storage import samples
from shared.storage.database import Database
from tests.integration.api import Api, serving
from tests.integration.scene import ScriptedExecutor, by_rule, furnish, rows, scalar
from tests.integration.test_audit import Device, staged

pytestmark = pytest.mark.anyio

CAPITALS = [
    {"question": "What is the capital of France?", "golden_answers": ["Paris", "Lutetia"]},
    {"question": "What is the capital of Spain?", "golden_answers": ["Barcelona"]},
]
REPLIES = {"France": "The capital is\nAnswer: the city of Paris", "Spain": "Answer: Madrid"}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await furnish(database)
    async with serving(database, redis_url) as started:
        yield started


def world(request: Request) -> Reply:
    if request.role == "grade":
        answer, gold = request.values["answer"], request.values["gold"]
        assert isinstance(answer, str)
        assert isinstance(gold, str)
        return mark(answer, gold, request.rules or Rules())
    if request.role == "generate":
        question = str(request.values["question"])
        return Generated(text=next((text for place, text in REPLIES.items() if place in question), "?"))
    if request.template.startswith("answer-rubric"):
        return Rated(rating=5 if "Paris" in str(request.values["answer"]) else 2, text="")
    return by_rule(request)


async def run(api: Api, database: Database, grader: str, **fields: object) -> uuid.UUID:
    made = await api.upload("datasets", "capitals", CAPITALS, grader=grader)
    assert (made.status_code, made.json()["grader"], made.json()["alternatives"]) == (201, grader, 1)
    job = await api.job(dataset="capitals", **fields)
    await staged(database, ScriptedExecutor(world))
    return uuid.UUID(job["id"])


@pytest.mark.parametrize(
    ("grader", "correct", "score"),
    [("text", 0, None), ("contains", 1, None), ("f1", 1, 0.25), ("exact", 0, None)],
)
async def test_a_dataset_is_graded_by_the_grader_that_it_declares(
    api: Api, database: Database, grader: str, correct: int, score: float | None
) -> None:
    job = await run(api, database, grader)
    found = await report(database, str(job), {})
    assert (found.grader, found.accuracy.correct, found.accuracy.graded) == (grader, correct, 2)
    assert (found.score and found.score.mean.value) == score
    assert found.settings.models["grade"].name == f"grader-{grader}"
    assert found.endings.get("correct", 0) == correct
    assert await check(database, job) == []
    page = await samples.list_samples(database, str(job), 10, None)
    assert [row.answer for row in page.data] == ["the city of Paris", "Madrid"]


async def test_a_job_may_choose_another_grader_than_its_dataset(api: Api, database: Database) -> None:
    job = await run(api, database, "text", params={"grading": {"grader": "regex"}})
    assert (await report(database, str(job), {})).accuracy.correct == 1
    another = await api.job(name="another", dataset="capitals")
    assert another["params"]["grading"]["grader"] == "text"


async def test_a_rubric_is_rated_by_the_judge_after_all_answers(api: Api, database: Database) -> None:
    made = await api.upload("datasets", "capitals", CAPITALS, grader="rubric")
    assert made.status_code == 201
    job = await api.job(dataset="capitals")
    executor, device = ScriptedExecutor(world), Device(database)
    await device.flip("a-generator", "first")
    await device.drain(Lane.GENERATE, executor)
    assert await scalar(database, "SELECT count(*) FROM calls WHERE role = 'judge'") == 2
    await device.flip("a-judge", "drained")
    await device.drain(Lane.JUDGE, executor)
    await device.close("guard_stopped")
    found = await report(database, job["id"], {})
    assert (found.state, found.accuracy.correct, found.accuracy.graded) == ("completed", 1, 2)
    assert found.score is not None
    assert (found.score.name, found.score.mean.value) == ("the judge model's rating, 1 to 5", 3.5)
    assert await check(database, uuid.UUID(job["id"])) == []


async def test_a_choice_is_asked_with_its_choices(api: Api, database: Database) -> None:
    lines = [
        {"question": "Capital?", "choices": ["Bern", "Paris"], "answer": 1},
        {"question": "Capital?", "choices": {"text": ["Bern", "Paris"], "label": ["A", "B"]}, "answerKey": "A"},
        {"question": "Capital?", "options": {"A": "Bern", "B": "Paris"}, "gold": "Paris"},
    ]
    assert (await api.upload("datasets", "choices", lines, grader="choice")).status_code == 201
    asked_of = "SELECT question, gold FROM items WHERE dataset_id = (SELECT max(id) FROM datasets) ORDER BY ordinal"
    stored = await rows(database, asked_of)
    asked = "Capital?\nA. Bern\nB. Paris"
    assert stored == [(asked, "B"), (asked, "A"), (asked, "B")]


@pytest.mark.parametrize(
    ("grader", "line", "said"),
    [
        ("regex", {"question": "?", "answer": "(5"}, "is no regular expression"),
        ("choice", {"question": "?", "choices": ["a", "b"], "answer": "c"}, "names none of the choices"),
        ("choice", {"question": "?", "choices": ["1", "0"], "answer": 1}, "may be a place or a text"),
        ("choice", {"question": "?", "choices": "a, b", "answer": "A"}, "must be a list of 2 to 26 texts"),
        ("rubric", {"question": "?", "rubric": ["clear"]}, "`rubric` is an array"),
    ],
)
async def test_a_line_that_its_grader_cannot_use_is_refused(api: Api, grader: str, line: object, said: str) -> None:
    refused = await api.upload("datasets", "wrong", [line], grader=grader)
    assert refused.status_code == 422
    assert said in refused.text


async def test_the_same_items_with_another_grader_are_another_dataset(api: Api) -> None:
    assert (await api.upload("datasets", "capitals", CAPITALS, grader="text")).status_code == 201
    assert (await api.upload("datasets", "capitals", CAPITALS, grader="text")).status_code == 200
    assert (await api.upload("datasets", "capitals", CAPITALS, grader="f1")).status_code == 409


async def test_an_unknown_grader_is_refused_with_those_that_exist(api: Api) -> None:
    body = {"name": "j", "dataset": "items", "pipeline": "closed-book", "params": {"grading": {"grader": "fuzzy"}}}
    refused = await api.http.post("/v1/jobs", json=body)
    assert (refused.status_code, "math, math-dataset, last-number" in refused.text) == (422, True)
    refused = await api.upload("datasets", "wrong", CAPITALS, grader="fuzzy")
    assert (refused.status_code, "math, math-dataset, last-number" in refused.text) == (422, True)


async def test_the_grading_process_grades_as_the_registry_does() -> None:
    async with GradingPool(size=1) as pool:
        for rules in (
            Rules(grader="f1", golds=("Lutetia",), threshold=0.7),
            Rules(grader="choice", choices=("a", "b")),
        ):
            assert await pool.grade("B", "b", rules) == mark("B", "b", rules)
