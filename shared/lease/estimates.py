"""Figures that a plan is made from, each with its source. Pure.

`declared` by the operator, `measured` in the last calls and loads, `learned` from what loads took, or `assumed` from
the model's metadata and what hardware does.
"""

import math
from typing import Literal

import msgspec

Source = Literal["declared", "measured", "learned", "assumed"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "basis", "detail": "source"}):
    """Seconds, and how they are known. In the API `source` is called `basis`, and `detail` is called `source`."""

    value: float
    source: Source
    detail: str
    """Such as "its last loads here" or "4466 MiB at 500 MiB/s"."""


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a load takes, by its slots."""

    fixed_mib: float
    per_slot_mib: float
    source: Source | None
    """None: nothing is known; it counts as nothing."""

    def at(self, parallel: int) -> int:
        """With so many slots, in whole MiB rounded up."""
        return math.ceil(round(self.fixed_mib + self.per_slot_mib * parallel, 6))

    @property
    def basis(self) -> str:
        """The source, as the API and the guard's reports call it."""
        return {"assumed": "estimated", None: "unknown"}.get(self.source) or str(self.source)
