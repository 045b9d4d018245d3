"""Logs that do not grow for ever: a full one is copied beside itself, then emptied.

The writers keep their descriptors, PostgreSQL, Redis and the supervisor itself among them, and append: they go on at
the beginning. Nothing stands between a writer and its file, so no line is lost when writer or supervisor is killed.
"""

import logging
import shutil
from pathlib import Path

SUFFIX = ".1"

_log = logging.getLogger(__name__)


def rotate(folder: Path, most_bytes: int) -> None:
    """Rotate the logs of `folder` that are larger; one older copy of each is kept.

    Without room for the copy nothing changes until the next call. Lines that are written between the end of the copy
    and the cut, some microseconds, are lost.
    """
    for log in sorted(folder.glob("*.log")):
        try:
            if log.stat().st_size > most_bytes:
                _rotate(log)
        except OSError as error:
            _log.warning("%s cannot be rotated: %s", log, error)


def _rotate(log: Path) -> None:
    older = log.with_name(log.name + SUFFIX)
    older.unlink(missing_ok=True)  # first: its room may be all that is left
    try:
        with log.open("r+b") as source, older.open("xb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            source.truncate(0)
    except OSError:
        older.unlink(missing_ok=True)
        raise
