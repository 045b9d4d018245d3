"""What may not wait for the drain: tables of pictures around each bound of the policy."""

from math import inf

import pytest
from msgspec.structs import replace

from shared.calls import Lane
from shared.lease.policy import (
    AMORTISED,
    MIN_OPEN_S,
    DeviceResidency,
    FlipRules,
    Target,
    WorkloadSnapshot,
    decide,
    group_by_footprint,
    group_singly,
    stands_idle,
)
from tests.unit.workloads import GENERATOR, JUDGE, held, load, picture

RULES = FlipRules(patience_s=30.0, max_residency_s=1800.0, max_wait_s=900.0, online_patience_s=10.0)
PAID = 20.0
"""Seconds that the resident's flip took."""
WORTH = AMORTISED * PAID


def decided(work: WorkloadSnapshot, device: DeviceResidency | None, **rules: float) -> Target | None:
    return decide(work, device, groups=group_singly(work.loads), rules=replace(RULES, **rules))


def flip(work: WorkloadSnapshot, device: DeviceResidency | None, **rules: float) -> tuple[tuple[int, ...], str] | None:
    target = decided(work, device, **rules)
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
    target = decided(work, held(JUDGE, open_s=300.25, load_s=PAID))
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
