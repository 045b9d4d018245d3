"""Write tables in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table with its header."""

    def lines() -> Iterator[str]:
        yield line(header)
        yield "|---" * len(header) + "|"
        yield from map(line, rows)

    return "\n".join(lines())


def line(cells: Sequence[Any]) -> str:
    """Write one row of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"
