"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing is left to do.

While an operation is under way at the database, no time passes and nothing else begins: what happens in which order
follows from the program and the seed alone, never from how fast the machine is.
"""

import asyncio
import itertools
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import UTC, datetime, tzinfo
from types import ModuleType
from typing import Any, Protocol

STALL_S = 0.002
"""Real time without an answer, after which it is asked whether the operation waits for a lock."""
HANG_S = 60.0
"""Real time without an answer, after which the database is taken for dead."""
EPOCH_S = 1_900_000_000
"""The wall clock's start."""


class Operations(Protocol):
    """Work that may run outside the loop."""

    def under_way(self) -> bool:
        """Whether an answer is waited for."""
        ...

    def expects(self, file: int) -> bool:
        """Whether the answer that is waited for comes over this file."""
        ...

    def stalled(self) -> bool:
        """No answer has come for a while; return whether that is explained, so that others may continue."""
        ...


class NothingLeft(Exception):
    """No timer, no operation and no ready task: all tasks wait for each other."""


class _Selector(selectors.DefaultSelector):
    """Asked by the loop for input. `timeout` 0 means that something is ready: then input has to wait."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return []
        if self.loop.operations is not None and self.loop.operations.under_way():
            return self._answer(self.loop.operations)
        if timeout is None:
            raise NothingLeft
        self.loop.advance(timeout)
        return []

    def _answer(self, operations: Operations) -> list[tuple[selectors.SelectorKey, int]]:
        """Return only the expected answer: an early answer waits for its turn."""
        began = asked = time.monotonic()
        while True:
            events = super().select(STALL_S)
            if expected := [event for event in events if operations.expects(event[0].fd)]:
                return expected
            now = time.monotonic()
            if now - asked >= STALL_S:
                asked = now
                if operations.stalled():
                    return []
            if now - began > HANG_S:
                raise TimeoutError("the database does not answer")


class NumberedTask(asyncio.Task[Any]):
    """Its place in a set follows from its number, not from its address: sets of tasks have the same order every run."""

    numbers = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.number = next(NumberedTask.numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual seconds."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self.operations: Operations | None = None
        self.born: Callable[[asyncio.Task[Any], Context | None], None] = lambda task, context: None
        """Is told of every task, and of the context that it was given, if one was."""
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self.set_task_factory(self._task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._virtual += seconds

    def restart(self) -> None:
        """Zero again, without the timers of before: the same seed then computes with the same numbers."""
        for timer in self._scheduled:  # type: ignore[attr-defined]
            timer.cancel()
        self._scheduled.clear()  # type: ignore[attr-defined]
        self._timer_cancelled_count = 0
        self._virtual = 0.0
        NumberedTask.numbers = itertools.count()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Run at once, in this thread, because there is no other."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            future.set_exception(error)
        return future

    def _task(
        self, _loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> NumberedTask:
        task = NumberedTask(coroutine, loop=self, context=context)
        self.born(task, context)
        return task


class WallClock:
    """What `datetime.now` and `time.monotonic` say, on a host whose wall clock may be set."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.offset_s = 0.0
        """Of the host's wall clock."""

    def monotonic(self) -> float:
        """Seconds."""
        return self._loop.time()

    def time(self) -> float:
        """Seconds since 1970."""
        return EPOCH_S + self._loop.time() + self.offset_s


def install(clock: WallClock) -> Callable[[], None]:
    """Make every module of the project that reads a clock read this one; return the undo function."""

    class VirtualDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(clock.time(), tz or UTC)

    replaced = [
        (module, name, real, virtual)
        for module in _ours()
        for name, real, virtual in (("time", time, clock), ("datetime", datetime, VirtualDatetime))
        if getattr(module, name, None) is real
    ]
    for module, name, _, virtual in replaced:
        setattr(module, name, virtual)

    def undo() -> None:
        for module, name, real, _ in replaced:
            setattr(module, name, real)

    return undo


def _ours() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith(("shared.", "services."))]
