"""Group commit: items that arrive during a run are processed together by the next run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Waiting(NamedTuple, Generic[T, R]):
    item: T
    result: "asyncio.Future[R]"


class GroupCommit(Generic[T, R]):
    """Calls `run`, which returns one result per item in order, one run at a time and without a timer."""

    def __init__(self, run: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._run = run
        self._waiting: list[_Waiting[T, R]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """Return the item's result or raise the error of its run. A cancelled caller does not stop the run."""
        waiting = _Waiting(item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._serve())
        result: R = await waiting.result
        return result

    async def _serve(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting, []
            try:
                results = await self._run([each.item for each in together])
            except Exception as error:  # noqa: BLE001 - every waiting caller gets the error
                for each in together:
                    if not each.result.done():
                        each.result.set_exception(error)
            else:
                for each, result in zip(together, results, strict=True):
                    if not each.result.done():
                        each.result.set_result(result)
