"""Rows of the database: uploads, submissions and imports against COPY, and pages against their SQL alone.

Floors are asyncpg's COPY of the finished rows into tables of the same shape, or the same statements on a bare
connection; both sides take turns on an embedded PostgreSQL with its usual durability.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import httpx2
import msgspec
from redis.asyncio import Redis
from sqlalchemy import event

from mathrag.reading import rows
from mathrag.reading.lines import Reader
from mathrag_gate.stack import postgres as pg
from mathrag_gate.stack import process
from mathrag_gate.stack.postgres import Passwords, migrate
from mathrag_gate.stack.redis import find_free_port
from services.orchestrator.api.uploads import read_batches
from services.orchestrator.app import build
from services.orchestrator.deps import Deps
from shared import canonical
from shared.ingest import datasets as datasets_module
from shared.params import Params
from shared.replies import Generated, Graded
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.runtime.submit import Submission
from shared.runtime.submit import submit as submit_job
from shared.samples import Candidate, Extraction, Outcome, Trace
from shared.settings import Settings
from shared.storage import corpora as stored_corpora
from shared.storage import datasets as stored_datasets
from shared.storage.database import Database, fill_names
from tools.bench import Row, Rows, benchmark, in_turn
from tools.bench.mining import peak_bytes
from tools.bench.stack import WORDS, as_lines, start_stack

ROUNDS = 3
FOREIGN_KEYS = """
    SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint
    WHERE conrelid = $1::text::regclass AND contype = 'f'"""
TABLES = {"datasets": ("items",), "corpora": ("documents", "corpus_documents")}
ITEMS_IMPORTED = 1000
TEXT = "Therefore the sum is as was to be shown. " * 20
MOST = 2.0
"""Upper bound of a page's time over that of its SQL."""
WARM = 5
QUERIES = (
    "", "limit=200", "state=failed", "correct=false", "wrong=true", "subject=rare", "subject=algebra&level=3",
    "text=w99000", "ending=logic", "ending=correct", "ending=failed", "scored_by=judge", "scored_by=rules",
    "moved=true", "moved=false", "correct=true&text=rare",
)  # fmt: skip
"""Common and rare queries; `w99000` and `rare` match few samples, near the end."""
PAGES = (
    *(f"/jobs/job/samples?{query}" for query in QUERIES), "/compare/answers?jobs=job",
    "/compare/answers?jobs=job&kind=right", "/compare/answers?jobs=job&pattern=w99000", "/find?text=w99000",
)  # fmt: skip
ITEMS = """
    INSERT INTO items (dataset_id, ordinal, hash, question, gold, subject, level)
    SELECT d.id, n, sha256(n::text::bytea), 'What is w' || n || ' of ' || repeat('so the sum of both sides ', 6) || '?',
        (n % 10)::text,
        CASE WHEN n % 9000 = 8999 THEN 'rare' ELSE (ARRAY['algebra', 'geometry', 'number theory'])[1 + n % 3] END,
        (1 + n % 5)::text
    FROM datasets d, generate_series(0, $1::integer - 1) n"""
JOB = """
    INSERT INTO jobs (name, pipeline, pipeline_hash, params, dataset_id, pins, repeats, reuse, total, state, ended_at)
    SELECT $2::text, 'mathrag-gate', 'h', $1, id, '{}', 1, 'all', items, 'completed', now() FROM datasets"""
SAMPLES = """
    INSERT INTO samples (job_id, kind, ordinal, repeat, state, position, failure, ended_at)
    SELECT j.id, 'item', n, 0, CASE WHEN n % 5000 = 4999 THEN 3 ELSE 2 END, 3,
        CASE WHEN n % 5000 = 4999 THEN 'timeout' END, now()
    FROM jobs j, generate_series(0, j.total - 1) n"""
OUTCOMES = fill_names("""
    INSERT INTO outcomes (sample_id, outcome, answer, extraction, correct, strict, record_hash)
    SELECT s.id, o.outcome, '5', 'ok', o.correct, o.correct, 'h'
    FROM samples s JOIN unnest($1::integer[], $2::bytea[], $3::boolean[]) AS o (which, outcome, correct)
        ON o.which = CASE WHEN s.ordinal % 8000 = 7999 THEN 3 ELSE (s.ordinal + s.job_id) % 3 END
    WHERE s.state = {COMPLETED}""")
CALLS = """
    WITH made AS (
        INSERT INTO calls (key, lane, role, model_id, request)
        SELECT sha256(s.id::text::bytea), 'generate', 'generate', m.id, '{}' FROM samples s, models m RETURNING id),
    numbered AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM made),
    asking AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM samples),
    asked AS (
        INSERT INTO steps (sample_id, position, slot, call_id, created)
        SELECT a.id, 1, 0, c.id, true FROM numbered c JOIN asking a USING (n))
    INSERT INTO attempts (call_id, accepted, outcome, reply) SELECT id, true, 'value', $1 FROM numbered"""

Sent = list[tuple[str, Sequence[Any]]]
"""The statements of a page, with their values."""


@benchmark
def uploads(rows: int = 100_000) -> Rows:
    """Compare uploads with COPY into the same tables: reading, checking, hashing and storing, over storing them only.

    The upload's own path below HTTP is measured: JSON lines from disk, the API's reader, storage. Memory is the growth
    of a fresh process's peak over that of a small upload. The figure is that of the kind of upload with the larger
    ratio.
    """
    with TemporaryDirectory() as folder, serve_database(Path(folder)) as running:
        worst = 0.0
        for kind in TABLES:
            seconds = asyncio.run(time_upload(running, kind, write_lines(Path(folder), kind, rows)))
            ratios = yield from compare_measured(seconds)
            worst = max(worst, ratios[f"upload of {kind}"])
        for kind in TABLES:
            for count in (rows // 10, rows):
                arguments = (running.url(), kind, str(write_lines(Path(folder), kind, count)))
                code = f"from tools.bench import storing; print(storing.measure_growth{arguments!r})"
                grown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
                yield {"uploaded": kind, "rows": count, "peak memory, more MiB": int(grown) / 2**20}
        yield worst


async def time_upload(running: pg.Postgres, kind: str, file: Path) -> dict[str, list[float]]:
    """Time in turn COPY into the same tables, COPY into tables without their foreign keys, and the upload."""
    seconds: dict[str, list[float]] = {"COPY": [], "COPY without foreign keys": [], f"upload of {kind}": []}
    with_keys, bare, ours = seconds.values()
    async with connected(running.owner_url()) as owner, database(running.url()) as application:
        await upload(application, kind, "rows", file)
        finished = {table: await owner.fetch(f"SELECT * FROM {table}") for table in TABLES[kind]}  # noqa: S608
        for _ in range(ROUNDS):
            bare.append(await copy_rows(owner, finished))
            with_keys.append(await copy_rows(owner, finished, keys=True))
            await owner.execute("TRUNCATE corpora, datasets, documents RESTART IDENTITY CASCADE")
            ours.append(await upload(application, kind, "rows", file))
    return seconds


def compare_measured(seconds: dict[str, list[float]]) -> Generator[Row, None, dict[str, float]]:
    """Compare figures that were measured in turn."""
    runs = {name: iter(found) for name, found in seconds.items()}
    rounds = len(next(iter(seconds.values())))
    return (yield from in_turn({name: partial(next, run) for name, run in runs.items()}, rounds))


async def copy_rows(owner: asyncpg.Connection, finished: dict[str, list[Any]], *, keys: bool = False) -> float:
    """COPY finished rows into empty tables of the same shape; return the seconds, commit included."""
    for table in finished:
        await owner.execute(
            f"DROP TABLE IF EXISTS bare_{table}; CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)"
        )
        for key in await owner.fetch(FOREIGN_KEYS, table) if keys else ():
            await owner.execute(f"ALTER TABLE bare_{table} ADD {key['definition']}")
    return await time_copy(owner, {f"bare_{table}": found for table, found in finished.items()})


async def time_copy(owner: asyncpg.Connection, rows: dict[str, list[Any]]) -> float:
    """COPY rows into tables; return the seconds, commit included."""
    began = time.perf_counter()
    async with owner.transaction():
        for table, found in rows.items():
            await owner.copy_records_to_table(table, records=found)
    return time.perf_counter() - began


async def upload(application: Database, kind: str, name: str, file: Path) -> float:
    """Upload a file; return the seconds up to the commit."""
    began = time.perf_counter()
    with file.open("rb") as opened:
        read = rows.read(opened, "upload")
        if kind == "corpora":
            reader = Reader(
                read, lambda line, number: datasets_module.record(line, str(number)), datasets_module.document_id
            )
            async with aclosing(read_batches(reader)) as records:
                await stored_corpora.create(application, name, records)
        else:
            items = datasets_module.ItemReader()
            asked = Reader(read, lambda line, _: items.read(line), datasets_module.question_id)
            async with aclosing(read_batches(asked)) as records:
                await stored_datasets.create(application, name, records)
    return time.perf_counter() - began


def measure_growth(url: str, kind: str, file: str) -> int:
    """Return the bytes that an upload adds to this process's peak, over that of its first thousand rows."""

    async def measure() -> int:
        small = write_lines(Path(file).parent, kind, 1000)
        async with database(url) as application:
            await upload(application, kind, f"small-{time.monotonic_ns()}", small)
            before = peak_bytes()
            await upload(application, kind, f"large-{time.monotonic_ns()}", Path(file))
        return peak_bytes() - before

    return asyncio.run(measure())


def write_lines(folder: Path, kind: str, count: int) -> Path:
    """Write JSON lines: questions of about 150 characters, or documents of about 1.2 kB, each with an id."""
    file = folder / f"{kind}-{count}.jsonl"
    with file.open("wb") as opened:
        opened.writelines(as_lines(make_rows(kind, count)))
    return file


def make_rows(kind: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield questions in the form of MATH-500, without the solution, or documents in the form of MATH."""
    dice = random.Random(1)
    for n in range(count):
        if kind == "datasets":
            text = f"What is w{n} of {' '.join(dice.choices(WORDS, k=30))}?"
            yield {"unique_id": f"q{n}", "problem": text, "answer": str(n), "subject": "Algebra", "level": 3}
        else:
            text = f"w{n} {' '.join(dice.choices(WORDS, k=270))}"
            yield {"unique_id": f"d{n}", "problem": f"What is w{n}?", "solution": text, "subject": "Algebra"}


@contextmanager
def serve_database(folder: Path) -> Iterator[pg.Postgres]:
    """Run an embedded PostgreSQL at the newest migration."""
    found = pg.Postgres(folder / "postgres", port=find_free_port(), passwords=Passwords())
    found.prepare()
    log = folder / "postgres.log"
    child = process.spawn(found.command(), log=log, dies_by=pg.STOP_SIGNAL)
    try:
        asyncio.run(process.wait_ready("postgres", child, found.is_ready, log=log))
        asyncio.run(found.create_database())
        asyncio.run(migrate(found.owner_url()))
        yield found
    finally:
        asyncio.run(process.stop(child, by=pg.STOP_SIGNAL))


@asynccontextmanager
async def connected(url: str) -> Any:
    """Open an asyncpg connection, without the application's pool."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def database(url: str) -> Any:
    """Open the database as the API does."""
    found = Database(url, pinned=False)
    try:
        yield found
    finally:
        await found.close()


@benchmark
def submit(items: int = 100_000) -> Rows:
    """Compare the submission of a job, from the request to the commit, with COPY of the rows that it inserts."""
    with TemporaryDirectory() as folder, serve_database(Path(folder)) as running:
        seconds, more = asyncio.run(time_submit(running, write_lines(Path(folder), "datasets", items)))
        ratios = yield from compare_measured(seconds)
        yield {"submissions": ROUNDS, "peak memory, more MiB": more}
        yield ratios["submit"]


async def time_submit(running: pg.Postgres, file: Path) -> tuple[dict[str, list[float]], float]:
    """Time COPY and submission in turn; also return the MiB that submissions add to this process's peak."""
    seconds: dict[str, list[float]] = {"COPY": [], "submit": []}
    settings = Settings(roles={"judge": "j", "generate": "g"})
    async with connected(running.owner_url()) as owner, database(running.url()) as application:
        await upload(application, "datasets", "items", file)
        async with application.transaction() as connection:
            for name in ("j", "g"):
                await pins.register(connection, ModelIdentity(name=name, backend="scripted", digest=name))
        before = peak_bytes()
        for number in range(ROUNDS):
            submission = Submission(name=f"job-{number}", dataset="items", pipeline="closed-book")
            began = time.perf_counter()
            await submit_job(application, settings, submission)
            seconds["submit"].append(time.perf_counter() - began)
            seconds["COPY"].append(await copy_samples(owner))
    return seconds, (peak_bytes() - before) / 2**20


async def copy_samples(owner: asyncpg.Connection) -> float:
    """COPY the newest job's samples into an empty table of the same shape; return the seconds, commit included."""
    await owner.execute("DROP TABLE IF EXISTS bare; CREATE TABLE bare (LIKE samples INCLUDING ALL EXCLUDING IDENTITY)")
    rows = await owner.fetch("SELECT * FROM samples WHERE job_id = (SELECT max(id) FROM jobs)")
    return await time_copy(owner, {"bare": rows})


@benchmark
def importing(answers: int = 20_000, rounds: int = 3) -> Rows:
    """Compare the import of answers of 800 characters with COPY of the same rows."""
    numbers = iter(range(rounds))
    texts = (f"{TEXT}$\\boxed{{{n}}}$" for n in range(answers))
    lines = ({"index": n % ITEMS_IMPORTED, "repeat": n // ITEMS_IMPORTED, "text": text} for n, text in enumerate(texts))
    body = list(as_lines(lines))
    with start_stack() as running:
        questions = (
            {"id": str(n), "question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(ITEMS_IMPORTED)
        )
        running.upload("datasets", "sums", as_lines(questions))
        url = running.database_url(owner=True)

        def send() -> None:
            params = {"name": f"theirs-{next(numbers)}", "dataset": "sums"}
            running.api.post("/v1/jobs/import", params=params, content=b"".join(body)).raise_for_status()

        yield from in_turn({"COPY": lambda: asyncio.run(copy_bytes(url, body)), "import": send}, rounds)


async def copy_bytes(url: str, lines: Sequence[bytes]) -> float:
    """COPY lines into a table with a number; return the seconds."""
    async with connected(url) as owner:
        await owner.execute("CREATE TEMP TABLE copied (n integer PRIMARY KEY, content bytea)")
        return await time_copy(owner, {"copied": list(enumerate(lines))})


Times = list[tuple[float, float]]
"""The seconds of a page and of its SQL alone."""


@benchmark
def pages(samples: int = 100_000, times: int = 40) -> Rows:
    """Compare pages of a job of 100,000 samples with their SQL alone; exit with 1 above the limit.

    System: the page as the application draws it for a browser, in this process. Floor: the statements that it sent,
    sent again by asyncpg on a bare connection. Ratios are of 95th percentiles: of all addresses together, which the
    limit is for, and of each. Where SQL takes a millisecond or two, drawing fifty rows takes several times that; where
    it looks through all samples, nothing else counts.
    """
    with TemporaryDirectory() as folder, serve_database(Path(folder)) as running:
        asyncio.run(seed(running, samples))
        found = asyncio.run(measure(running, times))
    ratio = 0.0
    for address, each in {**found, "all together": list(chain.from_iterable(found.values()))}.items():
        drawn, floors = zip(*each, strict=True)
        ratio = quantiles(drawn, n=20)[18] / quantiles(floors, n=20)[18]
        yield {"page": address, "over its SQL, p95": ratio, "median, ms": 1000 * median(drawn), "limit": MOST}
    raise SystemExit(ratio > MOST)


async def measure(running: pg.Postgres, times: int) -> dict[str, Times]:
    async with (
        connected(running.url()) as bare,
        database(running.url()) as application,
        browser(running, application) as http,
    ):
        return {address: await time_pairs(http, application, bare, address, times) for address in PAGES}


@benchmark
def compare(samples: int = 100_000, rounds: int = 3) -> Rows:
    """Compare the comparison of two finished jobs with its SQL alone; the figure is the median difference in seconds.

    The SQL is sent again by asyncpg on a bare connection. The first run does not count.
    """

    async def time_both(running: pg.Postgres) -> Times:
        async with (
            connected(running.url()) as bare,
            database(running.url()) as application,
            browser(running, application) as http,
        ):
            left, right = await bare.fetch("SELECT public_id FROM jobs ORDER BY id")
            address = f"/v1/comparison?job={left[0]}&job={right[0]}"
            return await time_pairs(http, application, bare, address, rounds, warm=1)

    with TemporaryDirectory() as folder, serve_database(Path(folder)) as running:
        asyncio.run(seed(running, samples, ("left", "right")))
        found = asyncio.run(time_both(running))
    drawn, floors = map(list, zip(*found, strict=True))
    yield from compare_measured({"SQL": floors, "comparison": drawn})
    yield median(took - floor for took, floor in found)


async def time_pairs(
    http: httpx2.AsyncClient,
    application: Database,
    bare: asyncpg.Connection,
    address: str,
    times: int,
    warm: int = WARM,
) -> Times:
    """Time page and SQL in turn, after `warm` runs that do not count."""
    found: Times = []
    for _ in range(warm + times):
        sent, page = await fetch_page(http, application, address)
        found.append((page, await replay(bare, sent)))
    return found[warm:]


async def fetch_page(http: httpx2.AsyncClient, application: Database, address: str) -> tuple[Sent, float]:
    """Fetch a page; return the statements that it sent to the database, and its seconds."""
    sent: Sent = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        sent.append((statement, values))

    event.listen(application.engine.sync_engine, "before_cursor_execute", note)
    began = time.perf_counter()
    reply = await http.get(address)
    took = time.perf_counter() - began
    event.remove(application.engine.sync_engine, "before_cursor_execute", note)
    reply.raise_for_status()
    return sent, took


async def replay(bare: asyncpg.Connection, sent: Sent) -> float:
    """Run the statements alone in one transaction; return the seconds."""
    began = time.perf_counter()
    async with bare.transaction():
        for statement, values in sent:
            if not statement.startswith("SET TRANSACTION"):
                await bare.fetch(statement, *values)
    return time.perf_counter() - began


@asynccontextmanager
async def browser(running: pg.Postgres, application: Database) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client that calls the application in this process, without a network."""
    settings = Settings(database_url=running.url())
    app = build(settings)
    async with httpx2.AsyncClient() as others, Redis.from_url("redis://127.0.0.1:1") as redis:
        app.state.deps = Deps(
            settings=settings, database=application, admission=application, redis=redis, http=others, wake=lambda: None
        )
        transport = httpx2.ASGITransport(app=app)
        headers = {"accept": "text/html", "accept-encoding": "gzip"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            yield http


async def seed(running: pg.Postgres, samples: int, jobs: Sequence[str] = ("job",)) -> None:
    """Insert finished jobs with four kinds of outcomes: right, wrong, moved, and a few that the judge scored."""
    wrong = msgspec.structs.replace(right(), verdict=Graded(math_verify=False, strict=False))
    outcomes = [msgspec.json.encode(each) for each in (right(), wrong, right(moved=True), right(judged=True))]
    async with connected(running.owner_url()) as owner:
        await owner.execute("INSERT INTO datasets (name, hash, items) VALUES ('items', 'h', $1)", samples)
        await owner.execute("INSERT INTO models (name, backend, hash, needs_lease) VALUES ('g', 'scripted', 'h', true)")
        await owner.execute(ITEMS, samples)
        for name in jobs:
            await owner.execute(JOB, canonical.encode(Params()), name)
        await owner.execute(SAMPLES)
        await owner.execute(OUTCOMES, [0, 1, 2, 3], outcomes, [True, False, True, True])
        await owner.execute(CALLS, msgspec.json.encode(Generated(text="so $1+1=2$ and \\boxed{5} " * 5)))
        await owner.execute("VACUUM ANALYZE")


def right(*, moved: bool = False, judged: bool = False) -> Outcome:
    """Make an outcome with ten candidates, one of which is the context."""
    trace = Trace(candidates=tuple(candidate(rank, judged=judged) for rank in range(1, 11)))
    context = trace.candidates[4 if moved else 0].document
    verdict = Graded(math_verify=True, strict=True)
    return Outcome(answer="5", extraction=Extraction.OK, context=(context,), trace=trace, verdict=verdict)


def candidate(rank: int, *, judged: bool) -> Candidate:
    features = None if judged else {"box": 1.0, "length": 0.8, "logic": 1 / 3, "math": 1.0, "structure": 1.0}
    return Candidate(
        document=canonical.digest(f"d{rank}").hex(), rank=rank, dense_rank=rank, sparse_rank=rank,
        dense_score=0.7 / rank, sparse_score=4.2 / rank, fused=1 / (60 + rank), quality=0.5 / rank, features=features,
        score=0.5 / rank,
    )  # fmt: skip
