"""Encode contracts into canonical bytes; the hash of these bytes is a call's key.

Two encoders rarely agree on floats (1e22, 1 and 1.0) or on the order of keys, so every hash in the project is taken
over the output of this module. Floats that JSON cannot hold are refused before they become `null`."""

import hashlib
import math
import unicodedata
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(value: Any) -> bytes:
    """Encode a msgspec value canonically: sorted keys, shortest floats, no spaces."""
    return _ENCODER.encode(value)


def digest(value: Any) -> bytes:
    """Return the SHA-256 (32 bytes) over the canonical bytes of `value`."""
    return hashlib.sha256(encode(value)).digest()


def normalise(text: str) -> str:
    """Normalise a text to NFC, with `\\n` as line end and without blanks around it; equal results count as the same
    text.

    Raises:
        UnicodeEncodeError: for a lone surrogate, when the result is encoded.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text).strip()


def require_finite(value: float, field: str) -> float:
    """Return `value`; raise a ValueError with the name of `field` if it is NaN or infinite (JSON would encode null)."""
    if not math.isfinite(value):
        raise ValueError(f"`{field}` must be a finite number, not {value}")
    return value
