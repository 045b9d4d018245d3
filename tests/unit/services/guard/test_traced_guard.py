"""The guard's model calls as spans: one each, however it ends, inside the chunk that asked for it."""

import asyncio

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from services.guard.guard import Guard, ServedModel
from shared.calls import Decoding, ModelCall, RunRequest
from shared.models.openai_compatible import OpenAICompatible
from shared.telemetry import traces as traces_module
from tests.doubles.chat_server import answer, chat_server
from tests.doubles.puppets import PuppetServer, StepClock
from tests.unit.tracing import Spans, tracing

pytestmark = pytest.mark.anyio
QWEN = 1


def traced_guard(server: PuppetServer) -> Guard:
    guard = Guard("cpu:0", StepClock())  # type: ignore[arg-type]
    guard.open(EPOCH, {QWEN: ServedModel(server, 2, name="qwen", driver="process")})
    return guard


def chunk_of(*prompts: str) -> RunRequest:
    calls = (
        ModelCall(id=n, model_id=QWEN, prompt=each, decoding=Decoding(max_tokens=9), seed=n)
        for n, each in enumerate(prompts)
    )
    return RunRequest(epoch=EPOCH, calls=tuple(calls))


async def drained(guard: Guard, request: RunRequest) -> None:
    with traces_module.span("POST /run"):
        async for _ in guard.run(request):
            pass


def calls(spans: Spans) -> list[ReadableSpan]:
    return sorted(spans.named("chat qwen"), key=lambda span: span.attributes["mathrag.call.id"])


async def test_every_call_of_a_chunk_is_a_span() -> None:
    server = PuppetServer()
    with tracing() as spans, anyio.fail_after(30):
        running = asyncio.create_task(drained(traced_guard(server), chunk_of("a", "b")))
        await server.has(2)
        server.answer()
        await running
    first, second = calls(spans)
    assert {first.parent.span_id, second.parent.span_id} == {spans.one("POST /run").context.span_id}
    assert (first.attributes["gen_ai.provider.name"], first.attributes["gen_ai.request.max_tokens"]) == ("process", 9)
    assert (second.attributes["gen_ai.request.seed"], second.attributes["gen_ai.usage.output_tokens"]) == (1, 2)
    assert {span.attributes["mathrag.concurrency"] for span in (first, second)} == {1, 2}


async def test_a_call_on_a_server_that_dies_says_so() -> None:
    server = PuppetServer()
    with tracing() as spans, anyio.fail_after(30):
        running = asyncio.create_task(drained(traced_guard(server), chunk_of("a")))
        await server.has(1)
        server.die()
        await running
    assert calls(spans)[0].attributes["error.type"] == "lapsed"


async def test_a_call_that_is_aborted_ends_its_span() -> None:
    server = PuppetServer()
    guard = traced_guard(server)
    with tracing() as spans, anyio.fail_after(30):
        running = asyncio.create_task(drained(guard, chunk_of("a")))
        await server.has(1)
        await guard.cancel()
        await running
    assert calls(spans)[0].attributes["error.type"] == "CancelledError"


async def test_the_model_server_is_told_the_trace() -> None:
    with tracing() as spans:
        async with chat_server(lambda _: answer("hi")) as server:
            client = OpenAICompatible(server.url, model="qwen")
            with traces_module.span("chat qwen"):
                await client.complete("a", Decoding(), seed=1)
            await client.close()
    told = traces_module.parse_traceparent(server.seen[0].headers["traceparent"])
    assert told is not None
    assert (told.trace, told.span) == (
        spans.one("chat qwen").context.trace_id,
        spans.one("chat qwen").context.span_id,
    )


async def test_a_model_server_is_told_nothing_when_nothing_is_traced() -> None:
    async with chat_server(lambda _: answer("hi")) as server:
        client = OpenAICompatible(server.url, model="qwen")
        await client.complete("a", Decoding(), seed=1)
        await client.close()
    assert "traceparent" not in server.seen[0].headers
