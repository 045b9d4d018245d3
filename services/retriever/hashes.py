"""The documents of an index, as a file of 32 bytes each."""

from collections.abc import Sequence
from pathlib import Path

from shared.errors import Invalid

FILE = "documents.bin"
_SIZE = 32


def write(folder: Path, documents: Sequence[str]) -> None:
    """Write the hex hashes `documents` into `folder`, in order."""
    (folder / FILE).write_bytes(b"".join(map(bytes.fromhex, documents)))


def read(folder: Path) -> list[str]:
    """The hex hashes that `write` wrote, in order."""
    data = (folder / FILE).read_bytes()
    return [data[at : at + _SIZE].hex() for at in range(0, len(data), _SIZE)]


def ascending(documents: Sequence[str]) -> list[int]:
    """Positions of `documents` in ascending order of hash.

    Raises:
        Invalid: there is none.
    """
    if not documents:
        raise Invalid("The corpus has no documents, so there is nothing to index")
    return sorted(range(len(documents)), key=documents.__getitem__)
