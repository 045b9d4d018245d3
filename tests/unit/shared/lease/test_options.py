"""Options: what each way is called, what it needs in words where it is refused, and what is tried at all."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shared.calls import Lane
from shared.lease import plan as plan_module
from shared.lease.memory import Estimate, MemoryEstimate
from shared.lease.plan import Demand, Option, RetrievalDemand, Room, list_assignments, list_options, plan

JUDGE, GENERATOR, REWRITER = 1, 2, 3
NAMES = {JUDGE: "judge", GENERATOR: "generator", REWRITER: "rewriter"}


def seconds(value: float) -> Estimate:
    return Estimate(value=value, source="measured", detail="test")


def demand(model_id: int, fixed: float = 1000, per_slot: float = 100, parallel: int = 8, **more: Any) -> Demand:
    given: dict[str, Any] = {"calls": 100, "call_s": seconds(0.1), "load_s": seconds(10)}
    return Demand(
        model_id=model_id,
        name=NAMES[model_id],
        lane=Lane.JUDGE if model_id == JUDGE else Lane.GENERATE,
        memory=MemoryEstimate(fixed_mib=fixed, per_slot_mib=per_slot, source="learned"),
        parallel=parallel,
        context=2048,
        **(given | more),
    )


def room(budget: int, *resident: int, device: str = "gpu:0") -> Room:
    return Room(device=device, budget_mib=budget, resident=resident)


def found(
    demands: Sequence[Demand], *rooms: Room, order: Sequence[int] = (), retrieval: RetrievalDemand | None = None
) -> dict[str, Option]:
    needed = order or [each.model_id for each in demands]
    made = sorted(list_options(demands, rooms, needed, retrieval), key=lambda option: option.rank, reverse=True)
    return {option.name: option for option in made}


TWO = (demand(JUDGE), demand(GENERATOR, fixed=4000))
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
