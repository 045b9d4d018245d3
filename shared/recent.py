"""A bounded cache of the values that were used last."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[V]):
    """An LRU cache of values that never change, for use in one event loop.

    It cannot be read in place: `find` returns a new dictionary, so that an eviction during an `await` cannot take away
    the results of a request.
    """

    def __init__(self, most: int, size: Callable[[V], int] = lambda _: 1) -> None:
        """`most` is the upper bound of the sum of `size` over all values; by default every value counts 1."""
        self._most = most
        self._size = size
        self._kept: OrderedDict[Hashable, V] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the cached values of these keys, and mark them as used now."""
        found = {key: self._kept[key] for key in keys if key in self._kept}
        for key in found:
            self._kept.move_to_end(key)
        return found

    def keep(self, found: Mapping[K, V]) -> None:
        """Add values; the least recently used ones are evicted while the bound is exceeded."""
        for key, value in found.items():
            if key not in self._kept:
                self._total += self._size(value)
                self._kept[key] = value
        while self._total > self._most:
            _, value = self._kept.popitem(last=False)
            self._total -= self._size(value)
