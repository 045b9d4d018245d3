"""Whole numbers of a request: 91 and 91.0 are the same number in JSON; text and truth values are none."""

from typing import Any

from pydantic import BeforeValidator


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""For `Annotated[int, Field(...), WHOLE]`, in this order: the bounds are part of the schema only inside it."""
