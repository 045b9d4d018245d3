"""Advance ready samples: replay each as far as its replies go, and record what it waits for or how it ended.

Any process may do it. One short transaction per batch; the row locks are the claim, so a crash releases them.
Lock order: samples (id), calls (key, by the unique index), queue (new rows only).

A sample that cannot be read fails alone. If an unexpected error stops a batch, the batch is halved until the sample
that causes the error is alone; that sample fails as `internal_error`, and the others go on.
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
from shared.plugins.loading import encode_usable_pins
from shared.redaction import redact
from shared.runtime import ending
from shared.runtime.jobs import Jobs, JobSpec, decode_given, item_from_row, require_readable
from shared.runtime.progress import SampleProgress, StoredAnswer, decode_answer
from shared.runtime.readiness import mark_ready_among, revive_calls
from shared.runtime.recording import CallVanished, RecordedBatch, record
from shared.storage.database import Database
from shared.storage.library import LibraryCache, list_mentioned_documents
from shared.storage.outages import concerns_rows
from shared.storage.sql import fill_names, sql
from shared.telemetry import row_spans, traces

READY_SAMPLES = fill_names("""
    SELECT s.id, s.job_id, s.kind, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id, i.expected,
        i.query, g.content AS given, j.public_id::text AS public_id, {PLACE} AS place
    FROM samples s JOIN jobs j ON j.id = s.job_id AND j.state IN {RUNNABLE} AND {HAS_PLUGINS}
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

Recorded = tuple[bytes, StoredAnswer]


class AdvanceResult(NamedTuple):
    """The results of one batch."""

    samples: int
    lanes: frozenset[Lane]
    """Lanes whose queue grew, which therefore need a tick."""
    jobs: frozenset[int]
    """Jobs with samples that ended, so the job itself may have ended."""


class BatchStopped(Exception):
    """An unexpected error (`__cause__`) stopped a batch; nothing was written."""

    def __init__(self, rows: Sequence[RowMapping]) -> None:
        super().__init__(f"{len(rows)} samples")
        self.rows = rows


_log = logging.getLogger(__name__)
NOTHING = AdvanceResult(0, frozenset(), frozenset())


class Advancer:
    """Advances samples for one process; keeps job specs and documents between batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = Jobs()
        self._cache = LibraryCache()
        self._library: dict[str, Document] = {}
        """Documents that the batch's replays read. Kept until the batch ends, even if evicted from the cache."""

    async def advance(self, limit: int = 200) -> AdvanceResult:
        """Advance one batch of at most `limit` ready samples."""
        return await self._advance_each(PICK, n=limit)

    async def _advance_each(self, pick: TextClause, **values: Any) -> AdvanceResult:
        """Advance the samples that `pick` selects, in one batch or in smaller ones if a sample stops it."""
        while True:
            try:
                return await self._batch(pick, values)
            except BatchStopped as error:
                stopped = error
                break
            except CallVanished:
                # A call failed for good between two statements and freed its key, so the batch can be repeated.
                _log.info("a call failed while a sample was being attached to it; repeating the batch")
        return await self._isolate(stopped)

    async def _batch(self, pick: TextClause, values: Mapping[str, Any]) -> AdvanceResult:
        self._library = {}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(pick, {**values, "plugins": encode_usable_pins()})).mappings().all()
            if not rows:
                return NOTHING
            try:
                done = await self._write(connection, rows)
            except Exception as error:
                if isinstance(error, CallVanished) or not concerns_rows(error):
                    raise
                raise BatchStopped(rows) from error
        _log_failures(done)
        if traces.is_on():
            await row_spans.trace_samples(self._database, [sample for sample, _ in done.ended])
        if done.written.attached or any(progress.waits and not progress.steps for progress in done.batch):
            # A reply to a call that was there before may have been committed while this batch was not yet.
            await mark_ready_among(self._database, [progress.sample_id for progress in done.batch if progress.waits])
            await revive_calls(self._database, done.written.attached)
        return AdvanceResult(len(rows), done.written.lanes, frozenset(job for _, job in done.ended))

    async def _write(self, connection: AsyncConnection, rows: Sequence[RowMapping]) -> "_BatchResult":
        """Replay the samples of these rows and store their progress."""
        batch, broken = await self._start(connection, rows)
        await self._replay(connection, batch)
        known = await self._drive(connection, batch)
        written = await record(connection, batch, known)
        await ending.store_ended(connection, [progress for progress in batch if not progress.waits])
        await ending.fail_samples(connection, broken)
        return _BatchResult(batch, broken, written)

    async def _isolate(self, stopped: BatchStopped) -> AdvanceResult:
        """Advance the two halves of a batch separately; a batch of one sample fails that sample."""
        if len(stopped.rows) == 1:
            return await self._give_up(stopped.rows[0], stopped.__cause__)
        samples = [row["id"] for row in stopped.rows]
        middle = len(samples) // 2
        first = await self._advance_each(PICK_AGAIN, samples=samples[:middle])
        second = await self._advance_each(PICK_AGAIN, samples=samples[middle:])
        return AdvanceResult(first.samples + second.samples, first.lanes | second.lanes, first.jobs | second.jobs)

    async def _give_up(self, row: RowMapping, error: BaseException | None) -> AdvanceResult:
        ids = _ids(row["public_id"], row["id"])
        _log.error("a sample cannot be advanced, so it fails: internal_error", exc_info=error, extra=ids)
        message = redact(f"{type(error).__name__}: {error}".partition("\n")[0])
        broken = _make_broken_sample(row, "internal_error", f"{message}; the log of the worker has the traceback")
        async with self._database.transaction() as connection:
            await ending.fail_samples(connection, [broken])
        return AdvanceResult(1, frozenset(), frozenset({broken.job}))

    async def _start(
        self, connection: AsyncConnection, rows: Sequence[RowMapping]
    ) -> tuple[list[SampleProgress], list[ending.BrokenSample]]:
        """Return fresh replays of the samples that this release can read, and the samples that it cannot."""
        items = {row["job_id"] for row in rows if row["kind"] == "item"}
        prepares = {row["job_id"] for row in rows if row["kind"] == "prepare"}
        specs = await self._jobs.load_each(connection, items, prepares)
        batch, broken = [], []
        for row in rows:
            try:
                batch.append(await self._start_replay(connection, row, require_readable(specs[row["job_id"]])))
            except Unreadable as error:
                broken.append(_make_broken_sample(row, "unreadable", str(error)))
        return batch, broken

    async def _start_replay(self, connection: AsyncConnection, row: RowMapping, spec: JobSpec) -> SampleProgress:
        spec.find_pipeline()
        spec.check_source()
        if row["kind"] == "prepare":
            replay = spec.prepare(await spec.load_calibration_items(connection), self._library)
        else:
            replay = spec.start(item_from_row(row), row["repeat"], self._library, decode_given(row, spec.pipeline))
        return SampleProgress(row["id"], spec, row["repeat"], row["position"], replay, row["place"])

    async def _replay(self, connection: AsyncConnection, batch: Sequence[SampleProgress]) -> None:
        """Feed each sample the replies to its recorded steps."""
        rows = (await connection.execute(HISTORY, {"ids": [progress.sample_id for progress in batch]})).all()
        history: dict[int, list[list[Recorded]]] = {}
        for (sample_id, _), steps in groupby(rows, key=lambda row: (row.sample_id, row.position)):
            history.setdefault(sample_id, []).append([(row.key, decode_answer(row.id, row.reply)) for row in steps])
        await self._read(
            connection, (found for positions in history.values() for step in positions for _, found in step)
        )
        for progress in batch:
            for step in history.get(progress.sample_id, ()):
                if not progress.expects([key for key, _ in step]) or not all(found.raw for _, found in step):
                    break
                progress.consume([found for _, found in step])

    async def _drive(self, connection: AsyncConnection, batch: Sequence[SampleProgress]) -> dict[bytes, StoredAnswer]:
        """Continue while the requested calls already have replies, from any job; return the calls that exist."""
        known: dict[bytes, StoredAnswer] = {}
        active = [progress for progress in batch if progress.waits]
        while active:
            keys = {bound.key for progress in active for bound in progress.bound} - known.keys()
            rows = await connection.execute(ANSWERS, {"keys": sorted(keys)})
            known |= {row.key: decode_answer(row.id, row.reply) for row in rows}
            active = [p for p in active if all(b.key in known and known[b.key].raw for b in p.bound)]
            await self._read(connection, (known[bound.key] for p in active for bound in p.bound))
            for progress in active:
                progress.consume([known[bound.key] for bound in progress.bound])
            active = [progress for progress in active if progress.waits]
        return known

    async def _read(self, connection: AsyncConnection, answers: Iterable[StoredAnswer]) -> None:
        hashes = list_mentioned_documents(found.reply for found in answers if found.reply is not None)
        if hashes:
            self._library |= await self._cache.documents(connection, hashes)


class _BatchResult(NamedTuple):
    """The samples of one batch, and the rows that were written for them."""

    batch: list[SampleProgress]
    broken: list[ending.BrokenSample]
    written: RecordedBatch

    @property
    def ended(self) -> list[tuple[int, int]]:
        """Return (sample, job) of those that completed or failed."""
        replayed = [(each.sample_id, each.job.id) for each in self.batch if not each.waits]
        return replayed + [(each.sample, each.job) for each in self.broken]


def _make_broken_sample(row: RowMapping, kind: str, detail: str) -> ending.BrokenSample:
    return ending.BrokenSample(row["id"], row["job_id"], row["public_id"], kind, detail)


def _log_failures(done: _BatchResult) -> None:
    """Log one line for each sample that failed, with the ids by which to find it."""
    for progress in done.batch:
        if progress.replay.failure is not None:
            ids = _ids(progress.job.binding.job, progress.sample_id)
            _log.warning("a sample failed: %s", progress.replay.failure[0], extra=ids)
    for broken in done.broken:
        _log.warning("a sample failed: %s", broken.kind, extra=_ids(broken.public_id, broken.sample))


def _ids(job: str, sample: int) -> dict[str, Any]:
    return {"job_id": job, "sample_id": sample, "trace_id": job.replace("-", "")}
