"""Estimates what a device's next flip waits for, from its queue."""

from collections.abc import Sequence

import msgspec

from shared.statistics.intervals import poisson_interval
from shared.storage.jobs import LaneWork

FEWEST = 5
"""Number of calls that must have ended in the window before their pace predicts when the others will."""


class NextFlip(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that wait for models which the device does not hold."""

    models: list[str]
    """Models that calls wait for, the longest queue first."""
    waiting: int
    """Number of calls for these models."""
    left: int
    """Number of calls for the resident models, which are answered first; they may lead to more."""
    low_s: float | None = None
    """Lower bound of the seconds until these are answered, by the 95 % interval of their pace in the last 30 s; null
    if too few have ended.
    """
    high_s: float | None = None


def predict_next_flip(device: str, resident: Sequence[str], work: Sequence[LaneWork]) -> NextFlip | None:
    """Return what the next flip waits for; None if nothing waits for a model that `device` does not hold."""
    here = [each for each in work if each.device == device]
    waiting = sorted(
        (each for each in here if each.queued and each.model not in resident), key=lambda each: -each.queued
    )
    if not waiting:
        return None
    resident_groups = [each for each in here if each.model in resident]
    left = sum(each.queued for each in resident_groups)
    low_s, high_s = _estimate_seconds(left, resident_groups)
    return NextFlip(
        models=[each.model for each in waiting], waiting=sum(each.queued for each in waiting), left=left,
        low_s=low_s, high_s=high_s,
    )  # fmt: skip


def _estimate_seconds(left: int, held: Sequence[LaneWork]) -> tuple[float | None, float | None]:
    ended = sum(each.ended for each in held)
    if not left or ended < FEWEST:
        return None, None
    few, many = poisson_interval(ended)
    window_s = held[0].window_s
    return left * window_s / many, left * window_s / few
