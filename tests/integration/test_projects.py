"""Keys of a project: what they make is theirs, and what others make does not exist for them."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from services.orchestrator.openai.batch_work import BatchAdvancer
from shared.settings import Access
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database, limit_to
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

KEYED = scene.SETTINGS.model_copy(update={"access": Access(keys="required")})
SCOPES = {Scope.READ, Scope.SUBMIT}
FACTS = [b"crimson-ann\tlikes\tcrimson-bob\n", b"crimson-bob\tlikes\tcrimson-cid\n"]
PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Member:
    """Sends requests with a key of a project."""

    def __init__(self, api: Api, key: str) -> None:
        self._http, self._headers = api.http, {"authorization": f"Bearer {key}"}

    async def send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        return await self._http.request(method, path, headers=self._headers, **request)

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


async def make_member(api: Api, database: Database, owner_url: str, name: str, project: str | None) -> Member:
    key = await keys.create_key(database, "local", name, SCOPES)
    await scene.force(owner_url, "UPDATE api_keys SET project = :project WHERE name = :name", project=project, name=name)
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


async def make_everything(ann: Member, database: Database) -> dict[str, str]:
    """Make one object of every kind; return the values of paths' parameters by name."""
    job = (await ann.ok("POST", "/v1/jobs", json=JOB))["id"]
    await finished(database)
    await ann.ok("PATCH", f"/v1/jobs/{job}/samples/0/note", json={"note": "crimson-note"})
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
    advancer = BatchAdvancer(database, KEYED)
    await advancer.run_once()
    await finished(database)
    for _ in range(3):
        await advancer.run_once()
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
"""They never end."""
ABSENT = "6f1dd6a3-0f2c-4d0b-9a44-0c3c1f1d2b11"


def list_reads(api: Api) -> list[str]:
    routes = iter_route_contexts(api.app.routes)
    return sorted({str(each.path) for each in routes if "GET" in (getattr(each, "methods", None) or ())})


def fill(path: str, made: Mapping[str, str]) -> str:
    """Put the names of what was made into a path and its query."""
    kind = path.removeprefix("/v1").split("/")[1]
    numbers = {"index": "0", "number": "1", "document": "d1", "device": "cpu:0", "path": "app.css", "left_index": "0", "left_repeat": "0"}
    names = {**made, **numbers, "name": made.get(kind, "absent"), "file": made["file_id"], "batch": made["batch_id"]}
    query = "&".join(f"{name}={made['job']}" for name in JOBS_OF_QUERY.get(path, ()))
    return PARAMETER.sub(lambda match: names[match[1]], path) + (f"?{query}" if query else "")


async def test_what_another_project_has_is_as_if_it_did_not_exist(
    api: Api, database: Database, owner_url: str, subtests: pytest.Subtests
) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    made = await make_everything(ann, database)
    absent = {name: value.replace("crimson", "absent") for name, value in made.items()} | {"job": ABSENT, "batch_id": f"batch_{ABSENT}", "file_id": f"file-{ABSENT}"}
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
