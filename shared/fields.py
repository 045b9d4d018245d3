"""Fields of requests: their types, and texts for people who fill them in."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, create_model
from pydantic.fields import FieldInfo

# Types of fields that several requests have.


WHOLE = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
"""Accepts 91.0 as 91, as JSON does; strings and booleans are not numbers.

Use it as `Annotated[int, Field(...), WHOLE]`, in this order: only then are the bounds part of the schema.
"""
# PostgreSQL's text holds everything but NUL.
Stored = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
Metadata = Annotated[dict[Key, Stored], Field(max_length=16)]
"""At most 16 pairs, with keys of up to 64 and values of up to 512 characters."""
Rank = Annotated[int, Field(ge=0, le=32767), WHOLE]


def make_model(shape: type[msgspec.Struct]) -> Any:
    """Make a pydantic model with the fields of a struct, their defaults and descriptions.

    It is the base of a request that becomes such a struct, and checks the annotations of pydantic that the struct's
    fields have.
    """
    fields: Any = {}
    texts = read_docstrings(shape)
    for each in msgspec.structs.fields(shape):
        default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
        field = Field(... if each.required else default, description=texts.get(each.name))
        fields[each.name] = (each.type, field)
    return create_model(shape.__name__, **fields)


# Texts that the code has for a setting or parameter, and its allowed values.


@cache
def read_docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings of a class's attributes, inherited ones included, each on one line."""
    bases = [
        base for base in reversed(kind.__mro__) if base.__module__.split(".")[0] in ("mathrag", "services", "shared")
    ]
    return {name: text for base in bases for name, text in _read_module(base.__module__).get(base.__name__, {}).items()}


@cache
def _read_module(name: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of attributes by class: parsing a module once takes less time than once per class."""
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: dict(_list_docstrings(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _list_docstrings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for attribute, text in pairwise(node.body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(said))),
            ):
                yield name, " ".join(said.split())


def find_group(field: FieldInfo) -> type[BaseModel] | None:
    """Return the group of settings that the field holds; None if it holds a single value."""
    union = get_origin(field.annotation) is UnionType
    kinds = get_args(field.annotation) if union else (field.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def describe_field(field: FieldInfo) -> str:
    """Return the docstring of the field, or else that of its group, on one line."""
    inner = find_group(field)
    return add_choices(field.description or (inner.__doc__ if inner else "") or "", field.annotation)


def add_choices(text: str, kind: Any) -> str:
    """Return `text` on one line, followed by those values that `kind` allows and `text` does not name."""
    text = " ".join(text.split())
    choices = [f"`{choice}`" for choice in get_args(kind) if choice] if get_origin(kind) is Literal else []
    if all(choice in text for choice in choices):
        return text
    return f"{text} One of {', '.join(choices)}.".strip()
