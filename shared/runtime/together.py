"""Group commit: whoever comes while one run is under way is served by the next one, together with all who came."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Waiting(NamedTuple, Generic[T, R]):
    item: T
    result: "asyncio.Future[R]"


class Together(Generic[T, R]):
    """One run at a time of `run`, which takes items and gives a result for each, in order. Nobody waits for a timer."""

    def __init__(self, run: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._run = run
        self._waiting: list[_Waiting[T, R]] = []
        self._running: asyncio.Task[None] | None = None

    async def do(self, item: T) -> R:
        """The item's result, or the error of the run that it was part of. A caller that goes away stops nothing."""
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
            except Exception as error:  # noqa: BLE001 - each of those who wait has to know
                for each in together:
                    if not each.result.done():
                        each.result.set_exception(error)
            else:
                for each, result in zip(together, results, strict=True):
                    if not each.result.done():
                        each.result.set_result(result)
