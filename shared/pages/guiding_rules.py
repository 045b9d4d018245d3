"""Show the rules that guided a sample, and which of them found a document."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def describe_rules(decisions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each rule's name and its text, with its certainty and how many candidates it found."""
    for each in decisions:
        if each["stage"] == "rule":
            values = each["detail"]
            brought = f"{len(values['documents'])} documents" if "documents" in values else "in the prompt alone"
            yield f"rule {int(values['number'])}", f"{values['rule']} ({values['certainty']:.3f}): {brought}"


def name_rules(candidate: Mapping[str, Any]) -> str:
    """Return the rules that found a candidate, such as "rule 3, rule 12"; empty if none did."""
    return ", ".join(name for name in candidate.get("paths") or () if name.startswith("rule "))
