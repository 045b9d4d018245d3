from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.calls import Lane
from shared.lease import plan as plan_module
from shared.lease.memory import Estimate, MemoryEstimate
from shared.lease.plan import Demand, Option, Plan, RetrievalDemand, Room, list_assignments, list_options, plan
from shared.lease.policy import ModelGroup

# The plan: tables of what is chosen and why, and all ways by brute force for small cases.


JUDGE, GENERATOR, REWRITER = 1, 2, 3
NAMES = {JUDGE: "judge", GENERATOR: "generator", REWRITER: "rewriter"}


def seconds(value: float, source: Any = "measured") -> Estimate:
    return Estimate(value=value, source=source, detail="test")


def demand(
    model_id: int, fixed: float = 1000, per_slot: float = 100, parallel: int = 8, calls: int = 100, call_s: float = 0.1,
    load_s: float = 10, **more: Any,
) -> Demand:  # fmt: skip
    return Demand(
        model_id=model_id,
        name=NAMES.get(model_id, f"model-{model_id}"),
        lane=Lane.JUDGE if model_id == JUDGE else Lane.GENERATE,
        memory=MemoryEstimate(fixed_mib=fixed, per_slot_mib=per_slot, source="learned"),
        parallel=parallel,
        context=2048,
        calls=calls,
        call_s=seconds(call_s),
        load_s=seconds(load_s),
        **more,
    )


def room(budget: int, *resident: int, device: str = "gpu:0") -> Room:
    return Room(device=device, budget_mib=budget, resident=resident)


TWO = (demand(JUDGE), demand(GENERATOR, fixed=4000))
"""1,800 and 4,800 MiB with all slots, 1,100 and 4,100 with one."""


def chosen(found: Plan) -> tuple[str, int, int, float]:
    assert found.chosen is not None, found.why
    return found.chosen.name, found.chosen.loads, found.chosen.flips, round(found.chosen.seconds, 3)


def test_what_fits_together_is_held_together() -> None:
    found = plan(TWO, [room(6600)])
    assert chosen(found) == ("together", 2, 0, 40.0)
    assert found.groups == {"gpu:0": (ModelGroup(parallel={}, models=(1, 2), memory_mib=6600, why=found.why),)}
    assert [other.name for other in found.others] == ["staged"]


def test_what_does_not_fit_together_is_staged() -> None:
    found = plan(TWO, [room(5000)])
    assert chosen(found) == ("staged", 2, 1, 40.0)
    assert [group.models for group in found.groups["gpu:0"]] == [(JUDGE,), (GENERATOR,)]
    refused = {other.name: other.refused for other in found.others}
    assert refused["together"] == ("6600 MiB (judge 1800 with slots: 8, generator 4800 with slots: 8) of 5000 on gpu:0")
    assert refused["together, fewer slots"] == (
        "5200 MiB (judge 1100 with slots: 1, generator 4100 with slots: 1) of 5000 on gpu:0"
    )


def test_few_calls_take_fewer_slots_rather_than_a_flip() -> None:
    few = [demand(JUDGE, calls=10), demand(GENERATOR, fixed=4000, calls=10)]
    found = plan(few, [room(6000)], order=(JUDGE, GENERATOR, JUDGE, GENERATOR))
    assert chosen(found) == ("together, fewer slots", 2, 0, 24.0)
    (group,) = found.groups["gpu:0"]
    assert sum(group.parallel.values()) == 8
    assert group.memory_mib <= 6000


def test_many_calls_take_flips_rather_than_fewer_slots() -> None:
    many = [demand(JUDGE, calls=10_000), demand(GENERATOR, fixed=4000, calls=10_000)]
    found = plan(many, [room(6000)], order=(JUDGE, GENERATOR, JUDGE, GENERATOR))
    assert chosen(found) == ("staged", 4, 3, 2040.0)


def test_on_a_cpu_fewer_slots_cost_nothing() -> None:
    both = [replace(each, shared=False, calls=10_000) for each in TWO]
    found = plan(both, [room(6000, device="cpu:0")], order=(JUDGE, GENERATOR, JUDGE, GENERATOR))
    assert chosen(found)[0] == "together, fewer slots"


def test_what_is_resident_is_not_loaded() -> None:
    assert chosen(plan(TWO, [room(6600, JUDGE, GENERATOR)])) == ("together", 0, 0, 20.0)
    found = plan(TWO, [room(6600, JUDGE)])
    assert chosen(found) == ("staged", 1, 1, 30.0)
    assert found.chosen is not None
    assert [(residency.resident, residency.load_s) for residency in found.chosen.residencies] == [
        (True, 0.0),
        (False, 10.0),
    ]


def test_what_is_resident_keeps_its_slots_though_its_estimate_exceeds_the_budget() -> None:
    found = plan(TWO, [room(4500, JUDGE)], order=(JUDGE, GENERATOR))
    assert found.groups["gpu:0"][1].parallel == {GENERATOR: 4}
    wide = [demand(JUDGE, fixed=4000), TWO[1]]
    (first, second) = plan(wide, [room(4500, JUDGE)], order=(JUDGE, GENERATOR)).groups["gpu:0"]
    assert (first.parallel, second.parallel) == ({}, {GENERATOR: 4})


def test_a_stranger_that_is_resident_makes_a_flip() -> None:
    assert chosen(plan([demand(JUDGE)], [room(5000, 99)])) == ("alone", 1, 1, 20.0)


def test_two_devices_hold_a_model_each() -> None:
    found = plan(TWO, [room(5000), room(5000, device="gpu:1")])
    assert found.chosen is not None
    assert (found.chosen.loads, found.chosen.flips, found.chosen.seconds) == (2, 0, 20.0)
    assert {device: group.models for device, (group,) in found.groups.items()} in (
        {"gpu:0": (JUDGE,), "gpu:1": (GENERATOR,)},
        {"gpu:0": (GENERATOR,), "gpu:1": (JUDGE,)},
    )


def test_a_pinned_model_stays_where_it_is() -> None:
    pinned = [replace(TWO[0], device="gpu:1"), replace(TWO[1], device="gpu:1")]
    found = plan(pinned, [room(9000), room(5000, device="gpu:1")])
    assert chosen(found)[0] == "staged"
    assert list(found.groups) == ["gpu:1"]
    with pytest.raises(ValueError, match="pinned to an unknown device"):
        plan([replace(TWO[0], device="gpu:7")], [room(9000)])


SEARCHES = RetrievalDemand(mib=2300, calls=100, gpu_s=seconds(0.01), cpu_s=seconds(0.05))


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (9000, ("together, retrieval on the GPU", 2, 0, 41.0)),
        (8000, ("staged, retrieval on the GPU", 2, 1, 41.0)),
        (4800, ("staged, retrieval on the GPU", 2, 1, 41.0)),
    ],
)
def test_retrieval_is_where_it_costs_least(budget: int, expected: tuple[str, int, int, float]) -> None:
    assert chosen(plan(TWO, [room(budget)], retrieval=SEARCHES)) == expected


def test_retrieval_gives_way_to_models() -> None:
    single = [demand(JUDGE, fixed=4000)]
    found = plan(single, [room(5000)], retrieval=SEARCHES)
    assert chosen(found) == ("alone, retrieval on the CPU", 1, 0, 25.0)
    refused = {other.name: other.refused for other in found.others}
    assert refused["alone, fewer slots, retrieval on the GPU"] == (
        "6400 MiB (judge 4100 with slots: 1, retrieval 2300) of 5000 on gpu:0"
    )
    again = (JUDGE, GENERATOR, JUDGE, GENERATOR)
    assert chosen(plan(TWO, [room(7000)], order=again, retrieval=SEARCHES))[0] == "together, retrieval on the CPU"


def test_a_model_that_fits_nowhere_is_named_with_the_fix() -> None:
    cache = plan([demand(JUDGE, fixed=1000, per_slot=100, parallel=1)], [room(1050)])
    assert (cache.chosen, cache.groups) == (None, {})
    assert cache.why == (
        "judge fits nowhere: alone, with one slot of 2048 tokens, it needs 1100 MiB of 1050;"
        " a `context` of 1024 or less, or a `device.budget_mib` of 1100"
    )
    weights = plan([demand(JUDGE, fixed=2000)], [room(1050)])
    assert weights.why.endswith("a smaller quantisation, or a `device.budget_mib` of 2100")


def test_devices_that_are_too_few_for_the_pins_are_said() -> None:
    pinned = [demand(JUDGE, fixed=900, device="gpu:0"), demand(GENERATOR, fixed=900, device="gpu:1")]
    found = plan(pinned, [room(2000), room(950, device="gpu:1")])
    assert found.why.startswith("generator fits nowhere")


def test_nothing_wanted_is_no_plan() -> None:
    assert plan([], [room(1000)]) == Plan(chosen=None, why="no model is wanted", others=(), groups={})


def test_times_say_how_they_are_known() -> None:
    assumed = replace(TWO[1], call_s=seconds(0.1, "assumed"))
    for demands, basis in ((TWO, "measured"), ((TWO[0], assumed), "mixed")):
        found = plan(demands, [room(9000)])
        assert found.chosen is not None
        assert found.chosen.basis == basis
        assert found.chosen.residencies[0].models[1].call_s == demands[1].call_s


def test_too_many_choices_are_refused() -> None:
    rooms = [room(9000, device=f"gpu:{n}") for n in range(8)]
    with pytest.raises(ValueError, match="too many"):
        plan([demand(n) for n in range(1, 6)], rooms)


small = st.builds(
    demand,
    st.just(0),
    fixed=st.integers(100, 3000),
    per_slot=st.sampled_from([0, 10, 100, 400]),
    parallel=st.sampled_from([1, 2, 3, 4, 8]),
    calls=st.integers(0, 300),
    call_s=st.sampled_from([0.0, 0.01, 0.5]),
    load_s=st.sampled_from([0.5, 5.0, 60.0]),
    shared=st.booleans(),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Demand], list[Room], tuple[int, ...]]:
    count = draw(st.integers(1, 3))
    demands = [replace(draw(small), model_id=n, name=f"m{n}") for n in range(1, count + 1)]
    ids = st.sampled_from(range(1, count + 1))
    order = (*draw(st.permutations(range(1, count + 1))), *draw(st.lists(ids, max_size=4)))
    budgets = draw(st.lists(st.integers(200, 9000), min_size=1, max_size=2))
    rooms = [
        room(budget, *draw(st.lists(ids, max_size=2, unique=True)), device=f"gpu:{n}")
        for n, budget in enumerate(budgets)
    ]
    return demands, rooms, order


def every_cost(demands: Sequence[Demand], rooms: Sequence[Room], order: Sequence[int]) -> Iterator[float]:
    for where in product(rooms, repeat=len(demands)):
        for slots in product(*(demand.list_halvings() for demand in demands)):
            costs = []
            for each in rooms:
                there = {d.model_id: (d, n) for d, on, n in zip(demands, where, slots, strict=True) if on is each}
                costs.append(list(costs_on(each, there, [model for model in order if model in there])))
            for combined in product(*costs):
                yield max(combined)


def costs_on(device: Room, there: dict[int, tuple[Demand, int]], order: Sequence[int]) -> Iterator[float]:
    for together in (True, False):
        held, cost, fits = set(device.resident), 0.0, True
        for model in order:
            if model not in held:
                group = set(order) if together else {model}
                fits &= sum(there[each][0].memory.at(there[each][1]) for each in group) <= device.budget_mib
                cost += sum(there[each][0].load_s.value for each in group)
                held = group
        if fits:
            yield cost + sum(demand.service_s(n) for demand, n in there.values())


@given(cases())
def test_no_way_that_fits_costs_less(case: tuple[list[Demand], list[Room], tuple[int, ...]]) -> None:
    demands, rooms, order = case
    found, costs = plan(demands, rooms, order=order), list(every_cost(demands, rooms, order))
    if not costs:
        assert found.chosen is None
    else:
        assert found.chosen is not None
        assert found.chosen.seconds == pytest.approx(min(costs))


@given(cases())
def test_no_residency_of_a_plan_exceeds_its_budget(case: tuple[list[Demand], list[Room], tuple[int, ...]]) -> None:
    demands, rooms, order = case
    found = plan(demands, rooms, order=order)
    for residency in found.chosen.residencies if found.chosen else ():
        assert sum(model.memory_mib for model in residency.models) == residency.memory_mib
        assert residency.resident or residency.memory_mib <= residency.budget_mib
    for option in found.others:
        fits = all(
            residency.resident or residency.memory_mib <= residency.budget_mib for residency in option.residencies
        )
        assert (option.refused is None) == fits


@given(cases(), st.integers(1, 5000))
def test_more_budget_never_costs_more(case: tuple[list[Demand], list[Room], tuple[int, ...]], more: int) -> None:
    demands, rooms, order = case
    before = plan(demands, rooms, order=order).chosen
    wider = [replace(each, budget_mib=each.budget_mib + more) for each in rooms]
    after = plan(demands, wider, order=order).chosen
    if before is not None:
        assert after is not None
        assert after.seconds <= before.seconds + 1e-6


@given(cases(), st.randoms())
def test_the_order_in_which_models_are_listed_changes_nothing(
    case: tuple[list[Demand], list[Room], tuple[int, ...]], random: Any
) -> None:
    demands, rooms, order = case
    shuffled = random.sample(demands, len(demands))
    assert plan(shuffled, rooms, order=order) == plan(demands, rooms, order=order)


@given(cases())
def test_every_needed_model_has_a_residency(case: tuple[list[Demand], list[Room], tuple[int, ...]]) -> None:
    demands, rooms, order = case
    found = plan(demands, rooms, order=order)
    if found.chosen is not None:
        grouped = {model for groups in found.groups.values() for group in groups for model in group.models}
        assert grouped == set(order) == {d.model_id for d in demands}


# Options: what each way is called, what it needs in words where it is refused, and what is tried at all.


def found(
    demands: Sequence[Demand], *rooms: Room, order: Sequence[int] = (), retrieval: RetrievalDemand | None = None
) -> dict[str, Option]:
    needed = order or [each.model_id for each in demands]
    made = sorted(list_options(demands, rooms, needed, retrieval), key=lambda option: option.rank, reverse=True)
    return {option.name: option for option in made}


THREE = (*TWO, demand(REWRITER, fixed=500))


@pytest.mark.parametrize(
    ("parallel", "tried"), [(1, [1]), (2, [2, 1]), (6, [6, 3, 1]), (8, [8, 4, 2, 1]), (9, [9, 4, 2, 1])]
)
def test_slots_are_halved_down_to_one(parallel: int, tried: list[int]) -> None:
    assert demand(JUDGE, parallel=parallel).list_halvings() == tried


def test_half_the_slots_take_twice_as_long_where_they_share_the_weights() -> None:
    shared, alone = demand(JUDGE), demand(JUDGE, shared=False)
    assert [shared.service_s(slots) for slots in (8, 4, 1)] == pytest.approx([10, 20, 80])
    assert [alone.service_s(slots) for slots in (8, 4, 1)] == pytest.approx([10, 10, 10])


def test_models_are_held_all_at_once_or_each_by_itself() -> None:
    made = found(THREE, room(20_000))
    held = {name: [len(residency.models) for residency in option.residencies] for name, option in made.items()}
    assert held == {"together": [3], "staged": [1, 1, 1]}
    assert set(found([TWO[0]], room(20_000))) == {"alone"}


def test_what_is_refused_says_what_each_model_takes_and_with_how_many_slots() -> None:
    refused = {name: option.refused for name, option in found(TWO, room(5000)).items()}
    assert refused == {
        "together": ("6600 MiB (judge 1800 with slots: 8, generator 4800 with slots: 8) of 5000 on gpu:0"),
        "together, fewer slots": ("5200 MiB (judge 1100 with slots: 1, generator 4100 with slots: 1) of 5000 on gpu:0"),
        "staged": None,
    }


def test_only_the_groups_that_do_not_fit_get_fewer_slots() -> None:
    option = found(TWO, room(4500))["staged, fewer slots"]
    assert option.refused is None
    assert [model.parallel for residency in option.residencies for model in residency.models] == [8, 4]
    assert option.seconds == pytest.approx(10 + 10 + 10 + 20)


def test_what_fits_with_all_its_slots_is_not_tried_with_fewer() -> None:
    assert not [name for name in found(TWO, room(20_000)) if "fewer slots" in name]


def test_what_is_there_is_not_refused_for_its_size() -> None:
    option = found([demand(JUDGE, fixed=9000)], room(5000, JUDGE))["alone"]
    assert (option.refused, option.loads, option.seconds) == (None, 0, pytest.approx(10))
    assert found([demand(JUDGE, fixed=9000)], room(5000))["alone"].refused is not None


def test_a_model_that_is_needed_again_is_loaded_again() -> None:
    again = found(TWO, room(5000), order=(JUDGE, GENERATOR, JUDGE))["staged"]
    assert (again.loads, again.flips) == (3, 2)
    assert [residency.service_s for residency in again.residencies] == pytest.approx([10, 10, 0])
    assert again.seconds == pytest.approx(50)


def test_what_is_resident_with_what_comes_is_taken_as_it_is() -> None:
    option = found(THREE, room(20_000, JUDGE, REWRITER), order=(JUDGE, GENERATOR, REWRITER))["staged"]
    shown = [
        ([model.name for model in residency.models], residency.resident, residency.load_s)
        for residency in option.residencies
    ]
    assert shown == [(["judge", "rewriter"], True, 0.0), (["generator"], False, 10), (["rewriter"], False, 10)]


def test_searches_take_room_beside_the_first_residency_only() -> None:
    searches = RetrievalDemand(mib=2300, calls=100, gpu_s=seconds(0.01), cpu_s=seconds(0.05))
    made = found(TWO, room(5000), retrieval=searches)
    on_gpu, on_cpu = made["staged, retrieval on the GPU"], made["staged, retrieval on the CPU"]
    assert [(each.retrieval_mib, each.memory_mib) for each in on_gpu.residencies] == [(2300, 4100), (0, 4800)]
    assert on_cpu.seconds - on_gpu.seconds == pytest.approx(5 - 1)
    said = found(TWO, room(4000), retrieval=searches)["staged, retrieval on the GPU"].refused
    assert said == "4100 MiB (judge 1800 with slots: 8, retrieval 2300) of 4000 on gpu:0"


def test_several_devices_work_at_the_same_time_and_the_slowest_counts() -> None:
    both = room(5000), room(5000, device="gpu:1")
    slow = replace(TWO[1], calls=900)
    option = found([TWO[0], slow], *both)["on several devices: judge on gpu:0; generator on gpu:1"]
    assert (option.loads, option.flips, option.seconds) == (2, 0, pytest.approx(100))
    assert option.peak_mib == 1800 + 4800
    assert {each.device for each in option.residencies} == {"gpu:0", "gpu:1"}


def test_with_several_devices_each_has_its_own_best_way() -> None:
    pinned = [replace(each, device="gpu:0") for each in TWO] + [replace(THREE[2], device="gpu:1")]
    (name, option), *more = found(pinned, room(5300), room(2000, device="gpu:1")).items()
    assert (name, more) == ("on several devices: judge and generator on gpu:0; rewriter on gpu:1", [])
    assert option.refused is None
    assert {each.device: len(each.models) for each in option.residencies}["gpu:1"] == 1
    narrow = found(pinned, room(5300), room(550, device="gpu:1"))[name]
    assert narrow.refused == "1300 MiB (rewriter 1300 with slots: 8) of 550 on gpu:1"


def test_a_device_that_nothing_is_put_on_is_not_in_the_plan() -> None:
    rooms = [room(9000, device=f"gpu:{n}") for n in range(3)]
    made = list(list_assignments(TWO, rooms))
    assert len(made) == 3**2
    assert max(len(assigned) for assigned in made) == 2
    assert all(there for assigned in made for _, there in assigned)


def test_a_pin_leaves_no_choice() -> None:
    pinned = [replace(TWO[0], device="gpu:1"), TWO[1]]
    made = list(list_assignments(pinned, [room(9000), room(9000, device="gpu:1")]))
    placed = [{each.name: where.device for where, there in assigned for each in there} for assigned in made]
    assert placed == [{"generator": "gpu:0", "judge": "gpu:1"}, {"judge": "gpu:1", "generator": "gpu:1"}]


def test_of_too_many_halvings_one_slot_each_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "MAX_CHOICES", 3)
    option = found(TWO, room(5400))["together, fewer slots"]
    assert option.refused is None
    assert {model.parallel for model in option.residencies[0].models} == {1}


def test_of_equal_cost_the_fewest_loads_flips_and_mib_win() -> None:
    free = [replace(each, load_s=seconds(0)) for each in TWO]
    best = plan(free, [room(20_000)]).chosen
    assert best is not None
    assert (best.name, best.flips) == ("together", 0)


def test_the_next_best_and_the_refused_ones_stand_beside_the_choice_in_words() -> None:
    made = plan(TWO, [room(5400)])
    assert made.why == "staged: loads 2, flips 1, 40.0 s, the cheapest of 2; next is together, fewer slots with 100.0 s"
    assert [(other.name, other.refused is None) for other in made.others] == [
        ("together, fewer slots", True),
        ("together", False),
    ]
