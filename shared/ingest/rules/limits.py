"""How much of a file of rules is read; what is beyond it is refused."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Of one file."""

    unpacked_bytes: int = 1 << 30
    line_bytes: int = 1 << 16
    document_bytes: int = 64 << 20
    """Of a file that is one JSON document, which is held in memory as a whole."""
    rules: int = 1_000_000


DEFAULT = Limits()
