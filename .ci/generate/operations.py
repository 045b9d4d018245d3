"""The operations of the Python client as a page shows them: how each is called, what it answers, and what it does.

They are descriptors, so a reader of the source sees no signature; here they are imported.
"""

import inspect
import re
from functools import cached_property
from typing import Any

from mathrag import Client
from mathrag.client.client import OperationGroups
from mathrag.client.operations import Described

UNUSED = "http://127.0.0.1:1"
MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])")
ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)


def operations() -> str:
    """Return every group with its operations, as Markdown."""
    parts = []
    with Client(UNUSED) as client:
        for group_name, attribute in vars(OperationGroups).items():
            if isinstance(attribute, cached_property):
                group = getattr(client, group_name)
                parts += [f"### client.{group_name}", inspect.getdoc(group)]
                for name, operation in vars(type(group)).items():
                    if isinstance(operation, Described):
                        call = MODULE.sub("", f"{name}{inspect.signature(getattr(group, name))}")
                        parts += [f"```python\n{_wrap(call)}\n```", _describe(operation)]
    return "\n\n".join(parts)


def _wrap(call: str) -> str:
    """Break a call that is longer than a line, with an argument on each."""
    if len(call) <= 100:
        return call
    head, _, rest = call.partition("(")
    arguments, _, answer = rest.rpartition(") -> ")
    parts = re.split(r", (?![^\[]*\])", arguments)
    return "\n".join([f"{head}(", *(f"    {part}," for part in parts), f") -> {answer}"])


def _describe(operation: Described[..., Any]) -> str:
    first, _, arguments = inspect.cleandoc(operation.__doc__ or "").partition("\n\nArgs:\n")
    return first + ("\n\n" + ARGUMENT.sub(r"- `\1`: ", arguments) if arguments else "")
