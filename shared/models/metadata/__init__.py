"""Read a model's architecture from a GGUF header, a folder of safetensors, or Ollama's `show`.

Files and answers are not trusted: every count is bounded and every field is checked.
"""

from collections.abc import Mapping
from typing import Any

MAX_COUNT = 1 << 40
"""Upper bound of all counts and sizes, far above those of any model."""


class MetadataError(Exception):
    """The metadata cannot be used; the message names the file or field."""


def read_count(values: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Read a positive integer; from a list with one per layer, the largest.

    Raises:
        MetadataError: it is missing and has no default, or is not a positive integer below `MAX_COUNT`.
    """
    found = values.get(name)
    if isinstance(found, list):
        found = max((each for each in found if isinstance(each, int)), default=None)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < MAX_COUNT:
        raise MetadataError(f"`{name}` is {'missing' if found is None else repr(found)[:40]}, not a whole number")
    return found
