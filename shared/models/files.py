"""Identify weights by their bytes: the SHA-256 of a file, or of a folder's files with their names."""

import hashlib
from functools import cache
from pathlib import Path


class WeightsMissing(OSError):
    """The file does not exist, or the folder is empty; the message names the fix."""


Signature = tuple[tuple[str, int, int, int, int], ...]
"""Path, inode, size and times of each file, which differ for another file."""


def digest(path: Path) -> str:
    """Compute the SHA-256 in hex; cached while the signature stays. A folder's hidden files do not count.

    Raises:
        WeightsMissing: there is nothing to hash.
    """
    if not path.is_dir():
        return hash_file(path, _read_status(path))
    total = hashlib.sha256()
    for file in _list_files(path):
        total.update(f"{file.relative_to(path).as_posix()} {hash_file(file, _read_status(file))}\n".encode())
    return total.hexdigest()


def read_signature(path: Path) -> Signature:
    """Read the signature of the weights from the current files.

    Raises:
        WeightsMissing: there is nothing at `path`.
    """
    return tuple((str(file), *_read_status(file)) for file in (_list_files(path) if path.is_dir() else [path]))


def _list_files(folder: Path) -> list[Path]:
    files = [
        each
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not any(part.startswith(".") for part in each.relative_to(folder).parts)
    ]
    if not files:
        raise WeightsMissing(
            f"no model in {folder}: the folder is empty; put config and weights there or change `models`"
        )
    return files


def _read_status(path: Path) -> tuple[int, int, int, int]:
    """Read inode, size and times; a copy with the same size and time of change differs in inode or status time."""
    try:
        status = path.stat()
    except OSError as error:
        raise WeightsMissing(f"no model file at {path}: {error.strerror}; put it there or change `models`") from error
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@cache
def hash_file(path: Path, _status: tuple[int, int, int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
