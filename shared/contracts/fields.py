"""Types of fields that several requests have."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""Takes 91.0 for 91, as JSON does; text and truth values are no numbers.

For `Annotated[int, Field(...), WHOLE]`, in this order: the bounds are part of the schema only inside it.
"""

# PostgreSQL's text holds everything but NUL.
Stored = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
Metadata = Annotated[dict[Key, Stored], Field(max_length=16)]
"""At most 16 pairs, keys of 64 and values of 512 characters."""
Rank = Annotated[int, Field(ge=0, le=32767), WHOLE]
