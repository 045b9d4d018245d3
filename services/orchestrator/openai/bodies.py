"""What request bodies of `/openai/v1` share: null is like leaving a field out, and one value may stand for a list."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class StrictBody(BaseModel):
    """A body or a part of one: unknown fields are refused, unless their value is null."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            return body
        return {name: value for name, value in body.items() if value is not None}


def put_in_list(value: Any) -> Any:
    """Return a text as the only item of a list, so that an error names the field and not a form of it."""
    return [value] if isinstance(value, str) else value


Nothing = Annotated[list[None], Field(max_length=0)]
"""An empty list; any other is refused as not supported."""
NoTexts = Annotated[Nothing, BeforeValidator(put_in_list, json_schema_input_type=Nothing)]
"""The same for a field that also takes one text."""
