"""Merge lists by turns."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def interleave(lists: Sequence[Sequence[T]]) -> Iterator[T]:
    """Return the first item of every list, then the second, and so on."""
    end = object()
    for row in zip_longest(*lists, fillvalue=end):
        yield from (each for each in row if each is not end)  # type: ignore[misc]


def keep_first_of_each(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return the first item of every key, in order."""
    first: dict[Hashable, T] = {}
    for each in items:
        first.setdefault(key(each), each)
    return list(first.values())
