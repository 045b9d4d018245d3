"""Tables in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with its header."""

    def lines() -> Iterator[str]:
        yield line(header)
        yield "|---" * len(header) + "|"
        yield from map(line, rows)

    return "\n".join(lines())


def line(cells: Sequence[Any]) -> str:
    """One line of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"
