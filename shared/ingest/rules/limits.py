"""Limits on reading a file of rules."""

from typing import NamedTuple


class RuleFileLimits(NamedTuple):
    """Limits on one file."""

    unpacked_bytes: int = 1 << 30
    line_bytes: int = 1 << 16
    document_bytes: int = 64 << 20
    """Maximum size of a file that is a single JSON document and is held in memory, in bytes."""
    rules: int = 1_000_000


DEFAULT = RuleFileLimits()
