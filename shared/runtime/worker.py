"""The worker: advance what is ready, claim what may run, commit replies as they come. The same for every lane."""

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
from shared.lease.lease import Lease, Phase
from shared.queue import Ticker
from shared.redaction import redacted
from shared.runtime import ending
from shared.runtime.advance import Advancer
from shared.runtime.chunks import Chunks
from shared.runtime.claims import Claims
from shared.runtime.execution import Executor
from shared.settings import Workers
from shared.storage.database import Database
from shared.storage.outages import passing

POLL_S = 0.25
"""A worker with calls in flight looks for new ones this often; without any it ends and waits for a tick."""
ADVANCE_S = 0.2
"""Samples that become ready while calls can be claimed are advanced together, this often: a batch costs little more
than one. Where nothing can be claimed they are advanced at once."""
UNSENT_S = 5.0
"""How long a drain whose time is up goes on before it tries again to send the next tick."""
ADVANCE_FOR_S = 1.0
"""Then calls are claimed again, however many samples are still ready: those of a large job take minutes."""
OUTAGE_S = 0.5
"""Pause before the next look where the database is away."""
TRUSTED_S = 0.05
"""So long a look at lease and queue is believed where it leads to a claim."""

MINING_S = 1.0
"""Between two looks for relations to mine."""

# Models that need no lease first: what they answer gives the leased ones work.
SOURCES = text("""
    SELECT m.id, m.needs_lease, m.device, o.model_id IS NOT NULL AS away
    FROM models m LEFT JOIN outages o ON o.model_id = m.id
    WHERE m.served AND (m.backend = 'miner') = :mines
        AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = :lane AND q.model_id = m.id AND q.token IS NULL)
    ORDER BY m.needs_lease, m.id""")

_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """A model that had pending calls at a moment, and the epoch that they may be sent under."""

    model_id: int
    epoch: int | None
    away: bool
    """Whether what it needs was away when it was last tried."""


class Sources(NamedTuple):
    """What the last look at lease and queue found."""

    models: tuple[Source, ...]
    seen_at: float


class Worker:
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
        """`mines`: it claims relations to mine, and nothing else; they take minutes, so no tick waits for them."""
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
        self._sources = Sources((), 0.0)
        self._advanced_at = 0.0

    async def drain(self) -> None:
        """Work until nothing is left that may run now, or the tick's time is up; when told to stop, give back.

        While Redis is away no other tick can follow: then it goes on until no lease is believed any more.
        """
        await self._ticker.begun(self._lane)
        seconds = self._limits.tick_s
        while await self._work(seconds) and not await self._ticker.tick(self._lane) and await self._holds_lease():
            seconds = min(UNSENT_S, self._limits.tick_s)

    async def mine(self) -> None:
        """Work whenever there is something to mine, until told to stop."""
        while not self._stopping():
            try:
                if (await self._look()).models:
                    await self._work(math.inf)
            except SQLAlchemyError as error:
                await self._outlast(error)
            await asyncio.sleep(MINING_S)

    async def _work(self, seconds: float) -> bool:
        """Work for so long, or until nothing is left that may run now; whether the time was up."""
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
        """Whether calls of any leased model may be sent, and nobody told this worker to stop."""
        leases = (await self._guards.leases()).values()
        return not self._stopping() and any(lease is not None and lease.phase is Phase.OPEN for lease in leases)

    async def _outlast(self, error: SQLAlchemyError) -> bool:
        """Wait a moment where the database is away; whoever was cut off looks again, for nobody knows what happened."""
        if not passing(error):
            raise error
        _log.warning("the database is away, looking again: %s", redacted(str(error).partition("\n")[0]))
        await asyncio.sleep(OUTAGE_S)
        return True

    async def _fill(self, running: set[asyncio.Task[None]]) -> bool:
        """Start chunks until all streams are busy or nothing more may run; whether any was started."""
        started = False
        while len(running) < self._limits.streams and (task := await self._start()):
            running.add(task)
            started = True
        return started

    def _is_due(self, running: set[asyncio.Task[None]]) -> bool:
        """Whether to advance now: idle, or with samples of ours ready and nothing to claim or long enough ago."""
        waited = time.monotonic() - self._advanced_at >= ADVANCE_S
        return not running or (self._progress.ready > 0 and (waited or len(running) < self._limits.streams))

    async def _advance(self) -> bool:
        """Advance what is ready, for a while; wake the lanes that got work, of our own whoever has nothing to do."""
        any_advanced = False
        self._progress.ready, self._advanced_at = 0, time.monotonic()
        until = self._advanced_at + ADVANCE_FOR_S
        while (advanced := await self._advancer.advance()).samples:
            any_advanced = True
            for lane in advanced.lanes:
                await self._ticker.tick(lane)
            if advanced.jobs:
                await ending.finish(self._database, ending.SMALL)
            if time.monotonic() >= until:
                self._progress.ready = advanced.samples  # as many may still be ready
                break
        return any_advanced

    async def _start(self) -> asyncio.Task[None] | None:
        """Claim one chunk of whatever may run now and start on it."""
        if not self._progress.sources_changed and time.monotonic() - self._sources.seen_at < TRUSTED_S:
            started = await self._claim(self._sources)
            if started:
                return started
        return await self._claim(await self._look())

    async def _claim(self, sources: Sources) -> asyncio.Task[None] | None:
        for source in sources.models:
            claim = await self._claims.claim(self._lane, source.model_id, self._limits.chunk, away=source.away)
            if claim:
                return asyncio.create_task(self._chunks.run(claim, source.epoch))
        return None

    async def _look(self) -> Sources:
        """Models with pending calls that may be sent now, those without a lease first."""
        leases = await self._guards.leases()
        async with self._database.statement() as connection:
            found = (await connection.execute(SOURCES, {"lane": self._lane.value, "mines": self._mines})).all()
        self._sources = Sources(tuple(_granted(found, leases)), time.monotonic())
        self._progress.sources_changed = False
        return self._sources

    async def _wait(self, running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Until a chunk has ended, a reply is committed, or it is time to look again."""
        if not running:
            return running
        self._progress.made.clear()
        progress = asyncio.create_task(self._progress.made.wait())
        done, _ = await asyncio.wait({*running, progress}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        progress.cancel()
        for task in done - {progress}:
            task.result()
        return running - done


def _granted(
    models: Iterable[Row[tuple[int, bool, str | None, bool]]], leases: Mapping[str, Lease | None]
) -> Iterator[Source]:
    """Those whose calls may be sent now: a guard of ours has the device, under a lease if need be."""
    for model in models:
        lease = leases.get(model.device or "")
        if model.needs_lease and lease is not None and lease.grants(model.id):
            yield Source(model.id, lease.epoch, model.away)
        elif not model.needs_lease and (model.device is None or model.device in leases):
            yield Source(model.id, None, model.away)
