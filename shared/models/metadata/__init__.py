"""What a model says of its own shape, wherever it lies: a GGUF header, a folder of safetensors, Ollama's `show`.

Files and answers are others' and may hold anything: every count is bounded, every field checked.
"""

from collections.abc import Mapping
from typing import Any

MOST = 1 << 40
"""No count or size of a model comes near it."""


class MetadataError(Exception):
    """The metadata cannot be used; the message names the file or field."""


def whole(values: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A positive whole number; of one per layer, the largest.

    Raises:
        MetadataError: it is missing and has no default, or is nothing that a model can have.
    """
    found = values.get(name)
    if isinstance(found, list):
        found = max((each for each in found if isinstance(each, int)), default=None)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < MOST:
        raise MetadataError(f"`{name}` is {'missing' if found is None else repr(found)[:40]}, not a whole number")
    return found
