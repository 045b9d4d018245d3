"""When a process began, by a clock that nobody sets: it tells a process from a later one with the same id."""

from pathlib import Path

import psutil

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another one after every boot of the machine."""
START = 19
"""Place of the start among the fields of /proc/PID/stat behind the name: proc(5), field 22."""


def birth(pid: int) -> str:
    """The boot and the clock ticks since then; empty when there is no such process."""
    try:
        if not BOOT.exists():
            return str(psutil.Process(pid).create_time())
        # The name stands in brackets and may hold any character, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.NoSuchProcess):
        return ""
    return f"{BOOT.read_text().strip()} {fields[START]}"
