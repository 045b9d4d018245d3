"""Growth: databases that other jobs have filled, and many jobs at once. Models are simulated."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import asyncpg

from mathrag_gate.stack.postgres import load_passwords
from shared.pages.figures import Figure, write_figure
from shared.pages.plots import DASHES, SHAPES, Dot, Key, Line, Mark, Panel, Plot, make_logarithmic_axis, name_series
from shared.runtime import advance, archiving, queue
from shared.runtime import purge as purging
from shared.storage.database import Database
from tools.bench import Rows, benchmark
from tools.bench.jobs import start_fast, warm_up
from tools.bench.stack import ENDED, MADE_UP, Stack, check_completed, rate_of, start_scripted

T = TypeVar("T")
ITEMS = 1000
ROUNDS = 3
PURGED = 100
"""Jobs of a purge: 100,000 samples."""
JOBS: dict[str, dict[str, Any]] = {
    "mathrag-gate": MADE_UP,
    "closed-book": {"dataset": "items", "pipeline": "closed-book", "reuse": "none"},
}  # fmt: skip
COPIES = 20_000
"""The most copies. Rows of jobs that run have larger ids than all copies, so that they are the newest."""
STRIDE = 10_000_000
"""Difference between the ids of a sample, a call or an attempt in one copy and in the next."""
OF_JOB = "job_id = $1"
OF_SAMPLES = "sample_id IN (SELECT id FROM samples WHERE job_id = $1)"
OF_CALLS = f"IN (SELECT call_id FROM steps WHERE {OF_SAMPLES})"  # noqa: S608 - constants
COPIED = {
    "jobs": "id = $1", "job_events": OF_JOB, "samples": OF_JOB, "calls": f"id {OF_CALLS}", "steps": OF_SAMPLES,
    "attempts": f"accepted AND call_id {OF_CALLS}", "outcomes": OF_SAMPLES, "records": OF_JOB,
}  # fmt: skip
"""Tables that grow with the jobs, and the rows of job $1 in them."""
COLUMNS = """
    SELECT attname AS name, atttypid = 'timestamptz'::regtype AS is_time FROM pg_attribute
    WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
IDS = ("id", "job_id", "sample_id", "call_id")
UNIQUE = {
    ("jobs", "public_id"): "gen_random_uuid()", ("jobs", "name"): "'copy-' || $2::bigint",
    ("calls", "key"): "sha256(key || $2::bigint::text::bytea)",
}  # fmt: skip
SEQUENCES = f"""
    SELECT setval(pg_get_serial_sequence(name, 'id'), {COPIES}::bigint * CASE name WHEN 'jobs' THEN 1 ELSE {STRIDE} END)
    FROM unnest(ARRAY['jobs', 'samples', 'calls', 'attempts']) name"""  # noqa: S608 - constants
SIZES = """
    SELECT relname AS name, pg_relation_size(oid) AS rows,
        (SELECT sum(pg_relation_size(indexrelid)) FROM pg_index WHERE indrelid = c.oid) AS indexes
    FROM pg_class c WHERE relname = ANY($1::text[]) ORDER BY pg_total_relation_size(oid) DESC"""
BYTES = """
    SELECT CAST(sum(pg_total_relation_size(oid)) / (SELECT count(*) FROM samples) AS float)
    FROM pg_class WHERE relname = ANY($1::text[])"""
READ = """
    SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = ANY($1::text[])) AS entries,
        (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = ANY($1::text[])) AS scanned"""
TIMES = "SELECT query, calls, total_exec_time AS ms FROM pg_stat_statements WHERE toplevel"
DEAD = "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname = ANY($1::text[])"
LIVE = "SELECT count(*) FROM jobs WHERE ended_at IS NULL"
TOTAL = "SELECT pg_database_size('mathrag')"
BUSY = ("postgres", "orchestrator", "judge", "generator")
HOT = {"claim, ms": queue.CLAIM, "store replies, ms": queue.ACCEPT, "replay, ms": advance.HISTORY}
"""Statements that run for each batch of calls."""
PAGES = {
    "list of jobs, ms": "/v1/jobs", "page of jobs, ms": "/jobs", "Now, ms": "/now", "job, ms": "/v1/jobs/{0}",
    "job's page, ms": "/jobs/{0}", "results, ms": "/v1/jobs/{0}/results", "samples' page, ms": "/jobs/{0}/samples",
    "sample's page, ms": "/jobs/{0}/samples/7", "report, ms": "/v1/jobs/{0}/report",
    "comparison, ms": "/v1/comparison?job={0}&job={1}", "find, ms": "/find?text=w7x", "metrics, ms": "/metrics",
}  # fmt: skip
CURVES = (
    "PostgreSQL, ms a call", "claim, ms", "store replies, ms", "list of jobs, ms", "sample's page, ms",
    "comparison, ms",
)  # fmt: skip


def as_superuser(running: Stack, use: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    """Run a function with a superuser's connection to the stack's database."""

    async def connected() -> T:
        port, secret = running.child("postgres")["port"], load_passwords(running.folder).superuser
        found = await asyncpg.connect(host="127.0.0.1", port=port, user="postgres", password=secret, database="mathrag")
        try:
            return await use(found)
        finally:
            await found.close()

    return asyncio.run(connected())


def prepare(running: Stack) -> None:
    """Load pg_stat_statements, for which the supervisor restarts PostgreSQL, and leave the copies' ids free."""

    async def ask(owner: asyncpg.Connection) -> None:
        await owner.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        await owner.execute("CREATE EXTENSION pg_stat_statements")
        await owner.execute(SEQUENCES)

    as_superuser(running, ask)
    before = running.pid("postgres")
    os.kill(before or 0, signal.SIGINT)
    while running.pid("postgres") in (None, before) or running.api.get("/readyz").status_code != 200:
        time.sleep(0.5)


class Filling:
    """Copies of one finished job in a stack's database."""

    def __init__(self, running: Stack, job: dict[str, Any]) -> None:
        self._running = running
        self._job = job
        self.copies = 0

    def grow(self, copies: int) -> float:
        """Insert copies until there are `copies`, and analyse; return the seconds."""
        began = time.perf_counter()
        as_superuser(self._running, lambda owner: self._insert(owner, range(self.copies + 1, copies + 1)))
        self.copies = copies
        return time.perf_counter() - began

    async def _insert(self, owner: asyncpg.Connection, numbers: range) -> None:
        # Triggers and foreign keys would only cost time: the rows are those of a job that passed them.
        await owner.execute("SET session_replication_role = replica; SET enable_seqscan = off")
        job = await owner.fetchval("SELECT id FROM jobs WHERE public_id::text = $1", self._job["id"])
        statements = [copy_statement(table, await owner.fetch(COLUMNS, table)) for table in COPIED]
        for number in numbers:
            async with owner.transaction():
                for statement in statements:
                    await owner.execute(statement, job, number)
        await owner.execute("VACUUM (ANALYZE)")
        await owner.execute("CHECKPOINT")


def copy_statement(table: str, columns: Sequence[asyncpg.Record]) -> str:
    """Return the statement that inserts the rows of job $1 again as copy $2, a minute later than the copy before."""
    values = []
    for name, is_time in columns:
        if name in IDS:
            step = 1 if name == "job_id" or table == "jobs" else STRIDE
            values.append(f"{name} + {step} * ($2::bigint - {COPIES})")
        elif is_time:
            values.append(f"{name} - interval '30 days' + $2::bigint * interval '1 minute'")
        else:
            values.append(UNIQUE.get((table, name), name))
    names = ", ".join(name for name, _ in columns)
    return (
        f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE"  # noqa: S608 - names of this database
        f" SELECT {', '.join(values)} FROM {table} WHERE {COPIED[table]} ORDER BY 1"
    )


def normalise(statement: str) -> str:
    """Return a statement without constants: pg_stat_statements has parameters for them, and one for a list."""
    values = re.sub(r"\$\d+|(?<!:):\w+|'[^']*'|\b(?:\d+(?:\.\d+)?|true|false|NULL)\b", "?", statement)
    return " ".join(re.sub(r"\?(?:, \?)*(?: /\*, \.\.\. \*/)?", "?", values).split())


@benchmark
def growth(
    samples: tuple[str, ...] = ("10000", "100000", "1000000"),
    pipeline: str = "mathrag-gate",
    figures: Path | None = None,
) -> Rows:
    """Measure jobs, statements, pages and a purge in a database that ended jobs of 1,000 samples each have filled.

    The rows of the ended jobs are copies of those of one that ran. `mathrag-gate` takes about 14.5 kB a sample. The
    curves are drawn in the folder `figures`. The figure is the processor time of PostgreSQL a call in the fullest
    database over that in the emptiest.
    """
    with start_fast() as running:
        prepare(running)
        running.upload_made_up(ITEMS)
        warm_up(running)
        filling = Filling(running, run_job(running, pipeline)[0])
        rows: list[dict[str, float]] = []
        for size in map(int, samples):
            seconds = filling.grow(size // ITEMS)
            jobs = measure_jobs(running, pipeline)
            total = as_superuser(running, lambda owner: owner.fetchval(TOTAL))
            ended = [run_job(running, pipeline)[0]["id"] for _ in range(2)]
            rows.append({"samples": size, **jobs, **time_pages(running, ended)})
            yield {"samples": size, "database, GB": total / 1e9, "filled in, s": seconds, **jobs}
        yield from ({name: row[name] for name in ("samples", *PAGES)} for row in rows)
        if figures:
            draw_curves(f"growth-{pipeline}", rows, CURVES, figures)
        yield from measure_sizes(running)
        for _ in range(2):
            yield from measure_purge(running, filling)
        yield rows[-1]["PostgreSQL, ms a call"] / rows[0]["PostgreSQL, ms a call"]


def draw_curves(
    name: str, rows: Sequence[Mapping[str, float]], curves: Sequence[str], folder: Path, unit: str = "Milliseconds"
) -> None:
    """Draw columns of `rows` over the first column, on logarithmic axes, and write the figure with its rows."""
    across, marks, keys = next(iter(rows[0])), list[Mark](), []
    for number, curve in enumerate(curves):
        points = tuple((row[across], row[curve]) for row in rows)
        colour, dash, shape = name_series(number), DASHES[number], SHAPES[number]
        keys.append(Key(text=curve, colour=colour, shape=shape))
        marks += [Line(points, colour, 2, dash), *(Dot(point, colour, shape) for point in points)]
    panel = Panel(
        x=make_logarithmic_axis(across, [row[across] for row in rows]),
        y=make_logarithmic_axis("", [row[curve] for row in rows for curve in curves]),
        marks=tuple(marks),
        height=300,
    )
    title = f"{unit} over the number of {across}"
    figure = Figure(
        name=name, title=title, notes=(), caption="Each line is a figure in databases of several sizes.",
        plot=Plot(panels=(panel,), keys=tuple(keys)), rows=tuple(rows),
    )  # fmt: skip
    write_figure(figure, folder)


def run_job(running: Stack, pipeline: str) -> tuple[dict[str, Any], list[float]]:
    """Run a job of `ITEMS` samples; return its document, and the milliseconds of each poll meanwhile."""
    job, polls = running.submit(**{**JOBS[pipeline], "name": f"job-{time.monotonic_ns()}"}), []
    found: dict[str, Any] = {"state": ""}
    while found["state"] not in ENDED:
        time.sleep(0.25)
        began = time.perf_counter()
        found = running.get(f"/v1/jobs/{job}")
        polls.append(1000 * (time.perf_counter() - began))
    return check_completed(found), polls


def measure_jobs(running: Stack, pipeline: str) -> dict[str, float]:
    """Run jobs; return medians of their figures, and the milliseconds of each of `HOT`."""
    rows: list[dict[str, float]] = []
    for _ in range(ROUNDS + 1):
        as_superuser(running, lambda owner: owner.execute("SELECT pg_stat_statements_reset()"))
        before = as_superuser(running, lambda owner: owner.fetchrow(READ, list(COPIED)))
        cpu = running.cpu_s()["postgres"]
        job, polls = run_job(running, pipeline)
        spent = running.cpu_s()["postgres"] - cpu
        after = as_superuser(running, lambda owner: owner.fetchrow(READ, list(COPIED)))
        statements = as_superuser(running, lambda owner: owner.fetch(TIMES))
        times = {normalise(each["query"]): each["ms"] / each["calls"] for each in statements}
        calls = sum(stage["done"] for stage in job["stages"].values())
        rows.append({
            "calls/s": rate_of(job), "PostgreSQL, ms a call": 1000 * spent / calls,
            "statements, ms a call": sum(each["ms"] for each in statements) / calls,
            **{name: times[normalise(str(statement))] for name, statement in HOT.items()},
            "index entries a call": float(after["entries"] - before["entries"]) / calls,
            "rows scanned": float(after["scanned"] - before["scanned"]), "poll of a running job, ms": median(polls),
        })  # fmt: skip
    return {name: median(row[name] for row in rows[1:]) for name in rows[0]}


def time_pages(running: Stack, jobs: Sequence[str], pages: Mapping[str, str] = PAGES) -> dict[str, float]:
    """Return the median milliseconds of each page about two jobs, after two that do not count."""
    found = {}
    for name, path in pages.items():
        times = []
        for _ in range(7):
            began = time.perf_counter()
            reply = running.api.get(path.format(*jobs), headers={"accept": "text/html,*/*"})
            times.append(1000 * (time.perf_counter() - began))
            reply.raise_for_status()
        found[name] = median(times[2:])
    return found


def measure_sizes(running: Stack) -> Rows:
    samples = as_superuser(running, lambda owner: owner.fetchval("SELECT count(*) FROM samples"))
    for name, rows, indexes in as_superuser(running, lambda owner: owner.fetch(SIZES, list(COPIED))):
        yield {"table": name, "bytes a sample": rows / samples, "of its indexes": int(indexes) / samples}


def measure_purge(running: Stack, filling: Filling) -> Rows:
    """Purge the newest copies and insert them again: seconds, dead rows, and the bytes that the database grows by."""
    kept = max(filling.copies - PURGED, 0)
    before = as_superuser(running, lambda owner: owner.fetchval(TOTAL))
    jobs, calls = asyncio.run(purge(running, [f"copy-{number + 1}" for number in range(kept, filling.copies)]))
    dead = as_superuser(running, lambda owner: owner.fetchval(DEAD, list(COPIED)))
    purged, filling.copies = filling.copies - kept, kept
    began = time.perf_counter()
    as_superuser(running, lambda owner: owner.execute("VACUUM (ANALYZE)"))
    vacuumed = time.perf_counter() - began
    filling.grow(kept + purged)
    after = as_superuser(running, lambda owner: owner.fetchval(TOTAL))
    yield {
        "purged samples": purged * ITEMS, "their rows, s": jobs, "unused calls, s": calls, "dead rows": int(dead),
        "vacuum, s": vacuumed, "bytes a sample after another filling": (after - before) / (purged * ITEMS),
    }  # fmt: skip


async def purge(running: Stack, names: Sequence[str]) -> tuple[float, float]:
    """Purge jobs; return the seconds for their own rows, and for the calls that nothing uses any longer."""
    owner = Database(running.database_url(owner=True), pinned=False)
    began = time.perf_counter()
    for job in await purging.find_jobs(owner, names):
        await purging.purge(owner, job, "bench")
    purged = time.perf_counter()
    await purging.remove_unused(owner, "bench")
    ended = time.perf_counter()
    await owner.close()
    return purged - began, ended - purged


@benchmark
def growth_archive(jobs: int = 10, pipeline: str = "mathrag-gate") -> Rows:
    """Archive ended jobs of 1,000 samples: seconds, bytes a sample of the tables and their indexes, and pages of such
    a job from the tables and from the archive. The figure is the bytes after over those before.
    """
    with start_fast() as running:
        prepare(running)
        running.upload_made_up(ITEMS)
        warm_up(running)
        ended = [run_job(running, pipeline)[0] for _ in range(2)]
        Filling(running, ended[0]).grow(jobs)
        pages, audited = [each["id"] for each in ended], {**PAGES, "audit, ms": "/v1/jobs/{0}/audit"}
        before = {"bytes a sample": measure_bytes(running), **time_pages(running, pages, audited)}
        moved, removed = asyncio.run(archive(running, [*pages, *(f"copy-{number + 1}" for number in range(jobs))]))
        after = {"bytes a sample": measure_bytes(running), **time_pages(running, pages, audited)}
        yield {"calls are in": "tables", **before}
        yield {"calls are in": "archive", **after}
        yield {"archived, s per 1,000 samples": moved / (jobs + 2), "unused calls, s per 1,000": removed / (jobs + 2)}
        yield after["bytes a sample"] / before["bytes a sample"]


def measure_bytes(running: Stack) -> float:
    """Return the bytes a sample of all tables with their indexes, without unused space."""
    as_superuser(running, lambda owner: owner.execute("VACUUM (FULL, ANALYZE)"))
    found: float = as_superuser(running, lambda owner: owner.fetchval(BYTES, [*COPIED, "archived_parts"]))
    return found


async def archive(running: Stack, names: Sequence[str]) -> tuple[float, float]:
    """Archive jobs; return the seconds for their parts, and for the calls that nothing uses any longer."""
    owner = Database(running.database_url(owner=True), pinned=False)
    began = time.perf_counter()
    for job in await purging.find_jobs(owner, names):
        await archiving.archive(owner, job, "bench")
    moved = time.perf_counter()
    await purging.remove_unused(owner, "bench")
    ended = time.perf_counter()
    await owner.close()
    return moved - began, ended - moved


@benchmark
def growth_jobs(jobs: tuple[str, ...] = ("100", "1000", "5000"), samples: int = 2) -> Rows:
    """Run many small jobs at once, and one job of as many samples; the figure is the time of a sample of the most jobs
    over that of the fewest.
    """
    with start_scripted(MATHRAG_LIMITS__LIVE_JOBS=str(10**6)) as running:
        running.upload_questions("items", samples)
        run_jobs(running, 10)
        times: list[float] = []
        for count in map(int, jobs):
            running.upload_questions(f"items-{count}", samples * count)
            began = time.perf_counter()
            running.complete(**{**JOBS["closed-book"], "name": f"one-{count}", "dataset": f"items-{count}"})
            one = time.perf_counter() - began
            found = run_jobs(running, count)
            times.append(found["then ended, s"] / (samples * count))
            yield {
                "jobs": count, "samples": samples * count, **found, "ms a sample": 1000 * times[-1],
                "one job, ms a sample": 1000 * one / (samples * count),
            }  # fmt: skip
        yield times[-1] / times[0]


def run_jobs(running: Stack, count: int) -> dict[str, float]:
    """Submit jobs to a drained device, release it, and wait until all have ended."""
    running.api.post("/v1/gpus/cpu:0/drain").raise_for_status()
    before, began = running.cpu_s(), time.perf_counter()
    for _ in range(count):
        running.submit(**{**JOBS["closed-book"], "name": f"job-{time.monotonic_ns()}"})
    submitted, released = running.cpu_s(), time.perf_counter()
    running.api.post("/v1/gpus/cpu:0/release").raise_for_status()
    lists: list[float] = []
    while running.rows(LIVE)[0][0]:
        asked = time.perf_counter()
        running.get("/v1/jobs")
        lists.append(1000 * (time.perf_counter() - asked))
        time.sleep(0.5)
    ended, after = time.perf_counter(), running.cpu_s()
    return {
        "submitted, ms a job": 1000 * (released - began) / count, "then ended, s": ended - released,
        "list of jobs meanwhile, ms": median(lists or [0.0]),
        **{f"{name}, ms a job": 1000 * (after[name] - submitted[name]) / count for name in after if name in BUSY},
        "all, ms a job": 1000 * (sum(after.values()) - sum(before.values())) / count,
    }  # fmt: skip
