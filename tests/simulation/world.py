"""One schedule in play: the processes, their shared state, and their faults."""

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from contextvars import Context
from datetime import datetime
from random import Random
from typing import Any

from shared.calls import Lane
from shared.settings import Device, Model, Settings, Workers
from tests.faults.vocabulary import Subject
from tests.simulation import sessions
from tests.simulation.actor import Actor
from tests.simulation.checks import Witness
from tests.simulation.clock import EPOCH_S, VirtualLoop, WallClock
from tests.simulation.device import STRANGER, Machine, Opened
from tests.simulation.effects import Effects
from tests.simulation.pipelines import HASHES
from tests.simulation.plan import Plan
from tests.simulation.points import Fault
from tests.simulation.processes import IDLE_LOOK_S, GuardProcess, Orchestrator, WorkerProcess
from tests.simulation.redis import RedisServer
from tests.simulation.sessions import Session
from tests.simulation.store import Store, moment
from tests.simulation.users import Users

JUDGE, GENERATOR = "simulated-judge", "simulated-generator"
ENDS_S = 400.0
"""So long after the last fault every job must have ended: the rests of a few quarantines fit."""
ENDS = ("end", "failed job")
"""The write at the end of a job."""


class World:
    """What exists during one schedule."""

    def __init__(self, plan: Plan, loop: VirtualLoop, store: Store, wall: WallClock) -> None:
        self.plan = plan
        self.loop = loop
        self.store = store
        self.wall = wall
        self.rng = Random(plan.seed)
        self.settings = _settings(plan)
        self.words = sessions.names()
        self.documents = HASHES
        self.machine = Machine(self, self.settings.device.budget_mib)
        self.redis = RedisServer(self)
        self.sessions: list[Session] = []
        self.guard: GuardProcess | None = None
        self.outliving = plan.outliving
        self.postgres_away = False
        self.search_away = False
        self.database_offset_s = 0.0
        self.starved: dict[Subject, float] = {}
        """Whose renewals do not come through, and until when."""
        self.hops_to_break: set[Actor] = set()
        self.violations: list[str] = []
        self.hits: Counter[str] = Counter()
        self.residencies: dict[int, Opened] = {}
        self.in_flight: Counter[int] = Counter()
        """How often a call was claimed when a fault struck, by call id."""
        self.calm = True
        """No fault strikes and no time passes: before the beginning and after the end."""
        self.trace = hashlib.sha256()
        self.events: list[str] = []
        self._effects = Effects(self)
        self._waiting: list[Fault] = list(plan.faults)
        self._come: Counter[str] = Counter()
        self._said: dict[str, list[Fault]] = defaultdict(list)
        self._quiet_since = 0.0
        self._jobs_ended = 0
        self.witness = Witness(self)
        self._news: dict[Collection[str], asyncio.Event] = defaultdict(asyncio.Event)
        """For each who looks, by what interests him: whether any of it was written since."""
        self._burials: set[asyncio.Task[None]] = set()
        self.users = Users(self)
        self.orchestrator: Orchestrator | None = None

    # Queries of the ports.

    async def latency(self) -> None:
        """An operation is on its way: now and then for long, so that others overtake it."""
        if self.calm:
            return
        slow = self.rng.random() < (0.3 if self.plan.crowded else 0.03)
        await asyncio.sleep(self.rng.uniform(0.05, 0.5) if slow else self.rng.expovariate(1000.0))

    def set_clocks(self) -> None:
        """An operation begins: the database reads this time."""
        self.store.clock.set(EPOCH_S + self.store.base_s + self.loop.time() + self.database_offset_s)

    def now(self) -> datetime:
        """A host's wall clock."""
        return moment(self.wall.time())

    def occurs(self, said: str, actor: Actor, thing: Any = None) -> None:
        """A process reaches a moment: the actions that wait for it happen."""
        if self.calm:
            return
        _, _, what = said.partition(": ")
        self._come.update((said, what))
        self._note(said)
        for fault in [fault for fault in self._waiting if fault.moment in (said, what)]:
            if self._come[fault.moment] == fault.number:
                self._waiting.remove(fault)
                self._strike(fault, actor, thing)

    def _strike(self, fault: Fault, actor: Actor, thing: Any) -> None:
        self.until(0.0)
        self._count_in_flight()
        self.events.append(f"{self.loop.time():.3f} {fault}")
        word = self._effects.perform(fault.action, actor, thing)
        if word is None:
            self.hits[fault.point] += 1
        else:
            self._said[word].append(fault)

    def hit(self, word: str) -> None:
        """Count a prepared action that has struck a process."""
        for fault in self._said.pop(word, ()):
            self.hits[fault.point] += 1

    def happened(self, word: str, parameters: Any) -> None:
        """A statement that changed something is committed."""
        self._note(word)
        self.witness.saw(word, parameters)
        for words, news in self._news.items():
            if word in words:
                news.set()
        self._jobs_ended += word in ENDS
        if word == "state":
            self._state(parameters["epoch"], parameters["state"])

    def _state(self, epoch: int, state: str) -> None:
        self.residencies[epoch] = Opened((), state)
        if state == "open":
            self.residencies = {epoch: Opened((), state)}

    async def until_changed(self, seconds: float, woken: asyncio.Event, words: Collection[str]) -> None:
        """The pause of a loop that looks: longer while nothing is written that it could see."""
        with suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), seconds)
            return
        await self._written(words, IDLE_LOOK_S)

    async def _written(self, words: Collection[str], seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news[words].wait(), seconds)
        self._news[words].clear()

    def begins(self, model: str) -> None:
        """A model server was given a call."""
        self._note(f"{model} begins")
        if not any(opened.state in ("open", "draining") for opened in self.residencies.values()):
            self.violated(f"{model} executes a call while no residency is open: {self.residencies}")

    def next_pid(self) -> int:
        """Of no process of this machine."""
        return STRANGER + 1 + self.rng.randrange(1_000_000)

    def starves(self, actor: Actor) -> bool:
        """Whether its renewals do not come through."""
        return self.starved.get(actor.subject, -1.0) > self.loop.time()

    def broken_hop(self, actor: Actor) -> bool:
        """Whether its connection to the guard breaks now."""
        broken = actor in self.hops_to_break
        self.hops_to_break.discard(actor)
        return broken

    # What faults and processes do to time.

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """Run after this many virtual seconds, outside all processes."""
        self.loop.call_later(seconds, self._unless_over, do, context=Context())

    def _unless_over(self, do: Callable[[], object]) -> None:
        if not self.calm:
            do()

    def until(self, seconds: float) -> None:
        """Count a fault as active for `seconds`."""
        self._quiet_since = max(self._quiet_since, self.loop.time() + seconds)

    def bury(self, burial: Coroutine[Any, Any, None]) -> None:
        """Run the reaction of kernel and servers to the death of a process."""
        task = self.loop.create_task(burial, context=Context())
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    def violated(self, what: str) -> None:
        """A promise was broken."""
        self.violations.append(f"{self.loop.time():.3f} {what}")

    def _note(self, what: str) -> None:
        self.trace.update(f"{self.loop.time():.6f} {what}\n".encode())

    def _count_in_flight(self) -> None:
        for row in self.store.watch.rows("SELECT call_id FROM queue WHERE token IS NOT NULL"):
            self.in_flight[row[0]] += 1

    # The play.

    async def play(self) -> None:
        """Run from the first submission to the end of the last job, or until no job can end."""
        self.calm = False
        keepers = [asyncio.create_task(self._keep(make)) for make in self._processes()]
        await self._guard_is_up()
        for job in self.plan.jobs:
            self.users.submit(job)
        while not self._ended() and self.loop.time() < self._quiet_since + ENDS_S:
            await self._written(ENDS, 30.0)
        if not self._ended():
            self.violated(f"not ended {ENDS_S:.0f} s after the last fault: {self._left()}")
        await self._stop(keepers)

    def _processes(self) -> list[Callable[[], Actor]]:
        judges = [lambda: WorkerProcess(self, Lane.JUDGE)] * self.plan.judges
        return [self._make_guard, self._make_orchestrator, *judges, lambda: WorkerProcess(self, Lane.GENERATE)]

    def _make_guard(self) -> Actor:
        self.guard = GuardProcess(self)
        return self.guard

    def _make_orchestrator(self) -> Actor:
        self.orchestrator = Orchestrator(self)
        return self.orchestrator

    async def _keep(self, make: Callable[[], Actor]) -> None:
        """Restart dead processes after a moment, as the supervisor does."""
        actor: Actor | None = None
        try:
            while True:
                actor = make()
                actor.start()
                await actor.ended.wait()
                await asyncio.sleep(self.rng.uniform(0.5, 4.0))
        finally:
            if actor is not None:
                actor.kill()

    async def _guard_is_up(self) -> None:
        while self.guard is None or self.guard.service is None:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.1)

    def _ended(self) -> bool:
        if self.users.busy:
            return False
        # Counted, not queried: running operations at the database would appear in one run and not in the next.
        return self._jobs_ended >= len(self.users.jobs)

    def _left(self) -> list[tuple[Any, ...]]:
        rows = "SELECT j.state, s.state, count(*) FROM jobs j LEFT JOIN samples s ON s.job_id = j.id"
        return [tuple(row) for row in self.store.watch.rows(f"{rows} WHERE j.ended_at IS NULL GROUP BY 1, 2")]

    async def _stop(self, keepers: list["asyncio.Task[None]"]) -> None:
        self.calm = True
        self.postgres_away = False
        for keeper in keepers:
            keeper.cancel()
        self.users.kill()
        await asyncio.gather(*keepers, return_exceptions=True)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
            await asyncio.wait(others)


def _settings(plan: Plan) -> Settings:
    budget = 200 if plan.together else 160
    device = Device(
        id=f"simulated-{plan.seed}",
        budget_mib=budget,
        residency="together" if plan.together else "staged",
        memory="measured",
        reserve_mib=0,
    )
    models = {name: Model(driver="scripted", footprint_mib=96, parallel=2) for name in (JUDGE, GENERATOR)}
    return Settings(
        device=device,
        models=models,
        roles={"judge": JUDGE, "generate": GENERATOR},
        workers=Workers(chunk=plan.chunk),
        sweep_s=8.0,
        database_url="simulated",
        redis_url="simulated",
        commit="simulated",
    )
