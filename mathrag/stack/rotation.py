"""Rotate logs: a full one is copied to a file with the suffix `.1`, then emptied.

All writers, PostgreSQL, Redis and the supervisor included, keep their descriptors and append, so they continue at the
beginning. They write to the file directly, so no line is lost when a writer or the supervisor is killed.
"""

import logging
import shutil
from pathlib import Path

SUFFIX = ".1"

_log = logging.getLogger(__name__)


def rotate(folder: Path, most_bytes: int) -> None:
    """Rotate the logs of `folder` that are larger than `most_bytes`; one older copy of each is kept.

    If the disk has no room for the copy, the log stays as it is until the next call. Lines that are written in the
    microseconds between the end of the copy and the truncation are lost.
    """
    for log in sorted(folder.glob("*.log")):
        try:
            if log.stat().st_size > most_bytes:
                _rotate(log)
        except OSError as error:
            _log.warning("%s cannot be rotated: %s", log, error)


def _rotate(log: Path) -> None:
    older = log.with_name(log.name + SUFFIX)
    older.unlink(missing_ok=True)  # first, because the disk may have no other room for the copy
    try:
        with log.open("r+b") as source, older.open("xb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            source.truncate(0)
    except OSError:
        older.unlink(missing_ok=True)
        raise
