"""The four types."""

from typing import Literal

Kind = Literal["pair", "constants", "frequent entity", "frequent partner"]
"""The xy-, c-, z- and f-rules of the source."""
