"""The rules that guided a sample, and which of them brought a document."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def rules(decisions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Name and words of each rule, with its certainty and how many candidates it brought."""
    for each in decisions:
        if each["stage"] == "rule":
            told = each["detail"]
            brought = f"{len(told['documents'])} documents" if "documents" in told else "in the prompt alone"
            yield f"rule {int(told['number'])}", f"{told['rule']} ({told['certainty']:.3f}): {brought}"


def bringing(candidate: Mapping[str, Any]) -> str:
    """The rules that brought a candidate, such as "rule 3, rule 12"; empty where none did."""
    return ", ".join(name for name in candidate.get("paths") or () if name.startswith("rule "))
