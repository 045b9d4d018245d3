"""The choices of a seed, and the additional schedules of a run for fault points that lack hits."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.catalogue import FAULTS
from tests.faults.report import Sight
from tests.simulation import points
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import CROWDED, plan
from tests.simulation.points import ENOUGH, POINTS, Coverage, read
from tests.simulation.runner import Share, plan_share

SEEDS = range(1, 200)


def test_other_faults_leave_the_rest_of_a_schedule_as_it_is() -> None:
    for seed in (seed for seed in SEEDS if seed % CROWDED):
        assert replace(plan(seed, ("memory-lags",)), faults=plan(seed).faults) == plan(seed)


def test_nothing_befalls_a_crowded_schedule() -> None:
    crowded = [plan(seed) for seed in SEEDS if plan(seed).crowded]
    assert len(crowded) == len([seed for seed in SEEDS if seed % CROWDED == 0])
    assert all((each.faults, each.judges, each.chunk) == ((), 3, 1) for each in crowded)


def test_faults_read_as_they_were_said() -> None:
    for seed in SEEDS:
        assert tuple(read(fault.token) for fault in plan(seed).faults) == plan(seed).faults


def test_fault_points_stand_for_faults_of_the_catalogue() -> None:
    assert points.ids_of(POINTS) <= FAULTS.keys()
    assert points.ids_of(["ticks-doubled", "job-paused"]) == {"Q1", "Q4"}


def test_a_fault_that_struck_in_no_schedule_was_not_seen() -> None:
    assert points.make_sight("P9", 0) is None
    seen = points.make_sight("P9", 7)
    assert isinstance(seen, Sight)
    assert seen.figures == {"schedules of the simulator": 7}
    assert len(seen.produced) == 2


def test_what_lacks_hits_is_played_afterwards_and_nothing_else() -> None:
    coverage = Coverage()
    schedules = plan_share(Share(first=0, schedules=40, part=0, parts=2), coverage)
    assert [next(schedules).seed for _ in range(20)] == list(range(0, 40, 2))
    coverage.add(Counter(dict.fromkeys(POINTS, round(ENOUGH * 20))), Counter(), 2)
    coverage.add(Counter({"memory-lags": -1}), Counter(), 0)
    assert {fault.point for fault in next(schedules).faults} == {"memory-lags"}
    coverage.add(Counter({"memory-lags": 1}), Counter(), 1)
    assert next(schedules, None) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_hunted_under_points_that_exist(name: str) -> None:
    mutant = MUTANTS[name]
    assert set(mutant.points) <= POINTS.keys()
    assert any(mutant.only(plan(seed, mutant.points)) for seed in SEEDS)
