"""The database: connections, transactions, statements with checked names, states, pages and outages."""

import asyncio
import base64
import binascii
import logging
import re
import time
import uuid
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from enum import IntEnum
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from asyncpg import DiskFullError, InternalClientError
from sqlalchemy import RowMapping, TextClause, event, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from mathrag.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    IdempotencyMismatch,
    InProgress,
    Invalid,
    NotFound,
    OutOfSpace,
    Unavailable,
)
from mathrag.messages import make_hint, redact
from shared import canonical, keepalive
from shared.params import Params, decode_params

# States of samples, which the database stores as numbers, and groups of job states.


class SampleState(IntEnum):
    """Values of `samples.state`; from `COMPLETED` on, a sample has ended."""

    READY = 0
    WAITING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4

    @property
    def word(self) -> str:
        """The name in answers and records."""
        return self.name.lower()


RUNNABLE = frozenset({"preparing", "running"})
"""States of a job whose samples are advanced and whose calls are claimed."""
TERMINAL = frozenset({"completed", "failed", "cancelled"})
"""States of a job that has ended."""

# SQL templates with shared names: `{WAITING}` is a state, `{ACCEPTED_FOR}` a condition that many statements share.
#
# Names are filled in at import, so a misspelt name fails there and no input of a request becomes part of a statement.
# Double the braces that SQL itself needs: `'{{}}'`.

TURN_UNITS = 5040
"""Units of a turn in a sample. Their number is divisible by all weights up to 10, so that many small jobs of a key get
exactly its share, and so large that the samples of a key of the largest weight, 100, have different turns."""
_TURN = (
    f"({TURN_UNITS} * COALESCE(CAST(j.code ->> 'turn' AS bigint), 0)"
    " + COALESCE(CAST(j.code ->> 'turn_part' AS bigint), 0))"
)
_WEIGHT = "COALESCE(CAST(j.code ->> 'weight' AS bigint), 1)"
NAMES = {
    **{state.name: str(state.value) for state in SampleState},
    "LIVE": f"({SampleState.READY}, {SampleState.WAITING})",
    "DONE": f"({SampleState.COMPLETED}, {SampleState.FAILED})",
    "ENDED": f"({SampleState.COMPLETED}, {SampleState.FAILED}, {SampleState.CANCELLED})",
    "RUNNABLE": str(tuple(sorted(RUNNABLE))),
    "TERMINAL": str(tuple(sorted(TERMINAL))),
    "COUNTS_BY_END": ", ".join(
        f"count(*) FILTER (WHERE s.state = {state}) AS {state.word}"
        for state in (SampleState.COMPLETED, SampleState.FAILED, SampleState.CANCELLED)
    ),
    "ACCEPTED_FOR": "a.accepted AND a.call_id =",
    "ASKED_BY_SAMPLE": "i.dataset_id = j.dataset_id AND i.ordinal = s.ordinal",
    # For jobs of given answers: whether the item has an answer, and the answer of the sample.
    "GIVEN_FOR_ITEM": "j.pipeline NOT IN ('imported', 'measured') OR EXISTS (SELECT 1 FROM given g"
    " WHERE g.job = j.public_id AND g.ordinal = i.ordinal AND g.repeat = r OFFSET 0)",
    "GIVEN_TO_SAMPLE": "g.job = j.public_id AND g.ordinal = s.ordinal AND g.repeat = s.repeat"
    " AND s.kind = 'item' AND j.pipeline IN ('imported', 'measured', 'conversation', 'embedding', 'write-questions')",
    "AWAITED_BY_SAMPLE": "t.sample_id = s.id AND t.position = s.position - 1",
    "WAITS_FOR_STEP": f"s.id = t.sample_id AND s.state = {SampleState.WAITING} AND s.position = t.position + 1",
    # The turn of a job's first sample, in its units, and the weight of its key. Jobs of earlier releases lack both.
    "TURN": _TURN,
    "WEIGHT": _WEIGHT,
    # The position of a call in the queue: smaller ranks first, then smaller turns (`shared.runtime.submit`). The turn's
    # 47 bits are enough for 27 billion samples.
    "PLACE": f"(CAST(j.rank AS bigint) << 47) + {_TURN}"
    f" + CAST({TURN_UNITS} AS bigint) * (s.repeat * (j.total / j.repeats) + s.ordinal) / {_WEIGHT}",
    # A job keeps the plug-ins that its replays need: a process that has imported others must not continue with it.
    "HAS_PLUGINS": "(j.code -> 'plugins' IS NULL OR j.code -> 'plugins' <@ CAST(:plugins AS jsonb))",
    # The number of each load of a call's model in its residency, from 0: a server that others share may load it again.
    "LOADS_OF_MODEL": "LATERAL generate_series(0, COALESCE(CAST("
    "r.measured -> 'reloads' ->> CAST(c.model_id AS text) AS integer), 0)) AS loading(n)",
    "CALLS_OF_JOB": "SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON t.sample_id = s.id WHERE s.job_id = :job",
}
"""SQL by name. The call's id follows `ACCEPTED_FOR`: `JOIN attempts a ON {ACCEPTED_FOR} c.id`."""


def fill_names(template: str) -> str:
    """Fill the names into a part that several statements of a module share."""
    return template.format(**NAMES)


def sql(template: str) -> TextClause:
    """Fill in the names and return a statement."""
    return text(fill_names(template))


# The database: one engine per process, short transactions, and two sets of planner settings.
#
# Round trips dominate the hot path: a transaction takes three, a single statement one.
#
# SQL is written as SQL, in the module that needs it, with named parameters (`sqlalchemy.text`).

PINNED_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_memoize": "off",
    "jit": "off",
}
"""Planner settings of the hot path. Its tables are empty when plans are cached and statistics come late, so the planner
would choose scans; these settings make each statement use its index (measured: the first batch is 3 times faster)."""
REPORTING = {"jit": "off", "random_page_cost": "1.1"}
"""Planner settings of reports. With PostgreSQL's default, 4, a report scans the samples of all jobs (measured: 467 ms
instead of 164 among a million)."""
UNREACHABLE = "08001"
"""SQLSTATE of a failed connection attempt."""
READ_ONLY = "25006"
"""SQLSTATE of a write to a read-only database."""
BROKEN = "08006"
"""SQLSTATE of a broken connection."""
UNIQUE = "23505"
"""SQLSTATE of a value that exists already."""
NO_PRIVILEGE = "42501"
"""SQLSTATE of a row that row-level security refuses."""
CONNECT_S = 5.0
"""Timeout of a new connection: a frozen server accepts it but never answers."""
STATEMENT_S = 60.0
REPORT_S = 600.0
"""Timeouts of a statement, on the hot path and for reports; afterwards its connection counts as broken. The largest
statement of the hot path inserts the samples of a job (measured: 300,000 in 5 s)."""
TRUSTED_S = 1.0
"""A connection that was used this recently is not pinged before use."""


SHARED = "-"
"""Stands for a project that sees and makes only rows of no project."""
_project: ContextVar[str | None] = ContextVar("project", default=None)
_LIMIT = text("SELECT set_config('mathrag.project', :project, true), row_security_active('jobs') AS limited")


def get_project() -> str | None:
    """Return the project of the current task; None if it has none."""
    project = _project.get()
    return None if project == SHARED else project


@contextmanager
def limit_to(project: str | None) -> Iterator[None]:
    """Limit what the database shows to the current task, and to tasks that it starts, to a project, or to what all
    projects share (`SHARED`); None shows everything.

    Row-level security of PostgreSQL (migration 0022) hides the rows of other projects, and gives new rows the project.
    """
    token = _project.set(project)
    try:
        yield
    finally:
        _project.reset(token)


@contextmanager
def _report_limits() -> Iterator[None]:
    """Explain what a task that is limited to a project may not write."""
    try:
        yield
    except DBAPIError as error:
        if get_project() is not None and _state(error) == UNIQUE:
            raise make_name_taken() from error
        if get_project() is not None and _state(error) == NO_PRIVILEGE:
            raise Forbidden(
                f"this belongs to no project, so keys of the project {get_project()!r} cannot change it",
                hint="use a key without a project, or make your own",
            ) from error
        raise


@asynccontextmanager
async def show_all(connection: AsyncConnection) -> AsyncIterator[None]:
    """Show this transaction the rows of all projects within the block, for what is counted over all of them.

    The transaction must end if the block raises, because it has no limits then.
    """
    if _project.get() is None:
        yield
        return
    with limit_to(None):
        await limit_transaction(connection)
        yield
    await limit_transaction(connection)


async def limit_transaction(connection: AsyncConnection) -> None:
    """Limit the rest of this transaction to the project of the task, which has changed.

    Raises:
        Unavailable: PostgreSQL does not apply row-level security to the service's role.
    """
    limited = (await connection.execute(_LIMIT, {"project": _project.get() or ""})).one().limited
    if not limited and get_project() is not None:
        raise Unavailable(
            "PostgreSQL hides nothing from the role of this service, so keys of a project are refused",
            hint="let the service connect as a role that neither owns the tables nor bypasses row-level security",
        )


_PROJECTS_OF = text("""
    SELECT project FROM (
        SELECT project FROM datasets WHERE name = ANY(:datasets)
        UNION ALL SELECT project FROM corpora WHERE name = ANY(:corpora)
        UNION ALL SELECT project FROM graphs WHERE name = ANY(:graphs)
        UNION ALL SELECT project FROM jobs WHERE public_id = ANY(CAST(:jobs AS uuid[]))) named
    WHERE project IS NOT NULL GROUP BY project ORDER BY project""")


class Origins(NamedTuple):
    """Names in a request that makes something of existing data."""

    datasets: Collection[str] = ()
    corpora: Collection[str] = ()
    graphs: Collection[str] = ()
    jobs: Collection[uuid.UUID] = ()


async def find_project(connection: AsyncConnection, origins: Origins) -> str | None:
    """Find the project of the origins, to which a task must be limited, so that its new rows belong there as well:
    `SHARED` if they have none, and the task's own project if the task is limited already.

    Raises:
        Invalid: the origins belong to several projects.
    """
    if (own := _project.get()) is not None:
        return own
    found = list((await connection.execute(_PROJECTS_OF, {k: [*v] for k, v in origins._asdict().items()})).scalars())
    if len(found) > 1:
        raise Invalid(
            f"this request names data of the projects {' and '.join(map(repr, found))}",
            hint="name data of one project, or shared data",
        )
    return next(iter(found), SHARED)


def make_name_taken() -> Conflict:
    return Conflict("this name is taken in another project", hint="choose another name")


class Database:
    """Connections of one process. `pinned` selects the planner settings of the hot path."""

    def __init__(self, url: str, *, pinned: bool, size: int = 5) -> None:
        lost_s = keepalive.LOST_S if pinned else keepalive.PATIENT_S
        settings = {
            "application_name": "mathrag",
            # A forgotten transaction blocks vacuum, which halves the speed of the queue table.
            "idle_in_transaction_session_timeout": "60000",
            **keepalive.make_session(lost_s),
            **(PINNED_PLANS if pinned else REPORTING),
        }
        limits = {"timeout": CONNECT_S, "command_timeout": STATEMENT_S if pinned else REPORT_S}
        # Last in, first out: a few connections do most of the work, and have its statements planned.
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=size, max_overflow=size, pool_use_lifo=True,
            connect_args={"server_settings": settings, **limits},
        )  # fmt: skip
        _watch_connections(self.engine, lost_s)
        _ping_idle_connections(self.engine)
        _convert_connection_errors(self.engine)
        _drop_read_only_connections(self.engine)
        _convert_timeouts(self.engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a READ COMMITTED transaction that commits at the end and rolls back on an exception."""
        async with self.engine.begin() as connection:
            with _report_limits():
                if _project.get() is not None:
                    await limit_transaction(connection)
                yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection in autocommit mode, in which a statement takes one round trip.

        For a task that is limited to a project it is a transaction, because the limit is set for one.
        """
        if _project.get() is not None:
            async with self.transaction() as connection:
                yield connection
        else:
            async with self.engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def column(self, statement: TextClause, values: Mapping[str, object]) -> list[Any]:
        """Run one statement in autocommit mode and return the first column of its rows."""
        async with self.statement() as connection:
            return list((await connection.execute(statement, values)).scalars())

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Open a read-only REPEATABLE READ transaction, in which all statements see the same snapshot."""
        async with self.engine.connect() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            if _project.get() is not None:
                await limit_transaction(connection)
            yield connection
            await connection.rollback()

    @asynccontextmanager
    async def in_project_of(self, origins: Origins) -> AsyncIterator[None]:
        """Limit the block to the project of the origins. See `find_project` for errors."""
        async with self.statement() as connection:
            project = await find_project(connection, origins)
        with limit_to(project):
            yield

    async def close(self) -> None:
        await self.engine.dispose()


def _watch_connections(engine: AsyncEngine, lost_s: int) -> None:
    """Notice that the database is gone without a reset."""

    @event.listens_for(engine.sync_engine, "connect")
    def watch(connection: Any, _record: Any) -> None:
        keepalive.watch(connection.driver_connection, lost_s)


def _ping_idle_connections(engine: AsyncEngine) -> None:
    """Ping only connections that were idle; `pool_pre_ping` would ping before every transaction."""

    @event.listens_for(engine.sync_engine, "checkin")
    def stamp(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def ping(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("used", time.monotonic()) > TRUSTED_S and not _lives(connection):
            raise InvalidatePoolError

    def _lives(connection: Any) -> bool:
        try:
            return bool(engine.dialect.do_ping(connection))
        except (engine.dialect.loaded_dbapi.Error, TimeoutError):
            return False


def _convert_connection_errors(engine: AsyncEngine) -> None:
    """Raise the driver's `OSError` of a failed connection attempt as an error of the database."""

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except OSError as error:
            unreachable = dialect.loaded_dbapi.OperationalError(str(error) or type(error).__name__)
            unreachable.sqlstate = UNREACHABLE
            raise unreachable from error


def _drop_read_only_connections(engine: AsyncEngine) -> None:
    """Reconnect after a read-only error: a demoted server stays read-only for its existing connections."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave(context: Any) -> None:
        if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
            context.is_disconnect = True


def _convert_timeouts(engine: AsyncEngine) -> None:
    """Raise the driver's `TimeoutError` as the error of a broken connection."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave(context: Any) -> OperationalError | None:
        if not isinstance(context.original_exception, TimeoutError):
            return None
        driver: Any = engine.dialect.loaded_dbapi
        silent = driver.OperationalError("the server did not answer in time")
        silent.sqlstate = BROKEN
        return OperationalError(context.statement, None, silent, connection_invalidated=True)


# Outages of the database: recognise passing errors, and retry idempotent work until they are over.

PASSING = ("08", "25006", "25P03", "40", "53", "57P", "58")
"""Classes and states of SQLSTATE: no connection, read-only, idle for too long, rolled back because of another
transaction, out of disk or connections, shutting down or starting up, system error."""
STATEMENT = "42"
"""Class of SQLSTATE: a table, column or privilege that a statement needs is missing."""
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts; the last one applies to all further attempts."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


def is_passing(error: BaseException) -> bool:
    """Tell whether the error is caused by the database's present state and not by the statement."""
    if isinstance(error, DBAPIError):
        state = _state(error)
        return error.connection_invalidated or isinstance(error.orig, OSError) or state.startswith(PASSING)
    # asyncpg raises this if a connection ends while it changes its own state.
    return isinstance(error, PoolTimeoutError | InternalClientError)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether PostgreSQL ran out of disk space."""
    if isinstance(error, DBAPIError):
        return _state(error) == str(DiskFullError.sqlstate)
    return isinstance(error, DiskFullError)


def out_of_space_error() -> OutOfSpace:
    """Return the error that reports a full disk to users."""
    return OutOfSpace("the disk of PostgreSQL is full; nothing was stored", hint="free space, and send it again")


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def concerns_rows(error: BaseException) -> bool:
    """Tell whether the same statements could succeed for other rows.

    False for outages, errors of the operating system, and a program or schema of another release, because these affect
    all rows in the same way.
    """
    if isinstance(error, OSError | ImportError) or is_passing(error):
        return False
    state = _state(error) if isinstance(error, DBAPIError) else ""
    return not state.startswith(STATEMENT)


async def retry_through_outage(
    do: Callable[[], Awaitable[T]],
    patience_s: float,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Call `do` until it succeeds or fails otherwise than by an outage, for about `patience_s` seconds.

    An interrupted call may have been committed, so `do` must be idempotent.
    """
    waited, tries = 0.0, 0
    while True:
        try:
            return await do()
        except Exception as error:
            if not is_passing(error) or waited >= patience_s:
                raise
            seconds = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            _log.warning("the database is away, trying again: %s", redact(str(error).partition("\n")[0]))
            await pause(seconds)
            waited, tries = waited + seconds, tries + 1


Rows = Iterable[tuple[Any, ...]] | AsyncIterable[tuple[Any, ...]]


async def copy(connection: AsyncConnection, table: str, columns: Sequence[str], rows: Rows) -> None:
    """Append `rows` to `table`; the transaction must have begun with a statement.

    Raises:
        OutOfSpace: the disk of PostgreSQL is full.
    """
    raw: Any = await connection.get_raw_connection()
    try:
        await raw.driver_connection.copy_records_to_table(table, columns=columns, records=rows)
    except DiskFullError as error:
        raise out_of_space_error() from error


# Decode stored values, or report why this release cannot, so that one unreadable row does not hide the others.


def try_decode(raw: bytes | None, as_type: type[T], name: str) -> tuple[T | None, str | None]:
    """Return (value, None), or (None, a sentence that names `name`) if decoding fails; (None, None) for None."""
    return _read(partial(msgspec.json.decode, type=as_type), raw, name)


def try_decode_params(raw: bytes | None, name: str) -> tuple[Params | None, str | None]:
    """Decode a job's parameters in the same way."""
    return _read(decode_params, raw, name)


def _read(decode: Callable[[bytes], T], raw: bytes | None, name: str) -> tuple[T | None, str | None]:
    if raw is None:
        return None, None
    try:
        return decode(raw), None
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return None, f"{name} cannot be read by this release: {error}"


# Check the names that users choose, because they appear in URLs, file names and tables.

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(PATTERN)


NAME_HINT = "use at most 100 letters, digits, `.`, `_` and `-`, starting with a letter or digit"


def is_usable(name: str) -> bool:
    """Tell whether this is a valid name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` if it is valid.

    Raises:
        Invalid: it holds other characters than letters, digits, `.`, `_` and `-`, or more than 100 of them.
    """
    if not is_usable(name):
        raise Invalid(
            f"`name`: {name[:120]!r} is not a valid name",
            hint=NAME_HINT,
        )
    return name


# The append-only journal of operators' actions: who did what to which target.

LOCAL = "local"
"""The actor without authentication: the operator's own shell, or an API without keys."""
INSERT = text("""
    INSERT INTO operations (actor, action, target, detail) VALUES (:actor, :action, :target, CAST(:detail AS jsonb))""")


async def record_operation(connection: AsyncConnection, actor: str, action: str, target: str, **detail: Any) -> None:
    """Add a row to the journal, in the transaction of the recorded action."""
    values = {"actor": actor, "action": action, "target": target, "detail": msgspec.json.encode(detail).decode()}
    await connection.execute(INSERT, values)


# Keyset pagination: a cursor names the last row seen, so every page costs the same.
#
# A cursor is valid only for its list and filters; with others it would silently skip rows, so it is refused.

DEFAULT = 50
LARGEST = 500
LARGEST_KEY = (1 << 31) - 1
"""Largest key of a row; a forged cursor with a larger one is refused before it reaches the database."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of rows with the cursor of the next one."""

    data: list[T]
    """The rows."""
    next_cursor: str | None
    """Pass it as `cursor` to get the next page; null on the last page."""


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Content of a cursor."""

    scope: str
    key: tuple[int, ...]
    sorted_by: str = ""
    """The text that precedes the key in the sort order, if any."""


def cursor_scope(name: str, /, **filters: str | None) -> str:
    """Return the mark of this list's cursors with these filters."""
    return canonical.digest([name, filters]).hex()[:12]


def make_page(rows: Sequence[T], limit: int, scope: str, *last: int) -> Page[T]:
    """Make a page of the first `limit` of `limit + 1` fetched rows; `last` is the key of the last row kept."""
    more = len(rows) > limit
    return Page(data=list(rows[:limit]), next_cursor=encode_cursor(scope, *last) if more else None)


async def load_page(
    database: Database,
    statement: TextClause,
    scope: str,
    limit: int,
    cursor: str | None,
    make: Callable[[RowMapping], T],
    key: str = "id",
) -> Page[T]:
    """Load a page of what `make` makes of rows, newest first.

    `statement` selects `:n` rows with a smaller `key` than `:before`.

    Raises:
        BadRequest: the cursor belongs to another list.
    """
    before = decode_cursor(cursor, scope, 1)[0] if cursor else LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(statement, {"before": before, "n": limit + 1})).mappings().all()
    return make_page([make(row) for row in rows], limit, scope, *(row[key] for row in rows[:limit][-1:]))


def encode_cursor(scope: str, *key: int, sorted_by: str = "") -> str:
    """Encode an opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(Cursor(scope, key, sorted_by))).decode().rstrip("=")


def decode_cursor(cursor: str, scope: str, size: int) -> tuple[int, ...]:
    """Decode a cursor's key of `size` numbers.

    Raises:
        BadRequest: it is not one that we gave, or not for this list with these filters.
    """
    found = _decode(cursor, scope)
    if len(found.key) != size or not all(abs(number) <= LARGEST_KEY for number in found.key):
        raise _make_invalid_cursor()
    return found.key


def decode_sorted_cursor(cursor: str, scope: str) -> tuple[str, int]:
    """Decode the sort text and the number after it.

    Raises:
        BadRequest: it is not one that we gave, or not for this list with these filters.
    """
    (key,) = decode_cursor(cursor, scope, 1)
    sorted_by = _decode(cursor, scope).sorted_by
    if "\x00" in sorted_by:  # the only character that PostgreSQL's text cannot hold
        raise _make_invalid_cursor()
    return sorted_by, key


def _decode(cursor: str, scope: str) -> Cursor:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Cursor)
    except (binascii.Error, ValueError):
        found = Cursor(scope, ())
    if found.scope != scope:
        raise BadRequest(
            "`cursor`: belongs to another list or other filters", hint="send it to the same list, with the same filters"
        )
    return found


def _make_invalid_cursor() -> BadRequest:
    return BadRequest("`cursor`: is not valid", hint="pass the `next_cursor` of the previous page, or leave it out")


MOST = 1000
"""Number of newest names to compare, because a service may have a million jobs."""
KNOWN_NAMES = {
    "job": text("SELECT name FROM jobs WHERE NOT online ORDER BY id DESC LIMIT :most"),
    "experiment": text("SELECT name FROM experiments ORDER BY id DESC LIMIT :most"),
    "dataset": text("SELECT name FROM datasets WHERE NOT online ORDER BY id DESC LIMIT :most"),
    "corpus": text("SELECT name FROM corpora ORDER BY id DESC LIMIT :most"),
    "rules": text("SELECT name FROM rule_banks ORDER BY id DESC LIMIT :most"),
    "graph": text("SELECT name FROM graphs ORDER BY id DESC LIMIT :most"),
    "label": text("SELECT name FROM label_sets ORDER BY id DESC LIMIT :most"),
    "prompt": text("SELECT name FROM prompts ORDER BY id DESC LIMIT :most"),
}
Kind = Literal["job", "experiment", "dataset", "corpus", "graph", "rules", "label", "prompt"]
CALLED = {"rules": "rule bank", "label": "label set"}
"""Kinds whose name differs from their command."""


async def load_named(connection: AsyncConnection, statement: TextClause, kind: Kind, name: str) -> RowMapping:
    """Load the row that `statement` selects by `:name`.

    Raises:
        NotFound: no `kind` is called `name`.
    """
    row = (await connection.execute(statement, {"name": name})).mappings().first()
    if row is None:
        raise await make_not_found(connection, kind, name)
    return row


async def make_not_found(connection: AsyncConnection, kind: Kind, name: str) -> NotFound:
    """Return the error that no `kind` is called `name`, with a similar name as a hint."""
    known = (await connection.execute(KNOWN_NAMES[kind], {"most": MOST})).scalars()
    return NotFound(f"no {CALLED.get(kind, kind)} {name!r}", hint=make_hint(name, known, f"mathrag {kind} list"))


# Idempotency keys: a repeated request gets the same job, even if both arrive at once.
#
# A key is stored in its job's transaction. Of two concurrent first uses, one holds the key's lock and the other is
# asked to repeat its request, so that none waits with an open connection. The primary key backs the lock up.

LOCK_SEED = 7333
"""Distinguishes these advisory locks from others."""
KEPT = "24 hours"
"""Shortest time for which a key is remembered."""
FORGOTTEN = 100
"""Number of old keys that a new one removes; more than one, so that they do not accumulate."""
HOLD = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:operation || ' ' || :key, :seed))")
# A separate statement, so that its snapshot is taken after the lock.
FOUND = text("""
    SELECT i.body_hash, j.public_id FROM idempotency i JOIN jobs j ON j.id = i.job_id
    WHERE i.operation = :operation AND i.key = :key""")
REMEMBER = text("""
    INSERT INTO idempotency (operation, key, body_hash, job_id)
    SELECT :operation, :key, :body_hash, id FROM jobs WHERE public_id = :job""")
FORGET = text(f"""
    DELETE FROM idempotency WHERE (operation, key) IN (
        SELECT operation, key FROM idempotency WHERE created_at < now() - interval '{KEPT}'
        ORDER BY created_at LIMIT {FORGOTTEN} FOR UPDATE SKIP LOCKED)""")  # noqa: S608 - constants


class KeyedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with an idempotency key."""

    operation: str
    """Name of the operation; keys of different operations are independent."""
    key: str
    body_hash: bytes
    """SHA-256 of the canonical request."""


class Accepted(NamedTuple):
    """Result of a request."""

    job: uuid.UUID
    replayed: bool
    """Whether an earlier identical request created the job."""


async def run_once(
    connection: AsyncConnection, keyed: KeyedRequest | None, make: Callable[[], Awaitable[uuid.UUID]]
) -> Accepted:
    """Return the job of an earlier identical request, or call `make`; without a key, always call `make`.

    Raises:
        IdempotencyMismatch: the key was used for another request.
        InProgress: the first request with this key has not been answered yet.
    """
    if keyed is None:
        return Accepted(await make(), replayed=False)
    names = {"operation": keyed.operation, "key": keyed.key}
    if not (await connection.execute(HOLD, {**names, "seed": LOCK_SEED})).scalar():
        raise InProgress(f"`Idempotency-Key`: {keyed.key!r} is being used right now", hint="send it again in a second")
    earlier = await find_earlier(connection, keyed)
    if earlier is not None:
        return Accepted(earlier, replayed=True)
    job = await make()
    await connection.execute(REMEMBER, {**msgspec.structs.asdict(keyed), "job": job})
    await connection.execute(FORGET)
    return Accepted(job, replayed=False)


async def find_earlier(connection: AsyncConnection, keyed: KeyedRequest) -> uuid.UUID | None:
    """Return the job of an earlier identical request; None if it does not exist.

    Raises:
        IdempotencyMismatch: the key was used for another request.
    """
    found = (await connection.execute(FOUND, {"operation": keyed.operation, "key": keyed.key})).first()
    if found is None:
        return None
    if found.body_hash != keyed.body_hash:
        raise IdempotencyMismatch(
            f"`Idempotency-Key`: {keyed.key!r} was sent with another request", hint="send a new request with a new key"
        )
    return uuid.UUID(str(found.public_id))
