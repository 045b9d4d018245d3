"""The input of a plan: models with their memory, calls and times, and devices with their budgets. Pure."""

import msgspec

from shared.contracts.calls import Lane
from shared.lease.estimates import Estimate, MemoryEstimate


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted model, with what it needs."""

    model_id: int
    name: str
    lane: Lane
    memory: MemoryEstimate
    parallel: int
    """Configured slots: the upper bound of what a plan gives it."""
    context: int
    """Tokens per slot."""
    calls: int
    call_s: Estimate
    """Seconds of the device per call, with all slots busy."""
    load_s: Estimate
    """Seconds from the close of the previous residency to the opening, with unloading and verification."""
    shared: bool = True
    """Whether slots share the reading of the weights, as on a GPU, where half the slots take twice as long. On a CPU
    slots save no work, so fewer cost nothing."""
    device: str | None = None
    """The device that it is pinned to; None if it may be on any."""

    def service_s(self, parallel: int) -> float:
        """Return the seconds of all its calls with `parallel` slots."""
        return self.calls * self.call_s.value * (self.parallel / parallel if self.shared else 1)

    def list_halvings(self) -> list[int]:
        """List the numbers of slots that a plan tries, from the configured one down to 1."""
        tried = [self.parallel]
        while tried[-1] > 1:
            tried.append(tried[-1] // 2)
        return tried


class RetrievalDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Searches, which run on the CPU without a lease, or on the GPU within the memory of the first residency."""

    mib: int
    calls: int
    gpu_s: Estimate
    """Seconds per search on the GPU."""
    cpu_s: Estimate


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A device and its budget."""

    device: str
    budget_mib: int
    resident: tuple[int, ...] = ()
    """Models that it holds now."""
