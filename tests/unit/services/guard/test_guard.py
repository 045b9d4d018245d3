"""The guard: what is admitted, what is aborted, what a receipt says, and what becomes a span."""

import asyncio
import os
import sys
from collections.abc import Sequence

import anyio
import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from services.guard import __main__ as program
from services.guard.guard import Guard, ServedModel, StaleEpoch
from shared.calls import Completion, Decoding, End, ModelCall, RunRequest
from shared.models.chat import ChatFailed, ServerAway, ServerUnreached
from shared.models.openai_compatible import OpenAICompatible
from shared.replies import FailureKind
from shared.telemetry import traces
from tests.doubles.chat_server import answer, chat_server
from tests.doubles.puppets import PuppetServer, StepClock
from tests.unit.tracing import Spans, tracing

pytestmark = pytest.mark.anyio

# The guard's part of the race table: what is admitted, what is aborted, and what a receipt says.

EPOCH, JUDGE, GENERATOR, REMOTE = 7, 1, 2, 3


def call(number: int, model_id: int = JUDGE) -> ModelCall:
    return ModelCall(id=number, model_id=model_id, prompt=str(number), decoding=Decoding(), seed=0)


def chunk(*calls: ModelCall | int, epoch: int | None = EPOCH) -> RunRequest:
    return RunRequest(epoch=epoch, calls=tuple(call(each) if isinstance(each, int) else each for each in calls))


def guard_with(*servers: PuppetServer, parallel: int = 8) -> Guard:
    guard = Guard("cpu:0", StepClock())  # type: ignore[arg-type]
    guard.open(EPOCH, {n + 1: ServedModel(server, parallel) for n, server in enumerate(servers)})
    return guard


async def completions(guard: Guard, request: RunRequest) -> list[Completion]:
    return sorted([each async for ended in guard.run(request) for each in ended], key=lambda each: each.id)


def sent(guard: Guard, request: RunRequest) -> "asyncio.Task[list[Completion]]":
    return asyncio.create_task(completions(guard, request))


async def started(*numbers: int, parallel: int = 8) -> tuple[PuppetServer, Guard, asyncio.Task[list[Completion]]]:
    """A server, its guard, and calls of one chunk, as many as may run of which do."""
    server = PuppetServer()
    guard = guard_with(server, parallel=parallel)
    running = sent(guard, chunk(*numbers))
    await server.has(min(len(numbers), parallel))
    return server, guard, running


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def ends(found: Sequence[Completion]) -> list[End]:
    return [each.end for each in found]


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1, None])
async def test_a_stale_epoch_is_refused_before_any_byte_goes_out(epoch: int | None) -> None:
    server = PuppetServer()
    guard = guard_with(server)
    with pytest.raises(StaleEpoch):
        await anext(guard.run(chunk(1, 2, epoch=epoch)))
    await turns()
    assert server.started == []
    assert guard.in_flight == 0


async def test_a_claim_that_commits_after_draining_began_is_refused() -> None:
    server = PuppetServer()
    guard = guard_with(server)
    guard.close()
    with pytest.raises(StaleEpoch):
        await anext(guard.run(chunk(1)))
    assert server.started == []


async def test_a_chunk_with_one_foreign_model_is_refused_whole() -> None:
    server = PuppetServer()
    guard = guard_with(server)
    with pytest.raises(StaleEpoch):
        await anext(guard.run(chunk(1, call(2, GENERATOR))))
    await turns()
    assert server.started == []
    assert guard.in_flight == 0


async def test_the_epoch_check_and_the_count_in_flight_happen_without_an_await_between_them() -> None:
    guard = guard_with(PuppetServer())
    stream = guard.run(chunk(1, 2, 3))
    with pytest.raises(StopIteration):  # the generator's first step came to its end in one go
        anext(stream).send(None)  # type: ignore[attr-defined]
    assert guard.in_flight == 3
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("drain_first", [False, True])
async def test_a_drain_that_begins_while_a_chunk_is_being_admitted_never_sees_an_idle_device(drain_first: bool) -> None:
    server = PuppetServer()
    guard = guard_with(server)

    async def drain() -> int:
        guard.close()
        await guard.wait_idle()
        return len(server.started) - len(server.finished)

    draining = asyncio.create_task(drain()) if drain_first else None
    running = sent(guard, chunk(1))
    draining = draining or asyncio.create_task(drain())
    await turns()
    assert draining.done() is drain_first
    assert len(server.running) == (0 if drain_first else 1)
    server.answer()
    assert await draining == 0
    (result,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(result, StaleEpoch) is drain_first


async def test_a_drain_waits_for_the_last_call_in_flight() -> None:
    server, guard, running = await started(1, 2)
    guard.close()
    idle = asyncio.create_task(guard.wait_idle())
    server.answer("1")
    await turns()
    assert not idle.done()
    server.answer("2")
    await idle
    assert ends(await running) == [End.ANSWERED, End.ANSWERED]


async def test_a_client_that_goes_away_cancels_its_calls_upstream() -> None:
    server = PuppetServer()
    guard = guard_with(server, parallel=1)
    stream = guard.run(chunk(1, 2))
    await anext(stream)
    other = sent(guard, chunk(3))
    await server.has(1)
    await stream.aclose()  # type: ignore[attr-defined]
    assert server.aborted == ["1"]
    assert guard.in_flight == 1
    await server.has(1)  # the slot went to the other client, not to the second call of the one that left
    assert server.started == ["1", "3"]
    server.answer()
    assert ends(await other) == [End.ANSWERED]


async def test_a_client_that_goes_away_does_not_hold_the_device() -> None:
    server = PuppetServer()
    guard = guard_with(server)
    async with anyio.create_task_group() as group:
        group.start_soon(completions, guard, chunk(1, 2))
        await server.has(2)
        group.cancel_scope.cancel()
    await turns()
    assert sorted(server.aborted) == ["1", "2"]
    assert guard.in_flight == 0


async def test_aborted_calls_come_back_released() -> None:
    server, guard, running = await started(1, 2, parallel=1)
    guard.close()
    await guard.cancel()
    assert guard.in_flight == 0
    assert server.aborted == ["1"]
    assert ends(await running) == [End.RELEASED, End.RELEASED]


async def test_a_reply_that_came_before_the_abort_is_kept() -> None:
    server, guard, running = await started(1, 2)
    server.answer("1")
    await server.has(1)
    await guard.cancel()
    assert ends(await running) == [End.ANSWERED, End.RELEASED]


async def test_after_an_abort_the_next_epoch_runs_as_usual() -> None:
    guard = guard_with(PuppetServer())
    running = sent(guard, chunk(1))
    await turns()
    await guard.cancel()
    await running
    server = PuppetServer()
    guard.open(EPOCH + 1, {JUDGE: ServedModel(server, 1)})
    again = sent(guard, chunk(1, epoch=EPOCH + 1))
    await server.has(1)
    server.answer()
    assert [(each.end, each.epoch) for each in await again] == [(End.ANSWERED, EPOCH + 1)]


async def test_a_server_that_dies_lapses_what_ran_on_it() -> None:
    judge, generator = PuppetServer(), PuppetServer()
    guard = guard_with(judge, generator)
    running = sent(guard, chunk(1, 2, call(3, GENERATOR)))
    await judge.has(2)
    await generator.has(1)
    judge.die()
    generator.answer()
    assert ends(await running) == [End.LAPSED, End.LAPSED, End.ANSWERED]


async def test_one_death_of_a_server_is_charged_to_the_calls_that_it_was_running_alone() -> None:
    server, guard, running = await started(1, 2, 3, parallel=2)
    server.fail("1", ServerUnreached("connection refused"))
    server.die()
    with anyio.fail_after(30):
        assert ends(await running) == [End.RELEASED, End.LAPSED, End.RELEASED]
        assert ends(await completions(guard, chunk(4))) == [End.RELEASED]
    assert server.started == ["1", "2"]


async def test_a_call_that_is_aborted_while_it_waits_for_a_slot_of_a_dead_server_is_released() -> None:
    server, guard, running = await started(1, 2, parallel=1)
    server.died = True
    await guard.cancel()
    assert ends(await running) == [End.LAPSED, End.RELEASED]


async def test_a_server_that_is_lost_alive_releases_what_ran_on_it() -> None:
    server, guard, running = await started(1, 2)
    server.lose()
    server.fail("1", ChatFailed(FailureKind.CONNECTION, "reset"))
    await server.has(1)
    await guard.cancel()
    assert ends(await running) == [End.RELEASED, End.RELEASED]


async def test_a_lost_connection_to_a_server_that_lives_is_a_failure_of_the_backend() -> None:
    server, _, running = await started(1)
    server.fail("1", ChatFailed(FailureKind.CONNECTION, "reset"))
    with anyio.fail_after(30):
        (found,) = await running
    assert (found.end, found.failure, found.detail) == (End.ANSWERED, FailureKind.CONNECTION, "reset")


@pytest.mark.parametrize("away", [ServerAway("HTTP 503: busy"), ServerUnreached("connection refused")])
async def test_a_call_waits_for_a_server_that_is_away(away: ServerAway) -> None:
    server, _, running = await started(1)
    server.fail("1", away)
    with anyio.fail_after(30):
        (found,) = await running
    assert (found.end, found.failure, found.detail) == (End.WAITS, None, away.detail)
    assert found.what.startswith("the server of model")


@pytest.mark.parametrize("kind", [FailureKind.CONTEXT_EXCEEDED, FailureKind.TIMEOUT, FailureKind.BACKEND_ERROR])
async def test_a_typed_failure_is_passed_on_with_its_kind(kind: FailureKind) -> None:
    server, _, running = await started(1, 2)
    server.fail("1", ChatFailed(kind, "x" * 1000))
    await server.has(1)
    server.answer("2")
    first, second = await running
    assert (first.end, first.failure, len(first.detail)) == (End.ANSWERED, kind, 500)
    assert (second.failure, second.text) == (None, "re: 2")


async def test_an_unforeseen_error_of_one_call_leaves_its_neighbours_alone() -> None:
    server, _, running = await started(1, 2)
    server.fail("1", RuntimeError("refused a request to 'elsewhere'"))
    await turns()
    if "2" in server.running:
        server.answer("2")
    first, second = await running
    assert first.failure is FailureKind.BACKEND_ERROR
    assert second.text == "re: 2"


async def test_receipts_lie_inside_the_residency() -> None:
    server = PuppetServer()
    clock = StepClock()
    guard = Guard("cpu:0", clock)  # type: ignore[arg-type]
    opened = clock.now()
    guard.open(EPOCH, {JUDGE: ServedModel(server, 1)})
    running = sent(guard, chunk(1, 2, 3))
    for _ in range(3):
        await server.has(1)
        server.answer()
        await turns()
    guard.close()
    await guard.wait_idle()
    closed = clock.now()
    found = sorted(await running, key=lambda each: each.started_at)
    stamps = [stamp for each in found for stamp in (each.started_at, each.ended_at)]
    assert [opened, *stamps, closed] == sorted({opened, *stamps, closed})
    assert {(each.device, each.epoch, each.concurrency) for each in found} == {("cpu:0", EPOCH, 1)}


async def test_a_server_is_told_which_replies_a_call_allows() -> None:
    server = PuppetServer()
    labels = ("[[1]]", "[[2]]")
    running = sent(guard_with(server), chunk(1, msgspec.structs.replace(call(2), choices=labels)))
    await server.has(2)
    server.answer()
    await running
    assert server.choices == {"1": (), "2": labels}


async def test_a_completion_carries_the_whole_reply() -> None:
    server, _, running = await started(9)
    server.answer()
    (found,) = await running
    assert (found.id, found.text, found.finish_reason) == (9, "re: 9", "stop")
    assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens) == (3, 1, 2)
    assert (found.prompt_ms, found.completion_ms) == (1.5, 0.5)


@pytest.mark.parametrize("parallel", [1, 3])
async def test_parallelism_never_exceeds_the_slots(parallel: int) -> None:
    server = PuppetServer()
    guard = guard_with(server, parallel=parallel)
    chunks = [sent(guard, chunk(*range(5))), sent(guard, chunk(*range(5, 10)))]
    while len(server.started) < 10:
        await server.has(min(parallel, 10 - len(server.started) + len(server.running)))
        server.answer(next(iter(server.running)))
        await turns()
    server.answer()
    found = [each for done in await asyncio.gather(*chunks) for each in done]
    assert server.most == parallel
    assert sorted(each.id for each in found) == list(range(10))
    assert max(each.concurrency for each in found) == parallel
    assert min(each.concurrency for each in found) == 1


async def test_a_failed_call_gives_its_slot_back() -> None:
    server, _, running = await started(1, 2, parallel=1)
    server.fail("1", ChatFailed(FailureKind.BACKEND_ERROR, "HTTP 500"))
    await turns()
    server.answer("2")
    assert [each.concurrency for each in await running] == [1, 1]


@pytest.mark.parametrize("epoch", [None, EPOCH - 1, EPOCH])
async def test_calls_of_remote_models_run_whatever_the_epoch(epoch: int | None) -> None:
    server = PuppetServer()
    guard = guard_with(PuppetServer())
    guard.serve_remote(REMOTE, ServedModel(server, 2))
    guard.close()
    running = sent(guard, chunk(call(1, REMOTE), call(2, REMOTE), epoch=epoch))
    await server.has(2)
    assert guard.in_flight == 0
    await guard.wait_idle()
    await guard.cancel()
    server.answer()
    assert [(each.end, each.epoch) for each in await running] == [(End.ANSWERED, None)] * 2


async def test_in_a_mixed_chunk_only_the_leased_calls_count() -> None:
    local, remote = PuppetServer(), PuppetServer()
    guard = guard_with(local)
    guard.serve_remote(REMOTE, ServedModel(remote, 2))
    with pytest.raises(StaleEpoch):
        await anext(guard.run(chunk(1, call(2, REMOTE), epoch=EPOCH - 1)))
    running = sent(guard, chunk(1, call(2, REMOTE)))
    await local.has(1)
    await remote.has(1)
    assert guard.in_flight == 1
    local.answer()
    remote.answer()
    assert [each.epoch for each in await running] == [EPOCH, None]
    assert guard.in_flight == 0


async def test_a_call_that_takes_too_long_is_broken_off_and_frees_its_slot() -> None:
    server = PuppetServer()
    guard = Guard("cpu:0", StepClock())  # type: ignore[arg-type]
    guard.open(EPOCH, {JUDGE: ServedModel(server, 1, 0.05)})
    with anyio.fail_after(60):
        first, second = await completions(guard, chunk(1, 2))
    for each in (first, second):
        assert (each.failure, each.detail) == (FailureKind.TIMEOUT, "no answer within 0.05 s")
    assert server.aborted == ["1", "2"]
    assert (server.most, guard.in_flight) == (1, 0)


async def test_a_reply_waits_for_a_look_after_it_and_lends_its_slot_meanwhile() -> None:
    server = PuppetServer()
    server.looks.clear()
    guard = guard_with(server, parallel=1)
    running = sent(guard, chunk(1, 2))
    for number in ("1", "2"):
        await server.has(1)
        server.answer(number)
        await server.has(0)
    await turns()
    assert not running.done()
    assert guard.in_flight == 2
    server.looks.set()
    first, second = await running
    assert ends([first, second]) == [End.ANSWERED, End.ANSWERED]
    assert first.ended_at < second.started_at


@pytest.mark.parametrize("how", ["answered", "failed"])
async def test_what_a_changed_model_said_goes_back_uncharged(how: str) -> None:
    server = PuppetServer()
    server.unchanged = False
    running = sent(guard_with(server), chunk(1))
    await server.has(1)
    if how == "answered":
        server.answer("1")
    else:
        server.fail("1", ChatFailed(FailureKind.CONTEXT_EXCEEDED, "too long"))
    (found,) = await running
    assert (found.end, found.text, found.failure) == (End.RELEASED, "", None)


async def test_a_reply_that_is_held_back_when_its_server_dies_is_no_suspect() -> None:
    server = PuppetServer()
    server.looks.clear()
    guard = guard_with(server)
    running = sent(guard, chunk(1))
    await server.has(1)
    server.answer("1")
    await turns()
    server.die()
    await guard.cancel()
    assert ends(await running) == [End.RELEASED]


# The guard's model calls as spans: one each, however it ends, inside the chunk that asked for it.

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
    with traces.span("POST /run"):
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
            with traces.span("chat qwen"):
                await client.complete("a", Decoding(), seed=1)
            await client.close()
    told = traces.parse_traceparent(server.seen[0].headers["traceparent"])
    assert told is not None
    assert (told.trace, told.span) == (spans.one("chat qwen").context.trace_id, spans.one("chat qwen").context.span_id)


async def test_a_model_server_is_told_nothing_when_nothing_is_traced() -> None:
    async with chat_server(lambda _: answer("hi")) as server:
        client = OpenAICompatible(server.url, model="qwen")
        await client.complete("a", Decoding(), seed=1)
        await client.close()
    assert "traceparent" not in server.seen[0].headers


# `python -m services.guard`: which device it takes, and what its children may see.


def test_a_device_that_is_not_configured_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MATHRAG_DEVICES", '[{"id": "cpu:1"}]')
    monkeypatch.setattr(sys, "argv", ["guard", "--device", "cpu:9", "--port", "1"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "no device 'cpu:9'; the devices are cpu:0, cpu:1" in capsys.readouterr().err


@pytest.mark.parametrize(("device", "seen"), [("GPU-0f", "GPU-0f"), ("MIG-0f", "MIG-0f"), ("cpu:0", "0,1")])
def test_what_a_guard_starts_sees_its_own_gpu_only(monkeypatch: pytest.MonkeyPatch, device: str, seen: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("MATHRAG_DEVICE__ID", device)
    monkeypatch.setattr(sys, "argv", ["guard"])
    for starts in ("create_app", "serve"):
        monkeypatch.setattr(program, starts, lambda *_, **__: None)
    monkeypatch.setattr(program.telemetry, "start", lambda *_: None)
    program.main()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
