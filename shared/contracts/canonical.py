"""The one encoder that turns contracts into bytes; a call's key is the hash of these bytes.

Two encoders never agree on floats (1e22, 1 and 1.0) or key order, so every hash in the project is taken over the
output of this module, and floats that JSON cannot carry are refused before they become `null`.
"""

import hashlib
import math
import unicodedata
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(value: Any) -> bytes:
    """The canonical bytes of a msgspec value: sorted keys, shortest floats, no spaces."""
    return _ENCODER.encode(value)


def digest(value: Any) -> bytes:
    """SHA-256 over the canonical bytes of `value` (32 bytes)."""
    return hashlib.sha256(encode(value)).digest()


def normalise(text: str) -> str:
    """NFC with unified line ends and no outer blanks: what counts as the same text.

    Raises:
        UnicodeEncodeError: for a lone surrogate, when the result is encoded.
    """
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def finite(value: float, field: str) -> float:
    """`value`, or ValueError naming `field` if it is NaN or infinite (JSON would silently say null)."""
    if not math.isfinite(value):
        raise ValueError(f"`{field}` must be a finite number, not {value}")
    return value
