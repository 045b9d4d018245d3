"""Decode what is stored, or say why this release cannot: one row that it cannot read must not hide the others."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from shared.contracts.params import Params, stored_params

T = TypeVar("T")


def decoded(raw: bytes | None, as_type: type[T], name: str) -> tuple[T | None, str | None]:
    """(value, None); (None, a sentence about `name`) where `raw` is not one of this release; (None, None) for None."""
    return _read(partial(msgspec.json.decode, type=as_type), raw, name)


def decoded_params(raw: bytes | None, name: str) -> tuple[Params | None, str | None]:
    """The same for a job's parameters."""
    return _read(stored_params, raw, name)


def _read(decode: Callable[[bytes], T], raw: bytes | None, name: str) -> tuple[T | None, str | None]:
    if raw is None:
        return None, None
    try:
        return decode(raw), None
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return None, f"{name} cannot be read by this release: {error}"
