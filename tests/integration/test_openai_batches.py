"""Files and batches as the unmodified client of OpenAI sees them: every state, every line once, errors by line."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from openai.types import Batch

from mathrag.errors import Conflict
from services.orchestrator.openai import batch_work, files
from services.orchestrator.openai.batch_work import BatchAdvancer
from shared.audit import check
from shared.calls import Request
from shared.replies import Failure, FailureKind
from shared.runtime import pins, purge
from shared.settings import Limits
from shared.storage import batches
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished, serving

pytestmark = pytest.mark.anyio

MODEL, OTHER, PIPELINE = "a-generator", "b-generator", "mathrag-gate@docs"
MODELS = dict.fromkeys((MODEL, OTHER), scene.SETTINGS.models["world-generator"])
SETTINGS = scene.SETTINGS.model_copy(update={"models": MODELS})
EMBEDDER = "static-embeddings"
CHAT = "/v1/chat/completions"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, 1)
    other = pins.ModelIdentity(name=OTHER, backend="scripted", digest=OTHER, device="cpu:0", needs_lease=True)
    await register(database, other)
    async with serving(database, redis_url, SETTINGS) as api:
        yield api


async def register(database: Database, identity: pins.ModelIdentity) -> None:
    async with database.transaction() as connection:
        await pins.register(connection, identity)


@pytest.fixture
async def client(api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api.app))
    base = "http://localhost/openai/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="anything", http_client=http, max_retries=0) as client:
        yield client


def request(custom_id: str, content: str = "What is 3 plus 4?", model: str = MODEL, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {
        "custom_id": custom_id, "method": "POST", "url": CHAT, "body": {"model": model, "messages": messages, **body},
    }  # fmt: skip


def jsonl(requests: Iterable[Any]) -> bytes:
    return b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in requests)


async def submitted(client: openai.AsyncOpenAI, requests: Iterable[Any], **options: Any) -> Batch:
    file = await client.files.create(file=("lines.jsonl", jsonl(requests)), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", **options
    )  # fmt: skip


async def step(database: Database) -> None:
    while await BatchAdvancer(database, SETTINGS).run_once() == 0.0:
        pass


async def settled(client: openai.AsyncOpenAI, database: Database, batch: Batch, answer: Any = scene.by_rule) -> Batch:
    while await scene.scalar(database, "SELECT count(*) FROM batches WHERE ended_at IS NULL"):
        await step(database)
        await scene.repair(database)
        if await scene.scalar(database, "SELECT count(*) FROM jobs WHERE ended_at IS NULL"):
            await finished(database, answer)
    found = await client.batches.retrieve(batch.id)
    assert found.status in ("completed", "failed", "expired", "cancelled")
    return found


async def contents(client: openai.AsyncOpenAI, file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    return [json.loads(line) for line in (await client.files.content(file)).text.splitlines()]


async def test_a_file_is_uploaded_listed_read_and_deleted(client: openai.AsyncOpenAI) -> None:
    content = jsonl(request(f"q{n}") for n in range(3))
    made = [await client.files.create(file=(f"{n}.jsonl", content), purpose="batch") for n in range(3)]
    assert (made[0].object, made[0].bytes, made[0].filename, made[0].purpose) == (
        "file", len(content), "0.jsonl", "batch")  # fmt: skip
    assert made[0].expires_at == made[0].created_at + 30 * 24 * 3600
    assert [file.id async for file in client.files.list(limit=2)] == [file.id for file in reversed(made)]
    assert [file.id async for file in client.files.list(limit=2, order="asc", purpose="batch")] == [
        file.id for file in made
    ]
    assert [file.id async for file in client.files.list(purpose="batch_output")] == []
    assert (await client.files.content(made[1].id)).content == content
    assert (await client.files.delete(made[1].id)).deleted
    for asked in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            await asked(made[1].id)
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve("file-nothing")


async def test_a_file_expires_when_its_owner_says(client: openai.AsyncOpenAI, database: Database) -> None:
    file = await client.files.create(
        file=b"{}", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    await scene.run_sql(database, "UPDATE files SET expires_at = now()")
    with pytest.raises(openai.NotFoundError):
        await client.files.content(file.id)
    assert [each.id async for each in client.files.list()] == []
    await step(database)
    assert await scene.scalar(database, "SELECT count(*) FROM file_chunks") == 0


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"purpose": "fine-tune"}, "purpose"),
        ({"file": b""}, "file"),
        ({"file": b"x" * 2001}, "file"),
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "last_active_at", "seconds": 3600}}, "expires_after.anchor"),
        ({"extra_body": {"colour": "red"}}, "colour"),
    ],
)
async def test_an_upload_that_cannot_be_taken_is_refused_by_field(
    client: openai.AsyncOpenAI, database: Database, monkeypatch: pytest.MonkeyPatch, sent: dict[str, Any], param: str
) -> None:
    monkeypatch.setattr(files, "LARGEST", 2000)
    monkeypatch.setattr("services.orchestrator.openai.files.LARGEST", 2000)
    with pytest.raises(openai.APIStatusError) as refused:
        await client.files.create(**{"file": b"{}", "purpose": "batch", **sent})
    assert refused.value.status_code in (400, 413)
    assert param in refused.value.message
    assert await scene.scalar(database, "SELECT count(*) FROM file_chunks") == 0


async def test_a_body_without_an_end_is_refused_before_it_is_parsed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.openai.files.LARGEST", 2000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        while True:
            sent += 65536
            yield b"x" * 65536

    reply = await api.http.post(
        "/openai/v1/files", content=endless(), headers={"Content-Type": "multipart/form-data; boundary=b"}
    )
    assert reply.status_code == 413
    assert sent < files.FORM_BYTES + 4 * 65536


async def test_a_batch_over_models_and_a_pipeline_answers_every_line_once(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    names = [MODEL, OTHER, PIPELINE] * 4
    asked = [request(f"q{n}", f"What is {n // 6} plus 4?", name, temperature=0) for n, name in enumerate(names)]
    batch = await submitted(client, asked, metadata={"run": "5"})
    assert (batch.status, batch.request_counts and batch.request_counts.total) == ("validating", 0)
    await step(database)
    begun = await client.batches.retrieve(batch.id)
    assert begun.status == "in_progress"
    assert begun.in_progress_at
    assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 3
    batch = await settled(client, database, batch)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (12, 12, 0)
    assert batch.error_file_id is None
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at  # type: ignore[operator]
    assert (batch.metadata, batch.model, batch.completion_window) == ({"run": "5"}, None, "24h")
    found = await contents(client, batch.output_file_id)
    assert [each["custom_id"] for each in found] == [f"q{n}" for n in range(12)]
    bodies = [each["response"]["body"] for each in found]
    assert [body["model"] for body in bodies] == names
    assert all(body["choices"][0]["message"]["content"] and body["object"] == "chat.completion" for body in bodies)
    assert bodies[2]["mathrag"]["context"]
    assert batch.usage is not None
    assert batch.usage.total_tokens == sum(body["usage"]["total_tokens"] for body in bodies)
    generated = "SELECT count(*) FROM calls c JOIN models m ON m.id = c.model_id WHERE m.name = :model"
    assert await scene.scalar(database, generated, model=OTHER) == 2
    for (job,) in await scene.rows(database, "SELECT public_id::text FROM jobs"):
        assert await check(database, str(job)) == []


async def test_a_line_that_fails_is_in_the_error_file_and_the_others_in_the_output(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    def answer(request: Request) -> Any:
        if "too long" in str(request.messages):
            return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="5000 tokens, of 4096")
        return scene.by_rule(request)

    batch = await submitted(client, [request("a"), request("b", "too long"), request("c")])
    batch = await settled(client, database, batch, answer)
    assert batch.status == "completed"
    assert [each["custom_id"] for each in await contents(client, batch.output_file_id)] == ["a", "c"]
    (failed,) = await contents(client, batch.error_file_id)
    assert (failed["custom_id"], failed["response"]["status_code"], failed["error"]) == ("b", 400, None)
    assert "5000 tokens" in failed["response"]["body"]["error"]["message"]


async def test_a_batch_whose_lines_all_failed_says_so(client: openai.AsyncOpenAI, database: Database) -> None:
    refusal = Failure(kind=FailureKind.REFUSED, detail="no")
    batch = await settled(client, database, await submitted(client, [request("a"), request("b")]), lambda _: refusal)
    assert (batch.status, batch.output_file_id, bool(batch.failed_at)) == ("failed", None, True)
    assert batch.errors is not None
    assert "none of the 2 requests" in str(batch.errors.data)
    assert [each["custom_id"] for each in await contents(client, batch.error_file_id)] == ["a", "b"]


Change = Callable[[Database, openai.AsyncOpenAI, Batch], Any]


async def _cancelled(_: Database, client: openai.AsyncOpenAI, batch: Batch) -> None:
    assert (await client.batches.cancel(batch.id)).status == "cancelling"
    assert (await client.batches.cancel(batch.id)).status == "cancelling"


async def _expired(database: Database, _: openai.AsyncOpenAI, batch: Batch) -> None:
    await scene.run_sql(database, "UPDATE batches SET expires_at = now()")


@pytest.mark.parametrize(
    ("state", "code", "change"), [("cancelled", "batch_cancelled", _cancelled), ("expired", "batch_expired", _expired)]
)
async def test_what_was_answered_before_a_batch_was_cut_off_is_kept(
    client: openai.AsyncOpenAI, database: Database, state: str, code: str, change: Change
) -> None:
    batch = await submitted(client, [request(f"q{n}", f"What is {n} plus 4?") for n in range(5)])
    await step(database)
    await scene.advance(database)
    taken = await scene.claim(database, 2)
    assert taken is not None
    await scene.answer(database, taken)
    await scene.repair(database)
    await scene.advance(database)
    halfway = await client.batches.retrieve(batch.id)
    assert halfway.request_counts is not None
    assert (halfway.request_counts.total, halfway.request_counts.completed) == (5, 2)
    await change(database, client, batch)
    batch = await settled(client, database, batch)
    assert batch.status == state
    assert getattr(batch, f"{state}_at")
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 3)
    output = await contents(client, batch.output_file_id)
    errors = await contents(client, batch.error_file_id)
    assert sorted(each["custom_id"] for each in [*output, *errors]) == [f"q{n}" for n in range(5)]
    assert [each["error"]["code"] for each in errors] == [code] * 3
    assert await scene.scalar(database, "SELECT count(*) FROM queue") == 0


async def test_embeddings_are_answered_in_a_batch_and_equal_texts_computed_once(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    await register(database, pins.embedder_identity("of static embeddings"))
    bodies = [{"input": ["a", "b", "a"]}, {"input": "b", "encoding_format": "base64"}, {"input": "c", "dimensions": 7}]
    asked = [
        {"custom_id": f"e{n}", "method": "POST", "url": "/v1/embeddings", "body": {"model": EMBEDDER, **body}}
        for n, body in enumerate(bodies)
    ]
    file = await client.files.create(file=jsonl(asked), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    batch = await settled(client, database, batch)
    assert (batch.status, batch.model, batch.request_counts and batch.request_counts.failed) == (
        "completed", EMBEDDER, 1)  # fmt: skip
    plain, packed = [each["response"]["body"]["data"] for each in await contents(client, batch.output_file_id)]
    assert [each["index"] for each in plain] == [0, 1, 2]
    assert plain[0]["embedding"] == plain[2]["embedding"] != plain[1]["embedding"]
    assert np.frombuffer(base64.b64decode(packed[0]["embedding"]), "<f4").tolist() == plain[1]["embedding"]
    (failed,) = await contents(client, batch.error_file_id)
    assert (failed["custom_id"], failed["response"]["body"]["error"]["param"]) == ("e2", "dimensions")
    assert await scene.scalar(database, "SELECT count(*) FROM calls WHERE role = 'embed'") == 3
    job = await scene.scalar(database, "SELECT public_id::text FROM jobs")
    assert await check(database, str(job)) == []


async def test_a_batch_of_embeddings_waits_until_it_is_known_what_embeds(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    line = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"model": EMBEDDER, "input": "a"}}
    file = await client.files.create(file=jsonl([line]), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    await step(database)
    assert (await client.batches.retrieve(batch.id)).status == "validating"
    await register(database, pins.embedder_identity("of static embeddings"))
    assert (await settled(client, database, batch)).status == "completed"


async def test_a_batch_that_cannot_be_used_fails_by_line_and_costs_nothing(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    bad = [request("a"), b"{\n", request("a"), request("c", model="none"), request("d", min_p=1)]
    batch = await submitted(client, bad)
    await step(database)
    batch = await client.batches.retrieve(batch.id)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.failed_at
    assert batch.errors is not None
    assert [(each.line, each.code, each.param) for each in batch.errors.data or ()] == [
        (2, "invalid_json_line", None), (3, "duplicate_custom_id", "custom_id"), (4, "model_not_found", None),
        (5, "invalid_request", "min_p"),
    ]  # fmt: skip
    left = "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM given) + (SELECT count(*) FROM batch_lines)"
    assert await scene.scalar(database, left) == 0


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"completion_window": "1h"}, "completion_window"),
        ({"endpoint": "/v1/responses"}, "endpoint"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after.seconds"),
        ({"extra_body": {"priority": "high"}}, "priority"),
    ],
)
async def test_a_batch_that_is_asked_for_wrongly_is_refused_by_field(
    client: openai.AsyncOpenAI, database: Database, sent: dict[str, Any], param: str
) -> None:
    file = await client.files.create(file=b"{}", purpose="batch")
    asked = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **sent}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.batches.create(**asked)
    assert str(refused.value.param).startswith(param)
    assert await scene.scalar(database, "SELECT count(*) FROM batches") == 0


async def test_a_batch_is_cancelled_before_its_lines_are_read(client: openai.AsyncOpenAI, database: Database) -> None:
    batch = await submitted(client, [request("a")])
    assert (await client.batches.cancel(batch.id)).status == "cancelling"
    await step(database)
    batch = await client.batches.retrieve(batch.id)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("cancelled", None, None)
    assert (await client.batches.cancel(batch.id)).status == "cancelled"
    assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 0
    done = await settled(client, database, await submitted(client, [request("a")]))
    with pytest.raises(openai.ConflictError, match="completed"):
        await client.batches.cancel(done.id)
    with pytest.raises(openai.NotFoundError):
        await client.batches.cancel("batch_none")
    assert [each.id async for each in client.batches.list(limit=1)] == [done.id, batch.id]


async def test_a_batch_is_cancelled_while_its_lines_are_stored(
    client: openai.AsyncOpenAI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go, start = asyncio.Event(), asyncio.Event(), batches.start

    async def held(*arguments: Any) -> bool:
        started = await start(*arguments)
        reached.set()
        await go.wait()
        return started

    monkeypatch.setattr(batches, "start", held)
    batch = await submitted(client, [request("a")])
    storing = asyncio.create_task(BatchAdvancer(database, SETTINGS).run_once())
    await reached.wait()
    cancelling = asyncio.create_task(client.batches.cancel(batch.id))
    await scene.somebody_waits(database)
    go.set()
    await asyncio.gather(storing, cancelling)
    batch = await settled(client, database, batch)
    assert batch.status == "cancelled"
    assert [each["error"]["code"] for each in await contents(client, batch.error_file_id)] == ["batch_cancelled"]


async def test_a_cancel_that_comes_before_the_jobs_is_not_overtaken(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    batch = await submitted(client, [request("a")])
    (seen_before,) = await batches.list_live(database)
    await client.batches.cancel(batch.id)
    await batch_work.advance_batch(database, SETTINGS, seen_before)
    assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 0
    assert (await settled(client, database, batch)).status == "cancelled"


async def test_a_batch_says_that_the_service_failed(
    client: openai.AsyncOpenAI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await submitted(client, [request(name, name)]) for name in "ab"]

    async def fails(*_: Any) -> None:
        raise ZeroDivisionError

    await step(database)
    with monkeypatch.context() as broken:
        broken.setattr(batch_work, "validate", fails)
        third = await submitted(client, [request("c")])
        await step(database)
    assert "internal_error" in str((await client.batches.retrieve(third.id)).errors)
    with monkeypatch.context() as broken:
        broken.setattr(batch_work, "finish", fails)
        await finished(database)
        await step(database)
    assert (await client.batches.retrieve(first.id)).status == "finalizing"
    assert (await settled(client, database, second)).status == "completed"
    assert (await client.batches.retrieve(first.id)).status == "completed"


async def test_two_orchestrators_bring_a_batch_on_once(client: openai.AsyncOpenAI, database: Database) -> None:
    batch = await submitted(client, [request("a"), request("b", "What is 5 plus 4?", OTHER)])
    async with scene.processes(database, 2) as others:
        for _ in range(3):
            await asyncio.gather(*(BatchAdvancer(other, SETTINGS).run_once() for other in others))
        await finished(database)
        for _ in range(4):
            await asyncio.gather(*(BatchAdvancer(other, SETTINGS).run_once() for other in others))
    assert (await client.batches.retrieve(batch.id)).status == "completed"
    assert await scene.scalar(database, "SELECT count(*) FROM jobs") == 2
    assert await scene.scalar(database, "SELECT count(*) FROM files WHERE purpose = 'batch_output'") == 1
    assert await scene.scalar(database, "SELECT count(DISTINCT file) FROM file_chunks") == 2


async def test_a_batch_waits_while_as_many_jobs_run_as_may(client: openai.AsyncOpenAI, database: Database) -> None:
    crowded = SETTINGS.model_copy(update={"limits": Limits(live_jobs=1)})
    first, second = [await submitted(client, [request(name, name)]) for name in "ab"]
    await BatchAdvancer(database, crowded).run_once()
    assert [(await client.batches.retrieve(each.id)).status for each in (first, second)] == [
        "in_progress", "validating"]  # fmt: skip
    await finished(database)
    for _ in range(3):
        await BatchAdvancer(database, crowded).run_once()
    assert [(await client.batches.retrieve(each.id)).status for each in (first, second)] == [
        "completed", "in_progress"]  # fmt: skip


async def test_a_batch_with_more_lines_than_its_key_may_ever_have_fails_at_once(
    client: openai.AsyncOpenAI, database: Database
) -> None:
    batch = await submitted(client, [request(name, name) for name in "abc"])
    await scene.run_sql(database, "UPDATE batches SET submitted_by = 'ann'")
    limited = SETTINGS.model_copy(update={"limits": Limits(samples_per_key=2)})
    await BatchAdvancer(database, limited).run_once()
    found = await client.batches.retrieve(batch.id)
    assert found.status == "failed"
    assert found.errors
    assert found.errors.data
    [error] = found.errors.data
    assert error.code == "too_large"
    assert error.message
    assert "3 samples at once are more than `limits.samples_per_key` allows the key 'ann' (2)" in error.message


async def test_jobs_of_a_batch_are_purged_when_its_files_are_written(
    client: openai.AsyncOpenAI, database: Database, owner_url: str
) -> None:
    batch = await submitted(client, [request("a")])
    await step(database)
    await finished(database)
    owner = Database(owner_url, pinned=False)
    with pytest.raises(Conflict, match="in_progress"):
        await purge.find_jobs(owner, [f"{batch.id}-1"])
    assert await purge.find_outdated(owner, None, 0) == []
    batch = await settled(client, database, batch)
    for job in await purge.find_jobs(owner, [f"{batch.id}-1"]):
        await purge.purge(owner, job, "a-test")
    await purge.forget_questions(owner)
    assert (await client.batches.retrieve(batch.id)).status == "completed"
    assert len(await contents(client, batch.output_file_id)) == 1
    await scene.force(owner_url, "UPDATE batches SET ended_at = now() - interval '31 days'")
    await purge.forget_questions(owner)
    with pytest.raises(openai.NotFoundError):
        await client.batches.retrieve(batch.id)
    await owner.close()
