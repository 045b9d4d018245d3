"""The policy of flips, and the flip itself."""

from collections.abc import Sequence
from enum import StrEnum
from math import inf
from typing import Any

import msgspec

from shared.calls import Lane

# Decide when to flip, and to what, from a snapshot of the work. Pure.
#
# The work of the resident models is drained across all samples and jobs before a flip: with two models that is at most
# one load above the optimum, for all pipelines. A drain is bounded so that others do not wait for ever;
# docs/explanation/decisions/10-flips-are-planned-and-bounded.md lists the bounds and their costs.

RETRY_S = 10.0
"""Wait before a quarantined device is tried again, multiplied by the failures so far."""
MAX_RETRY_WAIT_S = 60.0
"""Upper bound of that wait, since the obstacle may go away at any time."""
MIN_OPEN_S = 1.0
"""No residency is cut short before it was open for this long."""
AMORTISED = 10
"""A starving job cuts a residency short only after it was open for this many times its loading time: if both sides
always have work, flips take at most an eleventh of the time."""
DRAIN = "drain"
"""Cause of a residency without models: the operator drains the device."""
PRESSING = ("online", "aged", "bounded")
"""Causes of flips that do not wait until the work is drained, the most urgent first."""
DECIDED = ("drained", "cpu_stalled", "away", DRAIN, *PRESSING)
"""Causes of residencies that were decided on while their predecessor was open, and closed it."""


class ModelLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The work for a model that needs the lease: its calls in the queue, pending or claimed, or those that live jobs
    will make later."""

    model_id: int
    footprint_mib: int
    lane: Lane
    calls: int
    away: bool = False
    """Whether its server has been away for longer than the patience: its calls then wait and count as none."""
    call_s: float | None = None
    """Measured seconds of the device per call; None if not measured yet."""
    load_s: float | None = None
    """Measured seconds of a flip to it, from the close of the previous residency; None if not measured yet."""
    starved_s: float | None = None
    """Longest wait for it by a job without calls for resident models; None if no job waits."""
    online_s: float | None = None
    """Longest wait for it by an online request; None if none waits."""


class WorkloadSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a device in one snapshot of the database."""

    loads: tuple[ModelLoad, ...]
    ready: bool
    """Whether some sample is ready to be advanced, and so may make calls of any model."""
    cpu_calls: int
    """Number of open calls that need no lease and whose replies may lead to model calls (not grades)."""
    cpu_idle_s: float
    """Seconds since `cpu_calls` last changed."""
    lull_s: float = inf
    """Seconds since the last job but one came: after two jobs within the time of a flip, a third may come soon."""


class DeviceResidency(msgspec.Struct, frozen=True, kw_only=True):
    """The device's newest residency."""

    epoch: int
    models: tuple[int, ...]
    state: str
    reason: str | None = None
    failures: int = 0
    """Number of quarantined residencies in a row, including this one."""
    age_s: float = 0.0
    """Seconds since it was closed or quarantined."""
    retry: bool = False
    """Whether it is quarantined and to be tried again at once, as its obstacle is gone or the operator says so."""
    open_s: float = 0.0
    """Seconds since it was opened, if it is open."""
    idle_s: float = 0.0
    """Total seconds in which it was open and `stands_idle`."""
    load_s: float = 0.0
    """Measured seconds of the flip to it."""


class ModelGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Models that may be resident at once, with their slots."""

    parallel: dict[int, int]
    """Slots by model; a missing model gets its configured slots."""
    models: tuple[int, ...]
    memory_mib: int
    why: str


class FlipRules(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of waiting, in seconds."""

    patience_s: float = 30.0
    """How long calls that need no lease, and make no progress, delay a flip."""
    max_residency_s: float = 0.0
    """A starving job ends a residency that was open for longer; 0 for no bound."""
    max_wait_s: float = 0.0
    """A job that starves for longer ends a residency; 0 for no bound."""
    online_patience_s: float = inf
    """An online request that waits for longer ends a residency."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The residency to flip to, and why."""

    models: tuple[int, ...]
    cause: str
    parallel: dict[int, int] = {}
    """Slots by model, if fewer than configured."""
    plan: dict[str, Any] = {}
    """What the decision was based on; stored with the residency."""


def decide(
    snapshot: WorkloadSnapshot,
    held: DeviceResidency | None,
    *,
    groups: Sequence[ModelGroup],
    rules: FlipRules,
    drained: bool = False,
) -> Target | None:
    """Return the residency to flip to, or None to stay.

    The target is the first of `groups` that has the most needed model. A `drained` device is emptied once, even if work
    waits for it, and then left alone.
    """
    if drained:
        # The empty target of a drained device; only an emptying that failed waits before the next attempt.
        if held is None or _is_flipping(held):
            return None
        if held.models or (held.state == "quarantined" and not _is_resting(held)):
            return Target(models=(), cause=DRAIN)
        return None
    waiting = [load for load in snapshot.loads if load.calls and not _holds(held, load)]
    if not waiting or _is_flipping(held) or _is_resting(held):
        return None
    # Models whose last load failed come after the others.
    failed = held.models if held is not None and held.state == "quarantined" else ()
    needed = min(
        waiting, key=lambda load: (load.model_id in failed, *_rank_urgency(load, held, rules), *_rank_need(load))
    )
    drained_by, pressed_by = _find_drain_cause(snapshot, held, rules), _find_pressing_cause(needed, held, rules)
    group = next((group for group in groups if needed.model_id in group.models), _group_alone(needed))
    # The seconds of a flip to the group; None if one of its models was not measured yet.
    known = {load.model_id: load.load_s for load in snapshot.loads}
    costs = [known.get(model) for model in group.models]
    cost_s = None if None in costs else sum(cost for cost in costs if cost is not None)
    if drained_by == "drained" and not pressed_by and _is_worth_waiting(snapshot, held, waiting, cost_s):
        return None
    cause = drained_by or pressed_by
    if cause is None:
        return None
    plan = _explain(group, snapshot, held, waiting, cost_s)
    return Target(models=tuple(sorted(group.models)), cause=cause, parallel=group.parallel, plan=plan)


def group_singly(loads: Sequence[ModelLoad]) -> list[ModelGroup]:
    """Make a group of each model alone."""
    return [_group_alone(load) for load in loads]


def group_by_footprint(loads: Sequence[ModelLoad], budget_mib: int) -> list[ModelGroup]:
    """Make a group around each model with as many others as their declared footprints fit, the most needed first."""
    order = sorted(loads, key=_rank_need)
    found: list[ModelGroup] = []
    for load in order:
        chosen, used = [load.model_id], load.footprint_mib
        for other in order:
            if used + other.footprint_mib <= budget_mib and other.model_id not in chosen:
                chosen.append(other.model_id)
                used += other.footprint_mib
        why = f"declared footprints within {budget_mib} MiB" if len(chosen) > 1 else f"no other fits {budget_mib} MiB"
        found.append(ModelGroup(models=tuple(sorted(chosen)), parallel={}, memory_mib=used, why=why))
    return found


def stands_idle(snapshot: WorkloadSnapshot, held: DeviceResidency | None) -> bool:
    """Tell whether an open residency has no work, present or expected, while other models' calls wait."""
    elsewhere = any(load.calls and not _holds(held, load) for load in snapshot.loads)
    return elsewhere and _is_open(held) and not (_has_work(snapshot, held) or snapshot.ready or snapshot.cpu_calls)


def _is_flipping(held: DeviceResidency | None) -> bool:
    return held is not None and held.state not in ("open", "closed", "quarantined")


def retry_wait_s(failures: int) -> float:
    """Return the seconds that a quarantined device is left alone after `failures` in a row."""
    return min(RETRY_S * failures, MAX_RETRY_WAIT_S)


def _is_resting(held: DeviceResidency | None) -> bool:
    if held is None or held.state != "quarantined" or held.retry:
        return False
    return held.age_s < retry_wait_s(held.failures)


def _is_open(held: DeviceResidency | None) -> bool:
    return held is not None and held.state == "open" and bool(held.models)


def _holds(held: DeviceResidency | None, load: ModelLoad) -> bool:
    return held is not None and held.state == "open" and load.model_id in held.models


def _has_work(snapshot: WorkloadSnapshot, held: DeviceResidency | None) -> bool:
    return any(load.calls and _holds(held, load) for load in snapshot.loads)


def _find_drain_cause(snapshot: WorkloadSnapshot, held: DeviceResidency | None, rules: FlipRules) -> str | None:
    """Return the cause of a flip when the resident models have no work; None if they have some or may get some."""
    if snapshot.ready or _has_work(snapshot, held):
        return None
    if snapshot.cpu_calls:
        return "cpu_stalled" if snapshot.cpu_idle_s > rules.patience_s else None
    if held is None:
        return "first"
    if held.state == "quarantined":
        return "retry"
    if held.state == "closed":
        return held.reason or "drained"
    if any(load.away and _holds(held, load) for load in snapshot.loads):
        return "away"
    return "drained" if held.models else "released"


def _find_pressing_cause(load: ModelLoad, held: DeviceResidency | None, rules: FlipRules) -> str | None:
    """Return the cause of a flip before the work is drained, once the residency was open long enough; None if none."""
    open_s, paid_s = (held.open_s, held.load_s) if held is not None and _is_open(held) else (inf, 0.0)
    if load.online_s is not None and load.online_s >= rules.online_patience_s and open_s >= max(MIN_OPEN_S, paid_s):
        return "online"
    if load.starved_s is None or open_s < max(MIN_OPEN_S, AMORTISED * paid_s):
        return None
    if 0 < rules.max_wait_s < load.starved_s:
        return "aged"
    if _is_open(held) and 0 < rules.max_residency_s < open_s:
        return "bounded"
    return None


def _rank_urgency(load: ModelLoad, held: DeviceResidency | None, rules: FlipRules) -> tuple[int, float]:
    """Rank loads with a pressing cause first, by the cause and then by the longest wait."""
    cause = _find_pressing_cause(load, held, rules)
    if cause is None:
        return len(PRESSING), 0.0
    waited_s = load.online_s if cause == "online" else load.starved_s
    return PRESSING.index(cause), -(waited_s or 0.0)


def _rank_need(load: ModelLoad) -> tuple[bool, bool, bool, int, int]:
    """Rank online requests first, then the judge's models, whose replies others wait for, then by more calls."""
    return load.calls == 0, load.online_s is None, load.lane is not Lane.JUDGE, -load.calls, load.model_id


def _is_worth_waiting(
    snapshot: WorkloadSnapshot, held: DeviceResidency | None, waiting: Sequence[ModelLoad], cost_s: float | None
) -> bool:
    """Tell whether to wait for more work before a flip, as in ski rental: up to the flip's cost, if there is less work.

    Only further jobs can bring more, since every live sample waits for the flip, so it waits only after two jobs came
    within the flip's time. It never waits with an online request, or if a flip's cost or a call was not measured.
    """
    worth_s = sum(load.calls * (inf if load.call_s is None else load.call_s) for load in waiting)
    online = any(load.online_s is not None for load in waiting)
    if held is None or cost_s is None or online:
        return False
    return max(worth_s, held.idle_s, snapshot.lull_s) < cost_s


def _group_alone(load: ModelLoad) -> ModelGroup:
    why = "one model at a time"
    return ModelGroup(models=(load.model_id,), parallel={}, memory_mib=load.footprint_mib, why=why)


def _explain(
    group: ModelGroup,
    snapshot: WorkloadSnapshot,
    held: DeviceResidency | None,
    waiting: Sequence[ModelLoad],
    cost_s: float | None,
) -> dict[str, Any]:
    """Return the figures behind the decision, without seconds that are 0."""
    seconds = {
        "flip_s": cost_s or 0.0,
        "open_s": held.open_s if held else 0.0,
        "idle_s": held.idle_s if held else 0.0,
        "starved_s": max(load.starved_s or 0.0 for load in waiting),
        "online_s": max(load.online_s or 0.0 for load in waiting),
    }
    return {
        "why": group.why,
        "predicted_mib": group.memory_mib,
        "calls": {str(load.model_id): load.calls for load in snapshot.loads if load.calls},
        **{name: round(value, 3) for name, value in seconds.items() if value},
    }


# The state machine of a flip: OPEN, DRAINING, UNLOADING, VERIFY_FREE, LOADING, VERIFY_RESIDENT, OPEN.
#
# Any failure leads to QUARANTINED. Pure: `handle` returns the effects that the guard carries out, each of which ends in
# the next event.


class FlipState(StrEnum):
    """State of a device."""

    CLOSED = "closed"
    OPEN = "open"
    DRAINING = "draining"
    UNLOADING = "unloading"
    VERIFY_FREE = "verify_free"
    LOADING = "loading"
    VERIFY_RESIDENT = "verify_resident"
    QUARANTINED = "quarantined"


class FlipEvent(StrEnum):
    """Something that has happened during a flip."""

    WANTED = "wanted"
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    UNLOADED = "unloaded"
    FREE = "free"
    LOADED = "loaded"
    RESIDENT = "resident"
    FAILED = "failed"
    SERVER_EXIT = "server_exit"


class Effect(StrEnum):
    """A step that the guard has to carry out."""

    DRAIN = "drain"
    CANCEL = "cancel"
    """Abort the calls in flight; those of servers that are alive go back uncharged."""
    UNLOAD = "unload"
    VERIFY_FREE = "verify_free"
    LOAD = "load"
    VERIFY_RESIDENT = "verify_resident"
    OPEN = "open"
    CLOSE = "close"
    QUARANTINE = "quarantine"


S, E, F = FlipState, FlipEvent, Effect
TRANSITIONS: dict[tuple[FlipState, FlipEvent], tuple[FlipState, tuple[Effect, ...]]] = {
    (S.CLOSED, E.WANTED): (S.UNLOADING, (F.UNLOAD,)),
    (S.QUARANTINED, E.WANTED): (S.UNLOADING, (F.UNLOAD,)),
    (S.OPEN, E.WANTED): (S.DRAINING, (F.DRAIN,)),
    (S.OPEN, E.SERVER_EXIT): (S.CLOSED, (F.CANCEL, F.CLOSE, F.UNLOAD)),
    (S.DRAINING, E.DRAINED): (S.UNLOADING, (F.CLOSE, F.UNLOAD)),
    (S.DRAINING, E.DRAIN_TIMEOUT): (S.UNLOADING, (F.CANCEL, F.CLOSE, F.UNLOAD)),
    (S.UNLOADING, E.UNLOADED): (S.VERIFY_FREE, (F.VERIFY_FREE,)),
    (S.VERIFY_FREE, E.FREE): (S.LOADING, (F.LOAD,)),
    (S.LOADING, E.LOADED): (S.VERIFY_RESIDENT, (F.VERIFY_RESIDENT,)),
    (S.VERIFY_RESIDENT, E.RESIDENT): (S.OPEN, (F.OPEN,)),
}
STEPS = (S.OPEN, S.DRAINING, S.UNLOADING, S.VERIFY_FREE, S.LOADING, S.VERIFY_RESIDENT)


class FlipMachine:
    """Holds one device's state and maps events to effects."""

    def __init__(self) -> None:
        self.state = FlipState.CLOSED

    def handle(self, event: FlipEvent) -> tuple[Effect, ...]:
        """Return the effects of `event`: a failure in any step quarantines, an unexpected event does nothing."""
        if event is FlipEvent.FAILED and self.state in STEPS:
            self.state = FlipState.QUARANTINED
            return (Effect.CANCEL, Effect.UNLOAD, Effect.QUARANTINE)
        self.state, effects = TRANSITIONS.get((self.state, event), (self.state, ()))
        return effects
