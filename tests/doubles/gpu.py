"""A GPU that is a file: doubles of model servers and tests write who holds what, and the stand-in of NVML reads it.

gpu = Gpu(folder / "gpu.json")
running_stack(data_dir, **gpu.environment())    # its guard measures this GPU, by the code that measures a real one
gpu.take(3072)                                  # somebody else needs it
gpu.lag_s = 4                                   # what is let go from now on shows as free four seconds later
gpu.hide("Driver Not Loaded")                   # what NVML says from now on; "GPU is lost": it fell off the bus
gpu.relieve()                                   # all of this is over
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STAND_IN = Path(__file__).parent / "nvml"
STRANGER = 6_000_000
"""Process ids are larger than any that Linux gives, so that nobody is killed by mistake."""


class Gpu:
    """One device. Sizes in MiB; `base` is what the driver itself holds."""

    def __init__(self, file: Path, uuid: str, *, total: int = 4096, base: int = 200) -> None:
        self.uuid = uuid
        self.lag_s = 0.0
        self._file = file
        self._total, self._base = total, base
        self._held: dict[int, dict[str, Any]] = {}
        self._error: str | None = None
        self._write()

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which a process measures it."""
        return {"PYTHONPATH": str(STAND_IN), "NVML_STAND_IN": str(self._file)}

    def show(self, holders: Mapping[int, tuple[str, float]]) -> None:
        """What a model server holds now, by process id; what it held before and does not any more is let go."""
        for pid in [pid for pid, held in self._held.items() if pid not in holders and pid != STRANGER]:
            self._held[pid].setdefault("until", time.time() + self.lag_s)
        self._held |= {pid: {"name": name, "mib": mib} for pid, (name, mib) in holders.items()}
        self._write()

    def take(self, mib: float) -> None:
        """Let another process occupy this much."""
        self._held[STRANGER] = {"name": "/usr/bin/somebody", "mib": mib}
        self._write()

    def hide(self, error: str) -> None:
        """Let NVML answer every call with this error."""
        self._error = error
        self._write()

    def relieve(self) -> None:
        """Reset: no foreign processes, no lag, and NVML answers."""
        self._held.pop(STRANGER, None)
        self.lag_s, self._error = 0.0, None
        self._write()

    def _write(self) -> None:
        now = time.time()
        self._held = {pid: held for pid, held in self._held.items() if held.get("until", now + 1) > now}
        state = {"uuid": self.uuid, "total": self._total, "base": self._base, "held": self._held, "error": self._error}
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self._file)
