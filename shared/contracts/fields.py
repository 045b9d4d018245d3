"""Types of fields that several requests have."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints


def _to_int_if_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_to_int_if_whole)
"""Accepts 91.0 as 91, as JSON does; strings and booleans are not numbers.

Use it as `Annotated[int, Field(...), WHOLE]`, in this order: only then are the bounds part of the schema.
"""

# PostgreSQL's text holds everything but NUL.
Stored = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
Metadata = Annotated[dict[Key, Stored], Field(max_length=16)]
"""At most 16 pairs, with keys of up to 64 and values of up to 512 characters."""
Rank = Annotated[int, Field(ge=0, le=32767), WHOLE]
