"""List the differences between two trees of values, such as two versions of a configuration."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

Tree = Mapping[str, Any]
Path = tuple[str, ...]


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs between two trees, or that only one of them has."""

    name: str
    """Such as `gate.tau`."""
    change: Literal["added", "removed", "changed"]
    """What leads from left to right."""
    left: Any = None
    """Null where it was added."""
    right: Any = None
    """Null where it was removed."""


def compare_trees(left: Tree, right: Tree) -> list[ValueDifference]:
    """List the changes that turn `left` into `right`, sorted by name."""
    before, after = dict(_walk_leaves(left)), dict(_walk_leaves(right))
    return [
        _make_difference(path, before, after)
        for path in sorted(before.keys() | after.keys())
        if path not in before or path not in after or not _is_same(before[path], after[path])
    ]


def flatten_tree(tree: Tree) -> dict[str, Any]:
    """Return every value of the tree by its dotted name, such as `gate.tau`."""
    return {".".join(path): value for path, value in sorted(_walk_leaves(tree), key=lambda leaf: leaf[0])}


def _walk_leaves(tree: Tree, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each value with its path, as a tuple because a name may contain a dot."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _walk_leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _is_same(left: object, right: object) -> bool:
    """Return whether both values are written alike: in Python, True equals 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _make_difference(path: Path, before: Mapping[Path, Any], after: Mapping[Path, Any]) -> ValueDifference:
    name = ".".join(path)
    if path not in before:
        return ValueDifference(name=name, change="added", right=after[path])
    if path not in after:
        return ValueDifference(name=name, change="removed", left=before[path])
    return ValueDifference(name=name, change="changed", left=before[path], right=after[path])
