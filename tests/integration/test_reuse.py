"""What is asked twice is answered once: which calls a job makes depends on what is new in it, and on nothing else."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from shared import canonical
from shared.calls import Request
from shared.storage.database import Database
from tests.integration.scene import (
    ScriptedExecutor,
    add_dataset,
    drain,
    furnish,
    job_states,
    rows,
    run_sql,
    scalar,
    submit_job,
)

pytestmark = pytest.mark.anyio

GATE = {"gate": {"min_pairs": 1000}}
"""Too few pairs to trust rules: the judge scores, in every job alike."""


async def calls_of(database: Database, pipeline: str = "mathrag-gate", **fields: Any) -> Counter[str]:
    executor = ScriptedExecutor()
    await submit_job(database, pipeline, **fields)
    await drain(database, executor)
    assert set(await job_states(database)) == {"completed"}
    assert set(executor.ran.values()) <= {1}
    roles = dict(await rows(database, "SELECT key, role FROM calls"))  # type: ignore[arg-type]
    return Counter(str(roles[key]) for key in executor.ran)


async def requests(database: Database, role: str) -> list[Request]:
    found = await rows(database, "SELECT request FROM calls WHERE role = :r ORDER BY created_at", r=role)
    return [msgspec.json.decode(request, type=Request) for (request,) in found]  # type: ignore[arg-type]


async def answers_of(database: Database, name: str) -> list[tuple[object, ...]]:
    return await rows(
        database,
        "SELECT s.ordinal, s.repeat, o.answer, o.record_hash FROM jobs j JOIN samples s ON s.job_id = j.id"
        " JOIN outcomes o ON o.sample_id = s.id WHERE j.name = :n AND s.kind = 'item' ORDER BY 1, 2",
        n=name,
    )


async def test_the_same_job_again_makes_no_call(database: Database) -> None:
    await furnish(database, items=4)
    first = await calls_of(database, params=GATE, name="first")
    assert first["generate"] == 4
    assert first["retrieve"] == 8
    assert await calls_of(database, params=GATE, name="second") == {}
    assert await answers_of(database, "first") == await answers_of(database, "second")
    assert (
        await scalar(
            database,
            "SELECT count(*) FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id"
            " WHERE j.name = 'second' AND t.created",
        )
        == 0
    )


async def test_a_job_with_three_changed_items_makes_their_calls_only(database: Database) -> None:
    await furnish(database, items=8)
    await calls_of(database, params=GATE)
    await add_dataset(database, 8, "changed", changed=frozenset({1, 4, 6}))
    judged = {canonical.digest(request) for request in await requests(database, "judge")}
    again = await calls_of(database, params=GATE, dataset="changed")
    assert (again["retrieve"], again["generate"]) == (6, 3)
    new = {canonical.digest(request) for request in await requests(database, "judge")} - judged
    assert again["judge"] == len(new)
    asked = [request.values["question"] for request in (await requests(database, "generate"))[-3:]]
    assert sorted(map(str, asked)) == [f"What is {n} plus {n} really?" for n in (1, 4, 6)]


async def test_a_changed_anchor_makes_every_judgement_new_and_no_search(database: Database) -> None:
    await furnish(database, items=5)
    first = await calls_of(database, params=GATE, name="first")
    old = {canonical.digest(request) for request in await requests(database, "judge")}
    second = await calls_of(database, params={**GATE, "anchors": {"negative": "A guess: 7."}}, name="second")
    assert second["judge"] == first["judge"] > 0
    assert second["retrieve"] == 0
    prompts = {msgspec.json.encode(request.values, order="sorted") for request in await requests(database, "generate")}
    assert first["generate"] + second["generate"] == len(prompts)
    judged = await requests(database, "judge")
    new = [request for request in judged if canonical.digest(request) not in old]
    assert {request.values["negative"] for request in new} == {"A guess: 7."}
    assert {str(request.values["document"]) for request in judged if canonical.digest(request) in old} == {
        str(request.values["document"]) for request in new
    }


async def test_five_greedy_repeats_execute_the_calls_of_one(database: Database) -> None:
    await furnish(database, items=3)
    five = await calls_of(database, params=GATE, repeats=5, name="five")
    assert await scalar(database, "SELECT count(*) FROM steps WHERE created") == five.total()
    assert await scalar(database, "SELECT count(*) FROM samples WHERE kind = 'item' AND state = 2") == 15
    assert await calls_of(database, params=GATE, name="one") == {}
    assert five["generate"] == 3
    assert five["retrieve"] == 6


async def test_five_sampled_repeats_generate_five_times_and_judge_once(database: Database) -> None:
    await furnish(database, items=3)
    sampled = {**GATE, "generate": {"temperature": 0.7}}
    five = await calls_of(database, params=sampled, repeats=5)
    assert five["generate"] == 15
    assert five["retrieve"] == 6
    drawn = Counter((str(r.values["question"]), r.draw) for r in await requests(database, "generate"))
    assert drawn == Counter({(f"What is {n} plus {n}?", draw): 1 for n in range(3) for draw in range(5)})
    judged = Counter(str(request.values["document"]) for request in await requests(database, "judge"))
    assert set(judged.values()) == {1}
    assert {request.draw for request in await requests(database, "judge")} == {0}


async def test_more_repeats_later_make_the_missing_draws_only(database: Database) -> None:
    await furnish(database, items=2)
    sampled = {"generate": {"temperature": 0.7}}
    assert (await calls_of(database, "closed-book", params=sampled, repeats=2))["generate"] == 4
    assert (await calls_of(database, "closed-book", params=sampled, repeats=4))["generate"] == 4


async def test_a_job_without_reuse_shares_nothing(database: Database) -> None:
    await furnish(database, items=2)
    first = await calls_of(database, "hybrid")
    assert await calls_of(database, "hybrid", reuse="none") == first
    assert await calls_of(database, "hybrid", reuse="none") == first
    assert await calls_of(database, "hybrid") == {}


async def test_repeats_without_reuse_are_drawn_each_for_itself(database: Database) -> None:
    await furnish(database, items=2)
    assert (await calls_of(database, "closed-book", reuse="none", repeats=3))["generate"] == 6


async def test_pipelines_share_what_they_ask_alike(database: Database) -> None:
    await furnish(database, items=3)
    assert (await calls_of(database, "dense"))["retrieve"] == 3
    assert (await calls_of(database, "sparse"))["retrieve"] == 3
    assert (await calls_of(database, "hybrid"))["retrieve"] == 0
    assert (await calls_of(database, params=GATE))["retrieve"] == 0


async def test_a_model_without_a_digest_is_reused_inside_its_job_only(database: Database) -> None:
    await furnish(database, items=2)
    await run_sql(database, "UPDATE models SET digest = NULL WHERE name = 'a-generator'")
    assert (await calls_of(database, "hybrid", repeats=3))["generate"] == 2
    again = await calls_of(database, "hybrid")
    assert again["generate"] == 2
    assert again["retrieve"] == 0


async def test_another_model_answers_anew(database: Database) -> None:
    await furnish(database, items=2)
    await calls_of(database, "hybrid")
    again = await calls_of(database, "hybrid", models={"generate": "a-judge"})
    assert again["generate"] == 2
    assert again["retrieve"] == 0
