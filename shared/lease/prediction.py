"""What a load is expected to take: from what loads took before, from what is declared, or from metadata. Pure.

The upper end of the learned band plus `BAND_MARGIN`; before the first load what the operator declares, else the
estimate plus `ESTIMATE_MARGIN`. What fewer slots save is the estimate's share of the KV cache.

On a CPU a process's own memory drowns small models, so there bands predict nothing: the declared footprint stays what
is held against the budget.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from shared.lease.footprint import F16_BYTES, Architecture, estimate

ESTIMATE_MARGIN = 0.05
"""Of an estimate: work spaces of libraries, and pages that are given out whole."""
BAND_MARGIN = 0.02
"""Of a band's upper end: what loads of the same differ by."""
FAR = 0.25
"""Outside the band by more than this part of it is far."""
FAR_MIB = 64.0
"""Nothing nearer is."""


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """What loads took, in MiB."""

    least_mib: float
    most_mib: float
    loads: int = 1

    def widened(self, mib: float) -> "Band":
        """With one more load."""
        return Band(least_mib=min(self.least_mib, mib), most_mib=max(self.most_mib, mib), loads=self.loads + 1)

    def far(self, mib: float) -> bool:
        """Whether a load took something else altogether."""
        below, above = self.least_mib - mib, mib - self.most_mib
        return max(below, above) > max(FAR_MIB, FAR * self.most_mib)


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What a load is expected to take, by its slots."""

    fixed_mib: float
    per_slot_mib: float
    basis: Literal["learned", "declared", "estimated", "unknown"]
    """`unknown`: nothing is declared, told or learned; it counts as nothing, as it always did."""

    def at(self, parallel: int) -> int:
        """With so many slots, in whole MiB rounded up."""
        return math.ceil(round(self.fixed_mib + self.per_slot_mib * parallel, 6))


def predict(
    *,
    declared_mib: int,
    architecture: Architecture | None,
    context: int,
    parallel: int,
    on_gpu: bool,
    bands: Mapping[int, Band] | None = None,
    kv_bytes: float = F16_BYTES,
) -> Predicted:
    """From the best that is known; `parallel`: slots as configured, `bands`: by slots, of the model on its device."""
    found = None
    if architecture:
        found = estimate(architecture, context=context, parallel=parallel, kv_bytes=kv_bytes, on_gpu=on_gpu)
    per_slot = found.kv_mib / parallel if found else 0.0
    if bands and on_gpu:
        slots = parallel if parallel in bands else max(bands)
        return _through(bands[slots].most_mib * (1 + BAND_MARGIN), slots, per_slot, "learned")
    if declared_mib > 0:
        return _through(declared_mib, parallel, per_slot, "declared")
    if found:
        factor = 1 + ESTIMATE_MARGIN
        return _through(found.total * factor, parallel, per_slot * factor, "estimated")
    return Predicted(fixed_mib=0, per_slot_mib=0, basis="unknown")


def context_of(options: Mapping[str, Any]) -> int:
    """Tokens per slot, as a model row's options call it; 0: they do not say."""
    return int(options.get("context") or options.get("num_ctx") or 0)


def _through(mib: float, slots: int, per_slot: float, basis: Any) -> Predicted:
    """A line through what is known; slots cannot take more than all of it."""
    if per_slot * slots > mib:
        return Predicted(fixed_mib=mib, per_slot_mib=0, basis=basis)
    return Predicted(fixed_mib=mib - per_slot * slots, per_slot_mib=per_slot, basis=basis)
