"""The pace of what the orchestrator does over and over: no outage makes a later pause longer."""

import asyncio
import contextlib
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.deps import Deps
from services.orchestrator.probes import SILENT_S, check_schedulers
from services.orchestrator.scheduling import routines, scheduler
from services.orchestrator.scheduling.routines import OUTAGE_S, Routine
from services.orchestrator.scheduling.scheduler import COUNTED_S, LONGEST_PAUSE_S, LOOK_S, QueueCounts, Scheduler
from shared.check import NotReady
from shared.settings import Settings
from shared.storage.database import Database

pytestmark = pytest.mark.anyio


class Hands:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    moved = Hands()
    for module in (scheduler, routines, scheduler):
        monkeypatch.setattr(module, "time", moved)
    return moved


@pytest.fixture
def looking(hands: Hands) -> Scheduler:
    settings = Settings(database_url="unused", redis_url="redis://nowhere")
    database = Database("postgresql+asyncpg://nowhere", pinned=True)
    return Scheduler(settings, database, Redis.from_url(settings.redis_url))


@pytest.mark.parametrize(
    ("took_s", "live", "pause_s"),
    [(0.001, True, LOOK_S), (0.3, True, 0.3), (8.0, True, LONGEST_PAUSE_S), (0.001, False, LONGEST_PAUSE_S)],
)
async def test_the_pause_after_a_look_has_an_upper_bound(
    looking: Scheduler, hands: Hands, monkeypatch: pytest.MonkeyPatch, took_s: float, live: bool, pause_s: float
) -> None:
    async def look() -> bool:
        hands.now += took_s
        return live

    monkeypatch.setattr(looking, "look", look)
    assert await looking.run_once() == pytest.approx(pause_s)


class Failing(Routine):
    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.pauses: list[float] = []

    async def run_once(self) -> float:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the database is away")
        return 7.0

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds != OUTAGE_S:
            raise asyncio.CancelledError


async def test_the_pause_after_a_failure_does_not_grow(hands: Hands) -> None:
    tried = Failing(100)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(tried.run())  # An earlier test may have left ours cancelled.
    assert tried.pauses == [*[OUTAGE_S] * 100, 7.0]


class Swallowing(Routine):
    def __init__(self) -> None:
        super().__init__()
        self.started = asyncio.Event()
        self.runs = 0

    async def run_once(self) -> float:
        self.runs += 1
        self.started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 0.0


async def test_a_cancellation_that_a_library_swallows_ends_the_loop() -> None:
    routine_ = Swallowing()
    running = asyncio.create_task(routine_.run())
    await routine_.started.wait()
    running.cancel()
    await asyncio.wait([running], timeout=60)
    assert running.cancelled()
    assert routine_.runs == 1


async def test_only_what_was_completed_counts_as_a_look(hands: Hands) -> None:
    tried = Failing(3)
    hands.now += 20.0
    assert tried.silent_s == 20.0
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(tried.run())  # An earlier test may have left ours cancelled.
    assert tried.silent_s == 0.0


async def test_readiness_says_how_long_ago_a_scheduler_has_looked(looking: Scheduler, hands: Hands) -> None:
    deps = Deps(
        settings=cast("Any", None), database=cast("Any", None), admission=cast("Any", None), redis=cast("Any", None),
        http=cast("Any", None), wake=lambda: None, schedulers=[looking],
    )  # fmt: skip
    hands.now += SILENT_S
    assert await check_schedulers(deps) == ""
    hands.now += 31.0
    with pytest.raises(NotReady, match=r"last complete observation of the work: that of cpu:0 41 s ago"):
        await check_schedulers(deps)


class Counted:
    def __init__(self, hands: Hands, takes_s: float) -> None:
        self._hands = hands
        self._takes_s = takes_s
        self.asked = 0

    async def execute(self, _statement: object) -> "Counted":
        self._hands.now += self._takes_s
        self.asked += 1
        return self

    def all(self) -> list[Any]:
        return []


@pytest.mark.parametrize(("takes_s", "used_s"), [(0.1, 1.0), (8.0, COUNTED_S)])
async def test_a_long_queue_is_counted_for_a_tenth_of_the_time(hands: Hands, takes_s: float, used_s: float) -> None:
    counts, counted = QueueCounts(), Counted(hands, takes_s)
    connection = cast("AsyncConnection", counted)
    await counts.read(connection, [])
    hands.now += 0.9 * used_s
    await counts.read(connection, [])
    assert counted.asked == 1
    hands.now += 0.2 * used_s
    await counts.read(connection, [])
    assert counted.asked == 2


async def test_a_model_whose_calls_have_just_come_is_counted_at_once(hands: Hands) -> None:
    counts, counted = QueueCounts(), Counted(hands, 0.1)
    connection = cast("AsyncConnection", counted)
    await counts.read(connection, [])
    assert await counts.read(connection, [(7, "judge")]) == {(7, "judge"): 1}
    assert counted.asked == 2
