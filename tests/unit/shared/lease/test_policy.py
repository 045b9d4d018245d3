"""When to flip: a table of pictures, and a small simulated device held against the optimum of all orders."""

from collections import Counter, deque
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.calls import Lane
from shared.lease.policy import (
    MAX_RETRY_WAIT_S,
    RETRY_S,
    DeviceResidency,
    FlipRules,
    Target,
    WorkloadSnapshot,
    decide,
    group_by_footprint,
    group_singly,
)
from tests.unit.workloads import GENERATOR, JUDGE, held, load, picture

PATIENCE = 30.0


def decided(
    work: WorkloadSnapshot,
    device: DeviceResidency | None,
    *,
    fitting: bool = False,
    budget_mib: int = 160,
    drained: bool = False,
) -> Target | None:
    groups = group_by_footprint(work.loads, budget_mib) if fitting else group_singly(work.loads)
    target = decide(work, device, groups=groups, rules=FlipRules(patience_s=PATIENCE), drained=drained)
    return target and replace(target, plan={})


def test_the_first_residency_is_of_the_judge() -> None:
    target = decided(picture(load(GENERATOR, 100), load(JUDGE, 1)), None)
    assert target == Target(models=(JUDGE,), cause="first")


@pytest.mark.parametrize("calls", [1, 1000])
def test_the_resident_model_is_drained_before_a_flip(calls: int) -> None:
    assert decided(picture(load(JUDGE, calls), load(GENERATOR, 9)), held(JUDGE)) is None
    assert decided(picture(load(JUDGE, 9), load(GENERATOR, calls)), held(GENERATOR)) is None


def test_a_drained_device_flips_to_what_has_work() -> None:
    assert decided(picture(load(GENERATOR)), held(JUDGE)) == Target(models=(GENERATOR,), cause="drained")
    assert decided(picture(load(JUDGE)), held(GENERATOR)) == Target(models=(JUDGE,), cause="drained")


@pytest.mark.parametrize("device", [None, held(JUDGE), held(JUDGE, state="closed", reason="server_exit")])
def test_without_work_nothing_is_loaded(device: DeviceResidency | None) -> None:
    assert decided(picture(), device) is None


@pytest.mark.parametrize("device", [None, held(JUDGE), held(JUDGE, state="closed")])
def test_a_ready_sample_holds_a_flip(device: DeviceResidency | None) -> None:
    assert decided(picture(load(GENERATOR), ready=True), device) is None
    stalled = picture(load(GENERATOR), ready=True, cpu_calls=1, cpu_idle_s=PATIENCE + 1)
    assert decided(stalled, device) is None


@pytest.mark.parametrize("idle_s", [0.0, PATIENCE])
def test_calls_that_need_no_lease_hold_a_flip(idle_s: float) -> None:
    assert decided(picture(load(GENERATOR), cpu_calls=3, cpu_idle_s=idle_s), held(JUDGE)) is None


def test_patience_with_them_ends() -> None:
    stalled = picture(load(GENERATOR), cpu_calls=3, cpu_idle_s=PATIENCE + 0.1)
    assert decided(stalled, held(JUDGE)) == Target(models=(GENERATOR,), cause="cpu_stalled")
    assert decided(stalled, None) == Target(models=(GENERATOR,), cause="cpu_stalled")


def test_a_resident_model_whose_server_is_away_gives_way_and_the_flip_says_so() -> None:
    away = replace(load(JUDGE, 0), away=True)
    assert decided(picture(away, load(GENERATOR)), held(JUDGE)) == Target(models=(GENERATOR,), cause="away")
    assert decided(picture(away), held(JUDGE)) is None


def test_the_end_of_patience_does_not_end_the_drain() -> None:
    work = picture(load(JUDGE), load(GENERATOR), cpu_calls=3, cpu_idle_s=PATIENCE + 1)
    assert decided(work, held(JUDGE)) is None


def test_idle_time_without_such_calls_is_no_stall() -> None:
    target = decided(picture(load(GENERATOR), cpu_idle_s=PATIENCE + 1), held(JUDGE))
    assert target == Target(models=(GENERATOR,), cause="drained")


@pytest.mark.parametrize("state", ["wanted", "draining", "unloading", "loading"])
def test_no_flip_while_flipping(state: str) -> None:
    work = picture(load(GENERATOR), cpu_calls=1, cpu_idle_s=PATIENCE + 1)
    assert decided(work, held(JUDGE, state=state)) is None
    assert decided(picture(load(JUDGE)), held(JUDGE, state=state)) is None


@pytest.mark.parametrize("reason", ["server_exit", "guard_restart"])
def test_a_closed_residency_is_followed_by_a_new_epoch_of_the_same_model(reason: str) -> None:
    assert decided(picture(load(JUDGE, 3)), held(JUDGE, state="closed", reason=reason)) == Target(
        models=(JUDGE,), cause=reason
    )


def test_a_closed_residency_without_a_reason_was_drained() -> None:
    target = decided(picture(load(JUDGE)), held(GENERATOR, state="closed"))
    assert target is not None
    assert target.cause == "drained"


@pytest.mark.parametrize("failures", range(1, 4))
def test_a_quarantined_device_is_tried_again_after_a_pause_that_grows(failures: int) -> None:
    work = picture(load(JUDGE))
    early = held(JUDGE, state="quarantined", failures=failures, age_s=RETRY_S * failures - 0.1)
    late = held(JUDGE, state="quarantined", failures=failures, age_s=RETRY_S * failures)
    assert decided(work, early) is None
    assert decided(work, late) == Target(models=(JUDGE,), cause="retry")


def test_a_device_is_tried_on_for_ever_and_the_pause_is_bounded() -> None:
    work = picture(load(JUDGE))
    early = held(JUDGE, state="quarantined", failures=1000, age_s=MAX_RETRY_WAIT_S - 0.1)
    late = held(JUDGE, state="quarantined", failures=1000, age_s=MAX_RETRY_WAIT_S)
    assert decided(work, early) is None
    assert decided(work, late) == Target(models=(JUDGE,), cause="retry")


def test_a_device_is_tried_at_once_where_that_was_requested() -> None:
    quarantined = held(JUDGE, state="quarantined", failures=1000, age_s=0.0, retry=True)
    assert decided(picture(load(JUDGE)), quarantined) == Target(models=(JUDGE,), cause="retry")
    assert decided(picture(), quarantined) is None


def test_after_a_failed_load_another_model_that_waits_has_its_turn_first() -> None:
    broken = held(JUDGE, state="quarantined", failures=1, age_s=RETRY_S)
    assert decided(picture(load(JUDGE, 9), load(GENERATOR)), broken) == Target(models=(GENERATOR,), cause="retry")


def test_old_failures_do_not_slow_a_device_that_is_open() -> None:
    assert decided(picture(load(GENERATOR)), held(JUDGE, failures=9)) is not None


EMPTY = Target(models=(), cause="drain")


@pytest.mark.parametrize(
    "work", [picture(), picture(load(JUDGE, 9)), picture(load(GENERATOR), ready=True, cpu_calls=3)]
)
@pytest.mark.parametrize("state", ["open", "closed", "quarantined"])
def test_a_drained_device_is_emptied_whatever_waits_for_it(work: WorkloadSnapshot, state: str) -> None:
    assert decided(work, held(JUDGE, state=state, failures=9), drained=True) == EMPTY


@pytest.mark.parametrize("device", [None, held(), held(state="closed", reason="guard_restart"), held(state="wanted")])
def test_an_empty_drained_device_is_left_alone(device: DeviceResidency | None) -> None:
    assert decided(picture(load(JUDGE), load(GENERATOR)), device, drained=True) is None


@pytest.mark.parametrize("state", ["wanted", "draining", "unloading", "loading"])
def test_a_drain_waits_for_the_flip_that_is_on_its_way(state: str) -> None:
    assert decided(picture(load(JUDGE)), held(JUDGE, state=state), drained=True) is None


def test_an_emptying_that_failed_is_tried_again_after_a_pause() -> None:
    early = held(state="quarantined", failures=1, age_s=RETRY_S - 0.1)
    late = held(state="quarantined", failures=1, age_s=RETRY_S)
    often = held(state="quarantined", failures=1000, age_s=MAX_RETRY_WAIT_S)
    assert [decided(picture(), device, drained=True) for device in (early, late, often)] == [None, EMPTY, EMPTY]


def test_a_released_device_goes_on_with_what_waits() -> None:
    work = picture(load(GENERATOR, 9), load(JUDGE, 1))
    assert decided(work, held()) == Target(models=(JUDGE,), cause="released")
    assert decided(picture(), held()) is None


def test_within_a_lane_more_calls_come_first() -> None:
    two = picture(load(7, 5, Lane.JUDGE), load(8, 6, Lane.JUDGE), load(2, 99))
    assert decided(two, None) == Target(models=(8,), cause="first")
    equal = picture(load(8, 5, Lane.JUDGE), load(7, 5, Lane.JUDGE))
    assert decided(equal, None) == Target(models=(7,), cause="first")


@pytest.mark.parametrize(("budget_mib", "models"), [(192, (JUDGE, GENERATOR)), (191, (JUDGE,)), (96, (JUDGE,))])
def test_models_are_resident_together_as_far_as_the_budget_goes(budget_mib: int, models: tuple[int, ...]) -> None:
    work = picture(load(GENERATOR, 50), load(JUDGE))
    target = decided(work, None, fitting=True, budget_mib=budget_mib)
    assert target == Target(models=models, cause="first")


def test_a_model_that_a_job_will_want_later_is_loaded_along_where_it_fits() -> None:
    work = picture(load(JUDGE, 10), load(GENERATOR, 0))
    assert decided(work, None, fitting=True, budget_mib=192) == Target(models=(JUDGE, GENERATOR), cause="first")
    later = picture(load(JUDGE, 0), load(GENERATOR, 10))
    assert decided(later, held(JUDGE, GENERATOR), fitting=True, budget_mib=192) is None


@pytest.mark.parametrize("device", [None, held(JUDGE), held(GENERATOR)])
def test_a_model_that_is_only_wanted_later_causes_no_flip(device: DeviceResidency | None) -> None:
    assert decided(picture(load(GENERATOR, 0)), device, fitting=True, budget_mib=192) is None


def test_a_staged_device_holds_one_model_whatever_the_budget() -> None:
    target = decided(picture(load(JUDGE), load(GENERATOR)), None, budget_mib=10_000)
    assert target == Target(models=(JUDGE,), cause="first")


def test_a_model_that_does_not_fit_leaves_room_for_one_that_does() -> None:
    work = picture(load(1, 9, footprint_mib=60), load(2, 8, footprint_mib=60), load(3, 7, footprint_mib=40))
    assert decided(work, None, fitting=True, budget_mib=100) == Target(models=(1, 3), cause="first")


def test_a_model_above_the_budget_is_wanted_all_the_same() -> None:
    target = decided(picture(load(JUDGE, footprint_mib=500)), None, fitting=True, budget_mib=100)
    assert target == Target(models=(JUDGE,), cause="first")


def test_a_model_with_work_on_both_lanes_is_loaded_once() -> None:
    both = picture(load(4, 3, Lane.JUDGE), load(4, 2, Lane.GENERATE))
    assert decided(both, None, fitting=True, budget_mib=1000) == Target(models=(4,), cause="first")
    assert decided(both, held(4)) is None


@given(
    loads=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9), st.sampled_from(Lane), st.integers(0, 90))),
    budget=st.integers(0, 300),
    fitting=st.booleans(),
    resident=st.none() | st.sets(st.integers(1, 6), min_size=1),
)
def test_a_target_is_never_empty_never_above_the_budget_and_always_has_work(
    loads: list[tuple[int, int, Lane, int]], budget: int, fitting: bool, resident: set[int] | None
) -> None:
    footprints = {model: footprint for model, _, _, footprint in loads}
    work = picture(*(load(model, calls, lane, footprints[model]) for model, calls, lane, _ in loads))
    device = held(*resident) if resident else None
    target = decided(work, device, fitting=fitting, budget_mib=budget)
    if target is None:
        assert not loads or (resident and resident & footprints.keys())
        return
    assert target.models == tuple(sorted(set(target.models)))
    assert set(target.models) <= footprints.keys() - (resident or set())
    assert len(target.models) == 1 or fitting
    assert len(target.models) == 1 or sum(footprints[model] for model in target.models) <= budget


Sample = Sequence[Sequence[int]]
"""Rounds of calls: the calls of a round wait in parallel, the next round is asked for when all are answered."""


class Device:
    def __init__(self, samples: Sequence[Sample], seed: int) -> None:
        self._rounds = [deque(map(Counter, sample)) for sample in samples]
        self._ready = set(range(len(samples)))
        self._open: dict[int, Counter[int]] = {}
        self._random = Random(seed)  # noqa: S311 - reproducible, not secret
        self._held: DeviceResidency | None = None
        self.loads: list[int] = []

    def picture(self) -> WorkloadSnapshot:
        calls = sum(self._open.values(), Counter[int]())
        return picture(*(load(model, count) for model, count in calls.items() if count), ready=bool(self._ready))

    def run(self) -> list[int]:
        while self._ready or self._open:
            target = decided(self.picture(), self._held)
            if target is not None:
                self.loads.extend(target.models)
                self._held = held(*target.models)
            self._step()
        return self.loads

    def _step(self) -> None:
        moves: list[tuple[int, int | None]] = [(sample, None) for sample in sorted(self._ready)]
        for sample, calls in sorted(self._open.items()):
            moves += [(sample, model) for model in sorted(calls) if self._held and model in self._held.models]
        sample, model = self._random.choice(moves)  # IndexError: the device stands still with work left
        if model is None:
            self._advance(sample)
        else:
            self._answer(sample, model)

    def _advance(self, sample: int) -> None:
        self._ready.remove(sample)
        if self._rounds[sample]:
            self._open[sample] = self._rounds[sample].popleft()

    def _answer(self, sample: int, model: int) -> None:
        self._open[sample] -= Counter([model])
        if not self._open[sample]:
            del self._open[sample]
            self._ready.add(sample)


def fewest_loads(samples: Sequence[Sequence[int]]) -> int:
    start = (0, (0,) * len(samples))
    cost, queue = {start: 0}, deque([start])
    while queue:
        resident, done = state = queue.popleft()
        if all(n == len(sample) for n, sample in zip(done, samples, strict=True)):
            return cost[state]
        for i, sample in enumerate(samples):
            if done[i] == len(sample):
                continue
            step = (sample[done[i]], (*done[:i], done[i] + 1, *done[i + 1 :]))
            price = cost[state] + (step[0] != resident)
            if price < cost.get(step, price + 1):
                cost[step] = price
                (queue.appendleft if price == cost[state] else queue.append)(step)
    raise AssertionError("some order always ends")


def test_the_search_finds_the_optimum_that_a_person_sees() -> None:
    assert fewest_loads([[1, 2], [2, 1]]) == 3
    assert fewest_loads([[1, 2], [1, 2], [1, 1, 2]]) == 2
    assert fewest_loads([[2], [2]]) == 1
    assert fewest_loads([[1, 2, 1, 2], [2]]) == 4


alternations = st.lists(st.lists(st.sampled_from([JUDGE, GENERATOR]), min_size=1, max_size=5), min_size=1, max_size=4)


@given(samples=alternations, seed=st.integers(0, 2**32))
def test_draining_needs_at_most_one_load_more_than_the_best_order(samples: list[list[int]], seed: int) -> None:
    loads = Device([[[model] for model in sample] for sample in samples], seed).run()
    assert fewest_loads(samples) <= len(loads) <= fewest_loads(samples) + 1


@pytest.mark.parametrize(("items", "judgements"), [(1, 10), (10, 10), (100, 1)])
def test_the_papers_pipeline_needs_two_loads_for_any_number_of_items(items: int, judgements: int) -> None:
    sample = [[JUDGE] * judgements, [GENERATOR]]
    assert Device([sample] * items, seed=items).run() == [JUDGE, GENERATOR]
