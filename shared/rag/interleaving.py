"""Lists merged by turns."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def interleaved(lists: Sequence[Sequence[T]]) -> Iterator[T]:
    """The first of every list, then the second ..."""
    end = object()
    for row in zip_longest(*lists, fillvalue=end):
        yield from (each for each in row if each is not end)  # type: ignore[misc]


def first_of_each(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """The first item of every key, in their order."""
    first: dict[Hashable, T] = {}
    for each in items:
        first.setdefault(key(each), each)
    return list(first.values())
