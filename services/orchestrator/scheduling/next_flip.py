"""What a device's next flip waits for, as far as its queue tells."""

from collections.abc import Sequence

import msgspec

from shared.statistics.intervals import poisson
from shared.storage.lanes import LaneWork

FEWEST = 5
"""Calls that must have ended in the window before their pace says when the others will."""


class NextFlip(msgspec.Struct, frozen=True, kw_only=True):
    """Calls wait for models that the device does not hold."""

    models: list[str]
    """That calls wait for, the longest queue first."""
    waiting: int
    """Calls for these."""
    left: int
    """Calls for what is resident now, which are answered first; they may lead to more."""
    low_s: float | None = None
    """Seconds until these are answered, by the 95 % interval of their pace in the last 30 s. Null: too few ended."""
    high_s: float | None = None


def next_flip(device: str, resident: Sequence[str], work: Sequence[LaneWork]) -> NextFlip | None:
    """None: nothing waits for a model that `device` does not hold."""
    here = [each for each in work if each.device == device]
    waiting = sorted(
        (each for each in here if each.queued and each.model not in resident), key=lambda each: -each.queued
    )
    if not waiting:
        return None
    held = [each for each in here if each.model in resident]
    left = sum(each.queued for each in held)
    low_s, high_s = _seconds(left, held)
    return NextFlip(
        models=[each.model for each in waiting], waiting=sum(each.queued for each in waiting), left=left,
        low_s=low_s, high_s=high_s,
    )  # fmt: skip


def _seconds(left: int, held: Sequence[LaneWork]) -> tuple[float | None, float | None]:
    ended = sum(each.ended for each in held)
    if not left or ended < FEWEST:
        return None, None
    few, many = poisson(ended)
    window_s = held[0].window_s
    return left * window_s / many, left * window_s / few
