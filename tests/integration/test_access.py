"""Keys in the database, the API that asks for them, and the limits of what may be asked for."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest

from mathrag.errors import Conflict, Invalid, NotFound
from services.orchestrator.openai.batch_work import BatchAdvancer
from shared.settings import Access, Limits
from shared.shapes import Scope, prefix_of
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio
READ, SUBMIT, OPERATE = Scope.READ, Scope.SUBMIT, Scope.OPERATE
KEYED = scene.SETTINGS.model_copy(update={"access": Access(keys="required")})
BODY = {"name": "mine", "dataset": "items", "pipeline": "closed-book"}


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url, KEYED) as serving_api:
        yield serving_api


def sent(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def status(api: Api, key: str, method: str = "GET", path: str = "/v1/jobs", **request: object) -> int:
    return (await api.http.request(method, path, headers=sent(key), **request)).status_code  # type: ignore[arg-type]


async def operations(database: Database) -> list[tuple[object, ...]]:
    return await scene.rows(database, "SELECT actor, action, target FROM operations ORDER BY id")


async def test_a_key_opens_what_its_scopes_say(api: Api, database: Database) -> None:
    reader, submitter, operator = [
        await keys.create_key(database, "local", scope.value, {scope}) for scope in (READ, SUBMIT, OPERATE)
    ]
    assert [await status(api, key) for key in (reader, submitter, operator)] == [200, 403, 200]
    bodies = [{**BODY, "name": name} for name in ("read", "submitted", "operated")]
    asked = zip((reader, submitter, operator), bodies, strict=True)
    posted = [await status(api, key, "POST", json=body) for key, body in asked]
    assert posted == [403, 202, 202]
    drained = [await status(api, key, "POST", "/v1/gpus/cpu:0/drain") for key in (reader, submitter)]
    assert drained == [403, 403]
    assert (await api.http.get("/v1/jobs")).status_code == 401
    assert (await api.http.get("/healthz")).status_code == 200


async def test_neither_documentation_nor_readiness_is_for_strangers(api: Api, database: Database) -> None:
    reader = await keys.create_key(database, "local", "reader", {READ})
    submitter = await keys.create_key(database, "local", "submitter", {SUBMIT})
    for path in ("/docs", "/openapi.json", "/readyz", "/v1/models"):
        assert (await api.http.get(path)).status_code == 401, path
        assert await status(api, submitter, path=path) == 403, path
        assert await status(api, reader, path=path) in (200, 503), path


async def test_only_the_hash_is_kept(database: Database) -> None:
    key = await keys.create_key(database, "local", "alice", {READ})
    stored = str(await scene.rows(database, "SELECT * FROM api_keys")) + str(await operations(database))
    assert key not in stored
    assert key.rsplit("_", 1)[1] not in stored
    assert str(prefix_of(key)) in stored


async def test_a_second_key_of_a_name_is_a_rotation(database: Database) -> None:
    old = await keys.create_key(database, "local", "alice", {READ, SUBMIT}, timedelta(days=90))
    with pytest.raises(Conflict, match="key 'alice' already exists") as raised:
        await keys.create_key(database, "local", "alice", {READ})
    assert "mathrag key rotate alice" in str(raised.value.hint)
    new = await keys.rotate_key(database, "local", "alice", timedelta(hours=24))
    valid = await keys.load_valid_keys(database)
    assert set(valid) == {prefix_of(old), prefix_of(new)}
    first, second = await keys.list_keys(database)
    assert (first.scopes, second.scopes) == (["read", "submit"], ["read", "submit"])
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert timedelta(hours=23) < first.expires_at - first.created_at < timedelta(hours=25)
    assert second.expires_at - second.created_at == timedelta(days=90)


async def test_a_rotation_without_grace_ends_the_old_key_at_once(database: Database) -> None:
    old = await keys.create_key(database, "local", "alice", {READ})
    new = await keys.rotate_key(database, "local", "alice", timedelta(0))
    assert set(await keys.load_valid_keys(database)) == {prefix_of(new)}
    with pytest.raises(NotFound):
        await keys.revoke_keys(database, "local", str(prefix_of(old)))


async def test_a_key_is_revoked_by_name_or_by_prefix(api: Api, database: Database) -> None:
    old = await keys.create_key(database, "local", "alice", {READ})
    new = await keys.rotate_key(database, "local", "alice", timedelta(hours=1))
    assert await keys.revoke_keys(database, "local", str(prefix_of(old))) == [prefix_of(old)]
    assert (await status(api, old), await status(api, new)) == (401, 200)
    assert await keys.revoke_keys(database, "local", "alice") == [prefix_of(new)]
    with pytest.raises(NotFound, match="no valid key has the name 'alice'"):
        await keys.rotate_key(database, "local", "alice", timedelta(hours=1))
    assert [(key.name, key.valid) for key in await keys.list_keys(database)] == [("alice", False)] * 2


async def test_an_expired_key_opens_nothing(api: Api, database: Database) -> None:
    key = await keys.create_key(database, "local", "alice", {READ}, timedelta(0))
    assert await status(api, key) == 401
    assert await keys.create_key(database, "local", "alice", {READ})


async def test_what_happens_to_keys_is_in_the_journal(database: Database) -> None:
    await keys.create_key(database, "local", "alice", {READ})
    await keys.rotate_key(database, "bob", "alice", timedelta(hours=1))
    await keys.revoke_keys(database, "local", "alice")
    assert await operations(database) == [
        ("local", "key create", "alice"),
        ("bob", "key rotate", "alice"),
        ("local", "key revoke", "alice"),
        ("local", "key revoke", "alice"),
    ]


async def test_a_use_is_noted(api: Api, database: Database) -> None:
    key = await keys.create_key(database, "local", "alice", {READ})
    assert (await keys.list_keys(database))[0].used_at is None
    await status(api, key)
    assert (await keys.list_keys(database))[0].used_at is not None


@pytest.mark.parametrize(
    ("name", "scopes"), [("a b", {READ}), ("mrg_12345678", {READ}), ("alice", set()), ("", {READ})]
)
async def test_a_key_that_could_not_be_told_or_used_is_not_made(
    database: Database, name: str, scopes: set[Scope]
) -> None:
    with pytest.raises(Invalid, match=r"`name`|`scope`"):
        await keys.create_key(database, "local", name, scopes)
    assert await keys.list_keys(database) == []


async def test_the_application_cannot_forge_its_journal_or_replace_a_hash(database: Database) -> None:
    await keys.create_key(database, "local", "alice", {READ})
    for statement in (
        "UPDATE api_keys SET hash = 'x'",
        "UPDATE api_keys SET scopes = '{operate}'",
        "DELETE FROM api_keys",
        "DELETE FROM operations",
        "UPDATE operations SET actor = 'x'",
    ):
        with pytest.raises(Exception, match="permission denied"):
            await scene.attempt(database, statement)


@pytest.fixture
async def limited(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    limits = Limits(live_jobs=2, samples=10, upload_rows=3, upload_bytes=1000, body_bytes=400)
    async with serving(database, redis_url, scene.SETTINGS.model_copy(update={"limits": limits})) as serving_api:
        yield serving_api


async def submitted(api: Api, **fields: object) -> httpx2.Response:
    return await api.http.post("/v1/jobs", json={**BODY, **fields})


async def test_as_many_jobs_live_as_may(limited: Api, database: Database) -> None:
    assert [(await submitted(limited, name=name)).status_code for name in ("a", "b")] == [202, 202]
    refused = await submitted(limited, name="c")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert refused.json()["type"] == "urn:mathrag:too_many"
    assert "`limits.live_jobs`" in refused.json()["detail"]
    await finished(database)
    assert (await submitted(limited, name="c")).status_code == 202


async def test_a_job_has_as_many_samples_as_it_may(limited: Api) -> None:
    assert (await submitted(limited, repeats=2)).status_code == 202
    refused = await submitted(limited, repeats=3)
    assert (refused.status_code, "`limits.samples`" in refused.json()["detail"]) == (413, True)


async def test_an_upload_has_as_many_rows_and_bytes_as_it_may(limited: Api) -> None:
    lines = [{"question": f"{number}?"} for number in range(4)]
    assert (await limited.upload("datasets", "three", lines[:3])).status_code == 201
    for name, much in (("four", lines), ("long", [{"question": "x" * 1000}])):
        refused = await limited.upload("datasets", name, much)
        assert refused.status_code == 413, name
        assert "`limits.upload_" in refused.text, refused.text
        assert (await limited.http.get(f"/v1/datasets/{name}")).status_code == 404


async def test_a_body_has_as_many_bytes_as_it_may(limited: Api) -> None:
    assert (await limited.http.post("/v1/jobs", content=b" " * 400)).status_code == 422
    refused = await limited.http.post("/v1/jobs", content=b" " * 401)
    assert (refused.status_code, "`limits.body_bytes`" in refused.json()["hint"]) == (413, True)


@pytest.mark.parametrize("deep", [b"[" * 300, b'{"params":' * 30, b'{"params":{"a":' + b"[" * 150 + b"]" * 150 + b"}}"])
async def test_a_body_is_as_deep_as_it_likes_and_breaks_nothing(limited: Api, deep: bytes) -> None:
    reply = await limited.http.post("/v1/jobs", content=deep, headers={"content-type": "application/json"})
    assert reply.status_code in (400, 422)


async def test_a_line_may_not_be_nested_without_end(limited: Api) -> None:
    reply = await limited.upload("datasets", "deep", [b'{"question": ' + b"[" * 900 + b"\n"])
    assert (reply.status_code, reply.json().get("line")) == (422, 1)


async def test_names_are_short_and_plain(limited: Api, subtests: pytest.Subtests) -> None:
    for name in ("x" * 101, "a/b", "..", "é", "a b", "", "-a", "a\n"):
        with subtests.test(name=name):
            assert (await submitted(limited, name=name)).status_code == 422
            assert (await limited.upload("datasets", name, [{"question": "1?"}])).status_code == 422


async def test_a_name_of_a_hundred_characters_is_fine(limited: Api) -> None:
    assert (await submitted(limited, name="x" * 100)).status_code == 202


async def test_keys_and_readiness_do_not_wait_for_connections_that_others_hold(
    database: Database, redis_url: str
) -> None:
    await scene.furnish(database)
    key = await keys.create_key(database, "local", "reader", {READ})
    url = database.engine.url.render_as_string(hide_password=False)
    few = Database(url, pinned=False, size=1)
    async with serving(few, redis_url, KEYED, admission=database) as api, few.transaction(), few.transaction():
        assert await status(api, key, path="/readyz") in (200, 503)
        assert await status(api, key, path="/v1/nothing") == 404
        assert (await api.http.get("/v1/jobs")).status_code == 401
    await few.close()


async def test_a_job_is_changed_by_the_key_that_submitted_it_or_by_an_operator(api: Api, database: Database) -> None:
    ann, bob = [await keys.create_key(database, "local", name, {READ, SUBMIT}) for name in ("ann", "bob")]
    operator = await keys.create_key(database, "local", "operator", {OPERATE})
    job = (await api.http.post("/v1/jobs", json=BODY, headers=sent(ann))).json()
    assert job["submitted_by"] == "ann"
    path, tag = f"/v1/jobs/{job['id']}", {"If-Match": "*"}
    for verb in ("pause", "resume", "cancel"):
        refused = await api.http.post(f"{path}/{verb}", headers=sent(bob))
        assert refused.status_code == 403
        assert "was submitted with the key 'ann'" in refused.json()["detail"]
    pages = [(await api.http.get(f"/jobs/{job['id']}", headers=sent(key))).text for key in (ann, bob, operator)]
    assert ["Cancel permanently" in page for page in pages] == [True, False, True]
    change = {"json": {"rank": 1}}
    assert (await api.http.patch(path, headers=sent(bob) | tag, **change)).status_code == 403
    assert (await api.http.patch(path, headers=sent(ann) | tag, **change)).status_code == 200
    assert await status(api, ann, "POST", f"{path}/pause") == 202
    assert await status(api, operator, "POST", f"{path}/resume") == 202
    assert await status(api, operator, "POST", f"{path}/cancel") == 202


async def test_jobs_are_listed_by_the_key_that_submitted_them(api: Api, database: Database) -> None:
    ann, bob = [await keys.create_key(database, "local", name, {READ, SUBMIT}) for name in ("ann", "bob")]
    for key, name in ((ann, "first"), (bob, "second")):
        assert await status(api, key, "POST", json={**BODY, "name": name}) == 202
    listed = (await api.http.get("/v1/jobs", params={"submitted_by": "bob"}, headers=sent(ann))).json()["data"]
    assert [(job["name"], job["submitted_by"]) for job in listed] == [("second", "bob")]


async def test_an_experiment_is_cancelled_by_the_key_that_submitted_it_or_by_an_operator(
    api: Api, database: Database
) -> None:
    ann, bob = [await keys.create_key(database, "local", name, {READ, SUBMIT}) for name in ("ann", "bob")]
    body = {
        "name": "grid", "datasets": [{"dataset": "items"}], "variants": [{"name": "alone", "pipeline": "closed-book"}],
    }  # fmt: skip
    assert await status(api, ann, "POST", "/v1/experiments", json=body) == 202
    for verb in ("cancel", "resume"):
        assert await status(api, bob, "POST", f"/v1/experiments/grid/{verb}") == 403
        assert await status(api, ann, "POST", f"/v1/experiments/grid/{verb}") == 202


async def test_a_batch_and_its_jobs_belong_to_the_key_that_created_it(api: Api, database: Database) -> None:
    ann, bob = [await keys.create_key(database, "local", name, {READ, SUBMIT}) for name in ("ann", "bob")]
    body = {"model": "a-generator", "messages": [{"role": "user", "content": "Why?"}]}
    line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body}
    sent_file = {"file": ("lines.jsonl", json.dumps(line))}
    posted = await api.http.post("/openai/v1/files", data={"purpose": "batch"}, files=sent_file, headers=sent(ann))
    asked = {"input_file_id": posted.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await api.http.post("/openai/v1/batches", json=asked, headers=sent(ann))).json()["id"]
    models = {"a-generator": KEYED.models["world-generator"]}
    await BatchAdvancer(database, KEYED.model_copy(update={"models": models})).run_once()
    assert await scene.rows(database, "SELECT code ->> 'submitted_by' FROM jobs") == [("ann",)]
    cancel = f"/openai/v1/batches/{batch}/cancel"
    assert [await status(api, key, "POST", cancel) for key in (bob, ann)] == [403, 200]


async def test_a_chat_belongs_to_the_key_that_asked(api: Api, database: Database) -> None:
    ann = await keys.create_key(database, "local", "ann", {SUBMIT})
    assert await status(api, ann, "POST", "/v1/chat", json={"question": "Why?", "wait_s": 0}) == 202
    assert await scene.rows(database, "SELECT code ->> 'submitted_by' FROM jobs") == [("ann",)]


async def test_where_no_keys_are_asked_for_a_job_is_everybodys(database: Database, empty_api: Api) -> None:
    await scene.furnish(database)
    job = await empty_api.job()
    assert "submitted_by" not in job
    assert (await empty_api.http.post(f"/v1/jobs/{job['id']}/cancel")).status_code == 202
