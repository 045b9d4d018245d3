"""Decode stored values, or report why this release cannot, so that one unreadable row does not hide the others."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from shared.contracts.params import Params, decode_params

T = TypeVar("T")


def try_decode(raw: bytes | None, as_type: type[T], name: str) -> tuple[T | None, str | None]:
    """Return (value, None), or (None, a sentence that names `name`) if decoding fails; (None, None) for None."""
    return _read(partial(msgspec.json.decode, type=as_type), raw, name)


def try_decode_params(raw: bytes | None, name: str) -> tuple[Params | None, str | None]:
    """Decode a job's parameters in the same way."""
    return _read(decode_params, raw, name)


def _read(decode: Callable[[bytes], T], raw: bytes | None, name: str) -> tuple[T | None, str | None]:
    if raw is None:
        return None, None
    try:
        return decode(raw), None
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return None, f"{name} cannot be read by this release: {error}"
