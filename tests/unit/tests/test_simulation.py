"""The simulator's own parts that need no database: its clock, its processes, its Redis, its schedules, its mutants."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import TextClause

from shared.calls import Lane
from shared.lease.lease import TTL_S, Phase, RedisLease
from shared.runtime import worker as worker_runtime
from tests.faults.vocabulary import Subject, drop
from tests.simulation import clock
from tests.simulation.actor import CURRENT, Actor, Killed
from tests.simulation.clock import EPOCH_S, NothingLeft, VirtualLoop, WallClock
from tests.simulation.mutants import MUTANTS, Mutation, TextGone, mutated
from tests.simulation.plan import ORDER, Plan, plan, smaller
from tests.simulation.points import POINTS, Coverage, choose, read
from tests.simulation.redis import ActorRedis, RedisServer
from tests.simulation.runner import kind, shrink
from tests.unit.cases import named


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


class World:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.rng = Random(0)  # noqa: S311 - a seed
        self.said: list[str] = []
        self.redis = RedisServer(cast("Any", self))

    async def latency(self) -> None:
        """None."""

    def occurs(self, said: str, actor: Actor, thing: object = None) -> None:
        self.said.append(said)

    def hit(self, word: str) -> None:
        self.said.append(word)


# The clock.


def test_an_hour_passes_as_soon_as_nothing_is_left_to_do(loop: VirtualLoop) -> None:
    began = time.monotonic()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(3600)
    assert time.monotonic() - began < 60


def test_timers_go_off_in_their_order(loop: VirtualLoop) -> None:
    order: list[float] = []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main() -> None:
        await asyncio.gather(wait(30), wait(0.1), wait(2))

    loop.run_until_complete(main())
    assert order == [0.1, 2, 30]


def test_everybody_waiting_for_somebody_is_an_error_and_no_hang(loop: VirtualLoop) -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        loop.run_until_complete(main())


def test_no_time_passes_while_an_operation_is_under_way(loop: VirtualLoop) -> None:
    class Stalling:
        looks = 3

        def under_way(self) -> bool:
            return self.looks > 0

        def expects(self, file: int) -> bool:
            return True

        def stalled(self) -> bool:
            self.looks -= 1
            seen.append(loop.time())
            return True

    seen: list[float] = []
    loop.operations = Stalling()
    loop.run_until_complete(asyncio.sleep(5))
    assert seen == [0.0, 0.0, 0.0]
    assert loop.time() == pytest.approx(5)


def test_tasks_have_the_same_place_in_a_set_in_every_run(loop: VirtualLoop) -> None:
    async def order() -> list[int]:
        tasks = {asyncio.create_task(asyncio.sleep(0)) for _ in range(50)}
        await asyncio.gather(*tasks)
        first = min(hash(task) for task in tasks)
        return [hash(task) - first for task in tasks]

    loop.restart()
    once = loop.run_until_complete(order())
    loop.restart()
    assert loop.run_until_complete(order()) == once


def test_a_restarted_loop_forgets_the_timers_of_before(loop: VirtualLoop) -> None:
    fired: list[str] = []
    loop.call_later(10, fired.append, "before")
    loop.restart()
    loop.run_until_complete(asyncio.sleep(20))
    assert fired == []
    assert loop.time() == pytest.approx(20)


def test_our_modules_read_the_virtual_clocks_until_they_are_given_back(loop: VirtualLoop) -> None:
    undo = clock.install(WallClock(loop))
    try:
        loop.run_until_complete(asyncio.sleep(100))
        assert worker_runtime.time.monotonic() == pytest.approx(100)
        assert worker_runtime.datetime.now(worker_runtime.UTC).timestamp() == pytest.approx(EPOCH_S + 100)
    finally:
        undo()
    assert worker_runtime.time is time


# Processes.


def actor_of(loop: VirtualLoop) -> Actor:
    return Actor(cast("Any", World(loop)), Subject.JUDGE)


def test_a_frozen_process_passes_no_gate_until_it_is_thawed(loop: VirtualLoop) -> None:
    async def main() -> float:
        actor.freeze(20)
        await actor.gate()
        return loop.time()

    actor = actor_of(loop)
    assert loop.run_until_complete(main()) == pytest.approx(20)


def test_a_killed_process_passes_no_gate_even_where_it_cleans_up(loop: VirtualLoop) -> None:
    effects: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await actor.gate()
            effects.append("cleaned up")

    async def main() -> None:
        task = actor.spawn(work())
        await asyncio.sleep(1)
        actor.kill()
        with pytest.raises(Killed):
            await actor.gate()
        await asyncio.wait([task])

    actor = actor_of(loop)
    loop.run_until_complete(main())
    assert effects == []
    assert actor.ended.is_set()


# Redis.


def lease_of(loop: VirtualLoop) -> tuple[RedisServer, RedisLease]:
    actor = actor_of(loop)
    context = copy_context()
    context.run(CURRENT.set, actor)
    return actor.world.redis, RedisLease(cast("Any", context.run(ActorRedis)), "a-device")


def test_the_simulated_lease_only_grows(loop: VirtualLoop) -> None:
    async def main() -> None:
        assert await lease.publish(7, Phase.OPEN, [1])
        assert not await lease.publish(6, Phase.OPEN, [2])
        assert not await lease.publish(7, Phase.DRAINING)
        held = await lease.read()
        assert held is not None
        assert (held.epoch, held.models) == (7, (1,))

    _, lease = lease_of(loop)
    loop.run_until_complete(main())


def test_the_simulated_lease_lives_as_long_as_the_real_one(loop: VirtualLoop) -> None:
    async def main() -> None:
        await lease.publish(7, Phase.OPEN, [1])
        await asyncio.sleep(TTL_S - 0.1)
        assert await lease.read() is not None
        await asyncio.sleep(0.2)
        assert await lease.read() is None

    _, lease = lease_of(loop)
    loop.run_until_complete(main())


def test_a_simulated_redis_that_is_away_answers_nobody(loop: VirtualLoop) -> None:
    async def main() -> None:
        server.away = True
        assert not await lease.is_reachable()
        assert await lease.read() is None

    server, lease = lease_of(loop)
    loop.run_until_complete(main())


def test_writes_that_a_simulated_redis_loses_are_not_there(loop: VirtualLoop) -> None:
    async def main() -> None:
        server.deaf = True
        assert await lease.publish(7, Phase.OPEN, [1])
        assert await lease.read() is None

    server, lease = lease_of(loop)
    loop.run_until_complete(main())


@pytest.mark.parametrize(("setting", "value", "arrived"), [("every", 2, 2), ("copies", 3, 12), ("latest_s", 3.0, 4)])
def test_ticks_get_lost_doubled_and_late(loop: VirtualLoop, setting: str, value: float, arrived: int) -> None:
    async def main() -> None:
        setattr(server, setting, value)
        for _ in range(4):
            server.send(Lane.JUDGE)
        await asyncio.sleep(3)

    server, _ = lease_of(loop)
    loop.run_until_complete(main())
    assert server.ticks[Lane.JUDGE].qsize() == arrived


# Schedules.


def test_a_seed_is_a_schedule() -> None:
    assert plan(17) == plan(17)
    assert plan(17) != plan(18)


def test_every_fault_point_has_its_turn() -> None:
    turns = Counter(fault.point for seed in range(3 * len(ORDER)) for fault in plan(seed).faults[:2])
    assert min(turns[name] for name in POINTS) >= 2


def test_some_schedules_have_no_faults() -> None:
    assert plan(0).faults == ()


def test_a_mix_holds_no_other_fault_points() -> None:
    faults = {fault.point for seed in range(50) for fault in plan(seed, ("memory-lags", "ticks-late")).faults}
    assert faults == {"memory-lags", "ticks-late"}


def test_a_fault_is_read_from_what_the_command_line_says() -> None:
    faults = [named(choose, POINTS[name], Random(seed)) for name in POINTS for seed in range(5)]  # noqa: S311 - a seed
    assert {fault.token: found for fault in faults if (found := named(read, fault.token)) != fault} == {}


def test_a_fault_is_a_sentence_of_the_vocabulary() -> None:
    fault = read("freeze-before-answer/JUDGE/2/20.0")
    assert str(fault) == "at judge worker: before answer #2: freeze(judge worker, 20.0)"
    assert read("ticks-dropped//1/3").action == drop(Subject.TICKS, 3)


def test_what_is_left_out_is_one_thing_at_a_time() -> None:
    whole = replace(plan(1), jobs=plan(1).jobs[:1])
    for less in smaller(whole):
        removed = len(whole.faults) - len(less.faults)
        samples = [job.items * job.repeats for job in less.jobs] != [job.items * job.repeats for job in whole.jobs]
        assert removed + samples == 1


def test_shrinking_leaves_the_one_fault_that_matters() -> None:
    whole = next(plan(seed) for seed in range(1, 99) if len(plan(seed).faults) >= 4)
    culprit = whole.faults[2]

    def broken(candidate: Plan) -> str | None:
        return "memory" if culprit in candidate.faults else None

    smallest = shrink(whole, "memory", broken)
    assert smallest.faults == (culprit,)
    assert [job.items for job in smallest.jobs] == [1]


def test_shrinking_follows_no_other_violation() -> None:
    whole = plan(1)
    assert shrink(whole, "memory", lambda candidate: "audit I9") == whole


def test_shrinking_ends_after_its_tries() -> None:
    tried: list[Plan] = []

    def broken(candidate: Plan) -> str | None:
        tried.append(candidate)
        return None

    shrink(plan(1), "memory", broken, tries=2)
    assert len(tried) == 2


def test_a_violation_is_known_again_whatever_its_figures() -> None:
    assert kind("12.5 memory: 192 MiB on 160") == kind("99.1 memory: 500 MiB on 160") == "memory"
    assert kind("1.0 audit I9: 5 loads ('residencies 7',)") == "audit I9"


def test_coverage_tells_what_was_hit_too_seldom() -> None:
    coverage = Coverage()
    often = Counter(dict.fromkeys(POINTS, 60))
    coverage.add(often, often, 60)
    coverage.add(often - Counter({"ticks-late": 30}), often, 60)
    assert coverage.missing(100) == ["ticks-late"]
    assert next(line for line in coverage.table() if line.startswith("ticks-late")).split() == [
        "ticks-late",
        "90",
        "120",
    ]


# Mutants.


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_the_real_code_and_gives_it_back(name: str) -> None:
    mutations = MUTANTS[name].mutations
    before = [getattr(each.owner, each.name) for each in mutations]
    with mutated(mutations):
        for each, real in zip(mutations, before, strict=True):
            assert getattr(each.owner, each.name) is not real
    assert [getattr(each.owner, each.name) for each in mutations] == before


def test_a_mutants_fault_points_are_those_of_the_ordinary_run() -> None:
    assert {name: unknown for name in MUTANTS if (unknown := set(MUTANTS[name].points) - set(POINTS))} == {}


def test_a_mutant_whose_text_is_gone_says_so() -> None:
    owner = SimpleNamespace(STATEMENT=TextClause("SELECT 1"))
    with pytest.raises(TextGone, match="SELECT 2"), mutated((Mutation(owner, "STATEMENT", "SELECT 2", ""),)):
        pass
    assert str(owner.STATEMENT) == "SELECT 1"
