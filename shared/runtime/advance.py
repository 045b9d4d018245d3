"""Advance ready samples: replay each as far as its replies go, and record what it waits for or how it ended.

Any process may do it. One short transaction per batch; the row locks are the claim, so a crash releases them.
Lock order: samples (id), calls (key, by the unique index), queue (new rows only).

A sample that cannot be read fails alone. Where something unforeseen stops a batch, the batch is halved until the sample
that stops it is alone; that one fails as `internal_error`, and the others go on.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.contracts.documents import Document
from shared.errors import Unreadable
from shared.redaction import redacted
from shared.runtime import ending
from shared.runtime.jobs import Jobs, JobSpec, given_of, item_of, readable
from shared.runtime.look import look_at, revive
from shared.runtime.progress import Answer, Progress, answer
from shared.runtime.recording import CallVanished, Written, record
from shared.storage.database import Database
from shared.storage.library import LibraryCache, mentioned
from shared.storage.outages import concerns_rows
from shared.storage.sql import fill, sql
from shared.telemetry import endings, traces

READY_SAMPLES = fill("""
    SELECT s.id, s.job_id, s.kind, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id, i.expected,
        i.query, g.content AS given, j.rank, j.public_id::text AS public_id
    FROM samples s JOIN jobs j ON j.id = s.job_id AND j.state IN {RUNNABLE}
    LEFT JOIN items i ON {ASKED_BY_SAMPLE} AND s.kind = 'item'
    LEFT JOIN given g ON {GIVEN_TO_SAMPLE}
    WHERE s.state = {READY}""")
PICK = text(f"{READY_SAMPLES} ORDER BY s.id LIMIT :n FOR NO KEY UPDATE OF s SKIP LOCKED")
PICK_AGAIN = text(f"{READY_SAMPLES} AND s.id = ANY(:samples) ORDER BY s.id FOR NO KEY UPDATE OF s SKIP LOCKED")
HISTORY = sql("""
    SELECT t.sample_id, t.position, c.key, c.id, a.reply
    FROM steps t JOIN calls c ON c.id = t.call_id LEFT JOIN attempts a ON {ACCEPTED_FOR} t.call_id
    WHERE t.sample_id = ANY(:ids) ORDER BY t.sample_id, t.position, t.slot""")
ANSWERS = sql("""
    SELECT c.key, c.id, a.reply FROM calls c LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE c.key = ANY(:keys) AND NOT c.failed""")

Recorded = tuple[bytes, Answer]


class Advanced(NamedTuple):
    """What one batch did."""

    samples: int
    lanes: frozenset[Lane]
    """Lanes whose queue grew: they want a tick."""
    jobs: frozenset[int]
    """Jobs of which samples ended: look whether the job did, too."""


class BatchStopped(Exception):
    """Something unforeseen, in its `__cause__`, was raised while these samples were advanced; nothing was written."""

    def __init__(self, rows: Sequence[RowMapping]) -> None:
        super().__init__(f"{len(rows)} samples")
        self.rows = rows


_log = logging.getLogger(__name__)
NOTHING = Advanced(0, frozenset(), frozenset())


class Advancer:
    """Advances samples for one process; keeps job specs and documents between batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = Jobs()
        self._cache = LibraryCache()
        self._library: dict[str, Document] = {}
        """What the replays of the batch read: held until it ends, whatever leaves the cache."""

    async def advance(self, limit: int = 200) -> Advanced:
        """One batch of at most `limit` ready samples."""
        return await self._each(PICK, n=limit)

    async def _each(self, pick: TextClause, **values: Any) -> Advanced:
        """The samples that `pick` finds: in one batch, or in smaller ones where a sample stops it."""
        while True:
            try:
                return await self._batch(pick, values)
            except BatchStopped as error:
                stopped = error
                break
            except CallVanished:
                # A call failed for good between two statements and left its key: the same batch finds the key free.
                _log.info("a call failed while it was being attached to; the batch is done again")
        return await self._isolate(stopped)

    async def _batch(self, pick: TextClause, values: Mapping[str, Any]) -> Advanced:
        self._library = {}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(pick, values)).mappings().all()
            if not rows:
                return NOTHING
            try:
                done = await self._write(connection, rows)
            except Exception as error:
                if isinstance(error, CallVanished) or not concerns_rows(error):
                    raise
                raise BatchStopped(rows) from error
        _tell_failures(done)
        if traces.on():
            await endings.samples_ended(self._database, [sample for sample, _ in done.ended])
        if done.written.attached or any(progress.waits and not progress.steps for progress in done.batch):
            # A reply to a call that was there before may have been committed while this batch was not yet.
            await look_at(self._database, [progress.sample_id for progress in done.batch if progress.waits])
            await revive(self._database, done.written.attached)
        return Advanced(len(rows), done.written.lanes, frozenset(job for _, job in done.ended))

    async def _write(self, connection: AsyncConnection, rows: Sequence[RowMapping]) -> "_Done":
        """Replay the samples of these rows and store how far they came."""
        batch, broken = await self._start(connection, rows)
        await self._replay(connection, batch)
        known = await self._drive(connection, batch)
        written = await record(connection, batch, known)
        await ending.write(connection, [progress for progress in batch if not progress.waits])
        await ending.fail(connection, broken)
        return _Done(batch, broken, written)

    async def _isolate(self, stopped: BatchStopped) -> Advanced:
        """Advance the two halves of a batch by themselves; a sample that is alone fails."""
        if len(stopped.rows) == 1:
            return await self._give_up(stopped.rows[0], stopped.__cause__)
        samples = [row["id"] for row in stopped.rows]
        middle = len(samples) // 2
        first = await self._each(PICK_AGAIN, samples=samples[:middle])
        second = await self._each(PICK_AGAIN, samples=samples[middle:])
        return Advanced(first.samples + second.samples, first.lanes | second.lanes, first.jobs | second.jobs)

    async def _give_up(self, row: RowMapping, error: BaseException | None) -> Advanced:
        ids = _ids(row["public_id"], row["id"])
        _log.error("a sample cannot be advanced, so it fails: internal_error", exc_info=error, extra=ids)
        said = redacted(f"{type(error).__name__}: {error}".partition("\n")[0])
        broken = _broken(row, "internal_error", f"{said}; the log of the worker has the traceback")
        async with self._database.transaction() as connection:
            await ending.fail(connection, [broken])
        return Advanced(1, frozenset(), frozenset({broken.job}))

    async def _start(
        self, connection: AsyncConnection, rows: Sequence[RowMapping]
    ) -> tuple[list[Progress], list[ending.Broken]]:
        """Fresh replays of the samples that this release can read, and the others."""
        items = {row["job_id"] for row in rows if row["kind"] == "item"}
        prepares = {row["job_id"] for row in rows if row["kind"] == "prepare"}
        specs = await self._jobs.load_each(connection, items, prepares)
        batch, broken = [], []
        for row in rows:
            try:
                batch.append(await self._fresh(connection, row, readable(specs[row["job_id"]])))
            except Unreadable as error:
                broken.append(_broken(row, "unreadable", str(error)))
        return batch, broken

    async def _fresh(self, connection: AsyncConnection, row: RowMapping, spec: JobSpec) -> Progress:
        job = spec.ranked(row["rank"])
        job.installed()
        job.check_source()
        if row["kind"] == "prepare":
            replay = job.prepare(await job.calibration(connection), self._library)
        else:
            replay = job.start(item_of(row), row["repeat"], self._library, given_of(row, job.pipeline))
        return Progress(row["id"], job, row["repeat"], row["position"], replay)

    async def _replay(self, connection: AsyncConnection, batch: Sequence[Progress]) -> None:
        """Feed each sample the replies that its recorded steps have."""
        rows = (await connection.execute(HISTORY, {"ids": [progress.sample_id for progress in batch]})).all()
        history: dict[int, list[list[Recorded]]] = {}
        for (sample_id, _), steps in groupby(rows, key=lambda row: (row.sample_id, row.position)):
            history.setdefault(sample_id, []).append([(row.key, answer(row.id, row.reply)) for row in steps])
        await self._read(
            connection, (found for positions in history.values() for step in positions for _, found in step)
        )
        for progress in batch:
            for step in history.get(progress.sample_id, ()):
                if not progress.expects([key for key, _ in step]) or not all(found.raw for _, found in step):
                    break
                progress.consume([found for _, found in step])

    async def _drive(self, connection: AsyncConnection, batch: Sequence[Progress]) -> dict[bytes, Answer]:
        """Go on while what a sample asks for has been answered before, for whomever; returns the calls that exist."""
        known: dict[bytes, Answer] = {}
        active = [progress for progress in batch if progress.waits]
        while active:
            keys = {bound.key for progress in active for bound in progress.bound} - known.keys()
            rows = await connection.execute(ANSWERS, {"keys": sorted(keys)})
            known |= {row.key: answer(row.id, row.reply) for row in rows}
            active = [p for p in active if all(b.key in known and known[b.key].raw for b in p.bound)]
            await self._read(connection, (known[bound.key] for p in active for bound in p.bound))
            for progress in active:
                progress.consume([known[bound.key] for bound in progress.bound])
            active = [progress for progress in active if progress.waits]
        return known

    async def _read(self, connection: AsyncConnection, answers: Iterable[Answer]) -> None:
        hashes = mentioned(found.reply for found in answers if found.reply is not None)
        if hashes:
            self._library |= await self._cache.documents(connection, hashes)


class _Done(NamedTuple):
    """What became of the samples of one batch."""

    batch: list[Progress]
    broken: list[ending.Broken]
    written: Written

    @property
    def ended(self) -> list[tuple[int, int]]:
        """(sample, job) of those that completed or failed."""
        replayed = [(each.sample_id, each.job.id) for each in self.batch if not each.waits]
        return replayed + [(each.sample, each.job) for each in self.broken]


def _broken(row: RowMapping, kind: str, detail: str) -> ending.Broken:
    return ending.Broken(row["id"], row["job_id"], row["public_id"], kind, detail)


def _tell_failures(done: _Done) -> None:
    """One line for each sample that failed, with what it takes to find it again."""
    for progress in done.batch:
        if progress.replay.failure is not None:
            ids = _ids(progress.job.binding.job, progress.sample_id)
            _log.warning("a sample failed: %s", progress.replay.failure[0], extra=ids)
    for broken in done.broken:
        _log.warning("a sample failed: %s", broken.kind, extra=_ids(broken.public_id, broken.sample))


def _ids(job: str, sample: int) -> dict[str, Any]:
    return {"job_id": job, "sample_id": sample, "trace_id": job.replace("-", "")}
