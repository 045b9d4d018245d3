"""Archived jobs: their steps, calls and attempts as Parquet in `archived_parts`, and how statements read them there.

`mathrag job archive` replaces the rows of an ended job by parts of about a thousand samples each
(`shared/runtime/archiving.py`). A reader of one job runs its statements inside `show_archived`: temporary tables with
the names of the real ones then hold the job's rows, so that each statement exists once. A migration may add columns to
these tables; one that changes or drops a column must write the archives again.
"""

import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from anyio import to_thread
from asyncpg import DataError, IntegrityConstraintViolationError
from sqlalchemy import RowMapping, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Unavailable, Unreadable
from mathrag.installation import find_missing_package
from shared.storage.database import NO_PRIVILEGE, copy, get_sqlstate

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = {"steps": ("sample_id", "position", "slot"), "calls": ("id",), "attempts": ("id",)}
"""Archived tables with the columns that identify a row."""
TEXTS = frozenset({"request", "reply"})
"""Columns that take most of the space; readers that only count leave them out."""
COLUMNS = text("""
    SELECT c.relname AS "table", a.attname AS name, format_type(a.atttypid, NULL) AS type
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname = ANY(:tables) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum""")
# The steps that other samples have on these calls, as far as pages and audits read them: the one that made the call,
# and one of another job, which may have wanted it after the end of this one.
FOREIGN_STEPS = """
    SELECT DISTINCT o.* FROM unnest(CAST(:calls AS bigint[])) c(id) CROSS JOIN LATERAL (
        (SELECT * FROM public.steps WHERE call_id = c.id AND created LIMIT 1)
        UNION ALL
        (SELECT t.* FROM public.steps t JOIN samples s ON s.id = t.sample_id
         WHERE t.call_id = c.id AND s.job_id <> :job ORDER BY t.sample_id LIMIT 1)) o"""
ARCHIVED = text("SELECT job_id FROM archived_parts WHERE job_id = ANY(:jobs) GROUP BY job_id ORDER BY job_id")
# Newest first: a call that several parts have may have ended between them.
PARTS = text("""
    SELECT job_id, first_sample FROM archived_parts p
    WHERE job_id = :job AND (CAST(:samples AS bigint[]) IS NULL OR EXISTS (
        SELECT FROM unnest(CAST(:samples AS bigint[])) s(id) WHERE s.id BETWEEN p.first_sample AND p.last_sample))
    ORDER BY first_sample DESC""")
PART = text("""
    SELECT job_id, first_sample, last_sample, steps, calls, attempts, sha256 FROM archived_parts
    WHERE job_id = :job_id AND first_sample = :first_sample""")
CREATE = (
    *(f"CREATE TEMPORARY TABLE {table} (LIKE public.{table} INCLUDING DEFAULTS) ON COMMIT DROP" for table in TABLES),
    "ALTER TABLE pg_temp.calls ALTER request DROP NOT NULL",
    "ALTER TABLE pg_temp.attempts ALTER reply DROP NOT NULL",
    "CREATE INDEX ON pg_temp.steps (sample_id, position, slot)",
)
# Plans of statements that this connection has prepared would go on reading the real tables.
FINISH = (
    "CREATE INDEX ON pg_temp.steps (call_id)",
    "CREATE INDEX ON pg_temp.calls (id)",
    "CREATE INDEX ON pg_temp.attempts (call_id) WHERE accepted",
    "CREATE INDEX ON pg_temp.attempts (call_id) WHERE NOT accepted",
    "DISCARD PLANS",
)
# The driver leaves the cursor of a result that was read to its end open, which would keep its table.
DROP = ("CLOSE ALL", f"DROP TABLE {', '.join(f'pg_temp.{table}' for table in TABLES)}")
# Rows of the job that are still in the tables: it is half archived, or another job needs the step.
COPY_OWN_STEPS = text("""
    INSERT INTO pg_temp.steps SELECT t.* FROM samples s JOIN public.steps t ON t.sample_id = s.id
    WHERE s.job_id = :job AND (CAST(:samples AS bigint[]) IS NULL OR s.id = ANY(:samples)) RETURNING call_id""")
COPY_FOREIGN_STEPS = text(f"""
    INSERT INTO pg_temp.steps SELECT f.* FROM ({FOREIGN_STEPS}) f WHERE NOT EXISTS (
        SELECT FROM pg_temp.steps t
        WHERE (t.sample_id, t.position, t.slot) = (f.sample_id, f.position, f.slot))""")  # noqa: S608 - constants
COPY_CALLS = text("INSERT INTO pg_temp.calls SELECT * FROM public.calls WHERE id = ANY(:calls)")
COPY_ATTEMPTS = text("INSERT INTO pg_temp.attempts SELECT * FROM public.attempts WHERE call_id = ANY(:calls)")

StoredRow = tuple[Any, ...]


class Damaged(ValueError):
    """A part that cannot be read, or was changed after it was written; the message says which."""


class Column(NamedTuple):
    """A column of an archived table."""

    name: str
    type: str
    """PostgreSQL's name of it."""


async def list_columns(connection: AsyncConnection) -> dict[str, list[Column]]:
    """List the present columns of the archived tables."""
    found: dict[str, list[Column]] = {table: [] for table in TABLES}
    for row in await connection.execute(COLUMNS, {"tables": list(TABLES)}):
        found[row.table].append(Column(row.name, row.type))
    return found


def make_schema(columns: Iterable[Column]) -> "pa.Schema":
    """Return the columns of a table's Parquet files.

    Raises:
        KeyError: a column has a type that no archived table had before.
    """
    import pyarrow as pa

    types = {
        "bigint": pa.int64(), "integer": pa.int32(), "smallint": pa.int16(), "boolean": pa.bool_(),
        "real": pa.float32(), "text": pa.string(), "uuid": pa.string(), "bytea": pa.binary(),
        "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    return pa.schema([(column.name, types[column.type]) for column in columns])


def encode_rows(columns: Sequence[Column], rows: Sequence[StoredRow]) -> bytes:
    """Write the rows of a table as a Parquet file, and check that it holds exactly these rows.

    Raises:
        Damaged: it does not.
    """
    import pyarrow as pa
    from pyarrow import parquet

    ids = {place for place, column in enumerate(columns) if column.type == "uuid"}
    plain = [tuple(str(v) if n in ids and v is not None else v for n, v in enumerate(row)) for row in rows]
    schema = make_schema(columns)
    by_column = list(zip(*plain, strict=True)) or [()] * len(columns)
    table = pa.table([pa.array(v, f.type) for v, f in zip(by_column, schema, strict=True)], schema=schema)
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd", compression_level=9)
    content: bytes = sink.getvalue().to_pybytes()
    if list_rows(parquet.read_table(pa.BufferReader(content))) != plain:
        raise Damaged("Parquet does not return the rows that were written")
    return content


def list_rows(table: "pa.Table") -> list[StoredRow]:
    """Return the rows of a table as tuples."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def hash_part(part: Mapping[str, Any] | RowMapping) -> bytes:
    """Return the hash of a part, a row of `archived_parts`."""
    place = "{job_id} {first_sample} {last_sample}\n".format_map(part)
    return hashlib.sha256(b"".join((place.encode(), *(part[table] for table in TABLES)))).digest()


def decode_part(
    row: RowMapping, columns: dict[str, list[Column]], samples: Collection[int] | None, *, texts: bool
) -> dict[str, "pa.Table"]:
    """Read the tables of a part, or of it the rows that concern some samples; `texts` includes `TEXTS`.

    Raises:
        Damaged: its content differs from its hash, or has other columns.
    """
    import pyarrow as pa
    from pyarrow import compute, parquet

    name = f"archived_parts {row['job_id']}/{row['first_sample']}"
    if hash_part(row) != row["sha256"]:
        raise Damaged(name)
    tables = {}
    for table in TABLES:
        expected = make_schema(columns[table])
        try:
            file = parquet.ParquetFile(pa.BufferReader(row[table]))
            stored = file.schema_arrow
            if any(expected.field(each.name).type != each.type for each in stored):
                raise Damaged(name)
            wanted = [each for each in stored.names if texts or each not in TEXTS]
            tables[table] = file.read(columns=wanted)
        except (KeyError, pa.ArrowException) as error:
            raise Damaged(name) from error
    if samples is not None:
        steps = tables["steps"]
        mine = steps.filter(compute.is_in(steps["sample_id"], pa.array(samples, pa.int64())))["call_id"]
        keys = (("steps", "call_id"), ("calls", "id"), ("attempts", "call_id"))
        for table, key in keys:
            tables[table] = tables[table].filter(compute.is_in(tables[table][key], mine))
    return tables


async def list_archived(connection: AsyncConnection, jobs: Collection[int]) -> list[int]:
    """List those of the jobs (row ids) that have archived parts."""
    return list((await connection.execute(ARCHIVED, {"jobs": list(jobs)})).scalars())


@asynccontextmanager
async def show_archived(
    connection: AsyncConnection, job: int, samples: Collection[int] | None = None, *,
    texts: bool = True, damaged: list[str] | None = None,
) -> AsyncIterator[None]:  # fmt: skip
    """Show the statements of this block the steps, calls and attempts of a job (row id), archived or not.

    Without archived parts nothing happens. Otherwise the tables of these names have, within the block, no other rows
    than those of the job, or of some of its samples, and the steps of other samples that its pages show. Blocks
    cannot be nested. Only a snapshot, or a transaction that holds a lock on the job, sees each part either in the
    tables or in the archive.

    Args:
        texts: whether `calls.request` and `attempts.reply` are needed; they are null otherwise.
        damaged: gets the names of parts that cannot be read, instead of an error.

    Raises:
        Unreadable: a part was changed or cannot be read.
        NotInstalled: the job is archived, and pyarrow is missing.
        Unavailable: the database's role may not make temporary tables.
    """
    wanted = {"job": job, "samples": None if samples is None else list(samples)}
    parts = (await connection.execute(PARTS, wanted)).mappings().all()
    if not parts:
        yield
        return
    if missing := find_missing_package("pyarrow", "mathrag-gate[parquet]"):
        raise missing
    try:
        await _run(connection, CREATE)
    except ProgrammingError as error:
        if get_sqlstate(error) != NO_PRIVILEGE:
            raise
        hint = "as the database's owner: GRANT TEMPORARY ON DATABASE … TO mathrag_app"
        raise Unavailable(
            "an archived job is read through temporary tables, which the service may not make", hint=hint
        ) from error
    await _fill(connection, parts, wanted, texts=texts, damaged=damaged)
    await _run(connection, FINISH)
    yield
    await _run(connection, DROP)


async def _run(connection: AsyncConnection, statements: Iterable[str]) -> None:
    for statement in statements:
        await connection.exec_driver_sql(statement)


async def _fill(
    connection: AsyncConnection, parts: Sequence[RowMapping], wanted: dict[str, Any], *,
    texts: bool, damaged: list[str] | None,
) -> None:  # fmt: skip
    columns = await list_columns(connection)
    seen: dict[str, set[object]] = {table: set() for table in TABLES}
    if calls := sorted(set((await connection.execute(COPY_OWN_STEPS, wanted)).scalars())):
        for statement in (COPY_FOREIGN_STEPS, COPY_CALLS, COPY_ATTEMPTS):
            await connection.execute(statement, {"calls": calls, "job": wanted["job"]})
        for table, key in TABLES.items():
            keys = await connection.execute(text(f"SELECT {', '.join(key)} FROM pg_temp.{table}"))  # noqa: S608
            seen[table] = set(map(itemgetter(*range(len(key))), keys))
    for each in parts:
        row = (await connection.execute(PART, dict(each))).mappings().one()
        try:
            decode = partial(decode_part, row, columns, wanted["samples"], texts=texts)
            tables = await to_thread.run_sync(decode)
            async with connection.begin_nested():
                for table, content in tables.items():
                    rows = await to_thread.run_sync(_list_new, content, TABLES[table], seen[table])
                    await copy(connection, table, content.column_names, rows)
        except (ValueError, KeyError, OverflowError, DataError, IntegrityConstraintViolationError) as error:
            name = f"archived_parts {each['job_id']}/{each['first_sample']}"
            if damaged is None:
                hint = "restore the database from a backup, or purge the job; `mathrag audit` names the items"
                raise Unreadable(f"the archive of this job is damaged: {name}", hint=hint) from error
            damaged.append(name)


def _list_new(content: "pa.Table", key: Sequence[str], seen: set[object]) -> list[StoredRow]:
    """Return the rows whose key no part before had, and add their keys to `seen`."""
    get_key = itemgetter(*(content.column_names.index(name) for name in key))
    rows = []
    for row in list_rows(content):
        if (mark := get_key(row)) not in seen:
            seen.add(mark)
            rows.append(row)
    return rows
