"""Measure the speed of one model by its number of slots: `python -m services.guard --tune MODEL`.

The process owns the device as a guard does, so it never runs beside one: no call of a job distorts the measurement, and
no other model takes the memory. It reads a `Workload` from standard input and prints `Line`s.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

import msgspec

from services.guard import ownership
from services.guard.app import make_driver
from services.guard.drivers.ports import Driver, DriverError, ModelServer
from shared.lease.memory import MemoryEstimate, estimate_memory
from shared.models.chat import ChatFailed
from shared.models.tuning import (
    SIZES,
    WINDOWS,
    Line,
    Measurement,
    Problem,
    SampleCall,
    Skipped,
    Workload,
    has_peaked,
    is_llama,
)
from shared.settings import Model, Settings

LONGEST_WINDOW_S = 20.0
"""A window of slow calls ends with the first call after this time."""
Prompts = Iterator[tuple[int, SampleCall]]
"""Calls without an end, each with its seed."""


def run(settings: Settings, name: str) -> int:
    """Measure the model, print the lines, and return the exit status."""
    workload = msgspec.json.decode(sys.stdin.buffer.read(), type=Workload)
    try:
        return asyncio.run(_print_lines(settings, name, workload))
    except KeyboardInterrupt:  # the command that reads the lines reports it; the server has been stopped
        return 130


async def _print_lines(settings: Settings, name: str, workload: Workload) -> int:
    status = 0
    async for line in measure(partial(make_driver, name, settings.models[name], settings), settings, name, workload):
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()
        status = int(isinstance(line, Problem))
    return status


async def measure(make: Callable[[], Driver], settings: Settings, name: str, workload: Workload) -> AsyncIterator[Line]:
    """Yield a measurement for each number of slots until more of them are slower, or do not fit, as the last line says.

    A failure with more slots than the fewest is a limit, too, since it may come from a lack of memory.
    """
    model, measured = settings.models[name], list[Measurement]()
    try:
        async with _own_device(settings, model):
            driver = make()
            await driver.identify()
            await driver.take_over()
            memory = await _estimate_memory(driver, model, on_gpu=not settings.device.id.startswith("cpu"))
            room = settings.device.models_mib
            sizes = [size for size in SIZES if size == SIZES[0] or memory is None or memory.at(size) <= room]
            prompts = enumerate(itertools.cycle(workload.calls))
            async with aclosing(_serve_sizes(driver, model, sizes)) as servers:
                async for size, server in servers:
                    windows = await _measure_windows(server, size, prompts, workload.window_s)
                    measured.append(Measurement(slots=size, windows=windows, mib=memory.at(size) if memory else None))
                    yield measured[-1]
                    if has_peaked(measured):
                        return
            if memory is not None and len(sizes) < len(SIZES):
                size = SIZES[len(sizes)]
                needs = f"they need {memory.at(size)} MiB; `budget_mib` leaves {room} MiB for models"
                yield Skipped(slots=size, reason=needs)
    except ownership.DeviceTaken as taken:
        yield Problem(kind="conflict", message=str(taken), hint="stop the stack first: mathrag down")
    except ownership.LOST as lost:
        yield Problem(kind="unavailable", message=f"the device's lock in PostgreSQL cannot be taken: {lost!r}")
    except (DriverError, ChatFailed) as failed:
        if measured:
            yield Skipped(slots=2 * measured[-1].slots, reason=str(failed))
        else:
            yield Problem(kind="unavailable", message=str(failed))


@asynccontextmanager
async def _own_device(settings: Settings, model: Model) -> AsyncIterator[None]:
    """Hold the locks of the model's device inside the block; a remote model needs none.

    Raises:
        DeviceTaken: a guard runs.
    """
    async with AsyncExitStack() as stack:
        if model.driver != "remote":
            stack.enter_context(ownership.own_on_host(settings))
            if settings.database_url:
                await stack.enter_async_context(ownership.own_in_database(settings))
        yield


async def _estimate_memory(driver: Driver, model: Model, *, on_gpu: bool) -> MemoryEstimate | None:
    """Return the memory by the number of slots; None if nothing is known of it, or it is another host's."""
    if model.driver == "remote":
        return None
    memory = estimate_memory(
        declared_mib=model.footprint_mib, architecture=await driver.architecture(), context=model.context,
        parallel=model.parallel, on_gpu=on_gpu,
    )  # fmt: skip
    return memory if memory.source else None


async def _serve_sizes(driver: Driver, model: Model, sizes: list[int]) -> AsyncGenerator[tuple[int, ModelServer]]:
    """Yield each number of slots with a server that has them.

    llama.cpp is started anew for each, since its slots are fixed at the start and share one cache. Other servers start
    once with the most slots and get fewer calls at once: that saves minutes with vLLM, and servers of others cannot be
    started anew.

    Raises:
        DriverError: the model cannot be loaded with these slots.
    """
    for group in [[size] for size in sizes] if is_llama(model) else [sizes]:
        server = await driver.start(group[-1])
        try:
            for size in group:
                yield size, server
        finally:
            await server.stop()


async def _measure_windows(server: ModelServer, size: int, prompts: Prompts, window_s: float) -> tuple[float, ...]:
    """Return the calls per second in consecutive windows, while `size` calls are always running.

    The first window begins when as many calls have ended as run at once. Windows begin and end with the end of a call,
    so that slow calls are not counted in parts.

    Raises:
        ChatFailed: a call failed.
    """
    ends: asyncio.Queue[float] = asyncio.Queue()

    async def keep_calling() -> None:
        for seed, call in prompts:
            await server.complete(call.prompt, call.decoding, seed)
            ends.put_nowait(time.monotonic())
            await asyncio.sleep(0)  # a server that answers without waiting would starve all else

    windows, end = [], 0.0
    try:
        async with asyncio.TaskGroup() as group:
            callers = [group.create_task(keep_calling()) for _ in range(size)]
            for _ in range(size):
                end = await ends.get()
            for _ in range(WINDOWS):
                count, begin = 0, end
                while end < begin + window_s or (count < size and end < begin + LONGEST_WINDOW_S):
                    count, end = count + 1, await ends.get()
                windows.append(count / (end - begin))
            for caller in callers:
                caller.cancel()
    except* ChatFailed as failures:
        raise failures.exceptions[0] from None
    return tuple(windows)
