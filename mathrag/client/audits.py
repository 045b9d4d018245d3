"""Summarise the result of an audit in a few words."""

from collections.abc import Mapping, Sequence
from typing import Any


def summarise_audit(violations: Sequence[Mapping[str, Any]]) -> str:
    """Return a summary such as "clean" or "2 violations".

    Findings that a changed source explains are counted separately, because the rows may be right; audits exported by
    older releases do not mark them.
    """
    unreplayed = sum(each.get("source_changed", False) for each in violations)
    violated = len(violations) - unreplayed
    counts = [f"{violated} violations"] * bool(violated) + [f"source changed: {unreplayed} findings"] * bool(unreplayed)
    return ", ".join(counts) or "clean"
