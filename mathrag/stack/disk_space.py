"""Free space on the disk of the data folder: without it the servers end and cannot be restarted."""

import os
from pathlib import Path

NEEDED = 32 << 20
"""Bytes that must be free: PostgreSQL takes 16 MiB for its next WAL segment, while other processes write."""


def check_space(data_dir: Path) -> str | None:
    """Return a warning if less than `NEEDED` is free, else None."""
    disk = os.statvfs(data_dir)
    free = disk.f_bavail * disk.f_frsize
    if free >= NEEDED:
        return None
    return (
        f"the disk of `{data_dir}` is full ({free >> 20} MiB free): free {NEEDED >> 20} MiB or more, "
        "and the services start again by themselves"
    )
