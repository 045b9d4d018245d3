"""I18: the gate's decision and every outcome follow from the recorded replies, bit for bit."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby

from sqlalchemy import RowMapping
from sqlalchemy.exc import DBAPIError

from shared.audit.finding import Audit, Violation, over_my_calls
from shared.contracts import canonical
from shared.contracts.documents import Document
from shared.contracts.samples import Outcome
from shared.pipelines import registry
from shared.runtime.advance import HISTORY
from shared.runtime.jobs import Jobs, JobSpec, given_of, item_of
from shared.runtime.progress import Answer, Progress, answer
from shared.storage.library import LibraryCache, mentioned
from shared.storage.sql import sql

BATCH = 200
"""Samples replayed at a time: their steps and replies fit in memory whatever the job's size."""

COMPLETED = sql("""
    SELECT s.id, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id, i.expected, i.query,
        g.content AS given, o.outcome, o.answer, o.extraction, o.correct, o.strict, o.record_hash
    FROM samples s JOIN jobs j ON j.id = s.job_id JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN items i ON {ASKED_BY_SAMPLE} AND s.kind = 'item'
    LEFT JOIN given g ON {GIVEN_TO_SAMPLE}
    WHERE s.job_id = :job AND s.kind = :kind AND s.state = {COMPLETED} AND s.id > :after ORDER BY s.id LIMIT :n""")
FORGED_KEYS = over_my_calls("""
    SELECT 'calls ' || c.id FROM mine JOIN calls c ON c.id = mine.call_id
    WHERE c.key <> sha256(c.request) ORDER BY c.id""")
PREPARED = sql("""
    SELECT 'jobs ' || j.id FROM jobs j
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare' AND s.state = {COMPLETED}
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE j.id = :job AND j.running_at IS NOT NULL AND j.prepared IS DISTINCT FROM o.outcome""")

ALTERED, MISCOPIED = "its text is not what its hash says", "its columns are not what its outcome says"
OF_ROWS = (ALTERED, MISCOPIED)
"""What is wrong whatever the source of the pipeline is."""

Steps = list[list[tuple[bytes, int, bytes | None]]]
"""By position, by slot: the key and the id of the call, and its accepted reply as stored."""
History = dict[int, Steps]
"""By sample."""


class Auditor:
    """Replays one job's completed samples and compares what comes out with what is stored."""

    def __init__(self, audit: Audit, job: JobSpec) -> None:
        self._audit = audit
        self._job = job
        self._cache = LibraryCache()
        self._library: dict[str, Document] = {}
        """What the replays of a batch read."""
        self._seen: set[str] = set()
        """Documents that were held against their hash."""

    async def findings(self) -> AsyncIterator[tuple[str, str]]:
        """(what is wrong, row), for every completed sample and every document that replays read."""
        for kind in ("prepare", "item"):
            async for rows in self._batches(kind):
                for row, progress in zip(rows, await self._replayed(kind, rows), strict=True):
                    for message in [progress] if isinstance(progress, str) else _differences(row, progress):
                        yield message, f"samples {row['id']}"
                for hash_ in self._altered():
                    yield ALTERED, f"documents {hash_}"

    def _altered(self) -> list[str]:
        """Documents of the batch that are not what their hash says, each once for the whole audit."""
        new = self._library.keys() - self._seen
        self._seen |= new
        return sorted(hash_ for hash_ in new if self._library[hash_].hash != hash_)

    async def _batches(self, kind: str) -> AsyncIterator[Sequence[RowMapping]]:
        after = 0
        while True:
            values = {"job": self._job.id, "kind": kind, "after": after, "n": BATCH}
            rows = (await self._audit.connection.execute(COMPLETED, values)).mappings().all()
            if rows:
                yield rows
            if len(rows) < BATCH:
                return
            after = rows[-1]["id"]

    async def _replayed(self, kind: str, rows: Sequence[RowMapping]) -> list[Progress | str]:
        """A fresh replay of each sample, fed with the replies of its steps as far as it asks for them.

        In its place: why there is none.
        """
        self._library = {}
        history = await self._history([row["id"] for row in rows])
        return [await self._replay(kind, row, history.get(row["id"], [])) for row in rows]

    async def _replay(self, kind: str, row: RowMapping, history: Steps) -> Progress | str:
        try:
            return _fed(await self._fresh(kind, row), history)
        except (DBAPIError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - changed rows may break a replay anywhere, and the others go on
            return f"could not be replayed: {type(error).__name__}: {error}"

    async def _fresh(self, kind: str, row: RowMapping) -> Progress:
        job = self._job
        if kind == "prepare":
            replay = job.prepare(await job.calibration(self._audit.connection), self._library)
        else:
            replay = job.start(item_of(row), row["repeat"], self._library, given_of(row, job.pipeline))
        return Progress(row["id"], job, row["repeat"], row["position"], replay)

    async def _history(self, samples: Sequence[int]) -> History:
        rows = (await self._audit.connection.execute(HISTORY, {"ids": samples})).all()
        history: History = defaultdict(list)
        for (sample, _), steps in groupby(rows, key=lambda row: (row.sample_id, row.position)):
            history[sample].append([(row.key, row.id, row.reply) for row in steps])
        await self._read(row.reply for row in rows)
        return history

    async def _read(self, replies: Iterator[bytes | None]) -> None:
        """Have the documents that the replies mention; a replay that reads one that is gone will say so."""
        read = (_read(0, reply) for reply in set(replies))
        hashes = mentioned(found.reply for found in read if found is not None and found.reply is not None)
        self._library |= await self._cache.documents(self._audit.connection, hashes)


def _read(call: int, raw: bytes | None) -> Answer | None:
    """The reply, or None if there is none or it cannot be read."""
    try:
        return None if raw is None else answer(call, raw)
    except ValueError:
        return None


def _fed(progress: Progress, history: Steps) -> Progress:
    for steps in history:
        if not progress.expects([key for key, _, _ in steps]):
            break
        answers = [found for _, call, raw in steps if (found := _read(call, raw)) is not None]
        if len(answers) < len(steps):
            progress.replay.fail("no_reply", f"position {progress.replay.position} lacks a readable reply")
            break
        progress.consume(answers)
    return progress


def _differences(row: RowMapping, progress: Progress) -> Iterator[str]:
    """How what is stored of a completed sample differs from its replay."""
    replay = progress.replay
    if replay.failure is not None:
        yield f"replayed, it fails: {replay.failure[0]}"
    elif progress.waits:
        yield "replayed, it asks for more than its steps have"
    else:
        if canonical.encode(replay.result) != row["outcome"]:
            yield "replayed, it has another outcome"
        elif _columns(replay.result) != tuple(row[name] for name in ("answer", "extraction", "correct", "strict")):
            yield MISCOPIED
        if progress.record != row["record_hash"]:
            yield "its record hash does not verify"


def _columns(result: object) -> tuple[object, ...]:
    """Answer, extraction and verdicts of an outcome; a gate's decision has none."""
    if not isinstance(result, Outcome):
        return (None, None, None, None)
    verdict = result.verdict
    given = (verdict.correct, verdict.strict) if verdict else (None, None)
    return (result.answer, result.extraction.value, *given)


async def reproduced_bit_for_bit(audit: Audit) -> list[Violation]:
    """I18: replaying the recorded replies gives the stored gate decision, outcomes, record hashes and call keys."""
    return [
        *await audit.find("I18", "its gate decision is not its preparation's outcome", PREPARED),
        *await audit.find("I18", "its key is not the hash of its request", FORGED_KEYS),
        *await _replays(audit),
    ]


async def _replays(audit: Audit) -> list[Violation]:
    name = audit.job["pipeline"]
    if name not in registry.names():
        return [_violation(audit, f"its pipeline {name!r} is not installed", [f"jobs {audit.job['id']}"])]
    try:
        specs = await Jobs().load(audit.connection, {audit.job["id"]}, set())
    except ValueError as error:
        return [_violation(audit, f"its parameters or decision cannot be read: {error}", [f"jobs {audit.job['id']}"])]
    found: dict[str, list[str]] = defaultdict(list)
    async for message, row in Auditor(audit, specs[audit.job["id"]]).findings():
        found[message].append(row)
    return [_violation(audit, message, rows) for message, rows in found.items()]


def _violation(audit: Audit, message: str, rows: Sequence[str]) -> Violation:
    """Of rows that another source would have written otherwise it says no more than that."""
    source_changed = message not in OF_ROWS and has_changed_source(audit.job)
    if source_changed:
        message = f"source changed: cannot be replayed by this version ({message}); audit it with the one that ran it"
    return Violation(invariant="I18", message=message, rows=tuple(rows), source_changed=source_changed)


def has_changed_source(job: RowMapping) -> bool:
    """Whether the job's pipeline is there, and its source is not the one that the job ran from."""
    name = job["pipeline"]
    return name in registry.names() and registry.pipeline_hash(name) != job["pipeline_hash"].hex()
