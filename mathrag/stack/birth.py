"""The start of a process by a clock that cannot be set, which tells it from a later process with the same id."""

from pathlib import Path

import psutil

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""File with an id that changes at every boot of the machine."""
START = 19
"""Index of the start time among the fields of /proc/PID/stat after the name: proc(5), field 22."""


def read_birth(pid: int) -> str:
    """Return the boot id and the start in clock ticks since boot; "" if there is no such process."""
    try:
        if not BOOT.exists():
            return str(psutil.Process(pid).create_time())
        # The name stands in brackets and may hold any character, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.NoSuchProcess):
        return ""
    return f"{BOOT.read_text().strip()} {fields[START]}"
