"""What a model is, by its bytes: the SHA-256 of a file, or of a folder's files with their names."""

import hashlib
from functools import cache
from pathlib import Path


class NoWeights(OSError):
    """There is no such file, or nothing in the folder; the message names the fix."""


def digest(path: Path) -> str:
    """In hex; read once, as long as size and time of change stay. A folder's hidden files do not count.

    Raises:
        NoWeights: there is nothing to hash.
    """
    if not path.is_dir():
        return _of_file(path)
    files = sorted(each for each in path.rglob("*") if each.is_file() and not _hidden(each.relative_to(path)))
    if not files:
        raise NoWeights(f"no model in {path}: the folder is empty; put config and weights there or change `models`")
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(path).as_posix()} {_of_file(file)}\n".encode())
    return total.hexdigest()


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _of_file(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        raise NoWeights(f"no model file at {path}: {error.strerror}; put it there or change `models`") from error
    return _read(path, status.st_mtime_ns, status.st_size)


@cache
def _read(path: Path, _modified_ns: int, _size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
