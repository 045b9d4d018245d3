"""The operations of the Python client as a page shows them: how each is called, what it answers, and what it does.

They are descriptors, so whoever reads source without importing it sees no signature; here they are imported.
"""

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from mathrag import Client
from mathrag.client.client import OperationGroups
from mathrag.client.operations import Described

UNUSED = "http://127.0.0.1:1"
MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])")
ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)


def operations() -> str:
    """Every group with its operations, as Markdown."""
    with Client(UNUSED) as client:
        return "\n\n".join(
            "\n\n".join([f"### client.{name}", f"{_first(type(getattr(client, name)))}", *_of(getattr(client, name))])
            for name, attribute in vars(OperationGroups).items()
            if isinstance(attribute, cached_property)
        )


def _of(group: Any) -> Iterator[str]:
    for name, value in vars(type(group)).items():
        if isinstance(value, Described):
            call = f"{name}{inspect.signature(getattr(group, name))}"
            yield f"```python\n{_wrapped(MODULE.sub('', call))}\n```\n\n{_said(value)}"


def _wrapped(call: str) -> str:
    """A call that is longer than a line has an argument on each."""
    if len(call) <= 100:
        return call
    head, _, rest = call.partition("(")
    arguments, _, answer = rest.rpartition(") -> ")
    parts = re.split(r", (?![^\[]*\])", arguments)
    return "\n".join([f"{head}(", *(f"    {part}," for part in parts), f") -> {answer}"])


def _said(operation: Described[..., Any]) -> str:
    first, _, arguments = inspect.cleandoc(operation.__doc__ or "").partition("\n\nArgs:\n")
    return first + ("\n\n" + ARGUMENT.sub(r"- `\1`: ", arguments) if arguments else "")


def _first(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "")
