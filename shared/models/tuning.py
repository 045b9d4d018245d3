"""Measurements of how many calls at once a model answers fastest, and the choice among them."""

from collections.abc import Sequence
from statistics import median

import msgspec

from shared.calls import Decoding
from shared.settings import Model

SIZES = (1, 2, 4, 8, 16, 32)
"""Numbers of slots that are measured, in this order."""
WINDOWS = 3
"""Windows measured for each number of slots, of which the median counts."""
WORSE = 2
"""Numbers of slots in a row that are slower than the best before the measurement ends."""
NEAR = 0.95
"""Share of the highest speed from which a smaller number of slots is preferred: it takes less memory."""


class SampleCall(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of the measurement, and how it is decoded."""

    prompt: str
    decoding: Decoding


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of the measurement, repeated as often as needed, and the shortest length of a window in seconds."""

    calls: tuple[SampleCall, ...]
    window_s: float


class Measurement(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """The speed with one number of slots."""

    slots: int
    windows: tuple[float, ...]
    """Calls per second in each window."""
    mib: int | None
    """Memory of the model with these slots, as plans estimate it; None if nothing is known of it."""

    @property
    def calls_s(self) -> float:
        """Return the median of the windows, in calls per second."""
        return median(self.windows)


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag="skipped"):
    """A number of slots that was not measured; nor were larger ones."""

    slots: int
    reason: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem"):
    """Why the measurement ended without a result; `kind` is that of an error."""

    kind: str
    message: str
    hint: str = ""


Line = Measurement | Skipped | Problem
"""A line of the output of `python -m services.guard --tune`, as JSON."""


def is_llama(model: Model) -> bool:
    """Tell whether the guard starts a llama.cpp for the model, whose slots are fixed at the start."""
    return model.driver == "process" and model.server in ("embedded", "llama.cpp")


def has_peaked(measured: Sequence[Measurement]) -> bool:
    """Tell whether the last `WORSE` numbers of slots were slower than the best before them."""
    before, last = measured[:-WORSE], measured[-WORSE:]
    return bool(before) and max(each.calls_s for each in last) < max(each.calls_s for each in before)


def choose(measured: Sequence[Measurement]) -> Measurement:
    """Return the measurement with the fewest slots that reaches `NEAR` of the highest speed."""
    best = max(each.calls_s for each in measured)
    return min((each for each in measured if each.calls_s >= NEAR * best), key=lambda each: each.slots)
