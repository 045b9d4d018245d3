"""Draw the figures of the page from the committed results."""

from collections.abc import Iterator
from typing import Any

from shared.pages import figures as drawn
from shared.pages.figures import Figure
from world.reproduction import curves
from world.rule_reproduction import findings, tables
from world.rule_reproduction.findings import Json

DRAWN = {
    "rules-recall": ("answer@10", "R@10", "questions with an answer in the first ten documents"),
    "rules-exact": ("accuracy", "Exact match", "questions answered by a gold answer"),
}
"""Measures drawn for all arms, with title and the total of the share."""
SHARES = {"answer@10": "R@10", "accuracy": "exact match"}
"""Measures drawn over the number of rules."""


def figures(results: Json) -> Iterator[Figure]:
    """Yield all figures."""
    for name, (measure, title, of) in DRAWN.items():
        yield drawn.draw_accuracy(
            list(_arms(results, measure)), title=title, name=name, axis=f"{title} (% of questions)", of=of
        )
    yield curves.chart(
        list(_number(results)), name="rules-number", title="R@10 and exact match by the number of rules",
        axis="Most rules of a question", share="Share", of="questions",
    )  # fmt: skip


def _arms(results: Json, measure: str) -> Iterator[drawn.AccuracyRow]:
    for arm, label in findings.arms(results).items():
        for graph, score in _scores(results, measure, arm):
            yield drawn.AccuracyRow(label=label, group=graph, **score)


def _number(results: Json) -> Iterator[curves.Row]:
    for measure, said in SHARES.items():
        for arm, count in tables.list_numbered_arms(results):
            for graph, score in _scores(results, measure, arm):
                yield curves.Row(x=count, label=f"{graph}, {said}", **score)


def _scores(results: Json, measure: str, arm: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield value, interval and number of questions with each graph's title."""
    for graph in results["graphs"].values():
        if (score := graph["scores"][measure].get(arm)) is not None:
            low, high = (score["value"] if score[end] is None else score[end] for end in ("low", "high"))
            yield graph["title"], {"n": score["items"], "value": score["value"], "low": low, "high": high}
