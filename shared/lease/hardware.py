"""Seconds of loads and calls that nothing has measured yet, from what hardware does. Pure.

A load reads the weights from disk. A call decodes its longest answer, and every token of it reads the weights once, for
all slots at the same time; prompts are not counted, so it is a lower end per token and an upper end in tokens. As soon
as something was measured, nothing of this is used.
"""

import msgspec

from shared.lease.estimates import Estimate


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast it is, where nobody says otherwise."""

    disk_mib_s: float = 500.0
    """Reading from disk: what the interface of a SATA SSD carries; NVMe reads several times as fast."""
    gpu_mib_s: float = 343_000.0
    """Reading from GPU memory: the 360 GB/s of an RTX 3060 with 12 GB, by its data sheet."""
    cpu_mib_s: float = 20_000.0
    """Reading from main memory: a channel of DDR4-2666, by the standard 21.3 GB/s."""
    verify_s: float = 0.4
    """Looking three times, 200 ms apart, whether what was unloaded is free."""

    def load(self, weights_mib: float) -> Estimate:
        """A load of so many weights."""
        detail = f"{weights_mib:.0f} MiB of weights at {self.disk_mib_s:.0f} MiB/s, and {self.verify_s:g} s to verify"
        return Estimate(value=weights_mib / self.disk_mib_s + self.verify_s, source="assumed", detail=detail)

    def call(self, weights_mib: float, *, tokens: int, parallel: int, on_gpu: bool) -> Estimate:
        """A call that answers with so many tokens, while all slots are busy."""
        speed = self.gpu_mib_s if on_gpu else self.cpu_mib_s
        detail = (
            f"{tokens} tokens, each reading {weights_mib:.0f} MiB at {speed:.0f} MiB/s, for {parallel} slots at once"
        )
        return Estimate(value=tokens * weights_mib / speed / parallel, source="assumed", detail=detail)
