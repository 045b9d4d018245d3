"""The database as one simulated process reaches it: every operation takes its turn, and may be the last."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from sqlalchemy import TextClause
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.lease import residencies
from shared.runtime import advance, lifecycle, queue
from shared.storage.database import Database
from tests.simulation.actor import Actor, Killed
from tests.simulation.link import Mode, Rows

DEADLOCK = "40P01"


def names() -> dict[int, str]:
    """Return the relevant statements by identity; looked up again if a mutant has replaced some."""
    words: Mapping[str, Sequence[TextClause]] = {
        "claim": (queue.CLAIM, queue.CLAIM_SUSPECT),
        "answer": (queue.ACCEPT,),
        "retry": (queue.REJECT,),
        "release": (queue.RELEASE,),
        "renewal": (queue.RENEW,),
        "overlooked": (queue.COMPLETE,),
        "look": (queue.LOOK, queue.LOOK_AT),
        "revival": (queue.REVIVE,),
        "advance": (advance.PICK,),
        "lapse": (queue.EXPIRED, queue.HELD),
        "expansion": (lifecycle.RUN,),
        "finalising": (lifecycle.FINALIZE,),
        "end": (lifecycle.END,),
        "failed job": (lifecycle.FAIL,),
        "decision": (residencies.WANT,),
        "state": (residencies.MOVE,),
        "parking": (queue.PARK,),
    }
    return {id(statement): word for word, statements in words.items() for statement in statements}


def lost() -> InterfaceError:
    """Make the error of a client whose connection broke."""
    reset = ConnectionResetError("connection was closed in the middle of operation")
    return InterfaceError("simulated", {}, reset, connection_invalidated=True)


class Session:
    """A connection for one transaction, or for statements that commit by themselves."""

    def __init__(self, actor: Actor, mode: Mode) -> None:
        self._actor = actor
        self._store = actor.world.store
        self._autocommit = mode is Mode.STATEMENT
        self._link = self._store.lend(mode)
        self._pending: asyncio.Task[Any] | None = None
        self._done: list[tuple[str, Any]] = []
        """The changes of the statements."""
        self.broken = False
        """The connection is lost; only the database knows whether its last statement succeeded."""
        actor.world.sessions.append(self)

    async def execute(self, statement: TextClause, parameters: Any = None) -> Rows:
        """As an AsyncConnection does it.

        Raises:
            InterfaceError: the connection is gone.
        """
        word = self._actor.world.words.get(id(statement))
        if word and self._autocommit:
            await self._actor.passes(f"before {word}", self)
            if word == "renewal" and self._actor.world.starves(self._actor):
                self.broken = True
        result: Rows = await self._do(lambda: self._executed(statement, parameters))
        if word == "overlooked":
            seen = result.freeze()
            self._actor.world.witness.overlooked(seen().scalars().all())
            return seen()
        if word and result.rowcount > 0:
            self._done.append((word, parameters))
            if self._autocommit:
                await self._after()
        return result

    async def _executed(self, statement: TextClause, parameters: Any) -> Rows:
        executed = self._link.execute(statement, parameters)
        world = self._actor.world
        if world.plan.apart and statement is advance.INSERT_CALLS and len(parameters["keys"]) > 1:
            pause = lambda: world.rng.uniform(0.1, 1.0)  # noqa: E731
            return await self._store.turnstile.row_by_row(self._link.pid, executed, pause)
        return await executed

    async def commit(self) -> None:
        """Commit; a client that is cut off here does not know the outcome."""
        if self._done:
            await self._actor.passes(f"before {self._done[0][0]}", self)
        await self._do(self._link.commit)
        if self._done:
            await self._after()

    async def rollback(self) -> None:
        """Undo it."""
        await self._do(self._link.rollback)

    async def _after(self) -> None:
        for word, parameters in self._done:
            self._actor.world.happened(word, parameters)
        await self._actor.passes(f"after {self._done[0][0]}", self)
        self._done.clear()
        if self.broken:
            raise lost()

    async def _do(self, operation: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        await self._actor.gate()
        await self._actor.world.latency()
        await self._actor.gate()
        if self.broken or self._actor.world.postgres_away:
            self.broken = True
            raise lost()
        self._actor.world.set_clocks()
        self._pending = self._store.turnstile.begin(self._link.pid, operation())
        try:
            return await asyncio.shield(self._pending)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", "") == DEADLOCK:
                self._actor.world.violated(f"deadlock detected: {self._actor.subject}, {self._done}")
            raise

    def leave(self, *, clean: bool) -> None:
        """Give the connection back, or have it rolled back where its process or its network left it."""
        self._actor.world.sessions.remove(self)
        if clean:
            self._store.take_back(self._link)
        else:
            self._actor.world.bury(self._buried())

    async def _buried(self) -> None:
        """Clean up like the server when it notices the loss of its client."""
        self._store.turnstile.abort(self._link.pid)
        if self._pending is not None:
            await asyncio.wait([self._pending])
            if not self._pending.cancelled():
                self._pending.exception()
        await self._store.turnstile.begin(self._link.pid, self._link.rollback())
        self._store.take_back(self._link)


class ActorDatabase(Database):
    """`Database`, as one simulated process has it."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One READ COMMITTED transaction."""
        async with self._session(Mode.TRANSACTION) as session:
            yield cast("AsyncConnection", session)
            await session.commit()

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[AsyncConnection]:
        """For single statements."""
        async with self._session(Mode.STATEMENT) as session:
            yield cast("AsyncConnection", session)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """One REPEATABLE READ transaction that reads."""
        async with self._session(Mode.SNAPSHOT) as session:
            yield cast("AsyncConnection", session)
            await session.rollback()

    async def close(self) -> None:
        """The connections are the store's."""

    @asynccontextmanager
    async def _session(self, mode: Mode) -> AsyncIterator[Session]:
        await self._actor.gate()
        if self._actor.world.postgres_away:
            await self._actor.world.latency()
            raise lost()
        session, clean = Session(self._actor, mode), False
        try:
            yield session
            clean = not session.broken
        except Exception:
            if not session.broken:
                await session.rollback()
            clean = not session.broken
            raise
        finally:
            session.leave(clean=clean)


__all__ = ["ActorDatabase", "Killed", "Session", "lost", "names"]
