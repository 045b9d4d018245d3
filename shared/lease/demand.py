"""What a plan is made from: models with their memory, calls and times, and devices that have room for them. Pure."""

import msgspec

from shared.contracts.calls import Lane
from shared.lease.estimates import Estimate, MemoryEstimate


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is wanted."""

    model_id: int
    name: str
    lane: Lane
    memory: MemoryEstimate
    parallel: int
    """Slots as configured: the most that it gets."""
    context: int
    """Tokens of a slot."""
    calls: int
    call_s: Estimate
    """Of the device a call, with all slots busy."""
    load_s: Estimate
    """From the close of what was there to the opening: unloading and verifying included."""
    shared: bool = True
    """Slots share the reading of the weights, as on a GPU: half the slots take twice as long. On a CPU slots save no
    work, so fewer cost nothing."""
    device: str | None = None
    """Where it is pinned to."""

    def service_s(self, parallel: int) -> float:
        """All its calls, with so many slots."""
        return self.calls * self.call_s.value * (self.parallel / parallel if self.shared else 1)

    def halvings(self) -> list[int]:
        """The slots that are tried, most first."""
        tried = [self.parallel]
        while tried[-1] > 1:
            tried.append(tried[-1] // 2)
        return tried


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """Searches, which need no lease on a CPU, and memory of the first residency on a GPU."""

    mib: int
    calls: int
    gpu_s: Estimate
    """Of a search."""
    cpu_s: Estimate


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A device."""

    device: str
    budget_mib: int
    resident: tuple[int, ...] = ()
    """Models that it holds now."""
