"""From the committed results to verdicts. Pure, and by rules that were fixed before anything was measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from world.rule_reproduction.setting import MEASURES

Json = Mapping[str, Any]
VERDICTS = ("higher", "lower", "not distinguishable")


def verdict(pair: Json) -> str:
    """Of an arm against a baseline: higher or lower only where the corrected test tells the two apart."""
    if not pair["separable"]:
        return "not distinguishable"
    return "higher" if pair["difference"]["value"] > 0 else "lower"


def arms(results: Json) -> dict[str, str]:
    """Labels by name, in the settings' order, of the arms that were measured on some graph."""
    measured = {name for graph in results["graphs"].values() for name in graph["arms"]}
    return {arm["name"]: arm["label"] for arm in results["setting"]["arms"] if arm["name"] in measured}


def pair(graph: Json, measure: str, baseline: str, arm: str) -> Json | None:
    """An arm against a baseline by one measure; None: one of them was left out."""
    found: Json | None = graph["pairs"].get(measure, {}).get(baseline, {}).get(arm)
    return found


def by_verdict(results: Json, arm: str, baseline: str) -> dict[str, dict[str, list[str]]]:
    """For each verdict the measures, by the graph's title, that it was found for."""
    found: dict[str, dict[str, list[str]]] = {each: {} for each in VERDICTS}
    for graph, measure, each in _pairs(results, arm, baseline):
        found[verdict(each)].setdefault(graph, []).append(MEASURES[measure])
    return found


def _pairs(results: Json, arm: str, baseline: str) -> Iterator[tuple[str, str, Json]]:
    for graph in results["graphs"].values():
        for measure in MEASURES:
            if (found := pair(graph, measure, baseline, arm)) is not None:
                yield graph["title"], measure, found


def never_higher(results: Json, baseline: str) -> Sequence[str]:
    """Arms that no measure tells to be above the baseline, on no graph."""
    return [
        arm
        for arm in arms(results)
        if any(_pairs(results, arm, baseline)) and not by_verdict(results, arm, baseline)["higher"]
    ]


def sometimes_lower(results: Json, baseline: str) -> Sequence[str]:
    """Arms that some measure tells to be below the baseline."""
    return [arm for arm in arms(results) if by_verdict(results, arm, baseline)["lower"]]
