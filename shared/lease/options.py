"""Every way to hold models on devices, with what it needs and what it costs. Pure.

On one device: all models are resident together, or each by itself, one after the other, with as many slots as are
configured or, where these do not fit, with the halvings that cost least. With several devices every assignment that
respects the pins is tried; they work at the same time, so the slowest one's time counts.

    cost = loads * (unload + verify + load) + calls * seconds of a call with these slots
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import msgspec

from shared.lease.demand import Demand, Retrieval, Room
from shared.lease.estimates import Estimate

MOST_CHOICES = 4096
"""More assignments are refused; of more halvings than that only one slot each is tried."""


class PlannedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a residency."""

    model_id: int
    name: str
    parallel: int
    context: int
    memory_mib: int = msgspec.field(name="predicted_mib")
    basis: str
    """Of the memory: learned, declared, estimated or unknown."""
    calls: int
    call_s: Estimate
    load_s: Estimate


class PlannedResidency(msgspec.Struct, frozen=True, kw_only=True):
    """One residency of a plan."""

    device: str
    models: tuple[PlannedModel, ...]
    retrieval_mib: int
    """Of searches on the same device; 0 where they run on the CPU."""
    memory_mib: int = msgspec.field(name="predicted_mib")
    budget_mib: int
    resident: bool
    """It is there already: nothing is loaded, and what it really takes is known to fit."""
    load_s: float
    service_s: float
    """Of the calls that it answers; where a group comes again, they count the first time."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way to do it."""

    name: str
    residencies: tuple[PlannedResidency, ...]
    """In order of loading; those of several devices at the same time."""
    loads: int
    flips: int
    """Residencies that replace another one."""
    seconds: float
    basis: str
    """Of the times: measured, assumed, or mixed."""
    refused: str | None
    """Why it is not possible; null: it is."""

    @property
    def rank(self) -> tuple[bool, float, int, int, int]:
        """What fits before what does not, then cost, loads, flips, memory."""
        return self.refused is not None, round(self.seconds, 6), self.loads, self.flips, self.peak_mib

    @property
    def peak_mib(self) -> int:
        """Most that is held at once, on all devices."""
        most: dict[str, int] = {}
        for residency in self.residencies:
            most[residency.device] = max(most.get(residency.device, 0), residency.memory_mib)
        return sum(most.values())


Slots = dict[int, int]
Grouped = tuple[tuple[Demand, ...], ...]


def options(
    demands: Sequence[Demand], rooms: Sequence[Room], order: Sequence[int], retrieval: Retrieval | None
) -> Iterator[Option]:
    """All of them, refused ones included; `order`: models as they are needed, again where they are needed again."""
    for on_gpu in (True, False) if retrieval else (False,):
        searches = retrieval if on_gpu else None
        suffix = f", retrieval on the {'GPU' if on_gpu else 'CPU'}" if retrieval else ""
        beside = 0.0 if on_gpu or retrieval is None else retrieval.calls * retrieval.cpu_s.value
        for assigned in assignments(demands, rooms):
            for found in _assigned(assigned, order, searches):
                yield msgspec.structs.replace(found, name=found.name + suffix, seconds=found.seconds + beside)


def assignments(demands: Sequence[Demand], rooms: Sequence[Room]) -> Iterator[list[tuple[Room, list[Demand]]]]:
    """Who is where: every choice of the devices that models are not pinned to.

    Raises:
        ValueError: a model is pinned to a device that is not there, or there are too many choices.
    """
    choices = [[room for room in rooms if demand.device in (None, room.device)] for demand in demands]
    if not all(choices) or prod(map(len, choices)) > MOST_CHOICES:
        raise ValueError("a model is pinned to no device that is there, or there are too many models and devices")
    for chosen in product(*choices):
        placed = [(room, [d for d, where in zip(demands, chosen, strict=True) if where is room]) for room in rooms]
        yield [(room, there) for room, there in placed if there]


def _assigned(
    assigned: list[tuple[Room, list[Demand]]], order: Sequence[int], retrieval: Retrieval | None
) -> Iterator[Option]:
    """On one device each way, on several the best of each."""
    first = next((model for model in order), None)
    each = [
        list(_on_one(room, there, order, retrieval if any(d.model_id == first for d in there) else None))
        for room, there in assigned
    ]
    if len(each) == 1:
        yield from each[0]
        return
    best = [min(found, key=lambda option: option.rank) for found in each]
    yield Option(
        name="on several devices: " + "; ".join(f"{_names(there)} on {room.device}" for room, there in assigned),
        residencies=tuple(residency for option in best for residency in option.residencies),
        loads=sum(option.loads for option in best),
        flips=sum(option.flips for option in best),
        seconds=max((option.seconds for option in best), default=0.0),
        basis=_basis([option.basis for option in best]),
        refused=next((option.refused for option in best if option.refused), None),
    )


def _on_one(room: Room, there: Sequence[Demand], order: Sequence[int], retrieval: Retrieval | None) -> Iterator[Option]:
    needed = [model for model in order if any(demand.model_id == model for demand in there)]
    ordered = sorted(
        there, key=lambda demand: needed.index(demand.model_id) if demand.model_id in needed else len(needed)
    )
    together, staged = (tuple(ordered),), tuple((demand,) for demand in ordered)
    for groups in (together, staged) if len(ordered) > 1 else (staged,):
        full = _made(room, groups, {d.model_id: d.parallel for d in there}, needed, retrieval)
        yield full
        if full.refused and any(demand.parallel > 1 for demand in there):
            yield _made(room, groups, _fewer(room, groups, retrieval), needed, retrieval)


def _fewer(room: Room, groups: Grouped, retrieval: Retrieval | None) -> Slots:
    """The slots of each group that cost least of those that fit; where none do, one each."""
    slots: Slots = {}
    for index, group in enumerate(groups):
        budget = room.budget_mib - (retrieval.mib if retrieval and index == 0 else 0)
        slots |= _cheapest(group, _fitting(group, budget))
    return slots


def _cheapest(group: Sequence[Demand], tried: Sequence[Slots]) -> Slots:
    return min(tried, key=lambda some: (_service_s(group, some), -sum(some.values())))


def _fitting(group: Sequence[Demand], budget_mib: int) -> list[Slots]:
    halvings = [demand.halvings() for demand in group]
    every = product(*halvings) if prod(map(len, halvings)) <= MOST_CHOICES else ()
    tried = [{demand.model_id: n for demand, n in zip(group, slots, strict=True)} for slots in every]
    fitting = [some for some in tried if _memory(group, some) <= budget_mib]
    return fitting or [{demand.model_id: 1 for demand in group}]


def _made(room: Room, groups: Grouped, slots: Slots, needed: Sequence[int], retrieval: Retrieval | None) -> Option:
    """The residencies as they follow each other, and what they cost."""
    by_model = {demand.model_id: group for group in groups for demand in group}
    held, waiting = frozenset(room.resident), set(by_model)
    residencies: list[PlannedResidency] = []
    for model in needed:
        here = not residencies and model in held
        if here or model not in held:
            group = tuple(d for d in _all(groups) if d.model_id in held) if here else by_model[model]
            searches = retrieval if not residencies else None
            residencies.append(_residency(room, group, slots, waiting, searches, resident=here))
            held = held if here else frozenset(demand.model_id for demand in group)
            waiting -= held
    return _option(room, groups, slots, residencies)


def _residency(
    room: Room, group: Sequence[Demand], slots: Slots, waiting: set[int], retrieval: Retrieval | None, *, resident: bool
) -> PlannedResidency:
    searches_s = retrieval.calls * retrieval.gpu_s.value if retrieval else 0.0
    mib = retrieval.mib if retrieval else 0
    return PlannedResidency(
        device=room.device,
        models=tuple(_planned(demand, slots[demand.model_id]) for demand in group),
        retrieval_mib=mib,
        memory_mib=_memory(group, slots) + mib,
        budget_mib=room.budget_mib,
        resident=resident,
        load_s=0.0 if resident else sum(demand.load_s.value for demand in group),
        service_s=_service_s([demand for demand in group if demand.model_id in waiting], slots) + searches_s,
    )


def _option(room: Room, groups: Grouped, slots: Slots, residencies: Sequence[PlannedResidency]) -> Option:
    fewer = any(slots[demand.model_id] < demand.parallel for demand in _all(groups))
    loads = sum(len(residency.models) for residency in residencies if not residency.resident)
    opened = sum(not residency.resident for residency in residencies)
    times = [time for demand in _all(groups) for time in (demand.load_s, demand.call_s)]
    return Option(
        name=_kind(groups) + (", fewer slots" if fewer else ""),
        residencies=tuple(residencies),
        loads=loads,
        flips=opened if room.resident else max(0, opened - 1),
        seconds=sum(residency.load_s + residency.service_s for residency in residencies),
        basis=_basis([time.source for time in times]),
        refused=next((said for residency in residencies if (said := _too_large(residency))), None),
    )


def _planned(demand: Demand, parallel: int) -> PlannedModel:
    return PlannedModel(
        model_id=demand.model_id,
        name=demand.name,
        parallel=parallel,
        context=demand.context,
        memory_mib=demand.memory.at(parallel),
        basis=demand.memory.basis,
        calls=demand.calls,
        call_s=demand.call_s,
        load_s=demand.load_s,
    )


def _too_large(residency: PlannedResidency) -> str | None:
    if residency.resident or residency.memory_mib <= residency.budget_mib:
        return None
    parts = [f"{each.name} {each.memory_mib} with slots: {each.parallel}" for each in residency.models]
    parts += [f"retrieval {residency.retrieval_mib}"] if residency.retrieval_mib else []
    return f"{residency.memory_mib} MiB ({', '.join(parts)}) of {residency.budget_mib} on {residency.device}"


def _kind(groups: Grouped) -> str:
    if len(_all(groups)) == 1:
        return "alone"
    return "together" if len(groups) == 1 else "staged"


def _names(demands: Sequence[Demand]) -> str:
    return " and ".join(demand.name for demand in demands)


def _all(groups: Grouped) -> list[Demand]:
    return [demand for group in groups for demand in group]


def _memory(group: Sequence[Demand], slots: Slots) -> int:
    return sum(demand.memory.at(slots[demand.model_id]) for demand in group)


def _service_s(group: Sequence[Demand], slots: Slots) -> float:
    return sum(demand.service_s(slots[demand.model_id]) for demand in group)


def _basis(found: Sequence[str]) -> str:
    return found[0] if len(set(found)) == 1 else "mixed"
