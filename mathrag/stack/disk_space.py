"""Room on the disk of the data folder: without it the servers end, and cannot be started again."""

import os
from pathlib import Path

NEEDED = 32 << 20
"""Bytes. PostgreSQL takes 16 MiB for its next log segment, and everybody else writes meanwhile."""


def warning(data_dir: Path) -> str | None:
    """What to tell the operator where less than `NEEDED` is free; None where there is room."""
    disk = os.statvfs(data_dir)
    free = disk.f_bavail * disk.f_frsize
    if free >= NEEDED:
        return None
    return (
        f"the disk of `{data_dir}` is full ({free >> 20} MiB free): free {NEEDED >> 20} MiB or more, "
        "and what has ended starts again by itself"
    )
