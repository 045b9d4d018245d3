"""Every operation of the clients, as the tests walk over them."""

import inspect
import typing
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from mathrag.client.client import Client, OperationGroups
from mathrag.client.operations import Described


class Found(NamedTuple):
    """An operation, and where it is."""

    group: str
    name: str
    operation: Described[..., Any]

    def __str__(self) -> str:
        return f"client.{self.group}.{self.name}"


def every_operation() -> Iterator[Found]:
    """All of them."""
    with Client("http://127.0.0.1:1") as client:
        for group, attribute in vars(OperationGroups).items():
            kind = type(getattr(client, group)) if isinstance(attribute, cached_property) else object
            for name, value in vars(kind).items():
                if isinstance(value, Described):
                    yield Found(group, name, value)


def arguments(operation: Described[..., Any]) -> dict[str, Any]:
    """Something for every argument, those with defaults included, and those that have a name of their own."""
    hints = typing.get_type_hints(operation.describe)
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(operation.describe).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = _example(name, hints[name])
            continue
        of = typing.get_args(hints[name])
        for each, hint in typing.get_type_hints(of[0]).items() if of else ():
            found[each] = _example(each, hint)
    return found


def _example(name: str, hint: Any) -> Any:
    if name in ("progress", "reader"):
        return None
    if name == "columns":
        return {"answer": "prediction"}
    if name in ("params", "models", "metadata", "document", "job_", "retrieval", "speeds"):
        return {}
    if name in ("references", "splits"):
        return ["a", "b"]
    if name == "devices" or str(hint).startswith("collections.abc.Sequence[collections.abc.Mapping"):
        return []
    return _of_kind(hint)


def _of_kind(hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    choices = typing.get_args(hint) or (hint,)
    for kind, value in ((str, "x"), (bool, True), (int, 1), (float, 0.5)):
        if kind in choices:
            return value
    literal = next((each for each in choices if typing.get_origin(each) is typing.Literal), None)
    return None if literal is None else _of_kind(literal)
