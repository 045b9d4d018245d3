"""Keys of a project: what they make is theirs, and what others make does not exist for them."""

import json
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from mathrag.errors import Unavailable
from services.orchestrator.openai.batch_work import BatchAdvancer
from shared.settings import Access, Limits
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database, limit_to
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import watching

pytestmark = pytest.mark.anyio

KEYED = scene.SETTINGS.model_copy(update={"access": Access(keys="required")})
LIMITED = KEYED.model_copy(update={"limits": Limits(live_jobs=2)})
SCOPES = {Scope.READ, Scope.SUBMIT}
FACTS = [b"crimson-ann\tlikes\tcrimson-bob\n", b"crimson-bob\tlikes\tcrimson-cid\n"]
PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Member:
    """Sends requests with a key of a project."""

    def __init__(self, api: Api, key: str) -> None:
        self._http, self._headers = api.http, {"authorization": f"Bearer {key}", "if-match": "*"}
        self.key = key

    async def send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        headers = self._headers | request.pop("headers", {})
        return await self._http.request(method, path, headers=headers, **request)

    async def ok(self, method: str, path: str, **request: Any) -> Any:
        answer = await self.send(method, path, **request)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.headers.get("content-type", "").startswith("application/json") else answer.text


@pytest.fixture
async def api(database: Database, redis_url: str, owner_url: str) -> AsyncIterator[Api]:
    with limit_to("red"):
        await scene.furnish(database, name="crimson-items")
    await scene.force(owner_url, "UPDATE corpora SET name = 'crimson-docs'")
    async with serving(database, redis_url, KEYED) as api:
        yield api


async def make_member(
    api: Api, database: Database, owner_url: str, name: str, project: str | None, scopes: set[Scope] = SCOPES
) -> Member:
    key = await keys.create_key(database, "local", name, scopes)
    await scene.force(
        owner_url, "UPDATE api_keys SET project = :project WHERE name = :name", project=project, name=name
    )
    return Member(api, key)


REQUEST = {
    "custom_id": "crimson-line", "method": "POST", "url": "/v1/chat/completions",
    "body": {"model": "a-generator", "messages": [{"role": "user", "content": "crimson question"}]},
}  # fmt: skip
RULE = b"?a  likes  ?b   => ?b  likes  ?a\t0.5\t0.5\t0.5\t1\t2\t2\t?a\n"
EXPERIMENT = {
    "name": "crimson-experiment", "datasets": [{"dataset": "crimson-items", "corpus": "crimson-docs"}],
    "variants": [{"name": "crimson-variant", "pipeline": "closed-book"}],
}  # fmt: skip
JOB = {"name": "crimson-job", "dataset": "crimson-items", "corpus": "crimson-docs", "pipeline": "mathrag-gate",
       "params": scene.QUALITY_ALONE}  # fmt: skip


async def make_everything(ann: Member, database: Database, graph: str = "") -> dict[str, str]:
    """Make one object of every kind; return the values of paths' parameters by name."""
    job = (await ann.ok("POST", "/v1/jobs", json=JOB))["id"]
    await finished(database)
    await ann.ok("PATCH", f"/v1/jobs/{job}/samples/0/note", json={"note": "crimson-note"})
    if not graph:
        await ann.ok("POST", "/v1/graphs", params={"name": "crimson-graph"}, content=b"".join(FACTS))
    await ann.ok("POST", "/v1/rules/import", params={"name": "crimson-bank", "graph": "crimson-graph"}, content=RULE)
    await ann.ok("POST", "/v1/prompts", json={"name": "crimson-prompt", "text": "crimson {{question}} {{context}}"})
    await ann.ok("POST", "/v1/experiments", json=EXPERIMENT)
    labels = {"name": "crimson-labels", "job": job, "what": "answers", "size": 2}
    await ann.ok("POST", "/v1/labels/sets", json=labels)
    lines = {"file": ("crimson.jsonl", json.dumps(REQUEST).encode())}
    file = (await ann.ok("POST", "/openai/v1/files", data={"purpose": "batch"}, files=lines))["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await ann.ok("POST", "/openai/v1/batches", json=asked))["id"]
    models = {"a-generator": KEYED.models["world-generator"]}
    advancer = BatchAdvancer(database, KEYED.model_copy(update={"models": models}))
    await advancer.run_once()
    await finished(database)
    for _ in range(3):
        await advancer.run_once()
    assert (await ann.ok("GET", f"/openai/v1/batches/{batch}"))["status"] == "completed"
    return {
        "job": job, "experiment": "crimson-experiment", "graphs": "crimson-graph", "rules": "crimson-bank",
        "prompts": "crimson-prompt", "reference": "crimson-prompt", "labels": "crimson-labels", "file_id": file,
        "batch_id": batch, "corpora": "crimson-docs", "datasets": "crimson-items", "bank": "crimson-bank",
    }  # fmt: skip


JOBS_OF_QUERY = {
    "/compare": ["jobs", "jobs"], "/compare/answers": ["jobs"], "/v1/comparison": ["job", "job"],
    "/compare/cases": ["left", "right"], "/compare/cases.html": ["left", "right"],
    "/compare/changed": ["left", "right"], "/compare/sample": ["left", "right"],
    "/v1/comparison/samples": ["left", "right"], "/v1/comparison/samples/{index}": ["left", "right"],
    "/labels": ["job"], "/submit": ["job"], "/plan": ["job"],
}  # fmt: skip
ONCE = re.compile(r'name="once" value="\w+"')
STREAMS = {"/live/now", "/live/jobs"}
"""They never end, and have a test of their own."""
ABSENT = "6f1dd6a3-0f2c-4d0b-9a44-0c3c1f1d2b11"


def list_reads(api: Api) -> list[str]:
    routes = iter_route_contexts(api.app.routes)
    return sorted({str(each.path) for each in routes if "GET" in (getattr(each, "methods", None) or ())})


def fill(path: str, made: Mapping[str, str]) -> str:
    """Put the names of what was made into a path and its query."""
    kind = path.removeprefix("/v1").split("/")[1]
    numbers = {
        "index": "0",
        "number": "1",
        "document": "d1",
        "device": "cpu:0",
        "path": "app.css",
        "left_index": "0",
        "left_repeat": "0",
    }
    names = {**made, **numbers, "name": made.get(kind, "absent"), "file": made["file_id"], "batch": made["batch_id"]}
    query = "&".join(f"{name}={made['job']}" for name in JOBS_OF_QUERY.get(path, ()))
    return PARAMETER.sub(lambda match: names[match[1]], path) + (f"?{query}" if query else "")


async def test_what_another_project_has_is_as_if_it_did_not_exist(
    api: Api, database: Database, owner_url: str, subtests: pytest.Subtests
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    made = await make_everything(ann, database)
    absent = {name: value.replace("crimson", "absent") for name, value in made.items()} | {
        "job": ABSENT,
        "batch_id": f"batch_{ABSENT}",
        "file_id": f"file-{ABSENT}",
    }
    for path in list_reads(api):
        if path in STREAMS:
            continue
        with subtests.test(path):
            theirs, nothing = fill(path, made), fill(path, absent)
            seen = await bob.send("GET", theirs)
            text = seen.text
            if theirs != nothing:
                expected = await bob.send("GET", nothing)
                for name, value in {made[name]: absent[name] for name in made}.items():
                    text = text.replace(name, value)
                assert (seen.status_code, ONCE.sub("", text)) == (expected.status_code, ONCE.sub("", expected.text))
            assert not re.search(r"crimson|What is \d plus", text)
            assert made["job"] not in text


async def test_streams_show_each_project_its_own_jobs_although_watchers_share_looks(
    api: Api, database: Database, owner_url: str, subtests: pytest.Subtests
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    await make_everything(ann, database)
    await ann.ok("POST", "/v1/jobs", json={**JOB, "name": "crimson-live"})
    for path in sorted(STREAMS):
        with subtests.test(path):
            async with watching(api, path, ann.key) as hers, watching(api, path, bob.key) as his:
                assert "crimson-live" in await hers.get()
                assert "crimson" not in await his.get()


async def test_a_request_that_names_something_of_another_project_is_refused_as_for_something_unknown(
    api: Api, database: Database, owner_url: str, subtests: pytest.Subtests
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    made = await make_everything(ann, database)
    job, batch = made["job"], made["batch_id"]
    closed = {"name": "bobs", "dataset": "crimson-items", "pipeline": "closed-book"}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/jobs", {"json": closed}),
        ("POST", "/v1/plan", {"json": {"job": closed}}),
        ("POST", "/v1/search", {"json": {"question": "q", "corpus": "crimson-docs"}}),
        ("POST", "/v1/chat", {"json": {"question": "q", "corpus": "crimson-docs"}}),
        ("POST", "/v1/experiments", {"json": {**EXPERIMENT, "name": "bobs"}}),
        ("POST", "/v1/labels/sets", {"json": {"name": "bobs", "job": job, "what": "answers", "size": 1}}),
        ("POST", "/v1/rules", {"json": {"name": "bobs", "graph": "crimson-graph", "mining": {"miner": "amie"}}}),
        ("POST", "/v1/datasets/crimson-items/draw", {"json": {"name": "bobs", "size": 1}}),
        ("POST", "/v1/datasets/generate", {"json": {"name": "bobs", "corpus": "crimson-docs", "size": 1}}),
        ("PATCH", f"/v1/jobs/{job}", {"json": {"rank": 1}}),
        ("PATCH", f"/v1/jobs/{job}/samples/0/note", {"json": {"note": "bobs"}}),
        *(("POST", f"/v1/jobs/{job}/{action}", {}) for action in ("cancel", "pause", "resume", "requeue")),
        ("POST", f"/v1/jobs/{job}/measure", {"json": {"params": {"metrics": {"names": ["faithfulness"]}}}}),
        ("POST", "/v1/experiments/crimson-experiment/cancel", {}),
        ("POST", "/v1/experiments/crimson-experiment/resume", {}),
        ("POST", "/v1/labels/sets/crimson-labels/tasks/1/labels", {"json": {"value": "right"}}),
        ("DELETE", "/v1/graphs/crimson-graph", {}),
        ("DELETE", "/v1/rules/crimson-bank", {}),
        ("DELETE", f"/openai/v1/files/{made['file_id']}", {}),
        ("POST", f"/openai/v1/batches/{batch}/cancel", {}),
        ("POST", "/openai/v1/chat/completions", {
            "json": {"model": "mathrag-gate@crimson-docs", "messages": [{"role": "user", "content": "q"}]}
        }),
    ]  # fmt: skip
    before = await scene.rows(database, "SELECT count(*), max(version) FROM jobs")
    for method, path, request in requests:
        with subtests.test(f"{method} {path}"):
            answer = await bob.send(method, path, **request)
            assert answer.status_code == 404, answer.text
    assert await scene.rows(database, "SELECT count(*), max(version) FROM jobs") == before


async def test_what_is_made_of_something_belongs_to_its_project_whoever_makes_it(
    api: Api, database: Database, owner_url: str
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    eve = await make_member(api, database, owner_url, "eve", None)
    await ann.ok("POST", "/v1/graphs", params={"name": "crimson-graph"}, content=b"".join(FACTS))
    await make_everything(eve, database, graph="crimson-graph")
    await eve.ok("POST", "/v1/datasets/crimson-items/draw", json={"name": "crimson-drawn", "size": 2})
    held_out = b"crimson-ann\tlikes\tcrimson-cid\n"
    await eve.ok(
        "POST", "/v1/datasets/from-graph", params={"name": "asked", "graph": "crimson-graph"}, content=held_out
    )
    mined = {
        "name": "crimson-mined", "graph": "crimson-graph", "mining": {"miner": "amie", "min_head_facts": 1}
    }  # fmt: skip
    await eve.ok("POST", "/v1/rules", json=mined)
    await scene.force(owner_url, "DELETE FROM rule_banks WHERE name = 'crimson-bank'")  # an upload
    tables = ("corpora", "datasets", "experiments", "graphs", "jobs", "label_sets", "rule_banks")
    for table in tables:
        found = await scene.rows(database, f"SELECT DISTINCT project FROM {table} WHERE NOT name LIKE 'batch%'")  # noqa: S608
        assert found == [("red",)], table


async def test_what_has_no_project_is_everybodys_to_use_but_not_to_change(
    api: Api, database: Database, owner_url: str
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    eve = await make_member(api, database, owner_url, "eve", None)
    await eve.ok("POST", "/v1/datasets", params={"name": "shared"}, content=b'{"question": "q", "answer": "a"}\n')
    await eve.ok("POST", "/v1/prompts", json={"name": "shared", "text": "{{question}}"})
    await eve.ok("POST", "/v1/graphs", params={"name": "shared"}, content=b"".join(FACTS))
    await ann.ok("POST", "/v1/jobs", json={"name": "anns", "dataset": "shared", "pipeline": "closed-book"})
    assert (await ann.ok("GET", "/v1/datasets/shared"))["items"] == 1
    await eve.ok("POST", "/v1/jobs", json={"name": "eves", "dataset": "shared", "pipeline": "closed-book"})
    grid = {"name": "grid", "datasets": [{"dataset": "shared"}], "variants": [{"name": "v", "pipeline": "closed-book"}]}
    await eve.ok("POST", "/v1/experiments", json=grid)
    await finished(database)
    label_set = {"name": "labels", "job": "eves", "what": "answers", "size": 1}
    await eve.ok("POST", "/v1/labels/sets", json=label_set)
    await eve.ok("POST", "/v1/jobs", json={"name": "live", "dataset": "shared", "pipeline": "closed-book"})
    # Ann's key had no project when it submitted these jobs.
    await scene.force(owner_url, "UPDATE jobs SET code = jsonb_set(code, '{submitted_by}', '\"ann\"')")
    await scene.force(owner_url, "UPDATE jobs SET state = 'cancelled' WHERE experiment_id IS NOT NULL")
    refused = [
        await ann.send("DELETE", "/v1/graphs/shared"),
        await ann.send("POST", "/v1/prompts", json={"name": "shared", "text": "Red: {{question}}"}),
        await ann.send("POST", "/v1/jobs/live/cancel"),
        await ann.send("PATCH", "/v1/jobs/eves/samples/0/note", json={"note": "red"}),
        await ann.send("POST", "/v1/labels/sets/labels/tasks/1/labels", json={"value": "right"}),
        await ann.send("POST", "/v1/experiments/grid/resume"),
    ]
    words = "this belongs to no project, so keys of the project 'red' cannot change it"
    assert [(each.status_code, each.json()["detail"]) for each in refused] == [(403, words)] * 6
    assert (await eve.ok("GET", "/v1/jobs/live"))["state"] == "running"
    await eve.ok("DELETE", "/v1/graphs/shared")


async def test_what_is_made_of_a_job_of_a_project_on_shared_data_belongs_to_the_project(
    api: Api, database: Database, owner_url: str
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    eve = await make_member(api, database, owner_url, "eve", None, {Scope.OPERATE})
    await scene.add_dataset(database, 2, "shared")
    await ann.ok("POST", "/v1/jobs", json={"name": "anns", "dataset": "shared", "pipeline": "closed-book"})
    grid = {"name": "grid", "datasets": [{"dataset": "shared"}], "variants": [{"name": "v", "pipeline": "closed-book"}]}
    await ann.ok("POST", "/v1/experiments", json=grid)
    await finished(database)
    await eve.ok("POST", "/v1/jobs/anns/requeue")
    await eve.ok("POST", "/v1/jobs/anns/measure", json={"params": {"metrics": {"names": ["answer_relevance"]}}})
    await scene.force(owner_url, "UPDATE jobs SET state = 'cancelled' WHERE experiment_id IS NOT NULL")
    await eve.ok("POST", "/v1/experiments/grid/resume")
    made = await scene.rows(database, "SELECT count(*), count(*) FILTER (WHERE project = 'red') FROM jobs")
    assert made == [(5, 5)]


async def test_a_request_of_a_key_without_a_project_stays_in_one_project(
    api: Api, database: Database, owner_url: str
) -> None:
    eve = await make_member(api, database, owner_url, "eve", None)
    ann = await make_member(api, database, owner_url, "ann", "red")
    await ann.ok("POST", "/v1/prompts", json={"name": "crimson-prompt", "text": "crimson {{question}}"})
    await scene.add_dataset(database, 2, "shared")
    with limit_to("blue"):
        await scene.add_dataset(database, 2, "blue-items")
    mixed = await eve.send("POST", "/v1/jobs", json={**JOB, "dataset": "blue-items"})
    assert (mixed.status_code, mixed.json()["detail"]) == (
        422, "this request names data of the projects 'blue' and 'red'"
    )  # fmt: skip
    prompts = {"params": {"prompts": {"generate": "crimson-prompt"}}}
    unseen = await eve.send(
        "POST", "/v1/jobs", json={"name": "j", "dataset": "shared", "pipeline": "closed-book", **prompts}
    )
    assert unseen.status_code in (404, 422), unseen.text
    datasets = [{"dataset": name, "corpus": "crimson-docs"} for name in ("shared", "crimson-items")]
    await eve.ok("POST", "/v1/experiments", json={**EXPERIMENT, "datasets": datasets})
    assert await scene.rows(database, "SELECT project FROM experiments UNION SELECT project FROM jobs") == [("red",)]


async def test_a_pause_or_rank_of_one_project_leaves_the_calls_of_another_in_their_place(
    api: Api, database: Database, owner_url: str
) -> None:
    await scene.add_dataset(database, 3, "shared")
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    for member, name in ((ann, "anns"), (bob, "bobs")):
        await member.ok("POST", "/v1/jobs", json={"name": name, "dataset": "shared", "pipeline": "closed-book"})
    await scene.advance(database)
    before = await scene.rows(database, "SELECT call_id, place FROM queue ORDER BY call_id")
    assert len(before) == 3
    await ann.ok("PATCH", "/v1/jobs/anns", json={"rank": 30000})
    await ann.ok("POST", "/v1/jobs/anns/pause")
    after = "SELECT call_id, place FROM queue ORDER BY call_id"
    assert await scene.rows(database, after) == before
    await ann.ok("POST", "/v1/jobs/anns/cancel")
    assert await scene.rows(database, after) == before


async def test_without_row_level_security_a_project_sees_nothing(owner_url: str) -> None:
    owner = Database(owner_url, pinned=False)
    with limit_to("red"), pytest.raises(Unavailable, match="hides nothing"):
        async with owner.transaction():
            pass
    await owner.close()


async def test_a_name_that_another_project_has_taken_is_refused_in_words(
    api: Api, database: Database, owner_url: str
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    answer = await bob.send("POST", "/v1/datasets", params={"name": "crimson-items"}, content=b'{"question": "q"}\n')
    assert (answer.status_code, answer.json()["detail"]) == (
        409, "this name is taken in another project"
    )  # fmt: skip
    await scene.add_dataset(database, 2, "shared")
    job = {"dataset": "shared", "pipeline": "closed-book"}
    first = await ann.ok("POST", "/v1/jobs", json={**job, "name": "same"})
    await ann.ok("PATCH", "/v1/jobs/same", json={"name": "same"})
    answer = await bob.send("POST", "/v1/jobs", json={**job, "name": "same"})
    assert (answer.status_code, answer.json()["detail"]) == (409, "this name is taken in another project")
    assert first["id"] not in answer.text


async def test_turns_and_limits_count_the_jobs_of_all_projects(
    api: Api, database: Database, owner_url: str, redis_url: str
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    with limit_to("blue"):
        await scene.add_dataset(database, 5, "blue-items")
    for member, dataset in ((ann, "crimson-items"), (ann, "crimson-items"), (bob, "blue-items")):
        body = {"name": f"job-{uuid.uuid4()}", "dataset": dataset, "pipeline": "closed-book"}
        await member.ok("POST", "/v1/jobs", json=body)
    turns = await scene.rows(database, "SELECT code ->> 'turn' FROM jobs ORDER BY id")
    assert turns == [("0",), ("5",), ("0",)]
    # Only Ann's second job is live.
    await scene.force(owner_url, "UPDATE jobs SET ended_at = now() WHERE code ->> 'turn' = '0'")
    body = {"name": "last", "dataset": "blue-items", "pipeline": "closed-book"}
    await bob.ok("POST", "/v1/jobs", json=body)
    assert (await scene.rows(database, "SELECT code ->> 'turn' FROM jobs ORDER BY id DESC LIMIT 1")) == [("5",)]
    async with serving(database, redis_url, LIMITED) as limited:
        answer = await Member(limited, bob.key).send("POST", "/v1/jobs", json={**body, "name": "too-many"})
    assert (answer.status_code, answer.json()["detail"][:15]) == (429, "2 jobs have not")


async def test_whoever_sees_it_sees_to_which_project_it_belongs(
    api: Api, database: Database, owner_url: str, subtests: pytest.Subtests
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    eve = await make_member(api, database, owner_url, "eve", None)
    await make_everything(ann, database)
    await eve.ok("POST", "/v1/prompts", json={"name": "shared", "text": "{{question}} {{context}}"})
    lists = ("corpora", "datasets", "experiments", "graphs", "jobs", "labels/sets", "prompts", "rules")
    for path in lists:
        with subtests.test(path):
            answer = await eve.ok("GET", f"/v1/{path}")
            data = answer if path == "prompts" else answer["data"]
            assert {each.get("project") for each in data if "crimson" in each["name"]} == {"red"}
            page = path.removesuffix("/sets")
            if page != "graphs":
                assert "project red" in await eve.ok("GET", f"/{page}")
    prompts = await ann.ok("GET", "/v1/prompts")
    assert {each["name"]: each["project"] for each in prompts if each["origin"] == "stored"} == {
        "crimson-prompt": "red", "shared": None,
    }  # fmt: skip
    for path in ("jobs/crimson-job", "datasets/crimson-items", "corpora/crimson-docs", "rules/crimson-bank"):
        assert "project red" in await ann.ok("GET", f"/{path}", follow_redirects=True)


async def test_projects_do_not_share_idempotency_keys(api: Api, database: Database, owner_url: str) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    await scene.add_dataset(database, 2, "shared")
    body = {"dataset": "shared", "pipeline": "closed-book"}
    made = []
    for member in (ann, bob, ann):
        named = {**body, "name": "bobs" if member is bob else "anns"}
        answer = await member.send("POST", "/v1/jobs", json=named, headers={"idempotency-key": "one"})
        made.append((answer.status_code, answer.json()["id"]))
    assert made[0] == made[2] != made[1]
