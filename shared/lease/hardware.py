"""Estimate the seconds of loads and calls that were not measured yet, from typical hardware. Pure.

A load reads the weights from disk. A call decodes its longest answer, and every token of it reads the weights once for
all slots together. Prompts are not counted, so the time per token is a lower bound, and the number of tokens an upper
bound. Measurements replace these estimates.
"""

import msgspec

from shared.lease.estimates import Estimate


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Assumed speeds of the hardware."""

    disk_mib_s: float = 500.0
    """Speed of reading from disk: that of a SATA SSD; NVMe is several times as fast."""
    gpu_mib_s: float = 343_000.0
    """Speed of reading from GPU memory: the 360 GB/s of an RTX 3060 with 12 GB, by its data sheet."""
    cpu_mib_s: float = 20_000.0
    """Speed of reading from main memory: one channel of DDR4-2666, by the standard 21.3 GB/s."""
    verify_s: float = 0.4
    """Seconds for the three readings, 200 ms apart, which verify that memory is free after an unload."""

    def load(self, weights_mib: float) -> Estimate:
        """Estimate the seconds of a load of `weights_mib`."""
        detail = f"{weights_mib:.0f} MiB of weights at {self.disk_mib_s:.0f} MiB/s, and {self.verify_s:g} s to verify"
        return Estimate(value=weights_mib / self.disk_mib_s + self.verify_s, source="assumed", detail=detail)

    def call(self, weights_mib: float, *, tokens: int, parallel: int, on_gpu: bool) -> Estimate:
        """Estimate the seconds of a call that answers with `tokens` tokens, while all slots are busy."""
        speed = self.gpu_mib_s if on_gpu else self.cpu_mib_s
        detail = (
            f"{tokens} tokens, each reading {weights_mib:.0f} MiB at {speed:.0f} MiB/s, for {parallel} slots at once"
        )
        return Estimate(value=tokens * weights_mib / speed / parallel, source="assumed", detail=detail)
