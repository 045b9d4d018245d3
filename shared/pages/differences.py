"""What differs between two trees of values, such as two versions of a configuration."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

Tree = Mapping[str, Any]
Path = tuple[str, ...]


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that one tree has and the other has not, or has otherwise."""

    name: str
    """Such as `gate.tau`."""
    change: Literal["added", "removed", "changed"]
    """From left to right."""
    left: Any = None
    """Null where it was added."""
    right: Any = None
    """Null where it was removed."""


def differences(left: Tree, right: Tree) -> list[ValueDifference]:
    """What has to be done to `left` so that it becomes `right`, by name."""
    before, after = dict(_leaves(left)), dict(_leaves(right))
    return [
        _difference(path, before, after)
        for path in sorted(before.keys() | after.keys())
        if path not in before or path not in after or not _same(before[path], after[path])
    ]


def leaves(tree: Tree) -> dict[str, Any]:
    """Every value by its name, such as `gate.tau`."""
    return {".".join(path): value for path, value in sorted(_leaves(tree), key=lambda leaf: leaf[0])}


def _leaves(tree: Tree, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """By path and not by name: a name may hold a dot."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _same(left: object, right: object) -> bool:
    """Whether both are written alike: Python holds true for 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _difference(path: Path, before: Mapping[Path, Any], after: Mapping[Path, Any]) -> ValueDifference:
    name = ".".join(path)
    if path not in before:
        return ValueDifference(name=name, change="added", right=after[path])
    if path not in after:
        return ValueDifference(name=name, change="removed", left=before[path])
    return ValueDifference(name=name, change="changed", left=before[path], right=after[path])
