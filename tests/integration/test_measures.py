"""Jobs that search narrowly and widely, compared by every measure: verdicts, exact matches, token F1, answers found."""

import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.audit import check
from shared.calls import Request, Rules
from shared.rag.grading import mark
from shared.replies import Generated, Hit, Reply, Retrieved
from shared.storage.database import Database
from tests.integration.api import Api, serving
from tests.integration.conftest import Plant
from tests.integration.scene import DOCUMENTS, ScriptedExecutor, by_rule, furnish
from tests.integration.test_audit import staged

pytestmark = pytest.mark.anyio

SUMS = [{"question": f"Which sum is number {n}?", "gold": f"{n} plus {n}"} for n in range(8)]
GRADING = {"grader": "f1", "threshold": 0.9}
WIDE, NARROW = 5, 1


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await furnish(database)
    async with serving(database, redis_url) as started:
        made = await started.upload("datasets", "sums", SUMS, grader="f1")
        assert made.status_code == 201
        yield started


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


async def submitted(api: Api, name: str, candidates: int, **grading: object) -> uuid.UUID:
    job = await api.job(
        name=name, dataset="sums", corpus="docs", pipeline="dense", params=params(candidates, **grading)
    )
    return uuid.UUID(job["id"])


async def refused(api: Api, path: str, status: int, **query: Any) -> Any:
    reply = await api.http.get(path, params=query)
    assert reply.status_code == status, reply.text
    return reply.json()


@pytest.fixture
async def jobs(api: Api, database: Database) -> list[uuid.UUID]:
    made = [await submitted(api, "wide", WIDE), await submitted(api, "narrow", NARROW)]
    await staged(database, ScriptedExecutor(world))
    return made


MEASURES = {
    "accuracy": (4 / 8, 0.0, 4, 2 / 2**4),
    "exact": (4 / 8, 0.0, 4, 2 / 2**4),
    "score": ((4 + 4 * 2 / 3) / 8, 1 / 2, 8, 2 / 2**8),
    "answer@1": (1 / 8, 1 / 8, 0, 1.0),
    "answer@5": (5 / 8, 1 / 8, 4, 2 / 2**4),
}


@pytest.mark.parametrize("measure", MEASURES)
async def test_jobs_are_compared_by_a_measure(api: Api, jobs: list[uuid.UUID], measure: str) -> None:
    wide, narrow, gained, p = MEASURES[measure]
    found = await api.get("/v1/comparison", job=["wide"], baseline="narrow", measure=measure)
    by_name = {each["name"]: each for each in found["jobs"]}
    [pair] = found["pairs"]
    assert (found["measure"], len(jobs)) == (measure, 2)
    for name, value in (("wide", wide), ("narrow", narrow)):
        job = by_name[name]
        assert job["items"] == job["measured"]["n"] == 8
        same = (job["measured"]["value"], job["bootstrap"]["value"], job["repeats"]["mean"])
        assert same == pytest.approx((value,) * 3, abs=1e-6)
    assert by_name["wide"]["accuracy"]["value"] == 0.5
    assert (pair["items"], pair["gained"], pair["lost"]) == (8, gained, 0)
    assert pair["difference"]["value"] == pytest.approx(wide - narrow, abs=1e-6)
    assert (pair["p"], pair["adjusted"]) == pytest.approx((p, p))


async def test_the_figures_of_a_measure_are_those_of_the_report(api: Api, jobs: list[uuid.UUID]) -> None:
    report = await api.get(f"/v1/jobs/{jobs[0]}/report")
    assert report["settings"]["params"]["candidates"] == WIDE
    assert list(report["answer_at"]) == ["answer@1", "answer@5"]
    for measure, figure in (("exact", report["strict"]), *report["answer_at"].items()):
        found = await api.get("/v1/comparison", job=["wide", "narrow"], measure=measure)
        assert {name: found["jobs"][0]["measured"][name] for name in ("value", "low", "high")} == {
            name: figure[name] for name in ("value", "low", "high")
        }
    assert found["jobs"][0]["bootstrap"] == figure["bootstrap"]
    scored = await api.get("/v1/comparison", job=["wide", "narrow"], measure="score")
    assert scored["jobs"][0]["measured"] == pytest.approx(report["score"]["mean"], abs=1e-5)


async def test_ranks_of_answers_are_replayed(database: Database, jobs: list[uuid.UUID]) -> None:
    for job in jobs:
        assert await check(database, job) == []


async def test_a_job_that_was_not_measured_is_refused_with_the_reason(api: Api, database: Database) -> None:
    await submitted(api, "words", NARROW, grader="text")
    await submitted(api, "scores", WIDE)
    await submitted(api, "patterns", NARROW, grader="regex")
    await api.job(name="closed", dataset="sums", pipeline="closed-book", params={"grading": GRADING})
    await staged(database, ScriptedExecutor(world))
    for name, measure, why in (
        ("words", "score", "its grader (text) gives no scores, only verdicts; `f1` and `set` give scores"),
        ("patterns", "exact", "its grader (regex) does not report exact matches"),
        ("patterns", "answer@5", "its grader (regex) is not one of exact, text, contains, f1, set"),
        ("closed", "answer@5", "it searches nothing"),
    ):
        said = await refused(api, "/v1/comparison", 409, job=[name], baseline="scores", measure=measure)
        assert said["detail"].startswith(f"job '{name}' was not measured by `{measure}`: ")
        assert why in said["detail"]
        assert "choose another `measure`" in said["hint"]
        assert (await api.get("/v1/comparison", job=[name], baseline="scores"))["pairs"][0]["items"] == 8


async def test_scores_of_two_kinds_are_not_compared(api: Api, database: Database) -> None:
    await submitted(api, "f1", WIDE)
    await submitted(api, "set", WIDE, grader="set")
    said = await refused(api, "/v1/comparison", 409, job=["f1", "set"], measure="score")
    assert "of job 'f1' it is token F1; of job 'set' it is F1 of the sets" in said["detail"]


async def test_an_unknown_measure_is_refused(api: Api) -> None:
    for path, query in (("/v1/comparison", {"job": ["a", "b"]}), ("/v1/experiments/none/report", {})):
        said = await refused(api, path, 422, measure="recall", **query)
        assert "there is no measure 'recall': name one of accuracy, exact, score, answer@K" in said["detail"]


EXPERIMENT: dict[str, Any] = {
    "name": "widths", "datasets": [{"dataset": "sums", "corpus": "docs"}], "baseline": "narrow",
    "variants": [
        {"name": "narrow", "pipeline": "dense", "params": params(NARROW)},
        {"name": "wide", "pipeline": "dense", "params": params(WIDE)},
        {"name": "closed", "pipeline": "closed-book", "params": {"grading": GRADING}},
    ],
}  # fmt: skip


async def test_an_experiment_is_reported_by_a_measure(api: Api, database: Database) -> None:
    made = await api.http.post("/v1/experiments", json=EXPERIMENT)
    assert made.status_code == 202, made.text
    await staged(database, ScriptedExecutor(world))
    found = await api.get("/v1/experiments/widths/report", measure="answer@5")
    assert found["measure"] == found["comparisons"]["pooled"]["measure"] == "answer@5"
    assert [row["result"]["measured"]["value"] for row in found["rows"]] == [1 / 8, 5 / 8, None]
    by_left = {pair["left"]: pair for pair in found["comparisons"]["pooled"]["pairs"]}
    assert (by_left["wide"]["items"], by_left["wide"]["gained"]) == (8, 4)
    assert by_left["closed"]["words"].startswith("nothing to compare")
    assert (await api.get("/v1/experiments/widths/report"))["measure"] == "accuracy"


async def test_an_outcome_of_before_was_not_measured(api: Api, jobs: list[uuid.UUID], plant: Plant) -> None:
    await plant(
        "UPDATE outcomes SET outcome = convert_to(regexp_replace("
        " convert_from(outcome, 'UTF8'), ',\"answer_rank\":(null|[0-9]+)', ''), 'UTF8')"
        " FROM samples s JOIN jobs j ON j.id = s.job_id WHERE s.id = sample_id AND j.name = 'narrow'"
    )
    said = await refused(api, "/v1/comparison", 409, job=["wide", "narrow"], measure="answer@1")
    assert "it ran before answers were looked for" in said["detail"]
    assert (await api.get(f"/v1/jobs/{jobs[1]}/report"))["answer_at"] == {}
    assert (await api.get("/v1/comparison", job=["wide", "narrow"], measure="score"))["pairs"][0]["items"] == 8


async def test_an_outcome_that_cannot_be_read_hides_no_other(api: Api, jobs: list[uuid.UUID], plant: Plant) -> None:
    await plant(
        "UPDATE outcomes SET outcome = 'no JSON' FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND j.name = 'narrow' AND s.ordinal = 3"
    )
    found = await api.get("/v1/comparison", job=["wide", "narrow"], measure="score")
    assert (found["pairs"][0]["items"], found["pairs"][0]["left_only"], len(jobs)) == (7, 1, 2)
