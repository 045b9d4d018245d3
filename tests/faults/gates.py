"""Gates: a process that is about to write a certain row waits in PostgreSQL while the test holds the gate.

They hold a process in a moment that lasts a millisecond otherwise, without a line of test code in it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

import asyncpg

from mathrag_gate.stack import postgres as postgres_module
from shared.lease.policy import FlipState
from tests.faults.processes import until
from tests.running import RunningStack

LOCK = 4004
"""Key of the advisory lock that a held write asks for."""
FUNCTION = f"""
    CREATE FUNCTION # RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared({LOCK}); RETURN NEW; END $$"""
WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"
WAITING_FOR = "SELECT pid FROM pg_locks WHERE relation = CAST($1 AS regclass) AND NOT granted"


class Write(NamedTuple):
    """Rows of a table, as a trigger sees them: `NEW`, and `OLD` where it is an update."""

    table: str
    verb: str
    when: str


STATES = {
    FlipState.DRAINING: Write("residencies", "UPDATE", "NEW.state = 'draining'"),
    FlipState.UNLOADING: Write("residencies", "UPDATE", "NEW.state = 'unloading'"),
    FlipState.LOADING: Write("residencies", "UPDATE", "NEW.servers IS DISTINCT FROM OLD.servers"),
    FlipState.VERIFY_RESIDENT: Write("residencies", "UPDATE", "NEW.measured IS DISTINCT FROM OLD.measured"),
}
"""The write that the guard ends each state with; VERIFY_FREE writes nothing, and reads `models` first."""


class Session:
    """A session of the database's superuser, for code that does not await."""

    def __init__(self, stack: RunningStack) -> None:
        secret = postgres_module.load_passwords(stack.data_dir)
        server = postgres_module.Postgres(stack.data_dir / "postgres", port=stack.port("postgres"), passwords=secret)
        self._url = server._make_url(postgres_module.SUPERUSER, secret.superuser).replace("+asyncpg", "")
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._connection = self._runner.run(asyncpg.connect(self._url))
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def execute(self, sql: str) -> None:
        """One statement, committed by itself unless the session is in a transaction."""
        self._runner.run(self._connection.execute(sql))

    def rows(self, sql: str, *values: object) -> list[asyncpg.Record]:
        """Run a query and return its rows."""
        found: list[asyncpg.Record] = self._runner.run(self._connection.fetch(sql, *values))
        return found


class Gate:
    """Held from the beginning; `open` lets everybody through."""

    def __init__(self, session: Session, write: Write) -> None:
        self._session = session
        self._write = write
        self._function = f"wait_at_gate_of_{write.table}()"

    def shut(self) -> None:
        """Make such writes wait from now on."""
        table, verb, when = self._write
        self._session.execute(f"SELECT pg_advisory_lock({LOCK})")
        self._session.execute(FUNCTION.replace("#", self._function))
        self._session.execute(
            f"CREATE TRIGGER gate BEFORE {verb} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {self._function}"
        )

    def list_waiting(self) -> list[int]:
        """List the process ids of the database's own processes that wait at this gate."""
        return [row["pid"] for row in self._session.rows(WAITING, LOCK)]

    def wait_until_reached(self) -> list[int]:
        """Wait until a process waits at this gate, and list those that do."""
        until(f"a process writes {self._write}", self.list_waiting, 0.005)
        return self.list_waiting()

    def cut_off(self) -> None:
        """Roll back the waiting transactions, as if the death of their clients were noticed at once."""
        self._session.rows("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid", self.list_waiting())

    def open(self) -> None:
        """Open the gate and restore the schema, because an audit compares it with the migrations."""
        self._session.execute("SELECT pg_advisory_unlock_all()")
        self._session.execute(f"DROP FUNCTION IF EXISTS {self._function} CASCADE")


@contextmanager
def gate(stack: RunningStack, write: Write) -> Iterator[Gate]:
    """A gate that is shut, and open at the latest when the block ends."""
    with Session(stack) as session:
        made = Gate(session, write)
        made.shut()
        try:
            yield made
        finally:
            made.open()


@contextmanager
def flip_held(stack: RunningStack, state: FlipState) -> Iterator[None]:
    """Inside the block the guard is in `state` of the next flip, and stays there."""
    with gate(stack, STATES.get(state, STATES[FlipState.UNLOADING])) as before:
        before.wait_until_reached()
        if state is FlipState.VERIFY_FREE:
            with Session(stack) as session:
                session.execute("BEGIN; LOCK TABLE models IN ACCESS EXCLUSIVE MODE")
                before.open()
                until("the guard looks at its models", lambda: session.rows(WAITING_FOR, "models"), 0.005)
                yield
        else:
            yield
