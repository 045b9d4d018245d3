"""What an audit found, in a few words."""

from collections.abc import Mapping, Sequence
from typing import Any


def audited(violations: Sequence[Mapping[str, Any]]) -> str:
    """Such as "clean" or "2 violations"; what a changed source does not replay is counted apart, as it may be right.

    Audits that were exported before there was a `source_changed` have none.
    """
    unreplayed = sum(each.get("source_changed", False) for each in violations)
    violated = len(violations) - unreplayed
    counts = [f"{violated} violations"] * bool(violated) + [f"source changed: {unreplayed} findings"] * bool(unreplayed)
    return ", ".join(counts) or "clean"
