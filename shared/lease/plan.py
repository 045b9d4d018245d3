"""The plan: of all options the cheapest that fits, and what speaks against the others. Pure: the same answer always."""

from collections.abc import Sequence

import msgspec

from shared.contracts.calls import Lane
from shared.lease.demand import Demand, Retrieval, Room
from shared.lease.options import Option, options
from shared.lease.policy import Group

LANES = tuple(Lane)
"""What others wait for comes first: the judge's models, then the generator's."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to hold where."""

    chosen: Option | None
    """None: nothing fits, or nothing is wanted."""
    why: str
    """In words; where nothing fits, what would help."""
    others: tuple[Option, ...]
    """The best of every other kind: those that fit first, the cheapest first."""
    groups: dict[str, tuple[Group, ...]]
    """By device, for the scheduler."""


def plan(
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    *,
    order: Sequence[int] | None = None,
    retrieval: Retrieval | None = None,
) -> Plan:
    """Choose for these models and devices.

    Args:
        demands: the models that are wanted, each once.
        rooms: the devices.
        order: model ids as they are needed, one after another and again where they are needed again; by default the
            judge's before the generator's, each once.
        retrieval: searches that may run on the first residency's device.

    Raises:
        ValueError: a model is pinned to no device that is there, or there are too many choices.
    """
    if not demands:
        return Plan(chosen=None, why="no model is wanted", others=(), groups={})
    demands = sorted(demands, key=lambda demand: demand.model_id)
    needed = tuple(order) if order is not None else _by_lane(demands)
    ranked = sorted(options(demands, rooms, needed, retrieval), key=lambda option: option.rank)
    best = ranked[0]
    if best.refused:
        return Plan(chosen=None, why=_hopeless(demands, rooms, best), others=_kinds(ranked), groups={})
    others = _kinds(ranked[1:], best)
    why = _why(best, others)
    return Plan(chosen=best, why=why, others=others, groups=_groups(demands, best, why))


def _by_lane(demands: Sequence[Demand]) -> tuple[int, ...]:
    ordered = sorted(demands, key=lambda demand: (LANES.index(demand.lane), demand.model_id))
    return tuple(demand.model_id for demand in ordered)


def _kinds(ranked: Sequence[Option], chosen: Option | None = None) -> tuple[Option, ...]:
    """The first of every name but the chosen one's."""
    found: dict[str, Option] = {}
    for option in ranked:
        if chosen is None or option.name != chosen.name:
            found.setdefault(option.name, option)
    return tuple(found.values())


def _why(chosen: Option, others: Sequence[Option]) -> str:
    said = f"{chosen.name}: loads {chosen.loads}, flips {chosen.flips}, {chosen.seconds:.1f} s"
    fitting = [option for option in others if option.refused is None]
    if fitting:
        return f"{said}, the cheapest of {len(fitting) + 1}; next is {fitting[0].name} with {fitting[0].seconds:.1f} s"
    return f"{said}, the only way that fits"


def _groups(demands: Sequence[Demand], chosen: Option, why: str) -> dict[str, tuple[Group, ...]]:
    configured = {demand.model_id: demand.parallel for demand in demands}
    groups: dict[str, dict[tuple[int, ...], Group]] = {}
    for residency in chosen.residencies:
        models = tuple(sorted(model.model_id for model in residency.models))
        slots = {m.model_id: m.parallel for m in residency.models if m.parallel < configured[m.model_id]}
        group = Group(parallel=slots, models=models, memory_mib=residency.memory_mib, why=why)
        groups.setdefault(residency.device, {}).setdefault(models, group)
    return {device: tuple(found.values()) for device, found in groups.items()}


def _hopeless(demands: Sequence[Demand], rooms: Sequence[Room], best: Option) -> str:
    """Which model fits nowhere, and what would make it fit; with pins it may be devices that are too few."""
    for demand in demands:
        budget = max(room.budget_mib for room in rooms if demand.device in (None, room.device))
        if demand.memory.at(1) > budget:
            return f"{demand.name} fits nowhere: {_remedy(demand, budget)}"
    return f"nothing fits: {best.refused}; a smaller `context` or a larger `device.budget_mib`"


def _remedy(demand: Demand, budget_mib: int) -> str:
    memory, alone = demand.memory, demand.memory.at(1)
    said = f"alone, with one slot of {demand.context} tokens, it needs {alone} MiB of {budget_mib}"
    room = budget_mib - memory.fixed_mib
    if memory.per_slot_mib > 0 and (tokens := int(demand.context * room / memory.per_slot_mib)) > 0:
        return f"{said}; a `context` of {tokens} or less, or a `device.budget_mib` of {alone}"
    return f"{said}; a smaller quantisation, or a `device.budget_mib` of {alone}"
