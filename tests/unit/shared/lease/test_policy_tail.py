"""The tail rule against somebody who knows what will come: all that he could do is tried, in whole units of time."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from math import inf

import pytest
from msgspec.structs import replace

from shared.lease.policy import DeviceResidency, FlipRules, decide, group_singly
from tests.unit.timed_device import TimedDevice, Work
from tests.unit.workloads import GENERATOR, JUDGE, held, load, picture

Arrival = tuple[int, int]
"""When a call comes, and for which model. Calls take no time: what is paid for is flips, and waiting."""
LONG = 1000
OTHER = {JUDGE: GENERATOR, GENERATOR: JUDGE}


def cheapest(arrivals: tuple[Arrival, ...], flip: int) -> int:
    """The least that anybody can pay who knows the arrivals: a unit for each in which a call waits and the device does
    not flip, and `flip` for each flip. The judge is resident at first."""
    last = max(at for at, _ in arrivals)

    def came(after: int, until: int) -> frozenset[int]:
        return frozenset(model for at, model in arrivals if after < at <= until)

    @cache
    def rest(now: int, resident: int, waiting: frozenset[int]) -> int:
        waiting -= {resident}
        if now >= last and not waiting:
            return 0
        flipped = flip + rest(now + flip, OTHER[resident], waiting | came(now, now + flip))
        if now > last:
            return flipped  # nothing more comes: waiting only costs
        return min(flipped, bool(waiting) + rest(now + 1, resident, waiting | came(now, now + 1)))

    return rest(0, JUDGE, came(-1, 0))


def paid(arrivals: tuple[Arrival, ...], flip: int) -> int:
    now, price, waiting = 0, 0, {model for at, model in arrivals if at == 0}
    device: DeviceResidency = held(JUDGE, open_s=inf)
    while now < LONG:
        waiting -= set(device.models)
        if not waiting and now >= max(at for at, _ in arrivals):
            return price
        work = replace(picture(*(load(model, call_s=0.0, load_s=float(flip)) for model in waiting)), lull_s=0.0)
        target = decide(work, device, groups=group_singly(work.loads), rules=FlipRules())
        took = 1 if target is None else flip
        price += took if waiting else 0
        device = held(*target.models, open_s=inf) if target else replace(device, idle_s=device.idle_s + bool(waiting))
        waiting |= {model for at, model in arrivals if now < at <= now + took}
        now += took
    raise AssertionError(f"still waits after {LONG} units")


def arrivals(models: tuple[int, ...], most: int) -> Iterator[tuple[Arrival, ...]]:
    further = [(at, model) for at in range(9) for model in models]
    for count in range(most + 1):
        for chosen in combinations(further, count):
            yield ((0, GENERATOR), *chosen)


def test_who_knows_does_what_a_person_would() -> None:
    assert cheapest(((0, GENERATOR),), 3) == 3
    assert cheapest(((0, GENERATOR), (1, JUDGE)), 3) == 4  # wait for one, then flip
    assert cheapest(((0, GENERATOR), (8, JUDGE)), 3) == 6  # go, and come back
    assert cheapest(((0, JUDGE), (4, JUDGE)), 3) == 0


@pytest.mark.parametrize("flip", [1, 2, 3, 4])
def test_one_tail_costs_at_most_twice_what_it_costs_who_knows_what_will_come(flip: int) -> None:
    for each in arrivals((JUDGE,), most=5):
        assert paid(each, flip) <= 2 * cheapest(each, flip), each


@pytest.mark.parametrize("flip", [2, 3])
def test_with_arrivals_for_both_sides_it_costs_at_most_three_times_as_much(flip: int) -> None:
    for each in arrivals((JUDGE, GENERATOR), most=3):
        assert paid(each, flip) <= 3 * cheapest(each, flip), each


def test_in_a_stream_of_small_jobs_waiting_saves_loads() -> None:
    jobs = [Work(at=at, samples=[[JUDGE]]) for at in (0.0, 36.0)]
    jobs += [Work(at=40.0 + 4 * n, samples=[[JUDGE, GENERATOR]]) for n in range(6)]
    load_s = {JUDGE: 30.0, GENERATOR: 30.0}
    eager, patient = (TimedDevice(jobs, FlipRules(), load_s, measured=measured).run() for measured in (False, True))
    assert [len(device.flips) for device in (eager, patient)] == [4, 2]
    assert patient.idle_s <= 30.0
    assert patient.now < eager.now


@pytest.mark.parametrize("jobs", [1, 2])
def test_jobs_that_come_alone_wait_for_nobody(jobs: int) -> None:
    apart = [Work(at=500.0 * n, samples=[[JUDGE, GENERATOR]]) for n in range(jobs)]
    assert TimedDevice(apart, FlipRules(), {JUDGE: 30.0, GENERATOR: 30.0}).run().idle_s == 0.0
