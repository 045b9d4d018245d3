"""Order the builds of indexes, so that a small corpus does not wait for a large one."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

AT_ONCE = 2
"""Builds at once. At most one of them is large, and the other place is for small ones."""
SMALL_BYTES = 8 << 20
"""Largest text of a small build, in bytes: some 15 seconds on a core with the shipped embedder."""
BYTES_PER_S = 1 << 19
"""Text that a core indexes in a second, about: a build can be overtaken only for as long as it takes itself."""


@dataclass(eq=False)
class Turn:
    """A build that waits or runs."""

    signature: str
    size: int
    due: float
    """Waiting builds start in this order: of arrival, each put back by the time that its text may take."""
    started: anyio.Event = field(default_factory=anyio.Event)


class BuildQueue:
    """Starts waiting builds, small ones first, and no two of the same index at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []

    @property
    def signatures(self) -> set[str]:
        """Signatures of the indexes that are being built now."""
        return {turn.signature for turn in self._running}

    @asynccontextmanager
    async def take_turn(self, signature: str, size: int) -> AsyncIterator[None]:
        """Wait until an index may be built or deleted, and hold the place for the length of the block.

        Args:
            signature: the index's signature.
            size: length of the corpus's texts in bytes.
        """
        turn = Turn(signature, size, self._clock() + size / BYTES_PER_S)
        self._waiting.append(turn)
        try:
            self._start_waiting()
            await turn.started.wait()
            yield
        finally:  # a request that is cancelled while it waits ends here, too
            (self._running if turn in self._running else self._waiting).remove(turn)
            self._start_waiting()

    def _start_waiting(self) -> None:
        for turn in sorted(self._waiting, key=lambda each: each.due):
            if self._may_start(turn):
                self._waiting.remove(turn)
                self._running.append(turn)
                turn.started.set()

    def _may_start(self, turn: Turn) -> bool:
        if len(self._running) >= AT_ONCE or turn.signature in self.signatures:
            return False
        return turn.size <= SMALL_BYTES or all(each.size <= SMALL_BYTES for each in self._running)
