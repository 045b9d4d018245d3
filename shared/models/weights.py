"""What a model is, by its bytes: the SHA-256 of a file, or of a folder's files with their names."""

import hashlib
from functools import cache
from pathlib import Path


class NoWeights(OSError):
    """There is no such file, or nothing in the folder; the message names the fix."""


Signature = tuple[tuple[str, int, int, int, int], ...]
"""Of each file its place on the disk, its size and its times: another file has another one."""


def digest(path: Path) -> str:
    """In hex; read once, as long as the signature stays. A folder's hidden files do not count.

    Raises:
        NoWeights: there is nothing to hash.
    """
    if not path.is_dir():
        return _of_file(path)
    total = hashlib.sha256()
    for file in _files(path):
        total.update(f"{file.relative_to(path).as_posix()} {_of_file(file)}\n".encode())
    return total.hexdigest()


def signature(path: Path) -> Signature:
    """Of what is there now.

    Raises:
        NoWeights: there is nothing.
    """
    return tuple((str(file), *_status(file)) for file in (_files(path) if path.is_dir() else [path]))


def _files(folder: Path) -> list[Path]:
    files = sorted(each for each in folder.rglob("*") if each.is_file() and not _hidden(each.relative_to(folder)))
    if not files:
        raise NoWeights(f"no model in {folder}: the folder is empty; put config and weights there or change `models`")
    return files


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _of_file(path: Path) -> str:
    return _read(path, _status(path))


def _status(path: Path) -> tuple[int, int, int, int]:
    """A copy that keeps size and time of change has another inode, or another time of its status."""
    try:
        status = path.stat()
    except OSError as error:
        raise NoWeights(f"no model file at {path}: {error.strerror}; put it there or change `models`") from error
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@cache
def _read(path: Path, _status: tuple[int, int, int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
