"""Keys of a project: what they make is theirs, and what others make does not exist for them."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest

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
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    with limit_to("red"):
        await scene.furnish(database)
    async with serving(database, redis_url, KEYED) as api:
        yield api


async def make_member(api: Api, database: Database, owner_url: str, name: str, project: str | None) -> Member:
    key = await keys.create_key(database, "local", name, SCOPES)
    await scene.force(owner_url, "UPDATE api_keys SET project = :project WHERE name = :name", project=project, name=name)
    return Member(api, key)


async def make_everything(ann: Member, database: Database) -> dict[str, str]:
    """Make one object of every kind with the key of a project; return their names by kind."""
    job = await ann.ok("POST", "/v1/jobs", json={"name": "crimson-job", "dataset": "items", "corpus": "docs", "pipeline": "mathrag-gate", "params": scene.QUALITY_ALONE})  # noqa: E501
    await finished(database)
    await ann.ok("PATCH", f"/v1/jobs/{job['id']}/samples/0/note", json={"note": "crimson-note"})
    await ann.ok("POST", "/v1/graphs", params={"name": "crimson-graph"}, content=b"".join(FACTS))
    await ann.ok("POST", "/v1/prompts", json={"name": "crimson-prompt", "text": "crimson {{question}} {{context}}"})
    experiment = {"name": "crimson-experiment", "datasets": [{"dataset": "items", "corpus": "docs"}], "variants": [{"name": "crimson-variant", "pipeline": "closed-book"}]}  # noqa: E501
    await ann.ok("POST", "/v1/experiments", json=experiment)
    await ann.ok("POST", "/v1/labels/sets", json={"name": "crimson-labels", "job": job["id"], "what": "answers", "size": 2})
    await ann.ok("POST", "/v1/rules/import", params={"name": "crimson-bank", "graph": "crimson-graph"}, content=b"?a  likes  ?b   => ?b  likes  ?a\t0.5\t0.5\t0.5\t1\t2\t2\t?a\n")
    file = await ann.ok("POST", "/openai/v1/files", data={"purpose": "batch"}, files={"file": ("crimson.jsonl", b'{"custom_id": "crimson-line", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "a-generator", "messages": [{"role": "user", "content": "crimson"}]}}\n')})
    batch = await ann.ok("POST", "/openai/v1/batches", json={"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"})
    await BatchAdvancer(database, KEYED).run_once()
    return {"file": file["id"], "batch": batch["id"], "bank": "crimson-bank", "job": job["id"], "experiment": "crimson-experiment", "graph": "crimson-graph", "prompt": "crimson-prompt", "label_set": "crimson-labels"}


def fill(path: str, made: Mapping[str, str]) -> str | None:
    """Put the names of Ann's objects into a path; None if it has none of them."""
    names = {
        "/v1/corpora": {"name": "docs", "document": "d0"}, "/v1/datasets": {"name": "items"},
        "/v1/graphs": {"name": made["graph"]}, "/v1/labels": {"name": made["label_set"], "number": "1"},
        "/v1/prompts": {"name": made["prompt"], "reference": made["prompt"]}, "/v1/rules": {"name": made["bank"]},
        "/v1/jobs": {"job": made["job"], "index": "0"}, "/v1/experiments": {"experiment": made["experiment"]},
        "/v1/comparison": {"index": "0"},
        "/openai/v1/files": {"file_id": made["file"], "file": made["file"]}, "/openai/v1/batches": {"batch_id": made["batch"], "batch": made["batch"]},
        "/jobs": {"job": made["job"], "index": "0", "reference": made["job"]},
    }
    for prefix, values in names.items():
        if path.startswith(prefix):
            return PARAMETER.sub(lambda match: values[match[1]], path)
    return None


async def test_try(api: Api, database: Database, owner_url: str) -> None:
    ann = await make_member(api, database, owner_url, "ann", "red")
    bob = await make_member(api, database, owner_url, "bob", "blue")
    made = await make_everything(ann, database)
    for route in api.app.routes:
        print(type(route).__name__, getattr(route, "path", ""), getattr(route, "methods", ""))
    document = await ann.ok("GET", "/openapi.json")
    for path, methods in document["paths"].items():
        if "get" in methods and "{" in path:
            try:
                filled = fill(path, made)
            except KeyError as e:
                print(path, e)
                continue
            if filled:
                one, other = await ann.send("GET", filled), await bob.send("GET", filled)
                print(path, one.status_code, other.status_code, len(one.text), len(other.text), re.findall("crimson-[a-z]+|items|docs|What is", other.text)[:5])
            else:
                print(path)
    raise AssertionError
