"""Advance ready samples: replay each as far as its replies go, and record what it waits for or how it ended.

Any process may do it. One short transaction per batch; the row locks are the claim, so a crash releases them.
Lock order: samples (id), calls (key, by the unique index), queue (new rows only).
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.contracts.documents import Document
from shared.runtime import ending
from shared.runtime.jobs import Jobs, item_of
from shared.runtime.library import LibraryCache, mentioned
from shared.runtime.look import look_at, revive
from shared.runtime.progress import Answer, Progress, answer
from shared.runtime.recording import CallVanished, record
from shared.storage.database import Database
from shared.telemetry import endings, traces

PICK = text("""
    SELECT s.id, s.job_id, s.kind, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id,
        j.rank
    FROM samples s JOIN jobs j ON j.id = s.job_id AND j.state IN ('preparing', 'running')
    LEFT JOIN items i ON i.dataset_id = j.dataset_id AND i.ordinal = s.ordinal AND s.kind = 'item'
    WHERE s.state = 0 ORDER BY s.id LIMIT :n FOR NO KEY UPDATE OF s SKIP LOCKED""")
HISTORY = text("""
    SELECT t.sample_id, t.position, c.key, c.id, a.reply
    FROM steps t JOIN calls c ON c.id = t.call_id LEFT JOIN attempts a ON a.call_id = t.call_id AND a.accepted
    WHERE t.sample_id = ANY(:ids) ORDER BY t.sample_id, t.position, t.slot""")
ANSWERS = text("""
    SELECT c.key, c.id, a.reply FROM calls c LEFT JOIN attempts a ON a.call_id = c.id AND a.accepted
    WHERE c.key = ANY(:keys) AND NOT c.failed""")

Recorded = tuple[bytes, Answer]


class Advanced(NamedTuple):
    """What one batch did."""

    samples: int
    lanes: frozenset[Lane]
    """Lanes whose queue grew: they want a tick."""
    jobs: frozenset[int]
    """Jobs of which samples ended: look whether the job did, too."""


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
        while True:
            try:
                return await self._batch(limit)
            except CallVanished:
                # A call failed for good between two statements and left its key: the same batch finds the key free.
                _log.info("a call failed while it was being attached to; the batch is done again")

    async def _batch(self, limit: int) -> Advanced:
        self._library = {}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(PICK, {"n": limit})).mappings().all()
            if not rows:
                return NOTHING
            batch = await self._start(connection, rows)
            await self._replay(connection, batch)
            known = await self._drive(connection, batch)
            written = await record(connection, batch, known)
            ended = [progress for progress in batch if not progress.waits]
            await ending.write(connection, ended)
        _tell_failures(ended)
        if traces.on():
            await endings.samples_ended(self._database, [each.sample_id for each in ended])
        if written.attached or any(progress.waits and not progress.steps for progress in batch):
            # A reply to a call that was there before may have been committed while this batch was not yet.
            await look_at(self._database, [progress.sample_id for progress in batch if progress.waits])
            await revive(self._database, written.attached)
        return Advanced(len(batch), written.lanes, frozenset(progress.job.id for progress in ended))

    async def _start(self, connection: AsyncConnection, rows: Sequence[RowMapping]) -> list[Progress]:
        items = {row["job_id"] for row in rows if row["kind"] == "item"}
        prepares = {row["job_id"] for row in rows if row["kind"] == "prepare"}
        specs = await self._jobs.load(connection, items, prepares)
        batch = []
        for row in rows:
            job = specs[row["job_id"]].ranked(row["rank"])
            if row["kind"] == "prepare":
                replay = job.prepare(await job.calibration(connection), self._library)
            else:
                replay = job.start(item_of(row), row["repeat"], self._library)
            batch.append(Progress(row["id"], job, row["repeat"], row["position"], replay))
        return batch

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


def _tell_failures(ended: Iterable[Progress]) -> None:
    """One line for each sample that failed, with what it takes to find it again."""
    for progress in ended:
        if progress.replay.failure is not None:
            job = progress.job.binding.job
            ids = {"job_id": job, "sample_id": progress.sample_id, "trace_id": job.replace("-", "")}
            _log.warning("a sample failed: %s", progress.replay.failure[0], extra=ids)
