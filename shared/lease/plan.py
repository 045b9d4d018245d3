"""Choose the cheapest option that fits, and explain why the others were not chosen. Pure and deterministic."""

from collections.abc import Sequence

import msgspec

from shared.contracts.calls import Lane
from shared.lease.demand import Demand, RetrievalDemand, Room
from shared.lease.options import Option, list_options
from shared.lease.policy import ModelGroup

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
    needed = tuple(order) if order is not None else _order_by_lane(demands)
    ranked = sorted(list_options(demands, rooms, needed, retrieval), key=lambda option: option.rank)
    best = ranked[0]
    if best.refused:
        return Plan(
            chosen=None, why=_explain_misfit(demands, rooms, best), others=_pick_best_of_each(ranked), groups={}
        )
    others = _pick_best_of_each(ranked[1:], best)
    why = _explain_choice(best, others)
    return Plan(chosen=best, why=why, others=others, groups=_build_groups(demands, best, why))


def _order_by_lane(demands: Sequence[Demand]) -> tuple[int, ...]:
    ordered = sorted(demands, key=lambda demand: (LANES.index(demand.lane), demand.model_id))
    return tuple(demand.model_id for demand in ordered)


def _pick_best_of_each(ranked: Sequence[Option], chosen: Option | None = None) -> tuple[Option, ...]:
    """Return the first option of every name but the chosen one's."""
    found: dict[str, Option] = {}
    for option in ranked:
        if chosen is None or option.name != chosen.name:
            found.setdefault(option.name, option)
    return tuple(found.values())


def _explain_choice(chosen: Option, others: Sequence[Option]) -> str:
    summary = f"{chosen.name}: loads {chosen.loads}, flips {chosen.flips}, {chosen.seconds:.1f} s"
    fitting = [option for option in others if option.refused is None]
    if fitting:
        return (
            f"{summary}, the cheapest of {len(fitting) + 1}; next is {fitting[0].name} with {fitting[0].seconds:.1f} s"
        )
    return f"{summary}, the only way that fits"


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
    """Explain which model fits on no device and what would make it fit, or why the models do not fit together."""
    for demand in demands:
        budget = max(room.budget_mib for room in rooms if demand.device in (None, room.device))
        if demand.memory.at(1) > budget:
            return f"{demand.name} fits nowhere: {_suggest_remedy(demand, budget)}"
    return f"nothing fits: {best.refused}; a smaller `context` or a larger `device.budget_mib`"


def _suggest_remedy(demand: Demand, budget_mib: int) -> str:
    memory, alone = demand.memory, demand.memory.at(1)
    need = f"alone, with one slot of {demand.context} tokens, it needs {alone} MiB of {budget_mib}"
    room = budget_mib - memory.fixed_mib
    if memory.per_slot_mib > 0 and (tokens := int(demand.context * room / memory.per_slot_mib)) > 0:
        return f"{need}; a `context` of {tokens} or less, or a `device.budget_mib` of {alone}"
    return f"{need}; a smaller quantisation, or a `device.budget_mib` of {alone}"
