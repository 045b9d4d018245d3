"""Workers claim calls of one lane, run them in chunks, store the replies and advance what waited for them."""

import asyncio
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from msgspec.structs import replace
from sqlalchemy import Row, text
from sqlalchemy.exc import SQLAlchemyError

from mathrag.messages import redact
from shared.calls import Lane
from shared.lease.lease import DeviceLease, Guards, NotGranted, Phase, StreamBroken
from shared.queue import Ticker
from shared.replies import Failure, FailureKind, Retrieved
from shared.runtime import lifecycle
from shared.runtime.advance import Advancer
from shared.runtime.queue import AnsweredCall, Claim, ClaimedCall, Claims, Receipt, isolate, lapse, outcome_name
from shared.settings import Workers
from shared.storage.database import Database, is_passing, retry_through_outage, sql
from shared.telemetry import logs, traces

T = TypeVar("T")


class Lapse(NamedTuple):
    """The model server died while it ran the call, so the call becomes a suspect."""

    call_id: int


class Release(NamedTuple):
    """The call was aborted to free the device; it is released without a charge."""

    call_id: int


class Wait(NamedTuple):
    """A server that the call and others need is away; the call is released without a charge and waits."""

    call_id: int
    what: str
    """The server, such as "Elasticsearch at 127.0.0.1:9200"."""
    said: str
    """The error that showed the outage."""


CallEnd = AnsweredCall | Lapse | Release | Wait
"""How the execution of a call ended."""


class Executor(Protocol):
    """Executes the calls of a role.

    Raises while iterating:
        NotGranted: nothing was sent; all calls are released without a charge.
        Broken: the process that ran the calls is gone; unanswered calls become suspects.
    """

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        """Yield the end of each call as it happens."""
        ...


_log = logging.getLogger(__name__)


class ChunkProgress:
    """Progress that concurrent chunks report to their worker."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set when a reply is committed or a call is released."""
        self.ready = 0
        """Samples that became ready since the worker's last advance."""
        self.sources_changed = False
        """Whether the worker's cached view of lease and queue is outdated."""


class Chunks:
    """Executes the chunks that one worker has claimed."""

    def __init__(
        self, database: Database, executors: Mapping[str, Executor], claims: Claims, *, name: str, limits: Workers
    ) -> None:
        self.progress = ChunkProgress()
        self.sizes: dict[int, int] = {}
        """By model, the number of calls that it answers in `CHUNK_S`, going by its last chunk."""
        self._database = database
        self._executors = executors
        self._claims = claims
        self._name = name
        self._limits = limits

    async def run(self, claim: Claim, epoch: int | None, *, slots_unknown: bool) -> None:
        """Execute a chunk. In every case, each of its calls is answered, released, or charged with a failure.

        With `slots_unknown`, the model's server may answer any number of calls at the same time.
        """
        logs.bind(role=claim.calls[0].role, epoch=epoch, claim=str(claim.token))
        open_calls = {call.id for call in claim.calls}
        receipts: list[Receipt] = []
        renewing = asyncio.create_task(self._renew(claim, open_calls))
        try:
            await isolate(
                claim.calls,
                partial(self._stream, claim, epoch, open_calls, receipts),
                partial(self._fail, claim, open_calls),
                # Neither the lease, nor a process that is gone, nor an outage of the database is a defect of calls.
                is_defect=lambda error: not (isinstance(error, NotGranted | StreamBroken) or is_passing(error)),
                is_open=lambda call: call.id in open_calls,
            )
            self._note_pace(claim, receipts, slots_unknown=slots_unknown)
        except NotGranted as refused:
            _log.info("chunk of %d not granted: %s", len(open_calls), refused)
            self.progress.sources_changed = True
            await self._claims.release(claim.token, sorted(open_calls))
        except StreamBroken as broken:
            _log.warning("chunk of %d broke off: %s", len(open_calls), broken)
            await self._lapse(claim, sorted(open_calls))
        except Exception as error:  # noqa: BLE001 - a defect of one chunk must not stop the others
            _log.exception("chunk of %d failed", len(open_calls))
            if is_passing(error):
                await self._claims.release(claim.token, sorted(open_calls))
            else:  # even their failures could not be stored
                await self._lapse(claim, sorted(open_calls))
        except asyncio.CancelledError:
            # The worker was told to stop: the executor aborted these calls, so they are not charged.
            await self._claims.release(claim.token, sorted(open_calls))
            raise
        finally:
            renewing.cancel()

    def _note_pace(self, claim: Claim, receipts: Sequence[Receipt], *, slots_unknown: bool) -> None:
        """Size the next chunks by this one, unless it was a small rest, which says little about the pace.

        Only the time in which calls ran counts: replies may wait for a confirmation or a commit, and chunks that became
        smaller for it would let the server run dry.
        """
        if not receipts:
            return
        model, size = claim.calls[0].model_id, len(claim.calls)
        before = self.sizes.get(model, FIRST_CHUNK)
        first, last = min(each.started_at for each in receipts), max(each.ended_at for each in receipts)
        seconds = (last - first).total_seconds()
        longest = max((each.ended_at - each.started_at).total_seconds() for each in receipts)
        if slots_unknown and seconds < 2 * longest:
            # They ran at the same time, so fewer calls would not have ended sooner.
            self.sizes[model] = max(before, 2 * size)
        elif size >= before or seconds > CHUNK_S:
            self.sizes[model] = min(2 * size, int(size * CHUNK_S / max(seconds, 0.001)))

    async def _stream(
        self,
        claim: Claim,
        epoch: int | None,
        open_calls: set[int],
        receipts: list[Receipt],
        calls: Sequence[ClaimedCall],
    ) -> None:
        """Run calls of a chunk; remove them from `open_calls` and add their `receipts` as they end."""
        executor = self._executors[calls[0].role]
        async with aclosing(batch_by_time(executor.run(calls, epoch), self._limits.window_ms / 1000)) as batches:
            async for batch in batches:
                answers = [each for each in batch if isinstance(each, AnsweredCall)]
                receipts += [each.receipt for each in answers]
                await self._commit(claim, answers)
                released = [each.call_id for each in batch if isinstance(each, Release)]
                lapsed = [each.call_id for each in batch if isinstance(each, Lapse)]
                if released:
                    await self._claims.release(claim.token, released)
                if lapsed:
                    await self._lapse(claim, lapsed)
                if waits := [each for each in batch if isinstance(each, Wait)]:
                    _log.warning("%d calls wait for %s: %s", len(waits), waits[0].what, waits[0].said)
                    self.progress.sources_changed = True
                    waiting = [each.call_id for each in waits]
                    model = claim.calls[0].model_id
                    await self._claims.wait(claim.token, waiting, model, waits[0].what, waits[0].said)
                if claim.tries and answers:
                    await self._claims.end_outage(claim.calls[0].model_id)
                    self.progress.sources_changed = True
                open_calls -= {each.call_id for each in batch}
                self.progress.changed.set()

    async def _commit(self, claim: Claim, answers: list[AnsweredCall]) -> None:
        if not answers:
            return
        committed = await self._claims.answer(claim.token, answers)
        self.progress.ready += committed.ready
        stale = {answer.call_id for answer in answers} - set(committed.calls)
        if stale:
            _log.warning("stale_result: calls %s were answered under a claim that had lapsed", sorted(stale))

    async def _fail(self, claim: Claim, open_calls: set[int], call: ClaimedCall, error: Exception) -> None:
        """Charge a call that could not be executed; it is tried again and finally fails with the error."""
        _log.error("call %d cannot be executed", call.id, exc_info=error)
        now = datetime.now(UTC)
        failure = Failure(kind=FailureKind.BACKEND_ERROR, detail=redact(repr(error))[:500])
        receipt = Receipt(started_at=now, ended_at=now)
        await self._commit(claim, [AnsweredCall(call_id=call.id, reply=failure, receipt=receipt)])
        open_calls.discard(call.id)

    async def _lapse(self, claim: Claim, calls: list[int]) -> None:
        await retry_through_outage(
            lambda: lapse(self._database, self._name, claim.token, calls), self._limits.claim_ttl_s
        )

    async def _renew(self, claim: Claim, open_calls: set[int]) -> None:
        """Renew the claim while the chunk runs; the event loop only waits for I/O, so this is never late.

        After an outage of the database the renewal happens at once, before the sweeper lapses late claims.
        """
        while True:
            await asyncio.sleep(self._limits.claim_ttl_s / 3)
            try:
                await retry_through_outage(
                    lambda: self._claims.renew(claim.token, sorted(open_calls)), self._limits.claim_ttl_s
                )
            except SQLAlchemyError as error:
                _log.warning("claim not renewed, trying again: %r", error)


async def batch_by_time(stream: AsyncIterator[T], seconds: float, limit: int = 64) -> AsyncGenerator[list[T], None]:
    """Yield batches of elements that arrive within `seconds` of the batch's first one, at most `limit` each.

    So replies of a slow model are committed one by one, and of a fast one in batches. An error of the stream is raised
    after the elements before it.
    """
    arrived: asyncio.Queue[T | None] = asyncio.Queue()

    async def pump() -> None:
        try:
            async for element in stream:
                arrived.put_nowait(element)
        finally:
            arrived.put_nowait(None)

    pumping = asyncio.create_task(pump())
    try:
        ended = False
        while not ended and (first := await arrived.get()) is not None:
            batch = [first]
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while len(batch) < limit and not ended:
                        if (element := await arrived.get()) is None:
                            ended = True
                        else:
                            batch.append(element)
            yield batch
        await pumping
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)


CHUNK_S = 0.5
"""Seconds of work in a chunk. Longer chunks cost less, and shorter ones hold up calls of a higher rank less (measured:
chunks of 64 take two thirds of the processor time per call of chunks of 16)."""
FIRST_CHUNK = 16
"""Calls in the first chunk of a model."""
LEAST_CHUNK = 4
SPARE = 1.5
"""Calls that are claimed per slot of a model, so that no slot is empty while replies are committed."""
POLL_S = 0.25
"""How often a worker with calls in flight looks for new ones; an idle worker waits for a tick."""
ADVANCE_S = 0.2
"""How often ready samples are advanced while calls can be claimed: a batch costs little more than one sample. If
nothing can be claimed, they are advanced at once."""
ADVANCE_SOON_S = 0.05
"""The same while a stream has no calls for a model server, which the ready samples may have."""
UNSENT_S = 5.0
"""How long an overdue drain continues before it tries again to send the next tick."""
BATCH = 200
"""Samples that are advanced in one transaction."""
MANY = 100
"""Samples in a batch from which others are probably ready as well."""
FIRST_BATCH = 50
"""The same for a worker at rest, whose calls then begin before the other samples are advanced."""
ADVANCE_FOR_S = 1.0
"""Longest time of advancing before calls are claimed again: the ready samples of a large job take minutes."""
OUTAGE_S = 0.5
"""Pause before the next attempt while the database is away."""
TRUSTED_S = 0.05
"""How long a view of lease and queue is reused while it leads to claims."""
MINING_S = 1.0
"""Pause between two checks for relations to mine."""
SOURCES = text("""
    SELECT m.id, m.needs_lease, m.device, CAST(m.options ->> 'parallel' AS integer) AS slots,
        o.model_id IS NOT NULL AS away
    FROM models m LEFT JOIN outages o ON o.model_id = m.id
    WHERE m.served AND (m.backend = 'miner') = :mines
        AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = :lane AND q.model_id = m.id AND q.token IS NULL OFFSET 0)
    ORDER BY m.id""")


class ReadyModel(NamedTuple):
    """A model with pending calls, and the epoch under which they may be sent."""

    model_id: int
    epoch: int | None
    away: bool
    """Whether its last probe found an outage."""
    slots: int
    """Calls that its server answers at the same time; 0 if that is not known."""
    guarded: bool
    """Whether a guard sends its calls to a model server; other calls are searches, grades and the like."""


class LaneWorker:
    """One process's work on one lane."""

    def __init__(
        self,
        lane: Lane,
        database: Database,
        executors: Mapping[str, Executor],
        *,
        name: str,
        guards: Guards,
        ticker: Ticker,
        limits: Workers,
        stopping: Callable[[], bool] = lambda: False,
        mines: bool = False,
    ) -> None:
        """Create a worker; with `mines` it claims only relations to mine, which take minutes and need no tick."""
        self._lane = lane
        self._mines = mines
        self._database = database
        self.guards = guards
        self.ticker = ticker
        self._limits = limits
        self._stopping = stopping
        self._claims = Claims(database, name, limits.claim_ttl_s)
        self._chunks = Chunks(database, executors, self._claims, name=name, limits=limits)
        self.advancer = Advancer(database)
        self._progress = self._chunks.progress
        self._guarded: set[asyncio.Task[None]] = set()
        """Chunks in flight at model servers."""
        self._ready_models: tuple[ReadyModel, ...] = ()
        """The state of lease and queue at the last poll."""
        self._looked_at = 0.0
        self._advanced_at = 0.0

    async def drain(self) -> None:
        """Work until nothing may run or the tick's time is up; release calls when told to stop.

        While Redis is away, no next tick can be sent, so the worker continues as long as a lease is open.
        """
        await self.ticker.clear_tick(self._lane)
        seconds = self._limits.tick_s
        while await self._work(seconds) and not await self.ticker.tick(self._lane) and await self._holds_lease():
            seconds = min(UNSENT_S, self._limits.tick_s)

    async def mine(self) -> None:
        """Mine whenever there are relations to mine, until told to stop."""
        while not self._stopping():
            try:
                if await self._look():
                    await self._work(math.inf)
            except SQLAlchemyError as error:
                await self._outlast(error)
            await asyncio.sleep(MINING_S)

    async def _work(self, seconds: float) -> bool:
        """Work for `seconds` or until nothing may run; return whether the time was up."""
        deadline = time.monotonic() + seconds
        running: set[asyncio.Task[None]] = set()
        helped, advanced = False, 0
        try:
            while not self._stopping():
                late = time.monotonic() >= deadline
                try:
                    started = await self._fill(running) if not late else False
                    if started and not helped:  # other workers of this lane, if there are any
                        helped = True
                        await self.ticker.tick(self._lane)
                    at_rest = not running and advanced < FIRST_BATCH
                    advanced = await self._advance(FIRST_BATCH if at_rest else None) if self._is_due(running) else 0
                except SQLAlchemyError as error:
                    started, advanced = await self._outlast(error), 0
                if not running and (late or not (started or advanced)):
                    break
                if not advanced:
                    running = await self._wait(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return time.monotonic() >= deadline

    async def _holds_lease(self) -> bool:
        """Tell whether a lease is open and this worker was not told to stop."""
        leases = (await self.guards.read_leases()).values()
        return not self._stopping() and any(lease is not None and lease.phase is Phase.OPEN for lease in leases)

    async def _outlast(self, error: SQLAlchemyError) -> bool:
        """Pause while the database is away; raise other errors. Callers look again: a commit may have happened."""
        if not is_passing(error):
            raise error
        _log.warning("the database is away, looking again: %s", redact(str(error).partition("\n")[0]))
        await asyncio.sleep(OUTAGE_S)
        return True

    async def _fill(self, running: set[asyncio.Task[None]]) -> bool:
        """Start chunks until all streams are busy or nothing more may run; return whether any was started."""
        before = len(running)
        while len(running) < self._limits.streams:
            is_trusted = not self._progress.sources_changed and time.monotonic() - self._looked_at < TRUSTED_S
            task = await self._claim(self._ready_models) if is_trusted else None
            task = task or await self._claim(await self._look())
            if task is None:
                break
            running.add(task)
        return len(running) > before

    def _is_due(self, running: set[asyncio.Task[None]]) -> bool:
        """Tell whether to advance now: it is idle, or samples are ready and a stream is free or the pause is over."""
        pause_s = ADVANCE_S if len(self._guarded) >= self._limits.streams else ADVANCE_SOON_S
        waited = time.monotonic() - self._advanced_at >= pause_s
        return not running or (self._progress.ready > 0 and (waited or len(running) < self._limits.streams))

    async def _advance(self, first: int | None) -> int:
        """Advance ready samples for a while, or only the `first` ones, and tick every lane that gained work; return
        how many advanced."""
        count = 0
        self._progress.ready, self._advanced_at = 0, time.monotonic()
        until = self._advanced_at + ADVANCE_FOR_S
        while (advanced := await self.advancer.advance(first or BATCH)).samples:
            count += advanced.samples
            # Idle workers of any lane help to advance many samples.
            for lane in Lane if advanced.samples >= (first or MANY) else advanced.lanes:
                await self.ticker.tick(lane)
            if advanced.jobs:
                await lifecycle.finish_due_jobs(self._database, lifecycle.SMALL)
            if first or time.monotonic() >= until:
                self._progress.ready = advanced.samples  # as many may still be ready
                break
        return count

    async def _claim(self, sources: Iterable[ReadyModel]) -> asyncio.Task[None] | None:
        """Claim one chunk of calls and start it.

        While no model server works for this worker, calls for one come first. While one does, the others come first,
        because their replies create work for it.
        """
        for source in sorted(sources, key=lambda source: source.guarded == bool(self._guarded)):
            claim = await self._claims.claim(self._lane, source.model_id, self._size_chunk(source), away=source.away)
            if claim:
                slots_unknown = source.guarded and not source.slots
                task = asyncio.create_task(self._chunks.run(claim, source.epoch, slots_unknown=slots_unknown))
                if source.guarded:
                    self._guarded.add(task)
                    task.add_done_callback(self._guarded.discard)
                return task
        return None

    def _size_chunk(self, source: ReadyModel) -> int:
        """Return how many calls to claim: what the model answers in `CHUNK_S`, and enough for all its slots."""
        filling = math.ceil(SPARE * source.slots / self._limits.streams)
        paced = self._chunks.sizes.get(source.model_id, FIRST_CHUNK)
        return min(max(LEAST_CHUNK, filling, paced), self._limits.chunk)

    async def _look(self) -> tuple[ReadyModel, ...]:
        """Find the models with pending calls that may be sent now."""
        leases = await self.guards.read_leases()
        async with self._database.statement() as connection:
            found = (await connection.execute(SOURCES, {"lane": self._lane.value, "mines": self._mines})).all()
        self._ready_models, self._looked_at = tuple(_list_callable_models(found, leases)), time.monotonic()
        self._progress.sources_changed = False
        return self._ready_models

    async def _wait(self, running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Wait until a chunk ends, a reply is committed, or the poll interval is over; return the running chunks."""
        if not running:
            return running
        self._progress.changed.clear()
        progress = asyncio.create_task(self._progress.changed.wait())
        done, _ = await asyncio.wait({*running, progress}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        progress.cancel()
        for task in done - {progress}:
            task.result()
        return running - done


def _list_callable_models(
    models: Iterable[Row[tuple[int, bool, str | None, int | None, bool]]], leases: Mapping[str, DeviceLease | None]
) -> Iterator[ReadyModel]:
    """Yield the models whose calls may be sent now: their guard is known and, if they need one, the lease is open."""
    for model in models:
        lease = leases.get(model.device or "")
        if model.needs_lease and lease is not None and lease.grants(model.id):
            yield ReadyModel(model.id, lease.epoch, model.away, model.slots or 0, guarded=True)
        elif not model.needs_lease and (model.device is None or model.device in leases):
            yield ReadyModel(model.id, None, model.away, model.slots or 0, guarded=model.device is not None)


# Trace chunks: each chunk has its own trace, linked to the samples that wait for its calls.
#
# A chunk serves samples of many jobs, so its span cannot be a child of one sample, and no trace grows with a job's
# size.

LINKS = 128
"""Upper bound of links per span, the SDK's default."""
WAITERS = sql("""
    SELECT DISTINCT s.id, j.public_id FROM (SELECT sample_id FROM steps WHERE call_id = ANY(:calls) OFFSET 0) t,
        LATERAL (SELECT id, job_id, state FROM samples WHERE id = t.sample_id OFFSET 0) s,
        LATERAL (SELECT public_id FROM jobs WHERE id = s.job_id OFFSET 0) j
    WHERE s.state = {WAITING} ORDER BY s.id LIMIT :links""")


def trace_executors(executors: Mapping[str, Executor], database: Database) -> Mapping[str, Executor]:
    """Wrap the executors in spans if tracing is on."""
    if not traces.is_on():
        return executors
    return {role: TracedExecutor(role, executor, database) for role, executor in executors.items()}


class TracedExecutor:
    """An executor with a span around each chunk and around each call that no guard traces."""

    def __init__(self, role: str, executor: Executor, database: Database) -> None:
        self._role = role
        self._executor = executor
        self._database = database

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        """Yield the executor's results; receipts name the chunk's trace."""
        async with self._database.transaction() as connection:
            values = {"calls": [call.id for call in calls], "links": LINKS}
            waiters = (await connection.execute(WAITERS, values)).all()
        samples = (traces.make_sample_ref(uuid.UUID(str(row.public_id)), row.id) for row in waiters)
        links = [traces.find_current(), *samples]
        attributes = {
            traces.SPAN_KIND: traces.CHAIN,
            "mathrag.role": self._role,
            "mathrag.calls": len(calls),
            "mathrag.model_id": calls[0].model_id,
            "mathrag.epoch": epoch,
        }
        with traces.span(f"chunk {self._role}", attributes, links=links, root=True) as span:
            _log.debug("chunk of %d %s calls", len(calls), self._role)
            by_id = {call.id: call for call in calls}
            async for ended in self._executor.run(calls, epoch):
                if isinstance(ended, AnsweredCall):
                    self._note(by_id[ended.call_id], ended)
                    yield replace(
                        ended, receipt=replace(ended.receipt, trace_id=f"{span.get_span_context().trace_id:032x}")
                    )
                else:
                    yield ended

    def _note(self, call: ClaimedCall, ended: AnsweredCall) -> None:
        """Record the span of a search or a grade; the guard records those of model calls."""
        kind = traces.KINDS_OF_ROLE.get(self._role)
        if kind is not None:
            failure = outcome_name(ended.reply) if isinstance(ended.reply, Failure) else None
            # Ids and scores of retrieved documents; ids are hashes, so this reveals no content.
            hits = ended.reply.hits if isinstance(ended.reply, Retrieved) else ()
            found: dict[str, str | float] = {}
            for rank, hit in enumerate(hits):
                found[traces.document_attribute(rank, "id")] = hit.document
                found[traces.document_attribute(rank, "score")] = hit.score
            attributes = {traces.SPAN_KIND: kind, "mathrag.call.id": call.id, **found}
            if traces.keeps_content():
                attributes[traces.INPUT] = call.request.decode()
            receipt = ended.receipt
            traces.add_past_span(self._role, receipt.started_at, receipt.ended_at, attributes, failure=failure)
