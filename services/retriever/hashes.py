"""Read and write the hashes of an index's documents, a file of 32 bytes each."""

from collections.abc import Sequence
from pathlib import Path

from shared.errors import Invalid

FILE = "documents.bin"
_SIZE = 32


def write(folder: Path, documents: Sequence[str]) -> None:
    """Write the hex hashes `documents` into `folder`, in order."""
    (folder / FILE).write_bytes(b"".join(map(bytes.fromhex, documents)))


def read(folder: Path) -> list[str]:
    """Read the hex hashes that `write` wrote, in order."""
    data = (folder / FILE).read_bytes()
    return [data[at : at + _SIZE].hex() for at in range(0, len(data), _SIZE)]


def sort_positions(documents: Sequence[str]) -> list[int]:
    """Return the positions of `documents` in ascending order of hash.

    Raises:
        Invalid: there are no documents.
    """
    if not documents:
        raise Invalid("the corpus has no documents to index: upload some")
    return sorted(range(len(documents)), key=documents.__getitem__)
