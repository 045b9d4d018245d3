"""Derive verdicts from the committed results. Pure; the rules were fixed before the measurement."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from world.rule_reproduction.setting import MEASURES

Json = Mapping[str, Any]
VERDICTS = ("higher", "lower", "not distinguishable")


def verdict(pair: Json) -> str:
    """Call an arm higher or lower than the baseline only if the corrected test separates the two."""
    if not pair["separable"]:
        return "not distinguishable"
    return "higher" if pair["difference"]["value"] > 0 else "lower"


def arms(results: Json) -> dict[str, str]:
    """Return labels by name, in the settings' order, of the arms that were measured on at least one graph."""
    measured = {name for graph in results["graphs"].values() for name in graph["arms"]}
    return {arm["name"]: arm["label"] for arm in results["setting"]["arms"] if arm["name"] in measured}


def pair(graph: Json, measure: str, baseline: str, arm: str) -> Json | None:
    """Return the comparison of an arm with a baseline by one measure; None if one of them was left out."""
    found: Json | None = graph["pairs"].get(measure, {}).get(baseline, {}).get(arm)
    return found


def by_verdict(results: Json, arm: str, baseline: str) -> dict[str, dict[str, list[str]]]:
    """Return the measures with each verdict, by the graph's title."""
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
    """Return arms that are above the baseline by no measure on any graph."""
    return [
        arm
        for arm in arms(results)
        if any(_pairs(results, arm, baseline)) and not by_verdict(results, arm, baseline)["higher"]
    ]


def sometimes_lower(results: Json, baseline: str) -> Sequence[str]:
    """Return arms that are below the baseline by at least one measure."""
    return [arm for arm in arms(results) if by_verdict(results, arm, baseline)["lower"]]
