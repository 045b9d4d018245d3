"""Read the docstrings of attributes from the source: the string below each attribute."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any


@cache
def read_docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings of a class's attributes, inherited ones included, each on one line."""
    bases = [
        base for base in reversed(kind.__mro__) if base.__module__.split(".")[0] in ("mathrag", "services", "shared")
    ]
    return {name: text for base in bases for name, text in _list_own_docstrings(base)}


def _list_own_docstrings(kind: type[Any]) -> Iterator[tuple[str, str]]:
    source: Any = ast.parse(inspect.getsource(kind))
    for attribute, text in pairwise(source.body[0].body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(said))),
            ):
                yield name, " ".join(said.split())
