"""Jobs side by side on a real database: items are matched by content, and repeats are one observation."""

import re
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from mathrag.errors import Invalid
from services.orchestrator.reports.comparison import System, compare
from shared.audit import check
from shared.calls import Request, Rules
from shared.rag.grading import mark
from shared.replies import Generated, Hit, Reply, Retrieved
from shared.storage import jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.scene import DOCUMENTS, ScriptedExecutor, by_rule, furnish
from tests.integration.test_audit import staged

pytestmark = pytest.mark.anyio


ITEMS = 40
Answered = Callable[..., Awaitable[None]]


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, ITEMS)
    return empty_api


async def right(plant: Plant, job: str, items: Iterable[int], *, repeat: int = 0) -> None:
    await plant(
        "UPDATE outcomes SET correct = s.ordinal = ANY(:items) FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND s.kind = 'item' AND j.name = :job AND s.repeat = :repeat",
        items=list(items), job=job, repeat=repeat,
    )  # fmt: skip


@pytest.fixture
def answered(api: Api, database: Database, plant: Plant) -> Answered:
    return answering(api, database, plant)


def answering(api: Api, database: Database, plant: Plant) -> Answered:
    """Jobs by name, whose answers are right to these items."""

    async def answer(**right_items: Iterable[int]) -> None:
        for name in right_items:
            await api.job(name=name)
        await finished(database)
        for name, items in right_items.items():
            await right(plant, name, items)

    return answer


async def numbers(database: Database, *names: str) -> list[int]:
    async with database.transaction() as connection:
        return [await jobs.resolve(connection, name) for name in names]


def pair(found: Any, left: str, right: str) -> Any:
    return next(each for each in found["pairs"] if (each["left"], each["right"]) == (left, right))


async def test_jobs_are_compared_with_a_baseline_and_corrected_for_their_number(api: Api, answered: Answered) -> None:
    await answered(base=range(20), better=range(1, 29), alike=range(20), one_more=range(21))
    found = await api.get("/v1/comparison", job=["better", "alike", "one_more"], baseline="base")
    assert [each["name"] for each in found["jobs"]] == ["base", "better", "alike", "one_more"]
    assert [(each["left"], each["right"]) for each in found["pairs"]][:2] == [("better", "base"), ("alike", "base")]
    better, alike, _ = found["pairs"]
    assert (better["items"], better["gained"], better["lost"]) == (ITEMS, 9, 1)
    assert better["p"] == pytest.approx(2 * (1 + 10) / 2**10)
    assert better["adjusted"] == pytest.approx(3 * better["p"])
    assert better["difference"]["value"] == pytest.approx(8 / ITEMS)
    assert better["difference"]["low"] < 8 / ITEMS < better["difference"]["high"]
    assert not better["separable"]
    assert better["words"].startswith(f"not separable at n = {ITEMS}: +20.0 points")
    assert better["needed"] > 0
    assert alike["words"] == f"not separable: no difference on any of {ITEMS} items"
    assert better["corrected"]["low"] < better["difference"]["low"]
    (note,) = found["notes"]
    assert note.startswith("p-values are corrected for 3 comparisons (Holm), and `corrected` intervals (Bonferroni)")


async def test_without_a_baseline_each_is_compared_with_each(api: Api, answered: Answered) -> None:
    await answered(one=range(30), two=range(5), three=range(30))
    found = await api.get("/v1/comparison", job=["one", "two", "three"])
    assert (len(found["pairs"]), found["baseline"]) == (3, None)
    assert pair(found, "one", "two")["words"].startswith("better: +62.5 points")
    assert pair(found, "two", "three")["words"].startswith("worse: -62.5 points")
    assert pair(found, "one", "two")["separable"]


async def test_the_figures_of_a_job_are_those_of_its_report(api: Api, answered: Answered) -> None:
    await answered(one=range(30), two=range(5))
    found = await api.get("/v1/comparison", job=["one", "two"])
    for each in found["jobs"]:
        report = await api.get(f"/v1/jobs/{each['name']}/report")
        same = ("accuracy", "bootstrap", "repeats", "endings")
        assert {name: each[name] for name in same} == {name: report[name] for name in same}
        assert each["jobs"] == [report["id"]]


async def test_repeats_of_an_item_are_one_observation(api: Api, database: Database, plant: Plant) -> None:
    params = {"generate": {"temperature": 0.8}}
    await api.job(name="sampled", repeats=3, params=params)
    await api.job(name="once")
    await finished(database)
    for repeat, count in enumerate((20, 20, 26)):
        await right(plant, "sampled", range(count), repeat=repeat)
    await right(plant, "once", range(20))
    found = await api.get("/v1/comparison", job="sampled", baseline="once")
    sampled = next(each for each in found["jobs"] if each["name"] == "sampled")
    assert sampled["repeats"]["accuracies"] == [0.5, 0.5, 0.65]
    assert sampled["repeats"]["std"] == pytest.approx(0.0866, abs=1e-4)
    assert (sampled["items"], sampled["accuracy"]["graded"]) == (ITEMS, 3 * ITEMS)
    (only,) = found["pairs"]
    assert (only["items"], only["gained"], only["lost"]) == (ITEMS, 6, 0)
    assert only["difference"]["value"] == pytest.approx(0.05)
    assert only["p"] == pytest.approx(2 / 2**6)
    assert any("repeats of one item are not independent" in note for note in found["notes"])


async def test_a_dataset_that_was_uploaded_twice_is_the_same_one(api: Api, database: Database) -> None:
    await scene.add_dataset(database, ITEMS + 10, "again", changed=frozenset(range(4)))
    await api.job(name="first")
    await api.job(name="second", dataset="again")
    await finished(database)
    found = await api.get("/v1/comparison", job=["first", "second"])
    (only,) = found["pairs"]
    assert (only["items"], only["left_only"], only["right_only"]) == (ITEMS - 4, 4, 14)
    assert any("are left out of the pair" in note for note in found["notes"])


async def test_jobs_without_a_common_item_are_refused_in_words(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 5, "others", changed=frozenset(range(5)))
    await api.job(name="first")
    await api.job(name="second", dataset="others")
    await finished(database)
    reply = await api.http.get("/v1/comparison", params={"job": ["first", "second"]})
    assert reply.status_code == 409
    assert "'first' and 'second' have no measured item in common" in reply.json()["detail"]


async def test_a_job_that_is_not_graded_yet_stands_there_without_a_verdict(api: Api, answered: Answered) -> None:
    await answered(base=range(20), better=range(20, 40))
    await api.job(name="young", params={"generate": {"max_tokens": 99}})
    found = await api.get("/v1/comparison", job=["better", "young"], baseline="base")
    young = pair(found, "young", "base")
    assert (young["items"], young["difference"]) == (0, None)
    assert young["words"].startswith("nothing to compare")
    better = pair(found, "better", "base")
    assert better["adjusted"] == better["p"]
    assert any(f"'young' is not final: {ITEMS} samples" in note for note in found["notes"])


async def test_failed_samples_are_in_no_pair(api: Api, answered: Answered, plant: Plant) -> None:
    await answered(one=range(ITEMS), two=range(ITEMS))
    await plant(
        "UPDATE outcomes SET correct = NULL FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND j.name = 'two' AND s.ordinal < 3",
    )
    (only,) = (await api.get("/v1/comparison", job=["one", "two"]))["pairs"]
    assert (only["items"], only["left_only"], only["difference"]["value"]) == (ITEMS - 3, 3, 0)


async def test_what_cannot_be_compared_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    await api.job(name="one")
    for query, status, said in (
        ({"job": ["one", "one"]}, 422, "at least two"),
        ({"job": "one"}, 422, "at least two"),
        ({}, 422, "job"),
        ({"job": ["one", "none"]}, 404, "no job 'none'"),
        ({"job": "one", "baseline": "none"}, 404, "no job 'none'"),
    ):
        with subtests.test(query=query):
            reply = await api.http.get("/v1/comparison", params=query)
            assert reply.status_code == status
            assert said in reply.text


async def test_jobs_of_one_name_are_told_apart_by_their_ids(api: Api, database: Database) -> None:
    ids = [(await api.job())["id"] for _ in range(2)]
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET name = 'same'")
    found = await api.get("/v1/comparison", job=ids)
    assert [each["name"] for each in found["jobs"]] == [f"same {each[:8]}" for each in ids]


async def test_several_datasets_are_pooled_item_by_item(api: Api, database: Database, plant: Plant) -> None:
    await scene.add_dataset(database, 10, "seed-2", changed=frozenset(range(10)))
    for name, dataset in (("base-1", "items"), ("gate-1", "items"), ("base-2", "seed-2"), ("gate-2", "seed-2")):
        await api.job(name=name, dataset=dataset)
    await finished(database)
    for name, items in (("base-1", range(20)), ("gate-1", range(26)), ("base-2", range(4)), ("gate-2", range(8))):
        await right(plant, name, items)
    base_1, gate_1, base_2, gate_2 = await numbers(database, "base-1", "gate-1", "base-2", "gate-2")
    base = System("base", {"items": base_1, "seed-2": base_2})
    gate = System("gate", {"items": gate_1, "seed-2": gate_2})
    found = await compare(database, [base, gate], "base")
    (only,) = found.pairs
    assert (only.items, only.gained, only.lost) == (50, 10, 0)
    assert only.p == pytest.approx(2 / 2**10)
    assert only.difference is not None
    assert only.difference.value == pytest.approx(0.2)
    assert found.jobs[1].datasets == ("items", "seed-2")
    assert (found.jobs[1].accuracy.correct, found.jobs[1].accuracy.graded) == (34, 50)


async def test_systems_are_told_apart_by_their_names(database: Database) -> None:
    with pytest.raises(Invalid, match="same name"):
        await compare(database, [System("a", {"d": 1}), System("a", {"d": 2})])
    with pytest.raises(Invalid, match="no system is called 'c'"):
        await compare(database, [System("a", {"d": 1}), System("b", {"d": 2})], "c")


# Jobs that search narrowly and widely, compared by every measure: verdicts, exact matches, token F1, answers found.

SUMS = [{"question": f"Which sum is number {n}?", "gold": f"{n} plus {n}"} for n in range(8)]
GRADING = {"grader": "f1", "threshold": 0.9}
WIDE, NARROW = 5, 1


@pytest.fixture
async def sums_api(database: Database, empty_api: Api) -> Api:
    await furnish(database)
    made = await empty_api.upload("datasets", "sums", SUMS, grader="f1")
    assert made.status_code == 201
    return empty_api


def world(request: Request) -> Reply:
    match request.role:
        case "retrieve":
            return Retrieved(
                hits=tuple(
                    Hit(document=each.hash, rank=n, score=1 / n) for n, each in enumerate(DOCUMENTS[: request.k], 1)
                )
            )
        case "generate":
            [number] = re.findall(r"number (\d+)", str(request.values["question"]))
            right = f"{number} {'minus' if int(number) % 2 else 'plus'} {number}"
            several = len(request.values.get("context") or ()) > NARROW
            return Generated(text=f"Answer: {right if several else 'plus'}")
        case "grade":
            return mark(str(request.values["answer"]), str(request.values["gold"]), request.rules or Rules())
        case _:
            return by_rule(request)


def params(candidates: int, **grading: object) -> dict[str, Any]:
    return {"candidates": candidates, "context_size": candidates, "grading": grading or GRADING}


async def submitted(sums_api: Api, name: str, candidates: int, **grading: object) -> uuid.UUID:
    job = await sums_api.job(
        name=name, dataset="sums", corpus="docs", pipeline="dense", params=params(candidates, **grading)
    )
    return uuid.UUID(job["id"])


async def refused(sums_api: Api, path: str, status: int, **query: Any) -> Any:
    reply = await sums_api.http.get(path, params=query)
    assert reply.status_code == status, reply.text
    return reply.json()


@pytest.fixture
async def measured_jobs(sums_api: Api, database: Database) -> list[uuid.UUID]:
    made = [await submitted(sums_api, "wide", WIDE), await submitted(sums_api, "narrow", NARROW)]
    await staged(database, ScriptedExecutor(world))
    return made


MEASURES = {
    "accuracy": (4 / 8, 0.0, 4, 2 / 2**4),
    "exact": (4 / 8, 0.0, 4, 2 / 2**4),
    "score": ((4 + 4 * 2 / 3) / 8, 1 / 2, 8, 2 / 2**8),
    "answer@1": (1 / 8, 1 / 8, 0, 1.0),
    "answer@5": (5 / 8, 1 / 8, 4, 2 / 2**4),
}


async def test_jobs_are_compared_by_a_measure(
    sums_api: Api, measured_jobs: list[uuid.UUID], subtests: pytest.Subtests
) -> None:
    for measure in MEASURES:
        with subtests.test(measure=measure):
            wide, narrow, gained, p = MEASURES[measure]
            found = await sums_api.get("/v1/comparison", job=["wide"], baseline="narrow", measure=measure)
            by_name = {each["name"]: each for each in found["jobs"]}
            [pair] = found["pairs"]
            assert (found["measure"], len(measured_jobs)) == (measure, 2)
            for name, value in (("wide", wide), ("narrow", narrow)):
                job = by_name[name]
                assert job["items"] == job["measured"]["n"] == 8
                same = (job["measured"]["value"], job["bootstrap"]["value"], job["repeats"]["mean"])
                assert same == pytest.approx((value,) * 3, abs=1e-6)
            assert by_name["wide"]["accuracy"]["value"] == 0.5
            assert (pair["items"], pair["gained"], pair["lost"]) == (8, gained, 0)
            assert pair["difference"]["value"] == pytest.approx(wide - narrow, abs=1e-6)
            assert (pair["p"], pair["adjusted"]) == pytest.approx((p, p))


async def test_the_figures_of_a_measure_are_those_of_the_report(sums_api: Api, measured_jobs: list[uuid.UUID]) -> None:
    report = await sums_api.get(f"/v1/jobs/{measured_jobs[0]}/report")
    assert report["settings"]["params"]["candidates"] == WIDE
    assert list(report["answer_at"]) == ["answer@1", "answer@5"]
    for measure, figure in (("exact", report["strict"]), *report["answer_at"].items()):
        found = await sums_api.get("/v1/comparison", job=["wide", "narrow"], measure=measure)
        assert {name: found["jobs"][0]["measured"][name] for name in ("value", "low", "high")} == {
            name: figure[name] for name in ("value", "low", "high")
        }
    assert found["jobs"][0]["bootstrap"] == figure["bootstrap"]
    scored = await sums_api.get("/v1/comparison", job=["wide", "narrow"], measure="score")
    assert scored["jobs"][0]["measured"] == pytest.approx(report["score"]["mean"], abs=1e-5)


async def test_ranks_of_answers_are_replayed(database: Database, measured_jobs: list[uuid.UUID]) -> None:
    for job in measured_jobs:
        assert await check(database, job) == []


async def test_a_job_that_was_not_measured_is_refused_with_the_reason(sums_api: Api, database: Database) -> None:
    await submitted(sums_api, "words", NARROW, grader="text")
    await submitted(sums_api, "scores", WIDE)
    await submitted(sums_api, "patterns", NARROW, grader="regex")
    await sums_api.job(name="closed", dataset="sums", pipeline="closed-book", params={"grading": GRADING})
    await staged(database, ScriptedExecutor(world))
    for name, measure, why in (
        ("words", "score", "its grader (text) gives no scores, only verdicts; `f1` and `set` give scores"),
        ("patterns", "exact", "its grader (regex) does not report exact matches"),
        ("patterns", "answer@5", "its grader (regex) is not one of exact, text, contains, f1, set"),
        ("closed", "answer@5", "it searches nothing"),
    ):
        said = await refused(sums_api, "/v1/comparison", 409, job=[name], baseline="scores", measure=measure)
        assert said["detail"].startswith(f"job '{name}' was not measured by `{measure}`: ")
        assert why in said["detail"]
        assert "choose another `measure`" in said["hint"]
        assert (await sums_api.get("/v1/comparison", job=[name], baseline="scores"))["pairs"][0]["items"] == 8


async def test_scores_of_two_kinds_are_not_compared(sums_api: Api, database: Database) -> None:
    await submitted(sums_api, "f1", WIDE)
    await submitted(sums_api, "set", WIDE, grader="set")
    said = await refused(sums_api, "/v1/comparison", 409, job=["f1", "set"], measure="score")
    assert "in job 'f1' it is token F1; in job 'set' it is F1 of the sets" in said["detail"]


async def test_an_unknown_measure_is_refused(sums_api: Api) -> None:
    for path, query in (("/v1/comparison", {"job": ["a", "b"]}), ("/v1/experiments/none/report", {})):
        said = await refused(sums_api, path, 422, measure="recall", **query)
        assert "unknown measure 'recall': name one of accuracy, exact, score, answer@K" in said["detail"]


EXPERIMENT: dict[str, Any] = {
    "name": "widths", "datasets": [{"dataset": "sums", "corpus": "docs"}], "baseline": "narrow",
    "variants": [
        {"name": "narrow", "pipeline": "dense", "params": params(NARROW)},
        {"name": "wide", "pipeline": "dense", "params": params(WIDE)},
        {"name": "closed", "pipeline": "closed-book", "params": {"grading": GRADING}},
    ],
}  # fmt: skip


async def test_an_experiment_is_reported_by_a_measure(sums_api: Api, database: Database) -> None:
    made = await sums_api.http.post("/v1/experiments", json=EXPERIMENT)
    assert made.status_code == 202, made.text
    await staged(database, ScriptedExecutor(world))
    found = await sums_api.get("/v1/experiments/widths/report", measure="answer@5")
    assert found["measure"] == found["comparisons"]["pooled"]["measure"] == "answer@5"
    assert [row["result"]["measured"]["value"] for row in found["rows"]] == [1 / 8, 5 / 8, None]
    by_left = {pair["left"]: pair for pair in found["comparisons"]["pooled"]["pairs"]}
    assert (by_left["wide"]["items"], by_left["wide"]["gained"]) == (8, 4)
    assert by_left["closed"]["words"].startswith("nothing to compare")
    assert (await sums_api.get("/v1/experiments/widths/report"))["measure"] == "accuracy"


async def test_an_outcome_of_before_was_not_measured(
    sums_api: Api, measured_jobs: list[uuid.UUID], plant: Plant
) -> None:
    await plant(
        "UPDATE outcomes SET outcome = convert_to(regexp_replace("
        " convert_from(outcome, 'UTF8'), ',\"answer_rank\":(null|[0-9]+)', ''), 'UTF8')"
        " FROM samples s JOIN jobs j ON j.id = s.job_id WHERE s.id = sample_id AND j.name = 'narrow'"
    )
    said = await refused(sums_api, "/v1/comparison", 409, job=["wide", "narrow"], measure="answer@1")
    assert "it ran before answers were looked for" in said["detail"]
    assert (await sums_api.get(f"/v1/jobs/{measured_jobs[1]}/report"))["answer_at"] == {}
    assert (await sums_api.get("/v1/comparison", job=["wide", "narrow"], measure="score"))["pairs"][0]["items"] == 8


async def test_an_outcome_that_cannot_be_read_hides_no_other(
    sums_api: Api, measured_jobs: list[uuid.UUID], plant: Plant
) -> None:
    await plant(
        "UPDATE outcomes SET outcome = 'no JSON' FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND j.name = 'narrow' AND s.ordinal = 3"
    )
    found = await sums_api.get("/v1/comparison", job=["wide", "narrow"], measure="score")
    assert (found["pairs"][0]["items"], found["pairs"][0]["left_only"], len(measured_jobs)) == (7, 1, 2)
