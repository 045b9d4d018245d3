"""ROC of the gate: whose scores tell good documents from bad ones, whatever the threshold."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "roc"
SIDE = 320
RESAMPLES = 2000
BATCH = 100
"""Resamples at a time: some thousand documents are no large table."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One document as one scorer sees it."""

    scorer: str
    """Such as "rules" or "judge"."""
    score: float
    """Higher is better."""
    good: bool
    """What is true of it."""


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """Area under a scorer's curve: how often it puts a good document above a bad one (ties count half)."""

    scorer: str
    value: float | None
    """None: there are only good ones or only bad ones."""
    low: float | None = None
    high: float | None = None
    """Percentile bootstrap over good and bad documents, 95 %; None: fewer than two of either."""
    good: int
    bad: int


def areas(rows: Sequence[Row]) -> list[Area]:
    """The area of every scorer, in the order in which they first come."""
    return [_area(scorer, *_apart(rows, scorer)) for scorer in dict.fromkeys(row.scorer for row in rows)]


def chart(
    rows: Sequence[Row], *, truth: str = "the truth", title: str = "Who tells good documents?", name: str = NAME
) -> Figure:
    """A step for each threshold; `truth` says whose word it is which documents are good.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    found = areas(rows)
    scorers = [area.scorer for area in found]
    scale = alt.Scale(domain=[0, 1], nice=False)
    across = alt.X("false:Q", title="Bad documents taken for good (share, 0 to 1)", scale=scale)
    up = alt.Y("true:Q", title="Good documents taken for good (share, 0 to 1)", scale=scale)
    chance = alt.Chart(look.values([{"false": end, "true": end} for end in (0, 1)]))
    points = alt.Chart(look.values(_points(rows, scorers)), width=SIDE, height=SIDE)
    layers = [
        chance.mark_line(color=look.GREY, strokeDash=[1, 3]).encode(x=across, y=up),
        points.mark_line(strokeWidth=2.4).encode(
            x=across,
            y=up,
            order="place:Q",
            color=alt.Color("scorer:N", sort=scorers, title="Scores of", scale=_each(scorers, look.PALETTE)),
            strokeDash=alt.StrokeDash("scorer:N", sort=scorers, title="Scores of", scale=_each(scorers, look.DASHES)),
        ),
    ]
    counts = f"n = {found[0].good + found[0].bad:,} documents, {found[0].good:,} good" if found else "n = 0 documents"
    said = [f"{counts} by {truth}", *(_said(area) for area in found)]
    caption = (
        "Each curve rises early where high scores are those of good documents; on the dotted line they say nothing."
    )
    return look.figure(name, title, said, caption, alt.layer(*layers), rows)


def _each(scorers: Sequence[str], looks: Sequence[object]) -> Any:
    return library.altair().Scale(domain=list(scorers), range=list(looks[: len(scorers)]))


def _said(area: Area) -> str:
    if area.value is None:
        return f"{area.scorer}: no area, as there are {area.good} good and {area.bad} bad documents"
    known = area.low is not None and area.high is not None
    return f"{area.scorer}: area {area.value:.3f}" + (
        f" ({area.low:.3f} to {area.high:.3f}, bootstrap)" if known else ""
    )


def _apart(rows: Iterable[Row], scorer: str) -> tuple[list[float], list[float]]:
    own = [row for row in rows if row.scorer == scorer]
    return [row.score for row in own if row.good], [row.score for row in own if not row.good]


def _area(scorer: str, good: Sequence[float], bad: Sequence[float]) -> Area:
    if not good or not bad:
        return Area(scorer=scorer, value=None, good=len(good), bad=len(bad))
    from scipy import stats  # slow to import

    value, low, high = float(_above(good, bad)), None, None
    if min(len(good), len(bad)) > 1:
        drawn = stats.bootstrap(
            (good, bad), _above, n_resamples=RESAMPLES, batch=BATCH, vectorized=True, method="percentile", rng=0
        )
        low, high = (float(bound) for bound in drawn.confidence_interval)
    return Area(scorer=scorer, value=value, low=low, high=high, good=len(good), bad=len(bad))


def _above(good: Any, bad: Any, axis: int = -1) -> Any:
    """Mann and Whitney's U as a share of all pairs, which is the area."""
    import numpy as np
    from scipy import stats

    found = stats.mannwhitneyu(good, bad, axis=axis, method="asymptotic").statistic
    return found / (np.shape(good)[axis] * np.shape(bad)[axis])


def _points(rows: Sequence[Row], scorers: Sequence[str]) -> list[dict[str, object]]:
    return [
        {"scorer": scorer, "place": place, "false": false, "true": true}
        for scorer in scorers
        for place, (false, true) in enumerate(_curve(*_apart(rows, scorer)))
    ]


def _curve(good: Sequence[float], bad: Sequence[float]) -> list[tuple[float, float]]:
    if not good or not bad:
        return []
    thresholds = sorted({*good, *bad}, reverse=True)
    return [(0.0, 0.0), *((_share(bad, least), _share(good, least)) for least in thresholds)]


def _share(scores: Sequence[float], least: float) -> float:
    return sum(score >= least for score in scores) / len(scores)
