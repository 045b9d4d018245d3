"""Draw the accuracy over the two weights of the final score, with the cells of the same run marked."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure

NAME = "weights"
CELL = 44


class WeightsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the grid. A cell without a row is drawn empty."""

    rrf_weight: float
    quality_weight: float
    value: float | None
    """Accuracy in [0, 1]; None: not run (such as 0:0), or nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval, which stand in the data but are not drawn."""
    n: int
    job: str | None = None
    """Cells of one job are one run. If None, cells with the same ratio of weights are one run."""


def draw(rows: Sequence[WeightsRow], *, title: str = "Accuracy by weights", name: str = NAME) -> Figure:
    """Draw the grid in per cent: the first cell of each run is framed and bold, the others repeat it.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    cells = _make_cells(rows)
    axis = alt.Axis(labelAngle=0, format=".3~g", grid=False, ticks=False, domain=False)
    base = alt.Chart(style.make_data(cells), width=alt.Step(CELL), height=alt.Step(CELL * 2 // 3)).encode(
        x=alt.X("rrf_weight:O", title="rrf_weight: weight of the fused rank (no unit)", axis=axis),
        y=alt.Y("quality_weight:O", title="quality_weight: weight of quality (no unit)", axis=axis, sort="descending"),
    )
    colour = alt.Color(
        "value:Q", title="Accuracy (%)", scale=alt.Scale(scheme=style.RAMP), legend=alt.Legend(format=".0%")
    )
    known, own = "datum.value !== null", "datum.first"
    bright = alt.condition(f"datum.value > {_middle_value(rows)}", alt.value(style.BLACK), alt.value("white"))
    numbers = base.transform_filter(known).encode(text="said:N", color=bright)
    layers = [
        base.transform_filter(known).mark_rect().encode(color=colour),
        base.transform_filter(f"{known} && {own}").mark_rect(filled=False, stroke=style.BLACK, strokeWidth=1.6),
        numbers.transform_filter(own).mark_text(fontWeight="bold"),
        numbers.transform_filter(f"!{own}").mark_text(fontSize=10),
        base.transform_filter(f"!({known})").mark_text(text="–", color=style.GREY),
    ]
    runs = len({_run_key(row) for row in rows if row.value is not None})
    measured = sum(row.value is not None for row in rows)
    counted = style.format_n((row.n for row in rows if row.value is not None), "items a cell")
    note = f"{counted}; {measured} cells are {runs} runs, as equal ratios order alike"
    spread = f"{_describe_spread(rows)}; – was not run (0:0 orders nothing) or has nothing graded"
    caption = "Each number is an accuracy in percent; framed and bold is the first cell of a run, the others repeat it."
    return style.make_figure(name, title, [note, spread], caption, alt.layer(*layers), rows)


def _make_cells(rows: Sequence[WeightsRow]) -> list[dict[str, object]]:
    given = {(row.rrf_weight, row.quality_weight): row for row in rows}
    found: dict[object, tuple[float, float]] = {}
    for row in sorted(rows, key=lambda row: (row.rrf_weight + row.quality_weight, row.rrf_weight)):
        found.setdefault(_run_key(row), (row.rrf_weight, row.quality_weight))
    first = set(found.values())
    return [
        {
            "rrf_weight": across,
            "quality_weight": up,
            "value": row.value if row else None,
            "said": f"{100 * row.value:.1f}" if row and row.value is not None else "",
            "first": row is not None and (across, up) in first,
        }
        for across in _sort_distinct(each for each, _ in given)
        for up in _sort_distinct(each for _, each in given)
        for row in [given.get((across, up))]
    ]


def _sort_distinct(weights: Iterable[float]) -> list[float]:
    return sorted(set(weights))


def _run_key(row: WeightsRow) -> object:
    if row.job is not None:
        return row.job
    rrf, quality = (Fraction(str(weight)) for weight in (row.rrf_weight, row.quality_weight))
    return rrf / (rrf + quality) if rrf + quality else None


def _middle_value(rows: Iterable[WeightsRow]) -> float:
    """Return the value whose colour is as far from black as from white."""
    known = _list_values(rows)
    return (min(known) + max(known)) / 2 if known else 0.5


def _describe_spread(rows: Iterable[WeightsRow]) -> str:
    known = _list_values(rows)
    return (
        f"from {style.format_percent(min(known))} to {style.format_percent(max(known))}"
        if known
        else "nothing is graded yet"
    )


def _list_values(rows: Iterable[WeightsRow]) -> list[float]:
    return [row.value for row in rows if row.value is not None]
