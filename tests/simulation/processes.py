"""The processes: the real loops of orchestrator, guard and workers, between simulated ports.

This is the one place that constructs them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from services.guard import app as app_module
from services.guard import memory, reconciler
from services.guard.guard import StaleEpoch
from services.orchestrator.scheduling import routines, scheduler
from services.orchestrator.scheduling.routines import Routine
from shared import canonical
from shared.calls import Completion, Lane, ModelCall, Request, RunRequest
from shared.lease import lease
from shared.lease.lease import Guards, NotGranted, StreamBroken
from shared.lease.policy import DeviceResidency, Effect, FlipEvent, FlipMachine, Target, WorkloadSnapshot
from shared.queue import Ticker
from shared.replies import Graded, Hit, Retrieved
from shared.runtime import worker
from shared.runtime.prompting import PromptExecutor
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import CallEnd, Wait
from tests.faults.vocabulary import Subject
from tests.simulation import sessions
from tests.simulation.actor import Actor, current
from tests.simulation.device import AWAY, ModelDriver
from tests.simulation.redis import ActorCelery, ActorRedis
from tests.simulation.sessions import ActorDatabase

if TYPE_CHECKING:
    from tests.simulation.world import World

_log = logging.getLogger(__name__)
_REQUEST = msgspec.json.Decoder(Request)

LOOK_S = 1.0
"""Idle loops look this often in virtual time, which costs nothing; their statements do."""
IDLE_LOOK_S = 10.0
"""The same while nothing is written that concerns them."""
RESIDENCIES = ("decision", "state")
"""Writes that concern the guard."""
DRAINS = ("drained", "released")
"""Causes of flips that take no work from the resident models."""
PICTURED = frozenset(sessions.names().values()) - {"renewal", "claim", "overlooked"}
"""Writes that concern the scheduler."""


class ObservedFlips(FlipMachine):
    """The real machine; says in which state it is."""

    def handle(self, event: FlipEvent) -> tuple[Effect, ...]:
        """As the real one."""
        effects = super().handle(event)
        if effects:
            current().world.occurs(f"{Subject.GUARD}: {self.state}", current())
        return effects


class PacedScheduler(scheduler.Scheduler):
    """The real one; a look in which nothing can have changed is left out, and a drain is looked into."""

    _began_s = 0.0

    async def look(self) -> bool:
        self._began_s = current().world.loop.time()
        return await super().look()

    def _decide(self, picture: WorkloadSnapshot, held: DeviceResidency | None, **more: Any) -> Target | None:
        target = super()._decide(picture, held, **more)
        if target is not None and target.cause in DRAINS:
            current().world.witness.drained(self._began_s)
        return target

    async def _pause(self, seconds: float) -> None:
        await current().world.until_changed(seconds, self._woken, PICTURED)


class PacedService(app_module.GuardService):
    """The real one, likewise."""

    async def _pause(self, seconds: float) -> None:
        if seconds == app_module.POLL_S:
            await current().world.until_changed(seconds, self.stopping, RESIDENCIES)
        else:
            await super()._pause(seconds)


def install() -> Callable[[], None]:
    """Put the simulated ports where the services take theirs from; returns how to undo it."""
    replaced = [
        (app_module, "Database", lambda url, *, pinned: ActorDatabase(current())),
        (app_module, "Redis", _Connects),
        (app_module, "celery_app", lambda url, tick_s: ActorCelery()),
        (app_module, "make_driver", ModelDriver),
        (app_module, "POLL_S", LOOK_S / 2),
        (reconciler, "FlipMachine", ObservedFlips),
        (reconciler, "make_meter", lambda device: current().world.machine),
        (memory, "find_children", lambda processes: ()),
        (lease, "GuardClient", GuardLine),
        (scheduler, "celery_app", lambda url, tick_s: ActorCelery()),
        (scheduler, "LOOK_S", 2 * LOOK_S),
        (scheduler, "LONGEST_PAUSE_S", 2 * LOOK_S),
        (routines, "celery_app", lambda url, tick_s: ActorCelery()),
        (routines, "LOOK_S", 4 * LOOK_S),
        (worker, "POLL_S", LOOK_S),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)

    def undo() -> None:
        for module, name, value in before:
            setattr(module, name, value)

    return undo


class _Connects:
    """`Redis`, as far as the guard's service asks for it."""

    from_url = staticmethod(lambda url: ActorRedis())


class Orchestrator(Actor):
    """Decides flips, sweeps, and brings jobs to their end."""

    def __init__(self, world: "World") -> None:
        super().__init__(world, Subject.ORCHESTRATOR)
        self._routines: list[Routine] = []

    async def main(self) -> None:
        """Its routines."""
        redis, database = cast("Any", ActorRedis()), ActorDatabase(self)
        swept = routines.Sweeper(self.world.settings, database, redis)
        self._routines = [
            PacedScheduler(self.world.settings, database, redis),
            swept,
            routines.Finaliser(database, swept.wake),
        ]
        async with asyncio.TaskGroup() as group:
            for routine in self._routines:
                group.create_task(routine.run())

    def wake(self) -> None:
        """As the API does it."""
        for routine in self._routines:
            routine.wake()


class GuardProcess(Actor):
    """Flips the device, and runs the permitted calls."""

    def __init__(self, world: "World") -> None:
        super().__init__(world, Subject.GUARD)
        self.service: PacedService | None = None
        self.streams: list[asyncio.Queue[Any]] = []

    async def main(self) -> None:
        """The service's loops."""
        service = PacedService(self.world.settings)
        await service.start()
        self.service = service
        async with asyncio.TaskGroup() as group:
            for loop in (
                service.reconcile_for_ever,
                service.probe_for_ever,
                service.renew_for_ever,
                service.register_for_ever,
            ):
                group.create_task(loop())

    def died(self) -> None:
        """Its connections break; its children die with it, unless they have no parent process."""
        self.service = None
        for stream in self.streams:
            stream.put_nowait(StreamBroken("simulated: the guard is gone"))
        if not self.world.outliving:
            for server in tuple(self.world.machine.servers):
                server.die()

    async def serve(self, request: RunRequest, stream: "asyncio.Queue[Any]") -> None:
        """Serve `POST /run`: stream the guard's results."""
        try:
            await self.gate()
            if self.service is None:
                stream.put_nowait(NotGranted("simulated: not listening yet"))
                return
            async with aclosing(cast("AsyncGenerator[list[Completion], None]", self.service.guard.run(request))) as run:
                async for batch in run:
                    await self.gate()
                    for completion in batch:
                        stream.put_nowait(completion)
            stream.put_nowait(None)
        except StaleEpoch as stale:
            stream.put_nowait(NotGranted(stale.message))
        finally:
            if stream in self.streams:
                self.streams.remove(stream)


class GuardLine:
    """The HTTP hop from a worker to the guard."""

    def __init__(self, _url: str, _service_key: str) -> None:
        self._actor = current()

    async def read_device(self) -> str:
        """The device of the guard."""
        self._reach()
        return self._actor.world.settings.device.id

    async def run(self, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """As `GuardClient.run`: the same errors, for the same reasons."""
        await self._actor.passes("sends a chunk")
        await self._actor.world.latency()
        guard = self._reach()
        stream: asyncio.Queue[Any] = asyncio.Queue()
        guard.streams.append(stream)
        serving = guard.spawn(guard.serve(RunRequest(epoch=epoch, calls=tuple(calls)), stream))
        answered = 0
        try:
            while (item := await stream.get()) is not None:
                await self._actor.passes("receives a completion")
                if self._actor.world.broken_hop(self._actor):
                    raise StreamBroken("simulated: connection reset")
                if isinstance(item, Exception):
                    raise item
                answered += 1
                yield item
        finally:
            serving.cancel()
        if answered < len(calls):
            raise StreamBroken(f"{len(calls) - answered} of {len(calls)} calls got no answer")

    def _reach(self) -> "GuardProcess":
        guard = self._actor.world.guard
        if guard is None or guard.dead or guard.service is None or self._actor.world.broken_hop(self._actor):
            raise NotGranted("simulated: connection refused")
        return guard

    async def close(self) -> None:
        """Nothing is open."""


class CpuCalls:
    """The executor of retrieve and grade calls: neither the retriever nor the grading pool is simulated."""

    def __init__(self, documents: Sequence[str]) -> None:
        self._actor = current()
        self._documents = documents

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        """After a while, by rule; or not now, where the search engine is away."""
        for call in calls:
            if call.role == "retrieve" and self._actor.world.search_away:
                yield Wait(call.id, "the simulated search engine", AWAY)
                continue
            started = self._actor.world.now()
            await asyncio.sleep(self._actor.world.rng.uniform(0.01, 0.2))
            await self._actor.gate()
            receipt = Receipt(started_at=started, ended_at=self._actor.world.now())
            yield AnsweredCall(call_id=call.id, reply=self._reply(_REQUEST.decode(call.request)), receipt=receipt)

    def _reply(self, request: Request) -> Retrieved | Graded:
        if request.role == "grade":
            return Graded(math_verify=request.values["answer"] == request.values["gold"], strict=False)
        first = canonical.digest(request)[0]
        chosen = [self._documents[(first + n) % len(self._documents)] for n in range(request.k)]
        return Retrieved(hits=tuple(Hit(document=d, rank=n + 1, score=1 / (n + 1)) for n, d in enumerate(chosen)))


class WorkerProcess(Actor):
    """Drains its lane whenever a tick comes."""

    def __init__(self, world: "World", lane: Lane) -> None:
        super().__init__(world, Subject.JUDGE if lane is Lane.JUDGE else Subject.GENERATOR)
        self._lane = lane

    async def main(self) -> None:
        """As Celery does it: a drain that fails is a task that failed."""
        drains = self._worker()
        ticks = self.world.redis.ticks[self._lane]
        while True:
            await ticks.get()
            await self.passes("takes a tick")
            try:
                await drains.drain()
            except SQLAlchemyError:
                _log.info("a drain failed", exc_info=True)
            except Exception as error:  # noqa: BLE001 - Celery logs it and takes the next one; here it is a finding
                self.world.violated(f"a drain failed: {error!r}")
            await self.passes("acknowledges a tick")

    def _worker(self) -> worker.LaneWorker:
        redis = cast("Any", ActorRedis())
        database = ActorDatabase(self)
        hosts = Guards(redis, ["simulated"])
        prompting = PromptExecutor(database, hosts)
        cpu = CpuCalls(self.world.documents)
        executors: Mapping[str, Any] = {"judge": prompting, "generate": prompting, "retrieve": cpu, "grade": cpu}
        return worker.LaneWorker(
            self._lane,
            database,
            executors,
            name=f"{self._lane.value}@simulation",
            guards=hosts,
            ticker=Ticker(cast("Any", ActorCelery()), redis),
            limits=self.world.settings.workers,
        )


__all__ = ["GuardProcess", "Orchestrator", "WorkerProcess", "install"]
