"""When to flip, and to what. Pure: a picture of the work goes in, a target or nothing comes out.

Drain what is resident across all samples and jobs before flipping: with two models that is at most one load above the
optimum, whatever the pipelines do.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from shared.contracts.calls import Lane

RETRIES = 3
"""Quarantined residencies in a row before the device waits for an operator."""
RETRY_S = 10.0
"""Wait before a quarantined device is tried again, times the failures so far."""
DRAIN = "drain"
"""Cause of a residency without models: the operator wants the device empty."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A model that needs the lease and is wanted: by calls in the queue, pending or claimed, or later by a live job."""

    model_id: int
    footprint_mib: int
    lane: Lane
    calls: int


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The work as one snapshot of the database shows it."""

    loads: tuple[Load, ...]
    ready: bool
    """Some sample can be advanced: it may ask for anything."""
    cpu_calls: int
    """Open calls that need no lease and whose replies may lead to model calls (not grades)."""
    cpu_idle_s: float
    """Seconds since `cpu_calls` last changed."""


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


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Models that the plan lets be resident at once, with the slots that there is room for."""

    parallel: dict[int, int]
    """By model; what is missing runs with the slots that are configured."""
    models: tuple[int, ...]
    predicted_mib: int
    why: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The residency that is wanted next, and why."""

    models: tuple[int, ...]
    cause: str
    parallel: dict[int, int] = {}
    """Slots by model, where the plan gives fewer than are configured."""
    plan: dict[str, Any] = {}
    """What the decision was made of; stands on the residency's row."""


def decide(
    picture: Picture,
    held: Held | None,
    *,
    together: bool,
    budget_mib: int,
    patience_s: float,
    drained: bool = False,
) -> Target | None:
    """The residency to flip to, or None to stay.

    `together` allows several models at once as far as their declared footprints fit the budget. A `drained` device
    is emptied once, whatever waits for it, and then left alone.
    """
    if drained:
        return _emptied(held)
    if not any(load.calls for load in picture.loads) or _flipping(held) or _waits_for_operator(held):
        return None
    stalled = picture.cpu_calls > 0 and picture.cpu_idle_s > patience_s
    if picture.ready or (picture.cpu_calls > 0 and not stalled) or _resident_work(picture, held):
        return None
    models = _choose(picture.loads, together=together, budget_mib=budget_mib)
    return Target(models=models, cause="cpu_stalled" if stalled else _cause(held))


def _emptied(held: Held | None) -> Target | None:
    """Even a quarantined device is emptied at once; only an emptying that failed waits for its next try."""
    if held is None or _flipping(held):
        return None
    if held.models or (held.state == "quarantined" and not _waits_for_operator(held)):
        return Target(models=(), cause=DRAIN)
    return None


def _flipping(held: Held | None) -> bool:
    return held is not None and held.state not in ("open", "closed", "quarantined")


def _waits_for_operator(held: Held | None) -> bool:
    if held is None or held.state != "quarantined":
        return False
    return held.failures > RETRIES or held.age_s < RETRY_S * held.failures


def _resident_work(picture: Picture, held: Held | None) -> bool:
    """Whether the resident models still have calls: the device is not drained."""
    if held is None or held.state != "open":
        return False
    return any(load.model_id in held.models and load.calls for load in picture.loads)


def _choose(loads: Sequence[Load], *, together: bool, budget_mib: int) -> tuple[int, ...]:
    """The judge's models before the generator's, more calls before fewer: what others wait for comes first."""
    order = sorted(loads, key=lambda load: (load.calls == 0, load.lane is not Lane.JUDGE, -load.calls, load.model_id))
    chosen, used = [order[0].model_id], order[0].footprint_mib
    for load in order[1:] if together else ():
        if used + load.footprint_mib <= budget_mib and load.model_id not in chosen:
            chosen.append(load.model_id)
            used += load.footprint_mib
    return tuple(sorted(chosen))


def _cause(held: Held | None) -> str:
    if held is None:
        return "first"
    if held.state == "quarantined":
        return "retry"
    if held.state == "closed":
        return held.reason or "drained"
    return "drained" if held.models else "released"
