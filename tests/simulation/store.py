"""A real PostgreSQL for one simulation process, whose `now()` is virtual; one operation at a time goes to it.

The clock is a file in the server's folder: setting it costs no round trip, and every backend sees it at once. An
operation that waits for a lock yields until another transaction releases it.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from mathrag_gate.stack.postgres import APP, DATABASE, OWNER, STOP_SIGNAL, SUPERUSER, Passwords, Postgres, migrate
from mathrag_gate.stack.redis import find_free_port
from shared import canonical
from shared.runtime.pins import ModelIdentity
from tests import servers
from tests.simulation.link import Link, Mode
from tests.simulation.pipelines import DOCUMENTS, POISON

T = TypeVar("T")

ROWS = 7
"""Class of the advisory locks, one a backend, that it takes before each call that it inserts (see `store`)."""
WAITING = """
    SELECT pid, concat_ws('/', locktype, relation, page, tuple, virtualxid, transactionid, classid, objid) AS lock
    FROM pg_locks WHERE NOT granted AND pid = ANY($1::int[])"""

DEADLOCKED = """
    WITH RECURSIVE waits AS (
        SELECT pid AS first, unnest(pg_blocking_pids(pid)) AS behind FROM unnest($1::int[]) pid
        UNION SELECT w.first, unnest(pg_blocking_pids(w.behind)) FROM waits w)
    SELECT FROM waits WHERE first = behind"""


class Watch:
    """A separate connection in a separate thread: asks which back ends wait for a lock while the loop is stopped."""

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
        """Query the database, independent of other operations."""
        return self.do(self._connection.fetch(sql, *values))

    def waiting(self, pids: Collection[int]) -> dict[int, str]:
        """Those of the backends that wait, and for which lock."""
        return {row["pid"]: row["lock"] for row in self.rows(WAITING, sorted(pids))}

    def deadlocked(self, pids: Collection[int]) -> bool:
        """Whether one of the backends waits for itself, by way of others."""
        return bool(pids) and bool(self.rows(DEADLOCKED, sorted(pids)))

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
        """Return whether a backend is working that answers over this file."""
        return self._backends.get(file, -1) in self._ahead or file not in self._backends

    def under_way(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._ahead)

    def stalled(self) -> bool:
        """Set those aside who wait for a lock; whether anybody was."""
        waiting = self._watch.waiting(self._ahead)
        if self._watch.deadlocked(waiting):
            return False  # PostgreSQL is about to end one of them, which may take a busy machine a while
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
        """An operation that got the lock runs again before all others, even if it waits for the next lock."""
        if self._aside:
            waiting = self._watch.waiting(self._aside)
            for pid in [pid for pid, lock in self._aside.items() if waiting.get(pid) != lock]:
                del self._aside[pid]
                self._ahead.add(pid)

    def _call_next(self) -> None:
        if not self._ahead and self._queue:
            self._queue.popleft().set_result(None)


CLOCK = "simulated.clock"
CONNECTIONS = {Mode.STATEMENT: 12, Mode.TRANSACTION: 12, Mode.SNAPSHOT: 4}
SETTINGS = {
    **servers.UNSAFE,
    "synchronous_commit": "off",
    # Vacuum takes locks when it likes; who waits for a lock must follow from the seed.
    "autovacuum": "off",
    "deadlock_timeout": "1ms",
    "max_connections": "80",
}
# As with the real ones, a transaction has one `now()`: that of its first use. Found before pg_catalog's by the path.
VIRTUAL_TIME = (
    "CREATE SCHEMA sim",
    f"""CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
        BEGIN RETURN 'epoch'::timestamptz + pg_read_file('{CLOCK}')::bigint * interval '1 microsecond'; END $$""",
    """CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
        DECLARE said text := current_setting('sim.now', true);
        BEGIN
            IF said IS NULL OR said = '' THEN
                said := sim.clock_timestamp()::text;
                PERFORM set_config('sim.now', said, true);
            END IF;
            RETURN said::timestamptz;
        END $$""",
    f"GRANT USAGE ON SCHEMA sim TO {OWNER}, {APP}",
    *(f"ALTER ROLE {role} SET search_path = public, sim, pg_catalog" for role in (OWNER, APP)),
)
# A statement's rows are inserted one by one if a session holds the lock of the backend's process id.
BETWEEN_ROWS = (
    f"""CREATE FUNCTION sim.between_rows() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_lock({ROWS}, pg_backend_pid());
            PERFORM pg_advisory_unlock({ROWS}, pg_backend_pid());
            RETURN NEW;
        END $$""",
    "CREATE TRIGGER between_rows BEFORE INSERT ON calls FOR EACH ROW EXECUTE FUNCTION sim.between_rows()",
)
# Ids that a session keeps in stock would be given out in an order that depends on earlier schedules.
NO_STOCK = """
    SELECT format('ALTER SEQUENCE %s CACHE 1', c.oid::regclass) FROM pg_class c WHERE c.relkind = 'S'"""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"


@contextmanager
def cluster(folder: Path) -> Iterator[Postgres]:
    """Run a separate server, migrated under virtual time."""
    server = Postgres(folder / "postgres", port=find_free_port(), passwords=Passwords(), settings=SETTINGS)
    with servers.running(server, STOP_SIGNAL):
        clock = Clock(server.directory)
        clock.set(0)
        asyncio.run(_prepare(server))
        clock.close()
        yield server


async def _prepare(server: Postgres) -> None:
    await server.create_database()
    superuser = await asyncpg.connect(_plain(server._make_url(SUPERUSER, server.passwords.superuser, DATABASE)))
    for statement in VIRTUAL_TIME:
        await superuser.execute(statement)
    await migrate(server.owner_url())
    for statement in BETWEEN_ROWS:
        await superuser.execute(statement)
    for row in await superuser.fetch(NO_STOCK):
        await superuser.execute(row[0])
    await superuser.close()


def _plain(url: str) -> str:
    return url.replace("+asyncpg", "")


class Clock:
    """The database's clock."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / CLOCK, os.O_RDWR | os.O_CREAT, 0o644)

    def set(self, seconds: float) -> None:
        """Seconds since 1970."""
        os.pwrite(self._file, b"%020d" % round(seconds * 1e6), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


IDENTITIES = tuple(ModelIdentity(name=kind, backend="retriever", digest=kind) for kind in ("dense", "sparse"))
MODEL = """
    INSERT INTO models (name, backend, digest, hash, needs_lease) VALUES ($1, 'retriever', $1, $2, false)
    RETURNING id"""
INDEX = """
    INSERT INTO indexes (kind, signature, model_id, path, params, documents, state)
    VALUES ($1, $2, $3, '', '{}', 0, 'ready') RETURNING id"""
CORPUS = """
    INSERT INTO corpora (name, hash, documents, dense_index, sparse_index) VALUES ('simulated', '', 0, $1, $2)"""
DATASET = """
    INSERT INTO datasets (name, hash, items) SELECT $1, '', $2
    WHERE NOT EXISTS (SELECT 1 FROM datasets WHERE name = $1) RETURNING id"""
ITEM = "INSERT INTO items (dataset_id, ordinal, hash, question, gold) VALUES ($1, $2, $3, $4, $5)"


class Store:
    """The database with its connections, which are kept from schedule to schedule: opening them is what costs."""

    def __init__(self, server: Postgres) -> None:
        self.watch = Watch(server.url())
        self.turnstile = Turnstile(self.watch)
        self.clock = Clock(server.directory)
        self._url, self._owner_url = _plain(server.url()), _plain(server.owner_url())
        self._idle: dict[Mode, list[Link]] = {mode: [] for mode in Mode}
        self.base_s = 0.0
        """The clock's time at the start of a schedule, never before the end of the last one."""

    async def open(self) -> None:
        """Connect, before anything depends on the order."""
        for mode, count in CONNECTIONS.items():
            for _ in range(count):
                link = await Link.to(self._url, mode)
                self.turnstile.know(link.pid, link.file)
                self._idle[mode].append(link)

    def lend(self, mode: Mode) -> Link:
        """Return an unused connection.

        Raises:
            IndexError: none is left.
        """
        return self._idle[mode].pop()

    def take_back(self, link: Link) -> None:
        """It has neither changes nor an operation open."""
        self._idle[link.mode].append(link)

    def empty(self) -> None:
        """Forget every row, as the owner, but for the corpus that every schedule searches."""
        self.watch.do(self._truncate())
        self._furnish()

    def _furnish(self) -> None:
        for document in DOCUMENTS:
            hash_ = bytes.fromhex(document.hash)
            self.watch.rows("INSERT INTO documents VALUES ($1, $2, $3)", hash_, document.problem, document.text)
        indexes = []
        for identity in IDENTITIES:
            model = self.watch.rows(MODEL, identity.name, identity.hash)[0][0]
            indexes.append(self.watch.rows(INDEX, identity.name, identity.hash, model)[0][0])
        self.watch.rows(CORPUS, *indexes)

    def dataset(self, name: str, seed: int, items: int, *, poisonous: bool) -> None:
        """Questions of a schedule, once; those of a shorter dataset are the first of a longer one."""
        for row in self.watch.rows(DATASET, name, items):
            for n in range(items):
                question = f"{seed}: what is {n} plus {n}{f', which {POISON}' if poisonous else ''}?"
                self.watch.rows(ITEM, row[0], n, canonical.digest(question), question, str(2 * n))

    async def _truncate(self) -> None:
        owner = await asyncpg.connect(self._owner_url)
        names = ", ".join(row[0] for row in await owner.fetch(TABLES))
        await owner.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
        await owner.execute("ALTER SEQUENCE gpu_epoch RESTART")
        await owner.close()

    async def close(self) -> None:
        """Close every connection."""
        for link in (link for links in self._idle.values() for link in links):
            await link.close()
        self.watch.close()
        self.clock.close()


def moment(seconds: float) -> datetime:
    """A wall clock's seconds as a time."""
    return datetime.fromtimestamp(seconds, UTC)
