"""Protocols of drivers and model servers for the guard, and shared checks of servers that others can change."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from shared.calls import Decoding, ModelAnswer, Prompt
from shared.runtime.pins import ModelIdentity
from shared.shapes import Architecture


class ModelServer(Protocol):
    """A model that is loaded and can be called."""

    @property
    def pid(self) -> int | None:
        """Process id of the program that was started for the model; None if none was."""
        ...

    @property
    def alive(self) -> bool:
        """Return whether it can still answer as the model that was verified."""
        ...

    @property
    def died(self) -> bool:
        """Return whether the process that answered calls has ended, maybe because of one of them.

        False if the model was only replaced, evicted or put to sleep.
        """
        ...

    @property
    def exit_status(self) -> int | None:
        """Return code of its process, negative for a signal; None while it runs, or without a process."""
        ...

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        """Answer one prompt, with `logprobs` alternatives of each token if the server can give them.

        With `choices` the reply must be one of them. Only models with `constrain_labels` get any; servers of plug-ins
        never do, and need not have this parameter.

        Raises:
            ChatFailed: the call failed; its `kind` says how.
        """
        ...

    async def confirm(self) -> bool:
        """Tell whether the server still serves the model that was verified, by a check that begins after this call.

        Replies are used once it has returned true; after false they are discarded, and their calls go back uncharged.
        False also means that the check failed. A server that only the guard can change returns true at once; one that
        others can change uses `confirmation.Confirmation`.
        """
        ...

    async def wait_exited(self) -> None:
        """Return when the server has ended by itself."""
        ...

    async def stop(self) -> None:
        """Stop the server and return when its memory is free."""
        ...

    def memory_mib(self) -> float | None:
        """Return the memory that it takes now; None if it cannot be measured."""
        ...


async def count_reloads(server: ModelServer) -> int:
    """Return how often a client other than the guard loaded the model again in its residency.

    Only servers that others can change have `count_reloads`; those of plug-ins need not.
    """
    count = getattr(server, "count_reloads", None)
    return int(await count()) if count else 0


class Driver(Protocol):
    """How one configured model is identified and loaded; by default nothing is left over, told or read ahead."""

    async def identify(self) -> ModelIdentity:
        """Return digest, version and options as they would be served now.

        Raises:
            DriverError: the model is not found.
        """
        ...

    async def take_over(self) -> None:
        """Free leftovers of the model after a killed guard, or a stop that freed no memory. Best effort."""
        return  # a default: without a statement, the method would be abstract

    async def architecture(self) -> Architecture | None:
        """Return the data from which its footprint is estimated; None if the backend does not report them."""
        return None

    async def warm(self) -> None:
        """Read the files of the next load ahead, while another model is resident. Best effort."""
        return  # a default, as above

    async def start(self, parallel: int | None = None) -> ModelServer:
        """Load the model with the configured number of slots, or with fewer (`parallel`) if the plan has no more room.

        Raises:
            DriverError: it was not loaded; the message says why.
        """
        ...


async def find_obstacle(driver: Driver) -> str | None:
    """Return an obstacle to loading the model now, other than another identity; None if none is found.

    Only drivers of servers that others use have `find_obstacle`, which changes nothing; those of plug-ins need not.
    """
    find = getattr(driver, "find_obstacle", None)
    return await find() if find else None


class DriverError(Exception):
    """A model could not be identified or loaded; the message names the fix."""


INTERVAL_S = 0.25
"""Between the starts of two checks while calls run, so that checks do not burden a busy server. Replies wait for it,
and new calls for them: it is half of a worker's `CHUNK_S`, so that these come before the server stands idle."""
IDLE_INTERVAL_S = 0.1
"""Between the starts of two checks while no call runs: then finished replies wait for nothing but the check."""


class Confirmation:
    """Rate-limited checks whether a server still serves the verified model; `look` checks once and never raises."""

    def __init__(self, look: Callable[[], Awaitable[bool]]) -> None:
        self._run_check = look
        self._lock = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._begun_checks = 0
        """Number of checks that have begun."""
        self._began_at = -math.inf
        self._found: bool | None = None
        """Result of the last check; None while it runs, and if it was cancelled."""

    @contextmanager
    def track_call(self) -> Iterator[None]:
        """Count a call to the server as running inside the block."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def check(self) -> bool:
        """Return the result of a check that begins after this call, so that it sees every change before the call.

        Concurrent callers share one check.
        """
        begun_before = self._begun_checks
        async with self._lock:
            if self._found is None or self._begun_checks == begun_before:
                now = asyncio.get_running_loop().time
                await asyncio.sleep(max(0.0, self._began_at + IDLE_INTERVAL_S - now()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), max(0.0, self._began_at + INTERVAL_S - now()))
                self._begun_checks += 1
                self._began_at, self._found = now(), None
                self._found = await self._run_check()
            return self._found
