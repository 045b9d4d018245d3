"""What the code says of a setting or parameter, and the values that it may have."""

from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def section(field: FieldInfo) -> type[BaseModel] | None:
    """The group of settings that stands in this field; None: it is a single value."""
    union = get_origin(field.annotation) is UnionType
    kinds = get_args(field.annotation) if union else (field.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def meaning(field: FieldInfo) -> str:
    """What the field's docstring says, else that of its section, on one line."""
    inner = section(field)
    return with_choices(field.description or (inner.__doc__ if inner else "") or "", field.annotation)


def with_choices(text: str, kind: Any) -> str:
    """`text` on one line, and the values that it does not name of those that `kind` allows."""
    text = " ".join(text.split())
    choices = [f"`{choice}`" for choice in get_args(kind) if choice] if get_origin(kind) is Literal else []
    if all(choice in text for choice in choices):
        return text
    return f"{text} One of {', '.join(choices)}.".strip()
