"""The worker of a lane: advance ready samples, claim calls that may run, and commit replies as they arrive."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Row, text
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.calls import Lane
from shared.lease.guards import Guards
from shared.lease.lease import DeviceLease, Phase
from shared.queue import Ticker
from shared.redaction import redact
from shared.runtime import ending
from shared.runtime.advance import Advancer
from shared.runtime.chunks import Chunks
from shared.runtime.claims import Claims
from shared.runtime.execution import Executor
from shared.settings import Workers
from shared.storage.database import Database
from shared.storage.outages import is_passing

POLL_S = 0.25
"""How often a worker with calls in flight looks for new ones; an idle worker waits for a tick."""
ADVANCE_S = 0.2
"""How often ready samples are advanced while calls can be claimed: a batch costs little more than one sample. If
nothing can be claimed, they are advanced at once."""
UNSENT_S = 5.0
"""How long an overdue drain continues before it tries again to send the next tick."""
ADVANCE_FOR_S = 1.0
"""Longest time of advancing before calls are claimed again: the ready samples of a large job take minutes."""
OUTAGE_S = 0.5
"""Pause before the next attempt while the database is away."""
TRUSTED_S = 0.05
"""How long a view of lease and queue is reused while it leads to claims."""

MINING_S = 1.0
"""Pause between two checks for relations to mine."""

# Models without a lease come first, because their replies create work for the leased ones.
SOURCES = text("""
    SELECT m.id, m.needs_lease, m.device, o.model_id IS NOT NULL AS away
    FROM models m LEFT JOIN outages o ON o.model_id = m.id
    WHERE m.served AND (m.backend = 'miner') = :mines
        AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = :lane AND q.model_id = m.id AND q.token IS NULL)
    ORDER BY m.needs_lease, m.id""")

_log = logging.getLogger(__name__)


class ReadyModel(NamedTuple):
    """A model with pending calls, and the epoch under which they may be sent."""

    model_id: int
    epoch: int | None
    away: bool
    """Whether its last probe found an outage."""


class ReadyModels(NamedTuple):
    """The last view of lease and queue."""

    models: tuple[ReadyModel, ...]
    seen_at: float


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
        self._guards = guards
        self._ticker = ticker
        self._limits = limits
        self._stopping = stopping
        self._claims = Claims(database, name, limits.claim_ttl_s)
        self._chunks = Chunks(database, executors, self._claims, name=name, limits=limits)
        self._advancer = Advancer(database)
        self._progress = self._chunks.progress
        self._sources = ReadyModels((), 0.0)
        self._advanced_at = 0.0

    async def drain(self) -> None:
        """Work until nothing may run or the tick's time is up; release calls when told to stop.

        While Redis is away, no next tick can be sent, so the worker continues as long as a lease is open.
        """
        await self._ticker.clear_tick(self._lane)
        seconds = self._limits.tick_s
        while await self._work(seconds) and not await self._ticker.tick(self._lane) and await self._holds_lease():
            seconds = min(UNSENT_S, self._limits.tick_s)

    async def mine(self) -> None:
        """Mine whenever there are relations to mine, until told to stop."""
        while not self._stopping():
            try:
                if (await self._look()).models:
                    await self._work(math.inf)
            except SQLAlchemyError as error:
                await self._outlast(error)
            await asyncio.sleep(MINING_S)

    async def _work(self, seconds: float) -> bool:
        """Work for `seconds` or until nothing may run; return whether the time was up."""
        deadline = time.monotonic() + seconds
        running: set[asyncio.Task[None]] = set()
        helped = False
        try:
            while not self._stopping():
                late = time.monotonic() >= deadline
                try:
                    started = await self._fill(running) if not late else False
                    if started and not helped:  # other workers of this lane, if there are any
                        helped = True
                        await self._ticker.tick(self._lane)
                    advanced = await self._advance() if self._is_due(running) else False
                except SQLAlchemyError as error:
                    started, advanced = await self._outlast(error), False
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
        leases = (await self._guards.read_leases()).values()
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
        started = False
        while len(running) < self._limits.streams and (task := await self._start()):
            running.add(task)
            started = True
        return started

    def _is_due(self, running: set[asyncio.Task[None]]) -> bool:
        """Tell whether to advance now: it is idle, or samples are ready and a stream is free or the pause is over."""
        waited = time.monotonic() - self._advanced_at >= ADVANCE_S
        return not running or (self._progress.ready > 0 and (waited or len(running) < self._limits.streams))

    async def _advance(self) -> bool:
        """Advance ready samples for a while and tick every lane that gained work; return whether any advanced."""
        any_advanced = False
        self._progress.ready, self._advanced_at = 0, time.monotonic()
        until = self._advanced_at + ADVANCE_FOR_S
        while (advanced := await self._advancer.advance()).samples:
            any_advanced = True
            for lane in advanced.lanes:
                await self._ticker.tick(lane)
            if advanced.jobs:
                await ending.finish_due_jobs(self._database, ending.SMALL)
            if time.monotonic() >= until:
                self._progress.ready = advanced.samples  # as many may still be ready
                break
        return any_advanced

    async def _start(self) -> asyncio.Task[None] | None:
        """Claim one chunk of calls that may run now and start it."""
        if not self._progress.sources_changed and time.monotonic() - self._sources.seen_at < TRUSTED_S:
            started = await self._claim(self._sources)
            if started:
                return started
        return await self._claim(await self._look())

    async def _claim(self, sources: ReadyModels) -> asyncio.Task[None] | None:
        for source in sources.models:
            claim = await self._claims.claim(self._lane, source.model_id, self._limits.chunk, away=source.away)
            if claim:
                return asyncio.create_task(self._chunks.run(claim, source.epoch))
        return None

    async def _look(self) -> ReadyModels:
        """Find the models with pending calls that may be sent now, those without a lease first."""
        leases = await self._guards.read_leases()
        async with self._database.statement() as connection:
            found = (await connection.execute(SOURCES, {"lane": self._lane.value, "mines": self._mines})).all()
        self._sources = ReadyModels(tuple(_list_callable_models(found, leases)), time.monotonic())
        self._progress.sources_changed = False
        return self._sources

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
    models: Iterable[Row[tuple[int, bool, str | None, bool]]], leases: Mapping[str, DeviceLease | None]
) -> Iterator[ReadyModel]:
    """Yield the models whose calls may be sent now: their guard is known and, if they need one, the lease is open."""
    for model in models:
        lease = leases.get(model.device or "")
        if model.needs_lease and lease is not None and lease.grants(model.id):
            yield ReadyModel(model.id, lease.epoch, model.away)
        elif not model.needs_lease and (model.device is None or model.device in leases):
            yield ReadyModel(model.id, None, model.away)
