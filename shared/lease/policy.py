"""When to flip, and to what. Pure: a picture of the work goes in, a target or nothing comes out.

Drain what is resident across all samples and jobs before flipping: with two models that is at most one load above the
optimum, whatever the pipelines do. What a drain may not do is make others wait without end; docs/decisions/0035 says
which bounds it has, and what they cost.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec

from shared.contracts.calls import Lane

RETRY_S = 10.0
"""Wait before a quarantined device is tried again, times the failures so far."""
LONGEST_REST_S = 60.0
"""Bound of that wait: whatever is in the device's way may end at any time."""
LEAST_S = 1.0
"""No residency is cut short before."""
AMORTISED = 10
"""Nor, but for somebody who waits for an answer, before it was open for so many times what its loading took: where both
sides always have work, flips take no more than an eleventh of the time."""
DRAIN = "drain"
"""Cause of a residency without models: the operator wants the device empty."""
PRESSING = ("online", "aged", "bounded")
"""Causes of flips that do not wait for the drain, the most urgent first."""
DECIDED = ("drained", "cpu_stalled", "away", DRAIN, *PRESSING)
"""Causes of residencies that were decided on while their predecessor was open: it closed because they came."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A model that needs the lease and is wanted: by calls in the queue, pending or claimed, or later by a live job."""

    model_id: int
    footprint_mib: int
    lane: Lane
    calls: int
    away: bool = False
    """Its server has been away for longer than the patience: its calls wait for the next try, and count as none."""
    call_s: float | None = None
    """Seconds of the device that a call takes, measured; None: not yet."""
    load_s: float | None = None
    """Seconds that a flip to it takes, measured from the close of what was there; None: not yet."""
    starved_s: float | None = None
    """Longest wait for it of a job that can do nothing else: no call of it is for a resident model. None: no job."""
    online_s: float | None = None
    """Longest wait for it of somebody who asked online; None: nobody."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The work as one snapshot of the database shows it."""

    loads: tuple[Load, ...]
    ready: bool
    """Some sample can be advanced: it may ask for anything."""
    cpu_calls: int
    """Open calls that need no lease and whose replies may lead to model calls (not grades)."""
    cpu_idle_s: float
    """Seconds since `cpu_calls` last changed."""
    lull_s: float = inf
    """Seconds since the last job but one came: two jobs within a flip's time are a stream, and a third may come."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The device's newest residency."""

    epoch: int
    models: tuple[int, ...]
    state: str
    reason: str | None = None
    failures: int = 0
    """Quarantined residencies in a row, this one included."""
    age_s: float = 0.0
    """Seconds since it was closed, for a closed or quarantined one."""
    open_s: float = 0.0
    """Seconds since it was opened, for an open one."""
    idle_s: float = 0.0
    """Seconds of these, added up, in which it `stands_idle`."""
    load_s: float = 0.0
    """Seconds that the flip to it took, measured."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Models that the plan lets be resident at once, with the slots that there is room for."""

    parallel: dict[int, int]
    """By model; what is missing runs with the slots that are configured."""
    models: tuple[int, ...]
    memory_mib: int
    why: str


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How long what may wait. Seconds."""

    patience_s: float = 30.0
    """Calls that need no lease hold a flip so long without progress."""
    max_residency_s: float = 0.0
    """Nobody starves because of a residency that was open for longer; 0: for as long as it has work."""
    max_wait_s: float = 0.0
    """No job starves for longer; 0: for as long as there is other work."""
    online_patience_s: float = inf
    """Nobody waits online for a model that is not resident for longer."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The residency that is wanted next, and why."""

    models: tuple[int, ...]
    cause: str
    parallel: dict[int, int] = {}
    """Slots by model, where the plan gives fewer than are configured."""
    plan: dict[str, Any] = {}
    """What the decision was made of; stands on the residency's row."""


def decide(
    picture: Picture, held: Held | None, *, groups: Sequence[Group], rules: Rules, drained: bool = False
) -> Target | None:
    """The residency to flip to, or None to stay.

    What is loaded is the first of `groups` with the model that is needed most. A `drained` device is emptied once,
    whatever waits for it, and then left alone.
    """
    if drained:
        return _emptied(held)
    waiting = [load for load in picture.loads if load.calls and not _holds(held, load)]
    if not waiting or _flipping(held) or _rests(held):
        return None
    needed = min(waiting, key=lambda load: (_failed(held, load), *_urgency(load, held, rules), *_order(load)))
    drained_by, pressed_by = _drained(picture, held, rules), _presses(needed, held, rules)
    group = next((group for group in groups if needed.model_id in group.models), _alone(needed))
    cost_s = _cost_s(group, picture.loads)
    if drained_by == "drained" and not pressed_by and _pays_to_wait(picture, held, waiting, cost_s):
        return None
    cause = drained_by or pressed_by
    if cause is None:
        return None
    plan = _explained(group, picture, held, waiting, cost_s)
    return Target(models=tuple(sorted(group.models)), cause=cause, parallel=group.parallel, plan=plan)


def staged(loads: Sequence[Load]) -> list[Group]:
    """One model at a time."""
    return [_alone(load) for load in loads]


def together(loads: Sequence[Load], budget_mib: int) -> list[Group]:
    """With each model as many others as their declared footprints leave room for, those that are needed most first."""
    order = sorted(loads, key=_order)
    return [_with(load, order, budget_mib) for load in order]


def stands_idle(picture: Picture, held: Held | None) -> bool:
    """Whether an open residency has nothing to do, nor anything to come, while other models' calls wait."""
    elsewhere = any(load.calls and not _holds(held, load) for load in picture.loads)
    return elsewhere and _is_open(held) and not (_has_work(picture, held) or picture.ready or picture.cpu_calls)


def _emptied(held: Held | None) -> Target | None:
    """Even a quarantined device is emptied at once; only an emptying that failed waits for its next try."""
    if held is None or _flipping(held):
        return None
    if held.models or (held.state == "quarantined" and not _rests(held)):
        return Target(models=(), cause=DRAIN)
    return None


def _flipping(held: Held | None) -> bool:
    return held is not None and held.state not in ("open", "closed", "quarantined")


def rest_s(failures: int) -> float:
    """Seconds that a quarantined device is left alone after so many failures in a row."""
    return min(RETRY_S * failures, LONGEST_REST_S)


def _rests(held: Held | None) -> bool:
    return held is not None and held.state == "quarantined" and held.age_s < rest_s(held.failures)


def _failed(held: Held | None, load: Load) -> bool:
    """Whether it could not be loaded just now: what else waits has its turn first."""
    return held is not None and held.state == "quarantined" and load.model_id in held.models


def _is_open(held: Held | None) -> bool:
    return held is not None and held.state == "open" and bool(held.models)


def _holds(held: Held | None, load: Load) -> bool:
    return held is not None and held.state == "open" and load.model_id in held.models


def _has_work(picture: Picture, held: Held | None) -> bool:
    return any(load.calls and _holds(held, load) for load in picture.loads)


def _drained(picture: Picture, held: Held | None, rules: Rules) -> str | None:
    """The cause of a flip that takes no work from what is resident; None: there is some, or some may come."""
    if picture.ready or _has_work(picture, held):
        return None
    if picture.cpu_calls:
        return "cpu_stalled" if picture.cpu_idle_s > rules.patience_s else None
    if held is None:
        return "first"
    if held.state == "quarantined":
        return "retry"
    if held.state == "closed":
        return held.reason or "drained"
    if any(load.away and _holds(held, load) for load in picture.loads):
        return "away"
    return "drained" if held.models else "released"


def _presses(load: Load, held: Held | None, rules: Rules) -> str | None:
    """The cause of a flip before the drain, once what is resident was worth its loading."""
    open_s, paid_s = (held.open_s, held.load_s) if held is not None and _is_open(held) else (inf, 0.0)
    if load.online_s is not None and load.online_s >= rules.online_patience_s and open_s >= max(LEAST_S, paid_s):
        return "online"
    if load.starved_s is None or open_s < max(LEAST_S, AMORTISED * paid_s):
        return None
    if 0 < rules.max_wait_s < load.starved_s:
        return "aged"
    if _is_open(held) and 0 < rules.max_residency_s < open_s:
        return "bounded"
    return None


def _urgency(load: Load, held: Held | None, rules: Rules) -> tuple[int, float]:
    """What presses comes first, what waits longest before the rest of it."""
    cause = _presses(load, held, rules)
    if cause is None:
        return len(PRESSING), 0.0
    waited_s = load.online_s if cause == "online" else load.starved_s
    return PRESSING.index(cause), -(waited_s or 0.0)


def _order(load: Load) -> tuple[bool, bool, bool, int, int]:
    """Somebody who waits for an answer; then the judge's models, whose replies others wait for; then more calls."""
    return load.calls == 0, load.online_s is None, load.lane is not Lane.JUDGE, -load.calls, load.model_id


def _pays_to_wait(picture: Picture, held: Held | None, waiting: Sequence[Load], cost_s: float | None) -> bool:
    """The tail rule, as of whoever rents skis: for less work than a flip's cost, wait up to that cost for more.

    Only a stream of jobs can bring more, since every live sample waits for the flip; for anybody else it is a loss.
    Unmeasured, or with somebody online, nothing is waited for.
    """
    worth_s = sum(load.calls * (inf if load.call_s is None else load.call_s) for load in waiting)
    online = any(load.online_s is not None for load in waiting)
    if held is None or cost_s is None or online:
        return False
    return max(worth_s, held.idle_s, picture.lull_s) < cost_s


def _cost_s(group: Group, loads: Sequence[Load]) -> float | None:
    """What a flip to a group takes; None where a model of it was never measured."""
    known = {load.model_id: load.load_s for load in loads}
    costs = [known.get(model) for model in group.models]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _alone(load: Load) -> Group:
    why = "one model at a time"
    return Group(models=(load.model_id,), parallel={}, memory_mib=load.footprint_mib, why=why)


def _with(first: Load, order: Sequence[Load], budget_mib: int) -> Group:
    chosen, used = [first.model_id], first.footprint_mib
    for load in order:
        if used + load.footprint_mib <= budget_mib and load.model_id not in chosen:
            chosen.append(load.model_id)
            used += load.footprint_mib
    why = f"declared footprints within {budget_mib} MiB" if len(chosen) > 1 else f"no other fits {budget_mib} MiB"
    return Group(models=tuple(sorted(chosen)), parallel={}, memory_mib=used, why=why)


def _explained(
    group: Group, picture: Picture, held: Held | None, waiting: Sequence[Load], cost_s: float | None
) -> dict[str, Any]:
    """What a decision was made of, as far as there was anything of it."""
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
        "calls": {str(load.model_id): load.calls for load in picture.loads if load.calls},
        **{name: round(value, 3) for name, value in seconds.items() if value},
    }
