"""Return the texts that the code has for a setting or parameter, and its allowed values."""

from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


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
