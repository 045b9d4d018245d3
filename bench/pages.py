"""Pages of samples against their SQL alone, on a job of 100,000 samples.

    .venv/bin/python -m bench.pages [--samples 100000] [--times 40]

System: the page as the application draws it for a browser, in this process. Floor: the statements that it sent, sent
again by asyncpg on a bare connection, one after the other. Both in turn. Printed are ratios of 95th percentiles: of all
addresses together, which the limit is for, and of each. Where SQL takes a millisecond or two, drawing fifty rows takes
several times that; where it looks through all samples, nothing else counts.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import asyncpg
import httpx2
import msgspec
from redis.asyncio import Redis
from sqlalchemy import event

from bench.uploads import connected, database, server
from mathrag.stack import postgres as postgres_module
from services.orchestrator.app import build
from services.orchestrator.deps import Deps
from shared import canonical
from shared.params import Params
from shared.replies import Generated, Graded
from shared.samples import Candidate, Extraction, Outcome, Trace
from shared.settings import Settings
from shared.storage.database import Database, fill_names

MOST = 2.0
"""Upper bound of a page's time over that of its SQL."""
WARM = 5
QUERIES = (
    "", "limit=200", "state=failed", "correct=false", "wrong=true", "subject=rare", "subject=algebra&level=3",
    "text=w99000", "ending=logic", "ending=correct", "ending=failed", "scored_by=judge", "scored_by=rules",
    "moved=true", "moved=false", "correct=true&text=rare",
)  # fmt: skip
"""Common and rare queries; `w99000` and `rare` match few samples, near the end."""
ITEMS = """
    INSERT INTO items (dataset_id, ordinal, hash, question, gold, subject, level)
    SELECT d.id, n, sha256(n::text::bytea), 'What is w' || n || ' of ' || repeat('so the sum of both sides ', 6) || '?',
        (n % 10)::text,
        CASE WHEN n % 9000 = 8999 THEN 'rare' ELSE (ARRAY['algebra', 'geometry', 'number theory'])[1 + n % 3] END,
        (1 + n % 5)::text
    FROM datasets d, generate_series(0, $1::integer - 1) n"""
JOB = """
    INSERT INTO jobs (name, pipeline, pipeline_hash, params, dataset_id, pins, repeats, reuse, total, state, ended_at)
    SELECT 'job', 'mathrag-gate', 'h', $1, id, '{}', 1, 'all', items, 'completed', now() FROM datasets"""
SAMPLES = """
    INSERT INTO samples (job_id, kind, ordinal, repeat, state, position, failure, ended_at)
    SELECT j.id, 'item', n, 0, CASE WHEN n % 5000 = 4999 THEN 3 ELSE 2 END, 3,
        CASE WHEN n % 5000 = 4999 THEN 'timeout' END, now()
    FROM jobs j, generate_series(0, j.total - 1) n"""
OUTCOMES = fill_names("""
    INSERT INTO outcomes (sample_id, outcome, answer, extraction, correct, strict, record_hash)
    SELECT s.id, o.outcome, '5', 'ok', o.correct, o.correct, 'h'
    FROM samples s JOIN unnest($1::integer[], $2::bytea[], $3::boolean[]) AS o (which, outcome, correct)
        ON o.which = CASE WHEN s.ordinal % 8000 = 7999 THEN 3 ELSE s.ordinal % 3 END
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


class Times(NamedTuple):
    """Holds the seconds of a page and of its SQL alone, in pairs."""

    pages: list[float]
    floors: list[float]

    @property
    def ratio(self) -> float:
        """Divide the 95th percentiles of the two."""
        return quantiles(self.pages, n=20)[18] / quantiles(self.floors, n=20)[18]


def main() -> None:
    """Print the ratios; exit with 1 if that of all addresses together is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=40)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, server(Path(folder)) as running:
        asyncio.run(seed(running, options.samples))
        found = asyncio.run(measure(running, options.times))
    for query, times in found.items():
        print(f"?{query}: ratio {times.ratio:.2f}")
    together = Times(*(list(chain.from_iterable(part)) for part in zip(*found.values(), strict=True)))
    print(f"all together: ratio {together.ratio:.2f}, limit {MOST:.2f}")
    raise SystemExit(together.ratio > MOST)


async def measure(running: postgres_module.Postgres, times: int) -> dict[str, Times]:
    """Measure every query."""
    async with (
        connected(running.url()) as bare,
        database(running.url()) as application,
        browser(running, application) as http,
    ):
        return {query: await time_pairs(http, application, bare, query, times) for query in QUERIES}


async def time_pairs(
    http: httpx2.AsyncClient, application: Database, bare: asyncpg.Connection, query: str, times: int
) -> Times:
    """Time page and SQL in turn, after `WARM` runs that do not count."""
    found = Times([], [])
    for number in range(WARM + times):
        sent, page = await fetch_page(http, application, f"/jobs/job/samples?{query}")
        floor = await replay(bare, sent)
        if number >= WARM:
            found.pages.append(page)
            found.floors.append(floor)
    return found


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
async def browser(running: postgres_module.Postgres, application: Database) -> AsyncIterator[httpx2.AsyncClient]:
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


async def seed(running: postgres_module.Postgres, samples: int) -> None:
    """Insert a finished job with four kinds of outcomes: right, wrong, moved, and a few that the judge scored."""
    outcomes = [msgspec.json.encode(each) for each in (right(), wrong(), right(moved=True), right(judged=True))]
    async with connected(running.owner_url()) as owner:
        await owner.execute("INSERT INTO datasets (name, hash, items) VALUES ('items', 'h', $1)", samples)
        await owner.execute("INSERT INTO models (name, backend, hash, needs_lease) VALUES ('g', 'scripted', 'h', true)")
        await owner.execute(ITEMS, samples)
        await owner.execute(JOB, canonical.encode(Params()))
        await owner.execute(SAMPLES)
        await owner.execute(OUTCOMES, [0, 1, 2, 3], outcomes, [True, False, True, True])
        await owner.execute(CALLS, msgspec.json.encode(Generated(text="so $1+1=2$ and \\boxed{5} " * 5)))
        await owner.execute("VACUUM ANALYZE")


def right(*, moved: bool = False, judged: bool = False) -> Outcome:
    """Make an outcome with ten candidates, one of which is the context."""
    trace = Trace(candidates=tuple(candidate(rank, judged=judged) for rank in range(1, 11)))
    context = trace.candidates[4 if moved else 0].document
    return Outcome(
        answer="5",
        extraction=Extraction.OK,
        context=(context,),
        trace=trace,
        verdict=Graded(math_verify=True, strict=True),
    )


def wrong() -> Outcome:
    """Make an outcome with a wrong answer."""
    return msgspec.structs.replace(right(), verdict=Graded(math_verify=False, strict=False))


def candidate(rank: int, *, judged: bool) -> Candidate:
    """Make a candidate with the fields that mathrag-gate fills."""
    features = None if judged else {"box": 1.0, "length": 0.8, "logic": 1 / 3, "math": 1.0, "structure": 1.0}
    return Candidate(
        document=canonical.digest(f"d{rank}").hex(), rank=rank, dense_rank=rank, sparse_rank=rank,
        dense_score=0.7 / rank, sparse_score=4.2 / rank, fused=1 / (60 + rank), quality=0.5 / rank, features=features,
        score=0.5 / rank,
    )  # fmt: skip


if __name__ == "__main__":
    main()
