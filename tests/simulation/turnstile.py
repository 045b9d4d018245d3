"""One operation at a time goes to the database; one that waits for a lock stands aside until somebody lets go of it."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar

import asyncpg

T = TypeVar("T")

ROWS = 7
"""Class of the advisory locks, one a backend, that it takes before each call that it inserts (see `store`)."""
WAITING = """
    SELECT pid, concat_ws('/', locktype, relation, page, tuple, virtualxid, transactionid, classid, objid) AS lock
    FROM pg_locks WHERE NOT granted AND pid = ANY($1::int[])"""


class Watch:
    """A connection of its own, in a thread of its own: asks who waits for a lock while the loop stands still."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection = self.do(asyncpg.connect(url.replace("+asyncpg", "")))

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(60)

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Ask the database, whatever goes on elsewhere."""
        return self.do(self._connection.fetch(sql, *values))

    def waiting(self, pids: Collection[int]) -> dict[int, str]:
        """Those of the backends that wait, and for which lock."""
        return {row["pid"]: row["lock"] for row in self.rows(WAITING, sorted(pids))}

    def abort(self, pid: int) -> None:
        """Let a backend's statement end with an error."""
        self.rows("SELECT pg_cancel_backend($1)", pid)

    def hold(self, pid: int) -> None:
        """Stop a backend between two rows that it inserts."""
        self.rows("SELECT pg_advisory_lock($1, $2)", ROWS, pid)

    def let_go(self, pid: int) -> None:
        """It stops no more."""
        self.rows("SELECT pg_advisory_unlock($1, $2)", ROWS, pid)

    def close(self) -> None:
        """Close the connection, end the thread."""
        self.do(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Turnstile:
    """Operations in the order in which they come; `ahead` is at the database, `aside` wait there for locks."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._ahead: set[int] = set()
        self._aside: dict[int, str] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self._backends: dict[int, int] = {}
        """Process ids by the files that they answer over."""
        self._stepping: dict[int, Callable[[], float]] = {}
        """Backends whose statements go row by row, and how long each pause is."""
        self.waits = 0
        """Operations that had to wait for a lock."""

    def begin(self, pid: int, operation: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a backend's operation when it is its turn: no part of the process that asked for it, which may die."""
        return asyncio.get_running_loop().create_task(self._perform(pid, operation), context=Context())

    async def _perform(self, pid: int, operation: Coroutine[Any, Any, T]) -> T:
        while self._ahead:
            turn = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            await turn
        self._ahead.add(pid)
        try:
            return await operation
        finally:
            self._ahead.discard(pid)
            self._aside.pop(pid, None)
            self._recall()
            self._call_next()

    async def row_by_row(self, pid: int, operation: Coroutine[Any, Any, T], pause: Callable[[], float]) -> T:
        """A statement that others may overtake between any two of its rows."""
        self._watch.hold(pid)
        self._stepping[pid] = pause
        try:
            return await operation
        finally:
            del self._stepping[pid]
            self._watch.let_go(pid)

    def _step(self, pid: int) -> None:
        """One row more."""
        if pid in self._stepping and pid in self._aside:
            self._watch.let_go(pid)
            self._watch.hold(pid)
            # Ahead of everybody, until it is seen to wait again: for its next row, or for another transaction.
            self._aside.pop(pid, None)
            self._ahead.add(pid)

    def know(self, pid: int, file: int) -> None:
        """A backend answers over this file."""
        self._backends[file] = pid

    def expects(self, file: int) -> bool:
        """Whether a backend is at work that answers over this file; others' files are nobody's business."""
        return self._backends.get(file, -1) in self._ahead or file not in self._backends

    def under_way(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._ahead)

    def stalled(self) -> bool:
        """Set those aside who wait for a lock; whether anybody was."""
        waiting = self._watch.waiting(self._ahead)
        self._ahead -= waiting.keys()
        self._aside |= waiting
        self.waits += len(waiting)
        for pid in sorted(waiting.keys() & self._stepping.keys()):
            asyncio.get_running_loop().call_later(self._stepping[pid](), self._step, pid, context=Context())
        if waiting:
            self._call_next()
        return bool(waiting)

    def abort(self, pid: int) -> None:
        """End the wait of a backend whose process is gone."""
        if pid in self._aside:
            self._watch.abort(pid)
            self._aside.pop(pid, None)
            self._ahead.add(pid)

    def _recall(self) -> None:
        """Whoever got the lock meanwhile is at work again, ahead of everybody, even if it waits for the next one."""
        if self._aside:
            waiting = self._watch.waiting(self._aside)
            for pid in [pid for pid, lock in self._aside.items() if waiting.get(pid) != lock]:
                del self._aside[pid]
                self._ahead.add(pid)

    def _call_next(self) -> None:
        if not self._ahead and self._queue:
            self._queue.popleft().set_result(None)
