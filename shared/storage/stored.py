"""Decode what is stored, or say why this release cannot: one row that it cannot read must not hide the others."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(raw: bytes | None, as_type: type[T], name: str) -> tuple[T | None, str | None]:
    """(value, None); (None, a sentence about `name`) where `raw` is not one of this release; (None, None) for None."""
    if raw is None:
        return None, None
    try:
        return msgspec.json.decode(raw, type=as_type), None
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return None, f"{name} cannot be read by this release: {error}"
