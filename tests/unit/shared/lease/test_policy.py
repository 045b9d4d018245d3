"""When a device flips, to what, and how long anybody waits."""

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise, product
from math import inf
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.calls import Lane
from shared.lease.policy import (
    AMORTISED,
    MAX_RETRY_WAIT_S,
    MIN_OPEN_S,
    RETRY_S,
    STEPS,
    DeviceResidency,
    Effect,
    FlipEvent,
    FlipMachine,
    FlipRules,
    FlipState,
    Target,
    WorkloadSnapshot,
    decide,
    group_by_footprint,
    group_singly,
    stands_idle,
)
from tests.unit.timed_device import GENERATOR, JUDGE, LOOK_S, TimedDevice, Work, held, load, picture

# When to flip: a table of pictures, and a small simulated device held against the optimum of all orders.


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


# The flip machine: its one way round, and that no sequence of events takes a short cut.

S, E, F = FlipState, FlipEvent, Effect
Asked = tuple[Effect, ...]

# Written out from the design, not from the code: OPEN -> DRAINING -> UNLOADING -> VERIFY_FREE -> LOADING ->
# VERIFY_RESIDENT -> OPEN.
ROUND = [
    (S.OPEN, E.WANTED, S.DRAINING, (F.DRAIN,)),
    (S.DRAINING, E.DRAINED, S.UNLOADING, (F.CLOSE, F.UNLOAD)),
    (S.DRAINING, E.DRAIN_TIMEOUT, S.UNLOADING, (F.CANCEL, F.CLOSE, F.UNLOAD)),
    (S.UNLOADING, E.UNLOADED, S.VERIFY_FREE, (F.VERIFY_FREE,)),
    (S.VERIFY_FREE, E.FREE, S.LOADING, (F.LOAD,)),
    (S.LOADING, E.LOADED, S.VERIFY_RESIDENT, (F.VERIFY_RESIDENT,)),
    (S.VERIFY_RESIDENT, E.RESIDENT, S.OPEN, (F.OPEN,)),
    (S.CLOSED, E.WANTED, S.UNLOADING, (F.UNLOAD,)),
    (S.QUARANTINED, E.WANTED, S.UNLOADING, (F.UNLOAD,)),
    (S.OPEN, E.SERVER_EXIT, S.CLOSED, (F.CANCEL, F.CLOSE, F.UNLOAD)),
]
IN_A_FLIP = (S.DRAINING, S.UNLOADING, S.VERIFY_FREE, S.LOADING, S.VERIFY_RESIDENT)
PLACED = {(state, event) for state, event, *_ in ROUND} | {(state, E.FAILED) for state in (*IN_A_FLIP, S.OPEN)}
"""What a failure does to the last step, opening, is told where the steps are carried out: in test_reconciler."""


def machine(state: FlipState) -> FlipMachine:
    made = FlipMachine()
    made.state = state
    return made


@pytest.mark.parametrize(("state", "event", "after", "effects"), ROUND)
def test_every_transition_of_the_design(
    state: FlipState, event: FlipEvent, after: FlipState, effects: tuple[Effect, ...]
) -> None:
    flip = machine(state)
    assert flip.handle(event) == effects
    assert flip.state is after


@pytest.mark.parametrize("state", IN_A_FLIP)
def test_any_failure_in_a_flip_quarantines(state: FlipState) -> None:
    flip = machine(state)
    assert flip.handle(E.FAILED) == (F.CANCEL, F.UNLOAD, F.QUARANTINE)
    assert flip.state is S.QUARANTINED


@pytest.mark.parametrize(("state", "event"), sorted(set(product(S, E)) - PLACED))
def test_an_event_out_of_place_does_nothing(state: FlipState, event: FlipEvent) -> None:
    flip = machine(state)
    assert flip.handle(event) == ()
    assert flip.state is state


def test_a_device_starts_closed() -> None:
    assert FlipMachine().state is S.CLOSED


def test_the_steps_of_a_flip_include_all_between_two_residencies() -> None:
    assert set(IN_A_FLIP) <= set(STEPS)


def walk(
    flip: FlipMachine, asked: tuple[Effect, ...], depth: int
) -> Iterator[tuple[FlipEvent, FlipState, Effect, Asked]]:
    """(event, state before it, effect, effects before it) of every sequence of up to `depth` further events.

    An event that changes nothing is left out: what can follow it can follow without it, and the state is all there is.
    """
    assert vars(flip).keys() == {"state"}
    if depth == 0:
        return
    for event in FlipEvent:
        then = machine(flip.state)
        effects = then.handle(event)
        if (then.state, effects) == (flip.state, ()):
            continue
        for n, effect in enumerate(effects):
            yield event, flip.state, effect, asked + effects[:n]
        yield from walk(then, asked + effects, depth - 1)


def since(asked: Asked, effect: Effect) -> Asked:
    return asked[len(asked) - asked[::-1].index(effect) :] if effect in asked else asked


@pytest.mark.parametrize("start", [S.CLOSED, S.OPEN, S.QUARANTINED])
def test_no_sequence_of_events_takes_a_short_cut(start: FlipState) -> None:
    opened = loaded = 0
    for event, before, effect, asked in walk(machine(start), (), 6):
        if effect is F.OPEN:
            opened += 1
            assert (before, event) == (S.VERIFY_RESIDENT, E.RESIDENT)
            assert F.VERIFY_RESIDENT in since(asked, F.LOAD)
        if effect is F.LOAD:
            loaded += 1
            assert (before, event) == (S.VERIFY_FREE, E.FREE)
            assert F.VERIFY_FREE in since(asked, F.UNLOAD)
    assert opened
    assert loaded


def test_a_drain_that_times_out_aborts_before_it_closes() -> None:
    flip = machine(S.DRAINING)
    effects = flip.handle(E.DRAIN_TIMEOUT)
    assert effects.index(F.CANCEL) < effects.index(F.CLOSE) < effects.index(F.UNLOAD)


# What may not wait for the drain: tables of pictures around each bound of the policy.

RULES = FlipRules(patience_s=30.0, max_residency_s=1800.0, max_wait_s=900.0, online_patience_s=10.0)
PAID = 20.0
"""Seconds that the resident's flip took."""
WORTH = AMORTISED * PAID


def decided_within(work: WorkloadSnapshot, device: DeviceResidency | None, **rules: float) -> Target | None:
    return decide(work, device, groups=group_singly(work.loads), rules=replace(RULES, **rules))


def flip(work: WorkloadSnapshot, device: DeviceResidency | None, **rules: float) -> tuple[tuple[int, ...], str] | None:
    target = decided_within(work, device, **rules)
    return target and (target.models, target.cause)


def busy(**waits: float) -> WorkloadSnapshot:
    return picture(load(JUDGE, 1000), load(GENERATOR, **waits), ready=True, cpu_calls=3)


def test_a_job_that_starves_for_too_long_ends_a_drain() -> None:
    opened = held(JUDGE, open_s=WORTH, load_s=PAID)
    assert flip(busy(starved_s=900.1), opened) == ((GENERATOR,), "aged")
    assert flip(busy(starved_s=900.0), opened) is None


def test_a_call_that_only_waits_for_its_own_job_is_no_reason() -> None:
    assert flip(busy(), held(JUDGE, open_s=1e6, load_s=PAID)) is None


def test_a_residency_that_was_open_for_long_gives_way_to_who_starves() -> None:
    assert flip(busy(starved_s=0.1), held(JUDGE, open_s=1800.1, load_s=PAID)) == ((GENERATOR,), "bounded")
    assert flip(busy(starved_s=0.1), held(JUDGE, open_s=1800.0, load_s=PAID)) is None
    assert flip(busy(), held(JUDGE, open_s=1e9, load_s=PAID)) is None


@pytest.mark.parametrize("open_s", [0.0, WORTH - 0.1])
def test_a_residency_is_first_worth_its_loading(open_s: float) -> None:
    assert flip(busy(starved_s=1e6), held(JUDGE, open_s=open_s, load_s=PAID)) is None
    assert flip(busy(starved_s=1e6), held(JUDGE, open_s=open_s, load_s=PAID), max_residency_s=0.001) is None


def test_a_residency_whose_loading_was_never_measured_lasts_a_moment() -> None:
    assert flip(busy(starved_s=1e6), held(JUDGE, open_s=MIN_OPEN_S - 0.1)) is None
    assert flip(busy(starved_s=1e6), held(JUDGE, open_s=MIN_OPEN_S)) == ((GENERATOR,), "aged")


def test_bounds_of_nothing_are_none() -> None:
    opened = held(JUDGE, open_s=1e9, load_s=PAID)
    assert flip(busy(starved_s=1e9), opened, max_wait_s=0.0, max_residency_s=0.0) is None
    assert decide(busy(starved_s=1e9), opened, groups=[], rules=FlipRules()) is None


@pytest.mark.parametrize("device", [None, held(JUDGE, state="closed", reason="server_exit"), held()])
def test_ready_samples_do_not_keep_a_closed_device_from_who_starves(device: DeviceResidency | None) -> None:
    assert flip(busy(starved_s=901.0), device) == ((GENERATOR,), "aged")
    assert flip(busy(starved_s=899.0), device) is None


@pytest.mark.parametrize("state", ["wanted", "draining", "unloading", "loading"])
def test_nothing_presses_so_much_that_a_flip_is_overtaken(state: str) -> None:
    work = busy(starved_s=1e6, online_s=1e6)
    assert flip(work, held(JUDGE, state=state)) is None
    assert flip(work, held(JUDGE, state="quarantined", failures=1, age_s=1.0)) is None


def test_somebody_online_waits_for_his_patience_and_no_longer() -> None:
    opened = held(JUDGE, open_s=PAID, load_s=PAID)
    assert flip(busy(online_s=9.9), opened) is None
    assert flip(busy(online_s=10.0), opened) == ((GENERATOR,), "online")
    assert flip(busy(online_s=0.0), opened, online_patience_s=0.0) == ((GENERATOR,), "online")


def test_nor_does_somebody_online_find_a_device_that_only_flips() -> None:
    assert flip(busy(online_s=60.0), held(JUDGE, open_s=PAID - 0.1, load_s=PAID)) is None
    assert flip(busy(online_s=60.0), held(JUDGE, open_s=MIN_OPEN_S - 0.1)) is None


def test_the_way_back_from_an_answer_is_an_ordinary_flip() -> None:
    work = picture(load(JUDGE, 1000, starved_s=5.0))
    assert flip(work, held(GENERATOR, open_s=0.3, load_s=PAID)) == ((JUDGE,), "drained")


def test_at_an_ordinary_flip_somebody_online_comes_first() -> None:
    work = picture(load(JUDGE, 1000), load(3, 1, online_s=0.1))
    assert flip(work, held(GENERATOR)) == ((3,), "drained")
    assert flip(work, None) == ((3,), "first")


def test_of_several_that_press_online_comes_first_and_then_the_longest_wait() -> None:
    opened = held(JUDGE, open_s=1e4, load_s=PAID)
    starving = [load(model, 9, starved_s=seconds) for model, seconds in ((3, 1000.0), (4, 2000.0), (5, 1.0))]
    assert flip(picture(load(JUDGE), *starving), opened) == ((4,), "aged")
    assert flip(picture(load(JUDGE), *starving, load(6, online_s=11.0)), opened) == ((6,), "online")
    assert flip(picture(load(JUDGE), starving[2], load(6)), opened) == ((5,), "bounded")


def test_whoever_starves_comes_first_at_an_ordinary_flip() -> None:
    work = picture(load(3, 50, Lane.JUDGE), load(GENERATOR, starved_s=901.0))
    assert flip(work, held(JUDGE, open_s=WORTH, load_s=PAID)) == ((GENERATOR,), "drained")


def test_an_operator_is_not_pressed() -> None:
    target = decide(busy(starved_s=1e6, online_s=1e6), held(), groups=[], rules=RULES, drained=True)
    assert target is None


FLIP, CALL = 8.0, 1.0
"""Seconds of a flip to the generator, and of its calls."""


def tail(calls: int = 3, *, idle_s: float = 0.0, lull_s: float = 0.0, **fields: float | None) -> str | None:
    waits = {"call_s": CALL, "load_s": FLIP, **fields}
    work = replace(picture(load(GENERATOR, calls, **waits)), lull_s=lull_s)  # type: ignore[arg-type]
    found = flip(work, held(JUDGE, open_s=1e4, idle_s=idle_s, load_s=PAID))
    return found and found[1]


def test_for_less_work_than_a_flip_costs_more_is_waited_for() -> None:
    assert tail(7) is None
    assert tail(8) == "drained"
    assert tail(7, idle_s=FLIP - 0.1) is None
    assert tail(7, idle_s=FLIP) == "drained"


def test_only_in_a_stream_of_jobs_is_waited_for_more() -> None:
    assert tail(lull_s=FLIP - 0.1) is None
    assert tail(lull_s=FLIP) == "drained"
    assert tail(lull_s=inf) == "drained"


@pytest.mark.parametrize("figure", ["call_s", "load_s"])
def test_nothing_is_waited_for_without_figures(figure: str) -> None:
    assert tail(**{figure: None}) == "drained"


def test_nothing_is_waited_for_while_somebody_waits() -> None:
    assert tail(online_s=0.0) == "drained"
    assert tail(starved_s=901.0) == "drained"
    assert tail(starved_s=1.0) == "drained"  # the residency is older than its bound


def test_a_stalled_retriever_is_waited_for_once() -> None:
    work = picture(load(GENERATOR, call_s=CALL, load_s=FLIP), cpu_calls=1, cpu_idle_s=31.0)
    assert flip(replace(work, lull_s=0.0), held(JUDGE)) == ((GENERATOR,), "cpu_stalled")


def test_a_device_that_holds_nothing_waits_for_nothing() -> None:
    work = replace(picture(load(GENERATOR, call_s=CALL, load_s=FLIP)), lull_s=0.0)
    assert flip(work, None) == ((GENERATOR,), "first")
    assert flip(work, held()) == ((GENERATOR,), "released")


def test_what_stands_idle_is_an_open_model_without_work_that_others_wait_beside() -> None:
    waiting = picture(load(GENERATOR))
    assert stands_idle(waiting, held(JUDGE))
    assert not stands_idle(picture(), held(JUDGE))
    assert not stands_idle(picture(load(JUDGE), load(GENERATOR)), held(JUDGE))
    assert not stands_idle(picture(load(GENERATOR), ready=True), held(JUDGE))
    assert not stands_idle(picture(load(GENERATOR), cpu_calls=1), held(JUDGE))
    assert not any(stands_idle(waiting, device) for device in (None, held(), held(JUDGE, state="draining")))


def test_a_decision_says_what_it_was_made_of() -> None:
    work = busy(starved_s=901.5, load_s=8.0)
    target = decided_within(work, held(JUDGE, open_s=300.25, load_s=PAID))
    assert target is not None
    assert target.plan == {
        "why": "one model at a time",
        "predicted_mib": 96,
        "calls": {"1": 1000, "2": 1},
        "flip_s": 8.0,
        "open_s": 300.25,
        "starved_s": 901.5,
    }


def test_a_group_brings_all_its_models_and_its_slots() -> None:
    loads = (load(JUDGE, 5), load(GENERATOR, 3), load(3, 1))
    both = group_by_footprint(loads, 192)[0]
    target = decide(picture(*loads), None, groups=[replace(both, parallel={GENERATOR: 4})], rules=RULES)
    assert target is not None
    assert (target.models, target.parallel) == ((JUDGE, GENERATOR), {GENERATOR: 4})
    assert (target.plan["predicted_mib"], target.plan["why"]) == (192, "declared footprints within 192 MiB")


def test_a_model_that_no_group_knows_is_resident_alone() -> None:
    assert flip(picture(load(9)), None) == ((9,), "first")
    assert decide(picture(load(9)), None, groups=[], rules=RULES) is not None


# The policy on a device in virtual time: nobody waits beyond the bounds, flips are few, and everything ends.

BOUNDLESS = FlipRules()
BOUNDED = FlipRules(max_wait_s=60.0, max_residency_s=120.0, online_patience_s=10.0)

ask = st.lists(st.sampled_from([JUDGE, GENERATOR]), min_size=1, max_size=4)
asks = st.lists(st.sampled_from([JUDGE, GENERATOR, 3, 4]), min_size=1, max_size=5)
moments = st.integers(0, 300).map(float)
slow = st.fixed_dictionaries({model: st.sampled_from([0.5, 2.0, 6.0]) for model in (JUDGE, GENERATOR, 3, 4)})


def jobs(sample: st.SearchStrategy[list[int]], *, online: bool = False) -> st.SearchStrategy[list[Work]]:
    samples = st.lists(sample, min_size=1, max_size=1 if online else 4)
    return st.lists(st.builds(Work, at=moments, samples=samples, online=st.just(online)), min_size=1, max_size=5)


def stream(models: list[int], every_s: float, count: int, samples: int = 1) -> list[Work]:
    return [Work(at=n * every_s, samples=[models] * samples) for n in range(count)]


def starvation_s(load_s: dict[int, float], rules: FlipRules, others: int, call_s: float = 1.0) -> float:
    """The longest that a job may starve: the bound, and for every other model its least residency, a flip, and the call
    that is under way."""
    longest = max(load_s.values())
    return rules.max_wait_s + others * (max(MIN_OPEN_S, AMORTISED * longest) + longest + call_s + LOOK_S)


@given(work=jobs(asks), asked=jobs(asks, online=True), load_s=slow, measured=st.booleans())
def test_with_any_number_of_models_every_call_is_served_in_the_end(
    work: list[Work], asked: list[Work], load_s: dict[int, float], *, measured: bool
) -> None:
    for rules in (BOUNDLESS, BOUNDED, FlipRules(max_wait_s=0.1, max_residency_s=0.1, online_patience_s=0.0)):
        device = TimedDevice(work + asked, rules, load_s, measured=measured).run()
        assert len(device.served) == sum(len(sample) for job in work + asked for sample in job.samples)


@given(work=jobs(asks), load_s=slow)
def test_no_job_starves_beyond_the_bound(work: list[Work], load_s: dict[int, float]) -> None:
    endless = stream([JUDGE], every_s=1.0, count=400)
    device = TimedDevice(work + endless, BOUNDED, load_s).run()
    assert max(device.starved.values(), default=0.0) <= starvation_s(load_s, BOUNDED, others=3)


def test_without_bounds_a_stream_of_judge_work_starves_the_generator() -> None:
    endless = stream([JUDGE], every_s=1.0, count=600)
    waiting = Work(at=5.0, samples=[[GENERATOR]])
    load_s = {JUDGE: 2.0, GENERATOR: 6.0}
    assert TimedDevice([*endless, waiting], BOUNDLESS, load_s).run().starved[600] > 550
    bounded = TimedDevice([*endless, waiting], BOUNDED, load_s).run()
    assert bounded.starved[600] <= starvation_s(load_s, BOUNDED, others=1)
    assert [flip.cause for flip in bounded.flips] == ["first", "aged", "drained"]


def test_a_residency_that_is_old_gives_way_at_once() -> None:
    endless = stream([JUDGE], every_s=1.0, count=600)
    waiting = Work(at=300.0, samples=[[GENERATOR]])
    device = TimedDevice([*endless, waiting], BOUNDED, {JUDGE: 2.0, GENERATOR: 6.0}).run()
    assert [flip.cause for flip in device.flips] == ["first", "bounded", "drained"]
    assert device.starved.get(600, 0.0) <= 2.0


@given(load_s=slow, every_s=st.sampled_from([0.5, 1.0, 2.0]), tight=st.sampled_from([0.1, 5.0, 60.0]))
def test_where_both_sides_always_have_work_flips_take_little_of_the_time(
    load_s: dict[int, float], every_s: float, tight: float
) -> None:
    both = stream([JUDGE], every_s, count=60) + stream([GENERATOR], every_s, count=60)
    rules = FlipRules(max_wait_s=tight, max_residency_s=tight)
    device = TimedDevice(both, rules, load_s).run()
    for before, flip in pairwise(device.flips):
        if flip.cause in ("aged", "bounded"):
            assert flip.before_open_s >= max(MIN_OPEN_S, AMORTISED * before.took_s)


@given(samples=st.lists(ask, min_size=1, max_size=8), load_s=slow)
def test_bounds_cost_a_job_that_is_alone_nothing(samples: list[list[int]], load_s: dict[int, float]) -> None:
    alone = [Work(at=0.0, samples=samples * 8)]
    tight = FlipRules(max_wait_s=0.1, max_residency_s=0.1, online_patience_s=0.0)
    bounded, boundless = (TimedDevice(alone, rules, load_s).run() for rules in (tight, BOUNDLESS))
    assert [flip.models for flip in bounded.flips] == [flip.models for flip in boundless.flips]
    assert bounded.idle_s == 0.0


@given(work=jobs(ask), asked=st.builds(Work, at=moments, samples=st.tuples(ask), online=st.just(True)), load_s=slow)
@example(
    work=[Work(at=0.0, samples=[[JUDGE]] * 200)],
    asked=Work(at=20.0, samples=[[GENERATOR]], online=True),
    load_s={JUDGE: 2.0, GENERATOR: 6.0, 3: 2.0, 4: 2.0},
)
def test_somebody_online_is_served_within_his_patience_one_flip_and_one_call(
    work: list[Work], asked: Work, load_s: dict[int, float]
) -> None:
    device = TimedDevice([*work, asked], BOUNDED, load_s).run()
    longest = max(load_s.values())
    patience = max(BOUNDED.online_patience_s, 2 * longest)
    assert max(wait for wait, online in device.served if online) <= patience + longest + 1.0 + LOOK_S


def test_an_answer_costs_the_batch_two_loads() -> None:
    work = [Work(at=0.0, samples=[[JUDGE]] * 100), Work(at=20.0, samples=[[GENERATOR]], online=True)]
    device = TimedDevice(work, BOUNDED, {JUDGE: 2.0, GENERATOR: 6.0}).run()
    assert [(flip.models, flip.cause) for flip in device.flips] == [
        ((JUDGE,), "first"),
        ((GENERATOR,), "online"),
        ((JUDGE,), "drained"),
    ]


# The pipelines of the reference's table, as sequences of models.


def papers(_: random.Random) -> list[int]:
    return [JUDGE, GENERATOR]


def corrective(chance: random.Random) -> list[int]:
    return [JUDGE, GENERATOR] + ([JUDGE, GENERATOR] if chance.random() < 0.3 else [])


def reflective(chance: random.Random) -> list[int]:
    rounds = 1
    while rounds < 6 and chance.random() < 0.5:
        rounds += 1
    return [JUDGE, *[GENERATOR, JUDGE] * rounds]


@pytest.mark.parametrize(("pipeline", "loads"), [(papers, 2), (corrective, 4), (reflective, 13)])
def test_loads_follow_the_rounds_of_a_pipeline_not_its_samples(pipeline: object, loads: int) -> None:
    chance = random.Random(7)  # noqa: S311 - reproducible, not secret
    samples = [pipeline(chance) for _ in range(100)]  # type: ignore[operator]
    device = TimedDevice([Work(at=0.0, samples=samples)], BOUNDED, {JUDGE: 2.0, GENERATOR: 6.0}).run()
    alternations = max(sum(a != b for a, b in pairwise(sample)) for sample in samples)
    assert len(device.flips) == loads == 1 + alternations


def test_sixteen_merged_jobs_take_the_loads_of_one() -> None:
    chance = random.Random(7)  # noqa: S311
    alike = [Work(at=0.0, samples=[reflective(chance) for _ in range(20)]) for _ in range(16)]
    load_s = {JUDGE: 2.0, GENERATOR: 6.0}
    merged = len(TimedDevice(alike, BOUNDLESS, load_s).run().flips)
    apart = sum(len(TimedDevice([job], BOUNDLESS, load_s).run().flips) for job in alike)
    assert merged == 13
    assert apart > 10 * merged


# The tail rule against somebody who knows what will come: all that he could do is tried, in whole units of time.

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
