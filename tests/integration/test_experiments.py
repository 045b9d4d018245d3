"""Experiments: submitted whole or not at all, shared where cells ask the same, cancelled, resumed, reported."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from services.orchestrator.scheduling import demands
from shared.calls import Request
from shared.pipelines import registry
from shared.replies import Failure, FailureKind, Reply
from shared.runtime import purge
from shared.runtime import submit as submitting
from shared.runtime.lifecycle import finish_due_jobs
from shared.settings import Limits
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.test_requeue import requests

pytestmark = pytest.mark.anyio

PATH = "/v1/experiments"
JUDGE = {"gate": {"min_pairs": 1000}, **scene.QUALITY_ALONE}
"""Too few pairs to trust rules: the judge scores."""
PLACE = {"dataset": "items", "corpus": "docs"}
PAIR: dict[str, Any] = {
    "name": "pair", "datasets": [PLACE], "baseline": "closed",
    "variants": [{"name": "closed", "pipeline": "closed-book"}, {"name": "dense", "pipeline": "dense"}],
}  # fmt: skip
WEIGHTS: dict[str, Any] = {
    "name": "weights", "datasets": [PLACE], "grid": {"rrf_weight": [0, 1, 2], "quality_weight": [0, 1, 2]},
    "variants": [{"name": "gate", "pipeline": "mathrag-gate", "params": JUDGE}],
}  # fmt: skip


async def submitted(api: Api, body: Any = PAIR, *, status: int = 202, key: str | None = None) -> Any:
    reply = await api.http.post(PATH, json=body, headers={"Idempotency-Key": key} if key else {})
    assert reply.status_code == status, reply.text
    return reply.json()


async def changed(api: Api, verb: str, name: str = "pair") -> Any:
    reply = await api.http.post(f"{PATH}/{name}/{verb}")
    assert reply.status_code == 202, reply.text
    return reply.json()


async def test_every_variant_is_a_job_and_every_cell_knows_its_own(api: Api, database: Database) -> None:
    made = await submitted(api)
    assert (made["state"], made["cells"], made["jobs"]) == ("running", 2, {"running": 2})
    assert [(cell["variant"], cell["job_name"]) for cell in made["grid"]] == [
        ("closed", "pair-closed-1"), ("dense", "pair-dense-2"),
    ]  # fmt: skip
    assert api.woken
    jobs = (await api.get("/v1/jobs", experiment="pair"))["data"]
    assert {job["id"] for job in jobs} == {cell["job"] for cell in made["grid"]}
    assert {job["experiment"] for job in jobs} == {"pair"}
    await finished(database)
    found = await api.get(f"{PATH}/{made['id'][:8]}")
    assert (found["state"], found["jobs"], found["ended_at"] is None) == ("completed", {"completed": 2}, False)
    assert found["request_counts"]["completed"] == 10


async def test_the_weight_grid_makes_no_judge_call_beyond_the_first_job_and_generates_for_new_contexts_only(
    api: Api, database: Database
) -> None:
    made = await submitted(api, WEIGHTS)
    assert (made["cells"], made["refused"], sum(made["jobs"].values())) == (9, 1, 5)
    executor = scene.ScriptedExecutor()
    await scene.drain(database, executor)
    assert set(await scene.job_states(database)) == {"completed"}
    assert set(executor.ran.values()) == {1}
    alone = await scene.submit_job(database, params=JUDGE)
    await scene.drain(database, executor)
    created = "SELECT count(*) FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
    judged = await scene.scalar(database, "SELECT count(*) FROM calls WHERE role = 'judge'")
    asked = await scene.scalar(
        database, f"{created} JOIN calls c ON c.id = t.call_id WHERE j.public_id = :j AND c.role = 'judge'"
        " AND s.kind = 'item'", j=alone,
    )  # fmt: skip
    assert 0 < judged <= asked  # type: ignore[operator]
    prompts = Counter(str(request.values) for request in await requests(database, "generate"))
    assert set(prompts.values()) == {1}
    assert 5 <= len(prompts) <= 25


@pytest.mark.parametrize("path", [PATH, f"{PATH}/plan"])
async def test_the_event_loop_of_the_schedulers_runs_no_job_dry(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    threads: list[int] = []

    def noting(work: Any) -> Any:
        def noted(*given: Any) -> Any:
            threads.append(threading.get_ident())
            return work(*given)

        return noted

    for module, name in ((submitting, "dry_run"), (registry, "pipeline_hash"), (demands, "dry_rounds")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    assert (await api.http.post(path, json=WEIGHTS)).status_code in (200, 202)
    assert threads
    assert threading.get_ident() not in threads


async def test_cells_of_one_ratio_show_one_result(api: Api, database: Database) -> None:
    await submitted(api, WEIGHTS)
    await finished(database)
    said = await api.get(f"{PATH}/weights/report")
    rows = {(row["point"]["rrf_weight"], row["point"]["quality_weight"]): row for row in said["rows"]}
    assert len(rows) == 9
    assert rows[1, 1]["job"] == rows[2, 2]["job"]
    assert rows[1, 1]["result"] == rows[2, 2]["result"]
    assert rows[1, 1]["job"] != rows[1, 2]["job"]
    assert (rows[0, 0]["state"], rows[0, 0]["result"], "both 0" in rows[0, 0]["refused"]) == ("refused", None, True)
    assert said["notes"] == [
        "3 cells share the job of another cell with the same request", "1 cell was not run; `refused` says why",
    ]  # fmt: skip


async def test_a_row_says_what_its_jobs_report_says(api: Api, database: Database) -> None:
    await submitted(api, {**WEIGHTS, "grid": {"gate.tau": [0.1, 0.9]}})
    await finished(database)
    said = await api.get(f"{PATH}/weights/report")
    total: Counter[str] = Counter()
    for row in said["rows"]:
        job = await api.get(f"/v1/jobs/{row['job']}/report")
        same = ("accuracy", "request_counts", "failures", "calls_made", "calls_reused", "model_loads", "seconds")
        assert {field: row["result"][field] for field in same} == {field: job[field] for field in same}
        assert row["result"]["gate"]["tau"] == row["point"]["gate.tau"] == job["gate"]["tau"]
        total.update(job["calls_made"])
    assert said["calls_made"] == {role: count for role, count in total.items() if count} | {
        role: 0 for role, count in total.items() if not count
    }
    assert said["model_loads"] == 2


async def test_the_same_request_again_is_the_same_experiment(api: Api, database: Database) -> None:
    first = await submitted(api, key="k")
    again = await submitted(api, key="k")
    assert (again["id"], again["grid"]) == (first["id"], first["grid"])
    assert (await submitted(api, {**PAIR, "repeats": 2}, key="k", status=422))["type"].endswith("mismatch")
    taken = await submitted(api, status=409)
    assert (taken["detail"], "resume" in taken["hint"]) == ("`name`: there is an experiment 'pair' already", True)
    assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 2
    await finished(database)
    for cell in first["grid"]:
        assert (await api.get(f"/v1/jobs/{cell['job']}/audit"))["violations"] == []


async def test_a_submission_that_is_killed_before_its_commit_leaves_nothing(api: Api, database: Database) -> None:
    async with scene.processes(database, 1) as [other]:
        held = scene.HeldDatabase(other)
        app = api.http._transport.app  # type: ignore[attr-defined]
        deps = app.state.deps
        app.state.deps = type(deps)(**{**vars(deps), "database": held})
        asking = asyncio.create_task(submitted(api))
        await held.reached.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        app.state.deps = deps
    assert await scene.rows(
        database, "SELECT (SELECT count(*) FROM experiments), (SELECT count(*) FROM jobs),"
        " (SELECT count(*) FROM experiment_cells), (SELECT count(*) FROM samples)",
    ) == [(0, 0, 0, 0)]  # fmt: skip
    await submitted(api)


async def test_what_cannot_run_is_refused_with_its_field_and_nothing_is_made(
    api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    for change, status, said in (
        ({"datasets": [{"dataset": "none"}]}, 404, "no dataset 'none'"),
        ({"datasets": [{"dataset": "items"}]}, 422, "`corpus`: pipeline 'dense' needs one"),
        ({"models": {"judge": "nobody"}}, 422, "`models.judge`"),
        (
            {"variants": [{"name": "closed", "pipeline": "none"}]},
            422,
            "`variants.closed`: `pipeline`: no pipeline 'none'",
        ),
        ({"grid": {"gate.tua": [1]}}, 422, "`grid.gate.tua`: unknown parameter"),
        ({"grid": {"context_size": []}}, 422, "`grid.context_size`"),
        (
            {"grid": {"generate.max_tokens": [*range(1, 502)]}},
            413,
            "1002 cells, more than `limits.cells` allows (1000)",
        ),
        ({"baseline": "other"}, 422, "`baseline`: unknown variant 'other'"),
        ({"no_such_field": 1}, 422, "`no_such_field`"),
    ):
        with subtests.test(change=change):
            refused = await submitted(api, {**PAIR, **change}, status=status)
            assert said in refused["detail"]
            assert await scene.scalar(database, "SELECT count(*) FROM experiments") == 0
            assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 0


@pytest.mark.parametrize(("live", "status", "kind"), [(1, 413, "too_large"), (2, 429, "too_many")])
async def test_all_jobs_of_an_experiment_count_for_the_operators_limit(
    database: Database, redis_url: str, live: int, status: int, kind: str
) -> None:
    await scene.furnish(database)
    settings = scene.SETTINGS.model_copy(update={"limits": Limits(live_jobs=live)})
    async with serving(database, redis_url, settings) as api:
        if status == 429:
            await api.job()
        assert (await submitted(api, status=status))["type"] == f"urn:mathrag:{kind}"
    assert await scene.scalar(database, "SELECT count(*) FROM experiments") == 0


async def test_a_cancel_ends_every_job_that_has_not_ended(api: Api, database: Database) -> None:
    await submitted(api, {**PAIR, "name": "before"})
    await finished(database)
    await submitted(api, {**PAIR, "params": {"generate": {"max_tokens": 7}}})
    assert (await changed(api, "cancel"))["state"] == "cancelling"
    await changed(api, "cancel")
    await changed(api, "cancel", "before")
    await finish_due_jobs(database)
    assert (await api.get(f"{PATH}/pair"))["jobs"] == {"cancelled": 2}
    assert (await api.get(f"{PATH}/before"))["jobs"] == {"completed": 2}
    assert [row["state"] for row in (await api.get(PATH))["data"]] == ["cancelled", "completed"]


async def test_a_resume_after_a_cancel_runs_what_was_cancelled(api: Api, database: Database) -> None:
    made = await submitted(api)
    await changed(api, "cancel")
    await finish_due_jobs(database)
    again = await changed(api, "resume")
    assert {cell["job"] for cell in again["grid"]}.isdisjoint(cell["job"] for cell in made["grid"])
    await finished(database)
    found = await api.get(f"{PATH}/pair")
    assert (found["state"], found["jobs"]) == ("completed", {"completed": 2})
    assert len((await api.get("/v1/jobs", experiment="pair"))["data"]) == 4


async def test_a_resume_after_a_failed_job_repeats_nothing_that_was_done(api: Api, database: Database) -> None:
    failing = scene.ScriptedExecutor(_dense_generation_times_out)
    made = await submitted(api)
    for _ in range(6):
        await scene.drain(database, failing)
        await scene.let_pauses_pass(database)
    before = await api.get(f"{PATH}/pair")
    assert (before["state"], before["request_counts"]["failed"]) == ("completed", 5)
    again = await changed(api, "resume")
    assert [cell["job"] == old["job"] for cell, old in zip(again["grid"], made["grid"], strict=True)] == [True, False]
    executor = scene.ScriptedExecutor()
    await scene.drain(database, executor)
    roles = dict(await scene.rows(database, "SELECT key, role FROM calls WHERE NOT failed"))  # type: ignore[arg-type]
    assert set(Counter(roles[key] for key in executor.ran)) <= {"generate", "grade"}
    assert Counter(roles[key] for key in executor.ran)["generate"] == 5
    found = await api.get(f"{PATH}/pair")
    assert (found["state"], found["request_counts"]["completed"]) == ("completed", 10)
    assert (await changed(api, "resume"))["grid"] == found["grid"]


def _dense_generation_times_out(request: Request) -> Reply:
    if request.role == "generate" and request.values.get("context"):
        return Failure(kind=FailureKind.TIMEOUT, detail="too slow")
    return scene.by_rule(request)


async def test_an_experiment_outlives_its_jobs_until_the_last_is_purged(
    api: Api, database: Database, owner: Database
) -> None:
    made = await submitted(api)
    await finished(database)
    for left, cell in enumerate(reversed(made["grid"])):
        for job in await purge.find_jobs(owner, [cell["job"]]):
            await purge.purge(owner, job, "a-test")
        await purge.delete_unused(owner, "a-test")
        assert await scene.scalar(database, "SELECT count(*) FROM experiments") == 1 - left
        if left == 0:
            found = await api.get(f"{PATH}/pair/report")
            assert [row["state"] for row in found["rows"]] == ["completed", "purged"]
            assert found["notes"] == ["1 cell has a job that was purged"]
            assert (await changed(api, "resume"))["jobs"] == {"completed": 1}


async def test_experiments_are_listed_page_by_page(api: Api) -> None:
    for name in ("one", "two", "three"):
        await submitted(api, {**PAIR, "name": name})
    first = await api.get(PATH, limit=2)
    assert [(row["name"], row["cells"], "grid" in row) for row in first["data"]] == [
        ("three", 2, False), ("two", 2, False),
    ]  # fmt: skip
    rest = await api.get(PATH, limit=2, cursor=first["next_cursor"])
    assert ([row["name"] for row in rest["data"]], rest["next_cursor"]) == (["one"], None)
    assert (await api.http.get(f"{PATH}/nobody")).status_code == 404


# Pilots: an experiment over questions drawn from a dataset, whose report recommends a variant.


async def pilot(api: Api, *, status: int = 202, **fields: Any) -> Any:
    reply = await api.http.post(f"{PATH}/pilot", json={"dataset": "items", "corpus": "docs", **fields})
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_a_pilot_asks_drawn_questions_and_keeps_the_others_apart(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 50, "many")
    made = await pilot(api, dataset="many", questions=20, variants=[{"name": "closed", "pipeline": "closed-book"}])
    assert (made["name"], made["rest"], made["baseline"]) == ("pilot-many", "pilot-many-rest", "hybrid")
    assert [(cell["variant"], cell["dataset"]) for cell in made["grid"]] == [
        ("hybrid", "pilot-many"), ("closed", "pilot-many"),
    ]  # fmt: skip
    assert made["request_counts"]["total"] == 40
    parts = [(await api.get(f"/v1/datasets/{name}/items", limit=50))["data"] for name in ("pilot-many", made["rest"])]
    drawn, rest, whole = ([each["question"] for each in part] for part in (*parts, await items_of(api, "many")))
    assert (len(drawn), set(drawn) | set(rest)) == (20, set(whole))
    assert [each for each in whole if each in drawn] == drawn != whole[:20]


async def items_of(api: Api, dataset: str) -> Any:
    return (await api.get(f"/v1/datasets/{dataset}/items", limit=100))["data"]


async def test_a_pilot_asks_a_small_dataset_as_a_whole_and_recommends_a_variant_at_its_end(
    api: Api, database: Database
) -> None:
    made = await pilot(api, variants=[{"name": "closed", "pipeline": "closed-book"}])
    assert (made["rest"], {cell["dataset"] for cell in made["grid"]}) == (None, {"items"})
    report = f"{PATH}/pilot-items/report"
    assert (await api.get(report))["recommendation"] is None
    await finished(database)
    found = (await api.get(report))["recommendation"]
    assert (found["variant"], found["pipeline"], found["separable"]) == ("hybrid", "hybrid", False)
    assert found["words"].startswith("no variant is separable from hybrid on 5 questions: use hybrid")
    assert found["words"].endswith("Model calls for each of these questions: hybrid 1 generate")
    assert found["words"].rstrip(".") in (await api.http.get("/experiments/pilot-items")).text


async def test_candidates_that_cannot_run_here_are_left_out_with_the_reason(
    api: Api, database: Database, redis_url: str
) -> None:
    made = await pilot(api)
    assert {"hybrid", "dense", "quality-rules", "relevance"} <= {cell["variant"] for cell in made["grid"]}
    settings = scene.SETTINGS.model_copy(update={"roles": {"generate": "a-generator"}})
    async with serving(database, redis_url, settings) as without_judge:
        made = await pilot(without_judge, name="other")
        assert {"quality-judge", "relevance", "crag"} <= made["left_out"].keys()
        assert "judge" in made["left_out"]["crag"]
        tried = [cell["variant"] for cell in made["grid"]]
        assert ("hybrid" in tried, tried) == (True, [name for name in tried if name not in made["left_out"]])
        wanted = [{"name": "gate", "pipeline": "mathrag-gate"}]
        assert "judge" in (await pilot(without_judge, name="third", variants=wanted, status=422))["detail"]


async def test_a_pilot_that_cannot_be_run_is_refused(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 50, "many")
    assert "`params.nonsense`" in (await pilot(api, dataset="many", params={"nonsense": 1}, status=422))["detail"]
    assert "nobody" in (await pilot(api, dataset="many", corpus="nobody", status=404))["detail"]
    assert (await api.http.get("/v1/datasets/pilot-many")).status_code == 404, "nothing is drawn for it"
    refused = await pilot(api, models={"judge": "nobody"}, status=422)
    assert "`models.judge`: no guard serves a model 'nobody'" in refused["detail"]
    assert "`questions`" in (await pilot(api, questions=19, status=422))["detail"]
    alone = await pilot(api, variants=[{"name": "hybrid", "pipeline": "hybrid"}], status=422)
    assert "`variants`: there is nothing to compare hybrid with" in alone["detail"]
    await scene.add_dataset(database, 5, "long" * 20)
    assert "`name`: no pilot can be called" in (await pilot(api, dataset="long" * 20, status=422))["detail"]
    assert "nobody" in (await pilot(api, dataset="nobody", status=404))["detail"]
    await scene.without_gold(database)
    assert "has no gold answers to compare pipelines by" in (await pilot(api, status=422))["detail"]
    made = await pilot(api, params={"metrics": {"names": ["faithfulness"]}})
    assert "the pipeline searches nothing" in made["left_out"]["closed-book"]


async def test_a_pilot_with_the_same_key_is_made_once(api: Api) -> None:
    body = {"dataset": "items", "corpus": "docs", "variants": [{"name": "closed", "pipeline": "closed-book"}]}
    replies = [await api.http.post(f"{PATH}/pilot", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [202, 202]
    assert replies[0].json()["id"] == replies[1].json()["id"]
    assert (await api.http.post(f"{PATH}/pilot", json=body)).status_code == 409


async def test_a_pilot_sent_again_is_answered_as_before_whatever_has_changed(
    api: Api, database: Database, redis_url: str
) -> None:
    await scene.add_dataset(database, 50, "many")
    body = {"dataset": "many", "corpus": "docs", "questions": 20}
    once = {"Idempotency-Key": "k"}
    first = (await api.http.post(f"{PATH}/pilot", json=body, headers=once)).json()
    settings = scene.SETTINGS.model_copy(update={"roles": {}})
    async with serving(database, redis_url, settings) as without_models:
        assert (await without_models.http.post(f"{PATH}/pilot", json={**body, "name": "new"})).status_code == 422
        again = await without_models.http.post(f"{PATH}/pilot", json=body, headers=once)
        assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true")
        same = ("id", "rest", "left_out")
        assert [again.json()[field] for field in same] == [first[field] for field in same]
        other = await without_models.http.post(f"{PATH}/pilot", json={**body, "seed": 1}, headers=once)
        assert "was sent with another request" in other.json()["detail"]


async def planned(api: Api, body: Any, status: int = 200) -> Any:
    reply = await api.http.post(f"{PATH}/plan", json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_a_plan_says_cells_jobs_and_calls_and_makes_nothing(api: Api, database: Database) -> None:
    whole = {**WEIGHTS, "grid": {name: list(range(11)) for name in ("rrf_weight", "quality_weight")}}
    found = await planned(api, whole)
    assert (found["cells"], found["refused"], found["jobs"], found["samples"]) == (121, 1, 65, 65 * 5)
    assert "of 121 pairs of weights 120 have a ratio, and 65 ratios are distinct" in found["notes"]
    one = await planned(api, {**WEIGHTS, "grid": {}})
    assert found["calls"]["judge"]["most"] == one["calls"]["judge"]["most"] == 20
    assert found["calls"]["generate"] == {"most": 65 * 5, "apart": 65 * 5}
    calls = {
        model["name"]: model["calls"] for each in found["plan"]["chosen"]["residencies"] for model in each["models"]
    }
    assert calls == {"a-judge": 20, "a-generator": 65 * 5}
    assert {"loads", "seconds", "basis"} <= found["plan"]["chosen"].keys()
    tables = ("experiments", "experiment_cells", "jobs", "samples", "calls")
    assert [await scene.scalar(database, f"SELECT count(*) FROM {table}") for table in tables] == [0] * 5  # noqa: S608


async def test_no_role_makes_more_calls_than_were_planned(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 4, "others", changed=frozenset({1}))
    body = {
        **WEIGHTS, "datasets": [PLACE, {"dataset": "others", "corpus": "docs"}], "repeats": 2, "baseline": "dense",
        "variants": [*PAIR["variants"], *WEIGHTS["variants"]], "params": {"generate": {"temperature": 0.7}},
    }  # fmt: skip
    found = await planned(api, body)
    await submitted(api, body)
    await finished(database)
    made = dict(await scene.rows(database, "SELECT role, count(*) FROM calls WHERE role <> 'grade' GROUP BY role"))  # type: ignore[arg-type]
    assert made.keys() == found["calls"].keys()
    assert all(made[role] <= calls["most"] <= calls["apart"] for role, calls in found["calls"].items())
    said = await api.get(f"{PATH}/weights/report")
    assert list(said["comparisons"]["datasets"]) == ["items", "others"]
    assert said["comparisons"]["pooled"]["baseline"] == "dense"
    assert {pair["items"] for pair in said["comparisons"]["pooled"]["pairs"]} == {9}
    assert len(said["comparisons"]["pooled"]["pairs"]) == 1 + 5


async def test_a_plan_refuses_what_a_submission_would(api: Api) -> None:
    refused = await planned(api, {**PAIR, "datasets": [{"dataset": "items"}]}, 422)
    assert refused["detail"].startswith("`corpus`: pipeline 'dense' needs one")
    assert "(job pair-dense-2)" in refused["detail"]


async def test_an_experiment_that_reuses_nothing_computes_every_job_and_every_repeat_anew(
    api: Api, database: Database
) -> None:
    body = {**PAIR, "repeats": 2, "reuse": "none"}
    both = [{"name": name, "pipeline": name} for name in ("dense", "hybrid")]
    shared = await planned(api, {**body, "variants": both, "baseline": None, "reuse": "all"})
    found = await planned(api, {**body, "variants": both, "baseline": None})
    assert (shared["calls"]["retrieve"]["most"], found["calls"]["retrieve"]) == (10, {"most": 15, "apart": 15})
    assert any("nothing is shared" in note for note in found["notes"])
    await submitted(api, body)
    await finished(database)
    assert {job["reuse"] for job in (await api.get("/v1/jobs", experiment="pair"))["data"]} == {"none"}
    made = dict(await scene.rows(database, "SELECT role, count(*) FROM calls WHERE role <> 'grade' GROUP BY role"))  # type: ignore[arg-type]
    assert made == {"retrieve": 5, "generate": 20}
