"""Draw ROC curves of the gate: how well each scorer separates good documents from bad ones."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure

NAME = "roc"
SIDE = 320
RESAMPLES = 2000
BATCH = 100
"""Resamples at a time, to bound memory with some thousand documents."""


class RocRow(msgspec.Struct, frozen=True, kw_only=True):
    """One document with its score by one scorer."""

    scorer: str
    """Such as "rules" or "judge"."""
    score: float
    """Higher is better."""
    good: bool
    """Whether the document is truly good."""


class RocArea(msgspec.Struct, frozen=True, kw_only=True):
    """The area under a scorer's curve: how often it ranks a good document above a bad one (ties count half)."""

    scorer: str
    value: float | None
    """None: all documents are good, or all are bad."""
    low: float | None = None
    high: float | None = None
    """Percentile bootstrap over good and bad documents, 95 %; None: fewer than two of either."""
    good: int
    bad: int


def compute_areas(rows: Sequence[RocRow]) -> list[RocArea]:
    """Compute the area of every scorer, in the order of their first rows."""
    return [_compute_area(scorer, *_split_scores(rows, scorer)) for scorer in dict.fromkeys(row.scorer for row in rows)]


def draw(
    rows: Sequence[RocRow], *, truth: str = "the truth", title: str = "Who tells good documents?", name: str = NAME
) -> Figure:
    """Draw a step for each threshold; `truth` says who decided which documents are good.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    found = compute_areas(rows)
    scorers = [area.scorer for area in found]
    scale = alt.Scale(domain=[0, 1], nice=False)
    across = alt.X("false:Q", title="Bad documents taken for good (share, 0 to 1)", scale=scale)
    up = alt.Y("true:Q", title="Good documents taken for good (share, 0 to 1)", scale=scale)
    chance = alt.Chart(style.make_data([{"false": end, "true": end} for end in (0, 1)]))
    points = alt.Chart(style.make_data(_make_points(rows, scorers)), width=SIDE, height=SIDE)
    layers = [
        chance.mark_line(color=style.GREY, strokeDash=[1, 3]).encode(x=across, y=up),
        points.mark_line(strokeWidth=2.4).encode(
            x=across,
            y=up,
            order="place:Q",
            color=alt.Color("scorer:N", sort=scorers, title="Scores of", scale=_make_scale(scorers, style.PALETTE)),
            strokeDash=alt.StrokeDash(
                "scorer:N", sort=scorers, title="Scores of", scale=_make_scale(scorers, style.DASHES)
            ),
        ),
    ]
    counts = f"n = {found[0].good + found[0].bad:,} documents, {found[0].good:,} good" if found else "n = 0 documents"
    notes = [f"{counts} by {truth}", *(_describe_area(area) for area in found)]
    caption = (
        "Each curve rises early where high scores are those of good documents; on the dotted line they say nothing."
    )
    return style.make_figure(name, title, notes, caption, alt.layer(*layers), rows)


def _make_scale(scorers: Sequence[str], looks: Sequence[object]) -> Any:
    return library.import_altair().Scale(domain=list(scorers), range=list(looks[: len(scorers)]))


def _describe_area(area: RocArea) -> str:
    if area.value is None:
        return f"{area.scorer}: no area, as there are {area.good} good and {area.bad} bad documents"
    known = area.low is not None and area.high is not None
    return f"{area.scorer}: area {area.value:.3f}" + (
        f" ({area.low:.3f} to {area.high:.3f}, bootstrap)" if known else ""
    )


def _split_scores(rows: Iterable[RocRow], scorer: str) -> tuple[list[float], list[float]]:
    own = [row for row in rows if row.scorer == scorer]
    return [row.score for row in own if row.good], [row.score for row in own if not row.good]


def _compute_area(scorer: str, good: Sequence[float], bad: Sequence[float]) -> RocArea:
    if not good or not bad:
        return RocArea(scorer=scorer, value=None, good=len(good), bad=len(bad))
    from scipy import stats  # slow to import

    value, low, high = float(_mann_whitney_share(good, bad)), None, None
    if min(len(good), len(bad)) > 1:
        drawn = stats.bootstrap(
            (good, bad),
            _mann_whitney_share,
            n_resamples=RESAMPLES,
            batch=BATCH,
            vectorized=True,
            method="percentile",
            rng=0,
        )
        low, high = (float(bound) for bound in drawn.confidence_interval)
    return RocArea(scorer=scorer, value=value, low=low, high=high, good=len(good), bad=len(bad))


def _mann_whitney_share(good: Any, bad: Any, axis: int = -1) -> Any:
    """Return Mann and Whitney's U as a share of all pairs, which equals the area."""
    import numpy as np
    from scipy import stats

    found = stats.mannwhitneyu(good, bad, axis=axis, method="asymptotic").statistic
    return found / (np.shape(good)[axis] * np.shape(bad)[axis])


def _make_points(rows: Sequence[RocRow], scorers: Sequence[str]) -> list[dict[str, object]]:
    return [
        {"scorer": scorer, "place": place, "false": false, "true": true}
        for scorer in scorers
        for place, (false, true) in enumerate(_trace_curve(*_split_scores(rows, scorer)))
    ]


def _trace_curve(good: Sequence[float], bad: Sequence[float]) -> list[tuple[float, float]]:
    if not good or not bad:
        return []
    thresholds = sorted({*good, *bad}, reverse=True)
    return [(0.0, 0.0), *((_share_from(bad, least), _share_from(good, least)) for least in thresholds)]


def _share_from(scores: Sequence[float], least: float) -> float:
    return sum(score >= least for score in scores) / len(scores)
