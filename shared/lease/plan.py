"""Plan how a job's calls share a device: options, their demand, and the cheapest one."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import msgspec

from shared.calls import Lane
from shared.lease.memory import Estimate, MemoryEstimate
from shared.lease.policy import ModelGroup

# The input of a plan: models with their memory, calls and times, and devices with their budgets. Pure.


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted model, with its needs."""

    model_id: int
    name: str
    lane: Lane
    memory: MemoryEstimate
    parallel: int
    """Configured slots: the upper bound of what a plan gives it."""
    context: int
    """Tokens per slot."""
    calls: int
    call_s: Estimate
    """Seconds of the device per call, with all slots busy."""
    load_s: Estimate
    """Seconds from the close of the previous residency to the opening, with unloading and verification."""
    shared: bool = True
    """Whether slots share the reading of the weights, as on a GPU, where half the slots take twice as long. On a CPU
    slots save no work, so fewer cost nothing."""
    device: str | None = None
    """The device that it is pinned to; None if it may be on any."""

    def service_s(self, parallel: int) -> float:
        """Return the seconds of all its calls with `parallel` slots."""
        return self.calls * self.call_s.value * (self.parallel / parallel if self.shared else 1)

    def list_halvings(self) -> list[int]:
        """List the numbers of slots that a plan tries, from the configured one down to 1."""
        return [self.parallel >> n for n in range(self.parallel.bit_length())]


class RetrievalDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Searches, which run on the CPU without a lease, or on the GPU within the memory of the first residency."""

    mib: int
    calls: int
    gpu_s: Estimate
    """Seconds per search on the GPU."""
    cpu_s: Estimate


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A device and its budget."""

    device: str
    budget_mib: int
    resident: tuple[int, ...] = ()
    """Models that it holds now."""


# List the ways to hold models on devices, each with its memory and cost. Pure.
#
# On one device all models are resident together, or one after the other, with the configured slots or, if these do not
# fit, with the halvings that cost least. With several devices every assignment that respects the pins is tried; devices
# work at the same time, so the slowest one's time counts.
#
# cost = loads * (unload + verify + load) + calls * seconds of a call with these slots

MAX_CHOICES = 4096
"""More assignments are refused; if there are more combinations of halvings, only one slot each is tried."""


class PlannedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a residency."""

    model_id: int
    """Number of the model in the database."""
    name: str
    """Name of the model."""
    parallel: int
    """Number of slots."""
    context: int
    """Context length of a slot in tokens."""
    memory_mib: int = msgspec.field(name="predicted_mib")
    """Predicted memory in MiB."""
    basis: str
    """Source of the memory figure: learned, declared, estimated or unknown."""
    calls: int
    """Number of calls that the model answers."""
    call_s: Estimate
    """Seconds of a call."""
    load_s: Estimate
    """Seconds of a load."""


class PlannedResidency(msgspec.Struct, frozen=True, kw_only=True):
    """One residency of a plan."""

    device: str
    """Id of the device."""
    models: tuple[PlannedModel, ...]
    """Models that the device holds at the same time."""
    retrieval_mib: int
    """Memory of searches on the same device; 0 if they run on the CPU."""
    memory_mib: int = msgspec.field(name="predicted_mib")
    """Predicted memory of models and searches in MiB."""
    budget_mib: int
    """Memory budget of the device in MiB."""
    resident: bool
    """Whether the device holds the models already, so that nothing is loaded and the memory is known to suffice."""
    load_s: float
    """Seconds of loading."""
    service_s: float
    """Seconds of the calls that the residency answers. If the same models are loaded several times, only the first
    residency counts them."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One plan: which models the devices hold, and in which order."""

    name: str
    """Name of the plan."""
    residencies: tuple[PlannedResidency, ...]
    """The residencies in order of loading; those of different devices load at the same time."""
    loads: int
    """Number of model loads."""
    flips: int
    """Number of residencies that replace another one."""
    seconds: float
    """Seconds of all loads and calls; with several devices, those of the slowest."""
    basis: str
    """Source of the times: measured, assumed, or mixed."""
    refused: str | None
    """Why the option is impossible; null if it is possible."""

    @property
    def rank(self) -> tuple[bool, float, int, int, int]:
        """Sort key: options that fit before others, then by seconds, loads, flips and memory."""
        return self.refused is not None, round(self.seconds, 6), self.loads, self.flips, self.peak_mib

    @property
    def peak_mib(self) -> int:
        """Largest memory that is held at once, summed over all devices."""
        most: dict[str, int] = {}
        for residency in self.residencies:
            most[residency.device] = max(most.get(residency.device, 0), residency.memory_mib)
        return sum(most.values())


Slots = dict[int, int]
Groups = tuple[tuple[Demand, ...], ...]


def list_options(
    demands: Sequence[Demand], rooms: Sequence[Room], order: Sequence[int], retrieval: RetrievalDemand | None
) -> Iterator[Option]:
    """List all options, including refused ones; `order` lists the models in the order of need, with repetitions."""
    for on_gpu in (True, False) if retrieval else (False,):
        searches = retrieval if on_gpu else None
        suffix = f", retrieval on the {'GPU' if on_gpu else 'CPU'}" if retrieval else ""
        beside = 0.0 if on_gpu or retrieval is None else retrieval.calls * retrieval.cpu_s.value
        for assigned in list_assignments(demands, rooms):
            for found in _list_assigned(assigned, order, searches):
                yield msgspec.structs.replace(found, name=found.name + suffix, seconds=found.seconds + beside)


def list_assignments(demands: Sequence[Demand], rooms: Sequence[Room]) -> Iterator[list[tuple[Room, list[Demand]]]]:
    """List every assignment of models to devices that respects the pins.

    Raises:
        ValueError: a model is pinned to an unknown device, or there are too many assignments.
    """
    choices = [[room for room in rooms if demand.device in (None, room.device)] for demand in demands]
    if not all(choices) or prod(map(len, choices)) > MAX_CHOICES:
        raise ValueError("a model is pinned to an unknown device, or there are too many models and devices")
    for chosen in product(*choices):
        placed = [(room, [d for d, where in zip(demands, chosen, strict=True) if where is room]) for room in rooms]
        yield [(room, there) for room, there in placed if there]


def _list_assigned(
    assigned: list[tuple[Room, list[Demand]]], order: Sequence[int], retrieval: RetrievalDemand | None
) -> Iterator[Option]:
    """List each way on one device; on several devices, combine the best of each."""
    first = next(iter(order), None)
    each = [
        list(_list_on_device(room, there, order, retrieval if any(d.model_id == first for d in there) else None))
        for room, there in assigned
    ]
    if len(each) == 1:
        yield from each[0]
        return
    best = [min(found, key=lambda option: option.rank) for found in each]
    names = (f"{' and '.join(demand.name for demand in there)} on {room.device}" for room, there in assigned)
    yield Option(
        name="on several devices: " + "; ".join(names),
        residencies=tuple(residency for option in best for residency in option.residencies),
        loads=sum(option.loads for option in best),
        flips=sum(option.flips for option in best),
        seconds=max((option.seconds for option in best), default=0.0),
        basis=_combine_basis([option.basis for option in best]),
        refused=next((option.refused for option in best if option.refused), None),
    )


def _list_on_device(
    room: Room, there: Sequence[Demand], order: Sequence[int], retrieval: RetrievalDemand | None
) -> Iterator[Option]:
    needed = [model for model in order if any(demand.model_id == model for demand in there)]
    ordered = sorted(
        there, key=lambda demand: needed.index(demand.model_id) if demand.model_id in needed else len(needed)
    )
    together, staged = (tuple(ordered),), tuple((demand,) for demand in ordered)
    for groups in (together, staged) if len(ordered) > 1 else (staged,):
        full = _build_option(room, groups, {d.model_id: d.parallel for d in there}, needed, retrieval)
        yield full
        if full.refused and any(demand.parallel > 1 for demand in there):
            # A resident model that is not loaded again keeps its slots, even if its estimated memory says otherwise.
            loaded = {model.model_id for each in full.residencies if not each.resident for model in each.models}
            kept = {demand.model_id: demand.parallel for demand in there if demand.model_id not in loaded}
            # Choose the cheapest slots that fit for each group; one each if none fit.
            slots: Slots = {}
            for index, group in enumerate(groups):
                budget = room.budget_mib - (retrieval.mib if retrieval and index == 0 else 0)
                halvings = [demand.list_halvings() for demand in group]
                every = product(*halvings) if prod(map(len, halvings)) <= MAX_CHOICES else ()
                tried = [{demand.model_id: n for demand, n in zip(group, slots, strict=True)} for slots in every]
                fitting = [some for some in tried if _sum_memory(group, some) <= budget]
                cheapest = min(
                    fitting or [{demand.model_id: 1 for demand in group}],
                    key=lambda some: (_sum_service_s(group, some), -sum(some.values())),
                )
                slots |= cheapest
            yield _build_option(room, groups, slots | kept, needed, retrieval)


def _build_option(
    room: Room, groups: Groups, slots: Slots, needed: Sequence[int], retrieval: RetrievalDemand | None
) -> Option:
    """Build the sequence of residencies and sum up their cost."""
    by_model = {demand.model_id: group for group in groups for demand in group}
    held, waiting = frozenset(room.resident), set(by_model)
    residencies: list[PlannedResidency] = []
    for model in needed:
        here = not residencies and model in held
        if here or model not in held:
            group = tuple(d for d in _flatten(groups) if d.model_id in held) if here else by_model[model]
            searches = retrieval if not residencies else None
            residencies.append(_plan_residency(room, group, slots, waiting, searches, resident=here))
            held = held if here else frozenset(demand.model_id for demand in group)
            waiting -= held
    grouping = "alone" if len(by_model) == 1 else "together" if len(groups) == 1 else "staged"
    fewer = any(slots[demand.model_id] < demand.parallel for demand in _flatten(groups))
    loads = sum(len(residency.models) for residency in residencies if not residency.resident)
    opened = sum(not residency.resident for residency in residencies)
    times = [time for demand in _flatten(groups) for time in (demand.load_s, demand.call_s)]
    return Option(
        name=grouping + (", fewer slots" if fewer else ""),
        residencies=tuple(residencies),
        loads=loads,
        flips=opened if room.resident else max(0, opened - 1),
        seconds=sum(residency.load_s + residency.service_s for residency in residencies),
        basis=_combine_basis([time.source for time in times]),
        refused=next((excess for residency in residencies if (excess := _describe_excess(residency))), None),
    )


def _plan_residency(
    room: Room,
    group: Sequence[Demand],
    slots: Slots,
    waiting: set[int],
    retrieval: RetrievalDemand | None,
    *,
    resident: bool,
) -> PlannedResidency:
    searches_s = retrieval.calls * retrieval.gpu_s.value if retrieval else 0.0
    mib = retrieval.mib if retrieval else 0
    return PlannedResidency(
        device=room.device,
        models=tuple(
            PlannedModel(
                model_id=demand.model_id,
                name=demand.name,
                parallel=slots[demand.model_id],
                context=demand.context,
                memory_mib=demand.memory.at(slots[demand.model_id]),
                basis=demand.memory.basis,
                calls=demand.calls,
                call_s=demand.call_s,
                load_s=demand.load_s,
            )
            for demand in group
        ),
        retrieval_mib=mib,
        memory_mib=_sum_memory(group, slots) + mib,
        budget_mib=room.budget_mib,
        resident=resident,
        load_s=0.0 if resident else sum(demand.load_s.value for demand in group),
        service_s=_sum_service_s([demand for demand in group if demand.model_id in waiting], slots) + searches_s,
    )


def _describe_excess(residency: PlannedResidency) -> str | None:
    if residency.resident or residency.memory_mib <= residency.budget_mib:
        return None
    parts = [f"{each.name} {each.memory_mib} with slots: {each.parallel}" for each in residency.models]
    parts += [f"retrieval {residency.retrieval_mib}"] if residency.retrieval_mib else []
    return f"{residency.memory_mib} MiB ({', '.join(parts)}) of {residency.budget_mib} on {residency.device}"


def _flatten(groups: Groups) -> list[Demand]:
    return [demand for group in groups for demand in group]


def _sum_memory(group: Sequence[Demand], slots: Slots) -> int:
    return sum(demand.memory.at(slots[demand.model_id]) for demand in group)


def _sum_service_s(group: Sequence[Demand], slots: Slots) -> float:
    return sum(demand.service_s(slots[demand.model_id]) for demand in group)


def _combine_basis(found: Sequence[str]) -> str:
    return found[0] if len(set(found)) == 1 else "mixed"


# Choose the cheapest option that fits, and explain why the others were not chosen. Pure and deterministic.

LANES = tuple(Lane)
"""Order of lanes: the judge's models first, since the generator's calls wait for their replies."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The residencies that each device should hold."""

    chosen: Option | None
    """None if nothing fits or no model is wanted."""
    why: str
    """Reason of the choice; if nothing fits, what would help."""
    others: tuple[Option, ...]
    """The best option of every other kind: those that fit first, then the cheapest first."""
    groups: dict[str, tuple[ModelGroup, ...]]
    """Groups of models by device, for the scheduler."""


def plan(
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    *,
    order: Sequence[int] | None = None,
    retrieval: RetrievalDemand | None = None,
) -> Plan:
    """Plan these models on these devices.

    Args:
        demands: the wanted models, each once.
        rooms: the devices.
        order: model ids in the order in which they are needed, with repetitions; by default the judge's before the
            generator's, each once.
        retrieval: searches that may run on the first residency's device.

    Raises:
        ValueError: a model is pinned to an unknown device, or there are too many assignments.
    """
    if not demands:
        return Plan(chosen=None, why="no model is wanted", others=(), groups={})
    demands = sorted(demands, key=lambda demand: demand.model_id)
    if order is not None:
        needed = tuple(order)
    else:
        ordered = sorted(demands, key=lambda demand: (LANES.index(demand.lane), demand.model_id))
        needed = tuple(demand.model_id for demand in ordered)
    ranked = sorted(list_options(demands, rooms, needed, retrieval), key=lambda option: option.rank)
    best = ranked[0]
    if best.refused:
        why = _explain_misfit(demands, rooms, best)
        return Plan(chosen=None, why=why, others=_pick_best_of_each(ranked), groups={})
    others = _pick_best_of_each(ranked[1:], best)
    why = f"{best.name}: loads {best.loads}, flips {best.flips}, {best.seconds:.1f} s"
    if fitting := [option for option in others if option.refused is None]:
        then = fitting[0]
        why += f", the cheapest of {len(fitting) + 1}; next is {then.name} with {then.seconds:.1f} s"
    else:
        why += ", the only way that fits"
    return Plan(chosen=best, why=why, others=others, groups=_build_groups(demands, best, why))


def _pick_best_of_each(ranked: Sequence[Option], chosen: Option | None = None) -> tuple[Option, ...]:
    """Return the first option of every name but the chosen one's."""
    found: dict[str, Option] = {}
    for option in ranked:
        if chosen is None or option.name != chosen.name:
            found.setdefault(option.name, option)
    return tuple(found.values())


def _build_groups(demands: Sequence[Demand], chosen: Option, why: str) -> dict[str, tuple[ModelGroup, ...]]:
    configured = {demand.model_id: demand.parallel for demand in demands}
    groups: dict[str, dict[tuple[int, ...], ModelGroup]] = {}
    for residency in chosen.residencies:
        models = tuple(sorted(model.model_id for model in residency.models))
        slots = {m.model_id: m.parallel for m in residency.models if m.parallel < configured[m.model_id]}
        group = ModelGroup(parallel=slots, models=models, memory_mib=residency.memory_mib, why=why)
        groups.setdefault(residency.device, {}).setdefault(models, group)
    return {device: tuple(found.values()) for device, found in groups.items()}


def _explain_misfit(demands: Sequence[Demand], rooms: Sequence[Room], best: Option) -> str:
    """Explain which model fits on no device and which budget it needs, or why the models do not fit together."""
    for demand in demands:
        budget = max(room.budget_mib for room in rooms if demand.device in (None, room.device))
        if demand.memory.at(1) > budget:
            memory, alone = demand.memory, demand.memory.at(1)
            need = f"alone, with one slot of {demand.context} tokens, it needs {alone} MiB of {budget}"
            room = budget - memory.fixed_mib
            if memory.per_slot_mib > 0 and (tokens := int(demand.context * room / memory.per_slot_mib)) > 0:
                remedy = f"{need}; a `context` of {tokens} or less, or a `device.budget_mib` of {alone}"
            else:
                remedy = f"{need}; a smaller quantisation, or a `device.budget_mib` of {alone}"
            return f"{demand.name} fits nowhere: {remedy}"
    return f"nothing fits: {best.refused}; a smaller `context` or a larger `device.budget_mib`"
