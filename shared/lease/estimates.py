"""Estimates that a plan is made from, each with its source. Pure.

A source is `declared` by the operator, `measured` in the last calls and loads, `learned` from what loads took, or
`assumed` from the model's metadata and typical hardware.
"""

import math
from typing import Literal

import msgspec

Source = Literal["declared", "measured", "learned", "assumed"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "basis", "detail": "source"}):
    """Seconds with their source. In the API `source` is called `basis`, and `detail` is called `source`."""

    value: float
    source: Source
    detail: str
    """How the value came about, such as "its last loads here" or "4466 MiB at 500 MiB/s"."""


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a load as a function of its slots."""

    fixed_mib: float
    per_slot_mib: float
    source: Source | None
    """None if nothing is known; the memory then counts as 0."""

    def at(self, parallel: int) -> int:
        """Return the memory with `parallel` slots, in whole MiB rounded up."""
        return math.ceil(round(self.fixed_mib + self.per_slot_mib * parallel, 6))

    @property
    def basis(self) -> str:
        """The source in the words of the API and of the guard's reports."""
        return {"assumed": "estimated", None: "unknown"}.get(self.source) or str(self.source)
