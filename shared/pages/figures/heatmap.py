"""Accuracy over the two weights of the final score: which cells are the same run is marked."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "weights"
CELL = 44


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the grid. Cells without a row are drawn empty."""

    rrf_weight: float
    quality_weight: float
    value: float | None
    """Accuracy in [0, 1]; None: not run, as 0:0 is, or nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval; kept in the data, not drawn."""
    n: int
    job: str | None = None
    """Cells of the same job are the same run. None: cells with the same ratio of weights are."""


def chart(rows: Sequence[Row], *, title: str = "Accuracy by weights", name: str = NAME) -> Figure:
    """Numbers are percent; a framed, bold one is the first cell of its run, the others repeat it.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    cells = _cells(rows)
    axis = alt.Axis(labelAngle=0, format=".3~g", grid=False, ticks=False, domain=False)
    base = alt.Chart(look.values(cells), width=alt.Step(CELL), height=alt.Step(CELL * 2 // 3)).encode(
        x=alt.X("rrf_weight:O", title="rrf_weight: weight of the fused rank (no unit)", axis=axis),
        y=alt.Y("quality_weight:O", title="quality_weight: weight of quality (no unit)", axis=axis, sort="descending"),
    )
    colour = alt.Color(
        "value:Q", title="Accuracy (%)", scale=alt.Scale(scheme=look.RAMP), legend=alt.Legend(format=".0%")
    )
    known, own = "datum.value !== null", "datum.first"
    bright = alt.condition(f"datum.value > {_middle(rows)}", alt.value(look.BLACK), alt.value("white"))
    numbers = base.transform_filter(known).encode(text="said:N", color=bright)
    layers = [
        base.transform_filter(known).mark_rect().encode(color=colour),
        base.transform_filter(f"{known} && {own}").mark_rect(filled=False, stroke=look.BLACK, strokeWidth=1.6),
        numbers.transform_filter(own).mark_text(fontWeight="bold"),
        numbers.transform_filter(f"!{own}").mark_text(fontSize=10),
        base.transform_filter(f"!({known})").mark_text(text="–", color=look.GREY),
    ]
    runs = len({_run(row) for row in rows if row.value is not None})
    measured = sum(row.value is not None for row in rows)
    counted = look.numbered((row.n for row in rows if row.value is not None), "items a cell")
    said = f"{counted}; {measured} cells are {runs} runs, as equal ratios order alike"
    spread = f"{_spread(rows)}; – was not run (0:0 orders nothing) or has nothing graded"
    caption = "Each number is an accuracy in percent; framed and bold is the first cell of a run, the others repeat it."
    return look.figure(name, title, [said, spread], caption, alt.layer(*layers), rows)


def _cells(rows: Sequence[Row]) -> list[dict[str, object]]:
    given = {(row.rrf_weight, row.quality_weight): row for row in rows}
    first = _first(rows)
    return [
        {
            "rrf_weight": across,
            "quality_weight": up,
            "value": row.value if row else None,
            "said": f"{100 * row.value:.1f}" if row and row.value is not None else "",
            "first": row is not None and (across, up) in first,
        }
        for across in _axis(each for each, _ in given)
        for up in _axis(each for _, each in given)
        for row in [given.get((across, up))]
    ]


def _axis(weights: Iterable[float]) -> list[float]:
    return sorted(set(weights))


def _first(rows: Iterable[Row]) -> set[tuple[float, float]]:
    """The cell nearest to 0:0 of every run."""
    found: dict[object, tuple[float, float]] = {}
    for row in sorted(rows, key=lambda row: (row.rrf_weight + row.quality_weight, row.rrf_weight)):
        found.setdefault(_run(row), (row.rrf_weight, row.quality_weight))
    return set(found.values())


def _run(row: Row) -> object:
    if row.job is not None:
        return row.job
    rrf, quality = (Fraction(str(weight)) for weight in (row.rrf_weight, row.quality_weight))
    return rrf / (rrf + quality) if rrf + quality else None


def _middle(rows: Iterable[Row]) -> float:
    """The value whose colour is as far from black as from white."""
    known = _known(rows)
    return (min(known) + max(known)) / 2 if known else 0.5


def _spread(rows: Iterable[Row]) -> str:
    known = _known(rows)
    return f"from {look.percent(min(known))} to {look.percent(max(known))}" if known else "nothing is graded yet"


def _known(rows: Iterable[Row]) -> list[float]:
    return [row.value for row in rows if row.value is not None]
