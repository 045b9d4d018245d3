"""Draw the figures of reports as SVG, each from rows that are exported with it.

Each kind of figure has a class of rows, such as `AccuracyRow`, and a function such as `draw_accuracy` that makes a
`Figure` without I/O. `write_figure(figure, folder)` writes its two files. The same rows make the same bytes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mathrag.intervals import estimate_share, wilson
from mathrag.messages import format_count
from shared.pages.plots import (
    DASHES,
    Aside,
    Bar,
    Dot,
    Key,
    Label,
    Line,
    Mark,
    Panel,
    Plot,
    draw_plot,
    make_axis,
    make_logarithmic_axis,
    make_names_axis,
    name_series,
    name_shade,
)  # fmt: skip
from shared.samples import GateDecision
from shared.statistics.agreement import compute_auroc_of
from shared.statistics.significance import estimate_mean

FILE_WIDTH, WIDE, NARROW = 680, 620, 340
"""Widths of a figure's file, and of its drawings inside a page for wide and narrow windows."""
BLUE, ORANGE = "series-1", "series-2"
SQUARE = 360
"""Side of a square plot."""


class InlineFigure(NamedTuple):
    """A figure inside a page, which shows its title and notes as text."""

    wide: str
    narrow: str
    """The drawing for narrow windows."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure; the same rows always make the same drawing."""

    name: str
    """The stem of its files' names."""
    title: str
    notes: tuple[str, ...]
    """Lines that stand under the title."""
    caption: str
    """One sentence that tells what the figure shows and how to read it."""
    plot: Plot
    rows: tuple[Any, ...]
    """The rows that it was drawn from."""


def write_figure(figure: Figure, folder: Path) -> tuple[Path, Path]:
    """Write NAME.svg and NAME.json (title, caption, rows) into `folder`, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, data = folder / f"{figure.name}.svg", folder / f"{figure.name}.json"
    svg.write_text(render_svg(figure), "utf-8")
    data.write_bytes(encode_data(figure))
    return svg, data


def write_all(figures: Iterable[Figure], folder: Path) -> list[str]:
    """Write all figures and return their names."""
    drawn = list(figures)
    for figure in drawn:
        write_figure(figure, folder)
    return [figure.name for figure in drawn]


def render_svg(figure: Figure) -> str:
    """Render the figure as its own file: a screen reader reads title and caption."""
    label = _describe(figure)
    return draw_plot(figure.plot, FILE_WIDTH, label, title=figure.title, notes=figure.notes, has_ground=True)


def render_inline(figure: Figure) -> InlineFigure:
    """Render two widths without title and ground, so that the page's style sets the colours of the theme."""
    return InlineFigure(*(draw_plot(figure.plot, width, _describe(figure)) for width in (WIDE, NARROW)))


def _describe(figure: Figure) -> str:
    return f"{figure.title}. {figure.caption}"


def encode_data(figure: Figure) -> bytes:
    """Encode title, caption and rows as JSON."""
    named: dict[str, str | Sequence[Any]] = {
        "name": figure.name, "title": figure.title, "caption": figure.caption, "rows": figure.rows
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(named), indent=1) + b"\n"


def format_n(counts: Iterable[int], noun: str) -> str:
    """Return for example "n = 500 items", or "n = 480 to 500 items" where the counts differ."""
    known = sorted(set(counts))
    if not known:
        return f"n = 0 {noun}"
    return f"n = {known[0]:,} {noun}" if len(known) == 1 else f"n = {known[0]:,} to {known[-1]:,} {noun}"


def format_percent(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return for example "61.0 % (56.7 to 65.2)"; "not known" without a value."""
    if value is None:
        return "not known"
    percentage = f"{100 * value:.1f} %"
    return percentage if low is None or high is None else f"{percentage} ({100 * low:.1f} to {100 * high:.1f})"


class AccuracyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy of one system."""

    label: str
    """The system, such as a pipeline; rows are drawn in the given order."""
    value: float | None
    """Share of correct answers, in [0, 1]; None: nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of the interval, in [0, 1]; None: no interval is drawn."""
    n: int
    """Number of items."""
    group: str = ""
    """The panel, such as a dataset."""


def draw_accuracy(
    rows: Sequence[AccuracyRow],
    *,
    title: str = "Accuracy",
    name: str = "accuracy",
    interval: str = "Wilson, 95 %",
    axis: str = "Accuracy (% of items)",
    of: str = "items answered correctly",
) -> Figure:
    """Draw the accuracy of several systems with its interval, a panel for each group.

    `interval` names the kind of interval, `axis` and `of` the whole that the shares refer to.
    """
    # The interval of no observation is [0, 1]: drawn without a value it would only mislead.
    known = [row if row.value is not None else msgspec.structs.replace(row, low=None, high=None) for row in rows]
    across = make_axis(axis, [each for row in known for each in (row.value, row.low, row.high)], is_percentage=True)
    panels = []
    for group in dict.fromkeys(row.group for row in known):
        own = [row for row in known if row.group == group]
        labels = list(dict.fromkeys(row.label for row in own))
        marks: list[Mark] = []
        for row in own:
            y = labels.index(row.label)
            if row.low is not None and row.high is not None:
                marks.append(Line(((row.low, y), (row.high, y)), BLUE, 2))
            if row.value is not None:
                marks.append(Dot((row.value, y), BLUE))
            marks.append(Aside(y, format_percent(row.value, row.low, row.high)))
        names = make_names_axis(labels, is_downward=True)
        panels.append(Panel(x=across, y=names, marks=tuple(marks), height=26 * len(labels), title=group))
    if len(panels) == 1:
        panels = [msgspec.structs.replace(panels[0], title="")]
    return Figure(
        name=name,
        title=title,
        notes=(f"{format_n((row.n for row in rows), 'items')}; lines: {interval}",),
        caption=f"Each point is the share of {of}, its line the interval.",
        plot=Plot(panels=tuple(panels)),
        rows=tuple(rows),
    )


class EndingRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples of one system had one ending."""

    label: str
    """The system; panels are drawn in the given order."""
    ending: str
    """The ending, such as "correct" or "arithmetic"; bars are drawn in the given order."""
    count: int
    """Samples with this ending."""
    n: int
    """All samples of the system."""
    value: float
    """`count` / `n`, in [0, 1]."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval; None: no interval is drawn."""


def make_ending_rows(label: str, counts: Mapping[str, int], items: int | None = None) -> list[EndingRow]:
    """Make a system's rows from its counts, with Wilson's 95 % interval over `items` (default: as many as samples).

    With repeats give the number of items: repeats of an item are not independent observations. If items have different
    numbers of samples, give 0: a share of samples is then no mean over items, and has no interval.
    """
    n = sum(counts.values())
    independent = n if items is None else items
    rows = []
    for ending, count in counts.items():
        share, low, high = Fraction(count, n or 1), None, None
        if independent:
            found = estimate_share({share: independent})
            low, high = found.low, found.high
        rows.append(EndingRow(label=label, ending=ending, count=count, n=n, value=float(share), low=low, high=high))
    return rows


def draw_endings(rows: Sequence[EndingRow], *, title: str = "How samples ended", name: str = "endings") -> Figure:
    """Draw a panel for each system, with a bar for each ending that any system has."""
    systems = list(dict.fromkeys(row.label for row in rows))
    seen = {row.ending for row in rows if row.count}
    drawn = [row for row in rows if row.ending in seen]
    endings = list(dict.fromkeys(row.ending for row in drawn))
    end = max((row.high if row.high is not None else row.value for row in drawn), default=1.0)
    room = min(1.0, end) * (1.6 if len(systems) > 1 else 1.15)  # for the numbers behind the bars
    across = make_axis("Share of samples (%)", ends=(0.0, room), is_percentage=True)
    names = make_names_axis(endings, is_downward=True)
    panels = []
    for system in systems if drawn else []:
        marks: list[Mark] = []
        for row in drawn:
            if row.label == system:
                y = endings.index(row.ending)
                marks.append(Bar((0, y - 0.33), (row.value, y + 0.33), BLUE if row.ending == "correct" else ORANGE))
                if row.low is not None and row.high is not None:
                    marks.append(Line(((row.low, y), (row.high, y))))
                at = row.value if row.high is None else row.high
                marks.append(Label((at, y), format_percent(row.value), "start", (5, 4)))
        title_of_panel = system if len(systems) > 1 else ""
        panels.append(Panel(x=across, y=names, marks=tuple(marks), height=22 * len(endings), title=title_of_panel))
    note = format_n((row.n for row in rows), "samples a system")
    note += "; lines: Wilson, 95 %" if any(row.low is not None for row in rows) else ""
    return Figure(
        name=name,
        title=title,
        notes=(note,),
        caption="Each bar is the share of a system's samples with this ending; unused endings are left out.",
        plot=Plot(panels=tuple(panels), columns=3),
        rows=tuple(rows),
    )


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


def draw_weights(rows: Sequence[WeightsRow], *, title: str = "Accuracy by weights", name: str = "weights") -> Figure:
    """Draw the accuracy over the two weights of the final score, in per cent: the first cell of each run is framed and
    bold, the others repeat it.
    """
    given = {(row.rrf_weight, row.quality_weight): row for row in rows}
    columns, lines = (sorted({place[each] for place in given}) for each in (0, 1))
    known = [row.value for row in rows if row.value is not None]
    # Of every run, the cell nearest to 0:0.
    nearest: dict[object, tuple[float, float]] = {}
    for row in sorted(rows, key=lambda row: (row.rrf_weight + row.quality_weight, row.rrf_weight)):
        nearest.setdefault(_run_key(row), (row.rrf_weight, row.quality_weight))
    first = set(nearest.values())
    cells: list[Mark] = []
    frames: list[Mark] = []
    for x, across in enumerate(columns):
        for y, up in enumerate(lines):
            cell = given.get((across, up))
            if cell is None or cell.value is None:
                cells.append(Label((x, y), "–", shift=(0, 4), style="faint"))
                continue
            corners = (x - 0.5, y - 0.5), (x + 0.5, y + 0.5)
            cells.append(Bar(*corners, name_shade(cell.value, min(known), max(known))))
            is_first = (across, up) in first
            if is_first:
                frames.append(Bar(*corners, None))
            style = "strong" if is_first else ""
            frames.append(Label((x, y), f"{100 * cell.value:.1f}", shift=(0, 4), style=style, room=1))
    panel = Panel(
        x=make_names_axis([f"{weight:.3g}" for weight in columns], "rrf_weight (no unit)"),
        y=make_names_axis([f"{weight:.3g}" for weight in lines], "quality_weight (no unit)"),
        marks=(*cells, *frames),
        height=max(29 * len(lines), 120),
    )
    runs = len({_run_key(row) for row in rows if row.value is not None})
    counted = format_n((row.n for row in rows if row.value is not None), "items a cell")
    spread = f"from {format_percent(min(known))} to {format_percent(max(known))}" if known else "nothing is graded yet"
    return Figure(
        name=name,
        title=title,
        notes=(
            f"{counted}; {len(known)} cells are {runs} runs, as equal ratios give the same order",
            f"{spread}; – was not run (0:0 orders nothing) or has nothing graded",
        ),
        caption=(
            "Each number is an accuracy in percent; framed and bold is the first cell of a run, the others repeat it."
        ),
        plot=Plot(panels=(panel,), panel_width=44 * max(len(columns), 1)),
        rows=tuple(rows),
    )


def _run_key(row: WeightsRow) -> object:
    if row.job is not None:
        return row.job
    rrf, quality = (Fraction(str(weight)) for weight in (row.rrf_weight, row.quality_weight))
    return rrf / (rrf + quality) if rrf + quality else None


BEFORE, AFTER = "before reranking", "after reranking"


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """The documents at one rank in one order."""

    rank: int
    """Counted from 1."""
    order: str
    """`BEFORE` (in the order of fusion) or `AFTER`."""
    value: float | None
    """Their mean quality, in [0, 1]."""
    low: float | None
    high: float | None
    """Bounds of Student's 95 % interval; None for fewer than two samples."""
    n: int
    """Samples with a scored document at this rank."""


def make_rank_rows(order: str, qualities: Mapping[int, Sequence[float]]) -> list[RankRow]:
    """Make rows from the qualities of the documents, by rank."""
    means = {rank: estimate_mean(qualities[rank]) for rank in sorted(qualities)}
    return [
        RankRow(rank=rank, order=order, value=found.value, low=found.low, high=found.high, n=found.n)
        for rank, found in means.items()
    ]


def draw_ranks(rows: Sequence[RankRow], *, title: str = "Quality by rank", name: str = "ranks") -> Figure:
    """Draw the quality by rank before and after reranking, which shows whether better documents moved to the front."""
    looks = {BEFORE: (ORANGE, "square", -0.15), AFTER: (BLUE, "circle", 0.15)}
    ranks = sorted({row.rank for row in rows})
    marks: list[Mark] = []
    for row in rows:
        colour, shape, aside = looks[row.order]
        x = ranks.index(row.rank) + aside
        if row.low is not None and row.high is not None:
            marks.append(Line(((x, row.low), (x, row.high)), colour, 2))
        if row.value is not None:
            marks.append(Dot((x, row.value), colour, shape))
    panel = Panel(
        x=make_names_axis([str(rank) for rank in ranks], "Rank (1 is best)"),
        y=make_axis("Mean quality (0 to 1)", [each for row in rows for each in (row.value, row.low, row.high)]),
        marks=tuple(marks),
        height=260,
    )
    keys = tuple(Key(text=order, colour=colour, shape=shape) for order, (colour, shape, _) in looks.items())
    return Figure(
        name=name,
        title=title,
        notes=(f"{format_n((row.n for row in rows), 'samples a rank')}; lines: Student, 95 %",),
        caption=(
            "Each point is the mean quality of the documents at a rank, in the order of fusion and in the final one."
        ),
        plot=Plot(panels=(panel,), keys=keys),
        rows=tuple(rows),
    )


class RhoRow(msgspec.Struct, frozen=True, kw_only=True):
    """One calibration document with both scores."""

    document: str
    """The document's hash."""
    rule: float
    """The score by rules, in [0, 1]."""
    judge: float
    """The score by the judge, (rating - 1) / 4."""


def draw_rho(decision: GateDecision, *, title: str = "Do rules agree with the judge?", name: str = "rho") -> Figure:
    """Draw the scores that the gate decided by: a circle for each pair of scores by rules and by the judge, its area by
    its number of documents, and the gate's decision above.
    """
    scored = zip(decision.documents, decision.rule_scores, decision.judge_scores, strict=True)
    rows = [RhoRow(document=document, rule=rule, judge=judge) for document, rule, judge in scored]
    counted = Counter((row.rule, row.judge) for row in rows)
    # Large circles first, so that none hides a smaller one.
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    most = max(counted.values(), default=1)
    radii = {count: 3.0 + 9.0 * (count / most) ** 0.5 for count in sorted(counted.values())}
    sizes = list(radii)
    listed = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]}) if len(sizes) > 1 else []
    keys = tuple(
        Key(text=format_count(count, "document"), colour=BLUE, shape="circle", radius=radii[count]) for count in listed
    )
    panel = Panel(
        x=make_axis("Quality by rules (0 to 1)", ends=(0, 1), inset=12),
        y=make_axis("Quality by the judge (0 to 1)", ends=(0, 1), inset=12),
        marks=tuple(Dot(place, BLUE, radius=radii[count], is_transparent=True) for place, count in ordered),
    )
    certainty = format_n([len(decision.documents)], "documents")
    if decision.low is not None and decision.high is not None:
        certainty = f"95 % interval of rho: {decision.low:.3f} to {decision.high:.3f}; {certainty}"
    if decision.unparsed:
        certainty += f", {decision.unparsed} replies without a rating"
    return Figure(
        name=name,
        title=title,
        notes=(decision.reason, certainty),
        caption="Each circle is a pair of scores that calibration documents got, its area how many got it.",
        plot=Plot(panels=(panel,), keys=keys, panel_width=SQUARE),
        rows=tuple(rows),
    )


MAX_DISTINCT = 11
"""Distinct qualities that are drawn individually; more are grouped into this many bins."""


class CalibrationRow(msgspec.Struct, frozen=True, kw_only=True):
    """The true share among the things with one rating."""

    quality: float
    """The judge's rating as (rating - 1) / 4, in [0, 1]."""
    value: float | None
    """Mean of the true values, in [0, 1]."""
    low: float | None
    high: float | None
    """Bounds of the 95 % interval: Wilson's if the truth is yes or no, else Student's."""
    n: int


def make_calibration_rows(pairs: Iterable[tuple[float, float]]) -> list[CalibrationRow]:
    """Make rows from pairs of quality and true value, both in [0, 1]."""
    known = list(pairs)
    many = len({quality for quality, _ in known}) > MAX_DISTINCT
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for quality, value in known:
        alike[round(quality * (MAX_DISTINCT - 1)) / (MAX_DISTINCT - 1) if many else quality].append(value)
    rows = []
    for quality, true in sorted(alike.items()):
        found = wilson(round(sum(true)), len(true)) if set(true) <= {0.0, 1.0} else estimate_mean(true)
        rows.append(CalibrationRow(quality=quality, value=found.value, low=found.low, high=found.high, n=len(true)))
    return rows


def draw_calibration(
    rows: Sequence[CalibrationRow],
    *,
    truth: str = "answers that were correct",
    counted: str = "samples",
    title: str = "Calibration of the judge",
    name: str = "calibration",
) -> Figure:
    """Draw the judge's ratings against `truth`, which they should predict; `counted` says what n counts."""
    marks: list[Mark] = [Line(((0, 0), (1, 1)), "faint", dash="5 4")]
    for row in rows:
        if row.low is not None and row.high is not None:
            marks.append(Line(((row.quality, row.low), (row.quality, row.high)), BLUE, 2))
        if row.value is not None:
            marks.append(Dot((row.quality, row.value), BLUE))
            marks.append(Label((row.quality, row.value), f"{row.n:,}", "start", (8, 4)))
    panel = Panel(
        x=make_axis("Quality by the judge (0 to 1)", ends=(0, 1), inset=8),
        y=make_axis(f"Share of {truth} (0 to 1)", ends=(0, 1), inset=8),
        marks=tuple(marks),
    )
    return Figure(
        name=name,
        title=title,
        notes=(f"{format_n([sum(row.n for row in rows)], counted)}, at each point its own; lines: 95 %",),
        caption=(
            f"Each point is the share of {truth} among what the judge rated alike; on the dashed line they are equal."
        ),
        plot=Plot(panels=(panel,), panel_width=SQUARE),
        rows=tuple(rows),
    )


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
    areas = []
    for scorer in dict.fromkeys(row.scorer for row in rows):
        good, bad = _split_scores(rows, scorer)
        value = low = high = None
        if good and bad:
            value = float(compute_auroc_of(good, bad))
        if min(len(good), len(bad)) > 1:
            from scipy import stats  # slow to import

            drawn = stats.bootstrap(
                (good, bad), compute_auroc_of, n_resamples=RESAMPLES, batch=BATCH, vectorized=True,
                method="percentile", rng=0,
            )  # fmt: skip
            low, high = (float(bound) for bound in drawn.confidence_interval)
        areas.append(RocArea(scorer=scorer, value=value, low=low, high=high, good=len(good), bad=len(bad)))
    return areas


def draw_roc(
    rows: Sequence[RocRow], *, truth: str = "the truth", title: str = "Who tells good documents?", name: str = "roc"
) -> Figure:
    """Draw how well each scorer separates good documents from bad ones, a step for each threshold.

    `truth` says who decided which documents are good.
    """
    found = compute_areas(rows)
    marks: list[Mark] = [Line(((0, 0), (1, 1)), "faint", dash="1 3")]
    keys = []
    for number, area in enumerate(found):
        colour, dash = name_series(number), DASHES[number % len(DASHES)]
        keys.append(Key(text=f"scores of {area.scorer}", colour=colour, shape="line", dash=dash))
        good, bad = _split_scores(rows, area.scorer)
        thresholds = sorted({*good, *bad}, reverse=True) if good and bad else []
        points = [(_share_from(bad, least), _share_from(good, least)) for least in thresholds]
        marks.append(Line(((0.0, 0.0), *points) if points else (), colour, 2.4, dash))
    panel = Panel(
        x=make_axis("Bad documents taken for good (share, 0 to 1)", ends=(0, 1)),
        y=make_axis("Good documents taken for good (share, 0 to 1)", ends=(0, 1)),
        marks=tuple(marks),
    )
    counts = f"n = {found[0].good + found[0].bad:,} documents, {found[0].good:,} good" if found else "n = 0 documents"
    notes = [f"{counts} by {truth}"]
    for area in found:
        if area.value is None:
            said = f"no area, as there are {area.good} good and {area.bad} bad documents"
        else:
            said = f"area {area.value:.3f}"
            if area.low is not None and area.high is not None:
                said += f" ({area.low:.3f} to {area.high:.3f}, bootstrap)"
        notes.append(f"{area.scorer}: {said}")
    return Figure(
        name=name,
        title=title,
        notes=tuple(notes),
        caption=(
            "Each curve rises early where high scores are those of good documents; on the dotted line they say nothing."
        ),
        plot=Plot(panels=(panel,), keys=tuple(keys), panel_width=SQUARE),
        rows=tuple(rows),
    )


def _split_scores(rows: Iterable[RocRow], scorer: str) -> tuple[list[float], list[float]]:
    own = [row for row in rows if row.scorer == scorer]
    return [row.score for row in own if row.good], [row.score for row in own if not row.good]


def _share_from(scores: Sequence[float], least: float) -> float:
    return sum(score >= least for score in scores) / len(scores)


WAITED, RAN = "waited in the queue", "ran"
MIN_SECONDS = 1e-4
"""The shortest time that is drawn: a logarithmic axis has no 0, and clocks are not more exact."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class LatencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles of the times of one role's calls, in seconds."""

    stage: str
    part: str
    """`WAITED` or `RAN`."""
    n: int
    """Number of calls."""
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


def make_latency_rows(stage: str, part: str, seconds: Sequence[float]) -> list[LatencyRow]:
    """Make the row of these times; None without times."""
    if not seconds:
        return []
    import numpy as np

    p5, p25, p50, p75, p95 = (max(MIN_SECONDS, float(value)) for value in np.quantile(seconds, QUANTILES))
    return [LatencyRow(stage=stage, part=part, n=len(seconds), p5=p5, p25=p25, p50=p50, p75=p75, p95=p95)]


def draw_latency(rows: Sequence[LatencyRow], *, title: str = "Latency by stage", name: str = "latency") -> Figure:
    """Draw how long calls waited and ran, by stage: a box between the quartiles, a tick at the median and a line from
    the 5th to the 95th percentile.
    """
    looks = {WAITED: (ORANGE, -0.22), RAN: (BLUE, 0.22)}
    stages = list(dict.fromkeys(row.stage for row in rows))
    marks: list[Mark] = []
    for row in rows:
        colour, aside = looks[row.part]
        y = stages.index(row.stage) + aside
        marks += [
            Line(((row.p5, y), (row.p95, y))),
            Bar((row.p25, y - 0.12), (row.p75, y + 0.12), colour),
            Line(((row.p50, y - 0.17), (row.p50, y + 0.17)), width=2.5),
            Aside(y, f"{row.p50:.3g} s, n = {row.n:,}"),
        ]
    panel = Panel(
        x=make_logarithmic_axis("Time of a call (s, logarithmic)", [end for row in rows for end in (row.p5, row.p95)]),
        y=make_names_axis(stages, is_downward=True),
        marks=tuple(marks),
        height=42 * len(stages),
    )
    counts = format_n((row.n for row in rows), "calls a stage")
    return Figure(
        name=name,
        title=title,
        notes=(f"{counts}; numbers: median; lines: 5th to 95th percentile",),
        caption="Each box spans the middle half of the calls, its tick is the median.",
        plot=Plot(panels=(panel,), keys=tuple(Key(text=part, colour=colour) for part, (colour, _) in looks.items())),
        rows=tuple(rows),
    )


MIN_LABELLED_SHARE = 0.04
"""The smallest share of the whole time for which a band's epoch is written above it."""


class MemoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model during a residency."""

    device: str
    epoch: int
    model: str
    opened_at: datetime
    closed_at: datetime | None
    """None: the residency is still open."""
    mib: float | None
    """Measured once, when the residency opened; None: it could not be measured."""


def draw_residencies(
    rows: Sequence[MemoryRow], *, until: datetime | None = None, title: str = "Memory over time", name: str = "memory"
) -> Figure:
    """Draw a band for each residency, as high as the measured memory of its models, in a panel for each device.

    A dashed line shows the memory of all models of a device together, unless a residency held them all. Open
    residencies reach to `until` (default: the last instant of the rows).
    """
    models = sorted({row.model for row in rows})
    colours = {model: name_series(number) for number, model in enumerate(models)}
    first = min((row.opened_at for row in rows), default=None)
    instants = [instant for row in rows for instant in (row.opened_at, row.closed_at) if instant]
    last = until or max(instants, default=None)
    span = (last - first).total_seconds() if first and last else 0.0
    devices = sorted({row.device for row in rows})
    marks: dict[str, list[Mark]] = {device: [] for device in devices}
    heights = [0.0]
    residencies: dict[tuple[str, int], list[MemoryRow]] = {}
    for row in sorted(rows, key=lambda row: (row.device, row.epoch, row.model)):
        if row.mib is not None:
            residencies.setdefault((row.device, row.epoch), []).append(row)
    for together in residencies.values():
        height = 0.0
        for row in together:
            start, end = (
                min((at - first).total_seconds(), span) if at and first else span
                for at in (row.opened_at, row.closed_at)
            )
            base, height = height, height + (row.mib or 0.0)
            drawn = marks[row.device]
            drawn.append(Bar((start, base), (end, height), colours[row.model]))
            drawn.append(Line(((start, base), (start, height)), "card"))
            if row is together[-1] and end - start >= MIN_LABELLED_SHARE * max(span, 1e-9):
                drawn.append(Label(((start + end) / 2, height), str(row.epoch), shift=(0, -5)))
        heights.append(height)
    for device, drawn in marks.items():
        needed = _sum_memory_of_all_models(row for row in rows if row.device == device)
        heights += needed
        drawn += [Line(((0.0, each), (span, each)), dash="6 4") for each in needed]
        drawn += [Label((span, each), f"all models at once: {each:,.0f} MiB", "end", (0, 12)) for each in needed]
    x = make_axis("Time since the first residency opened (s)", ends=(0.0, span or 1.0))
    y = make_axis("Memory (MiB)", heights, from_zero=True)
    held = format_n([len({(row.device, row.epoch) for row in rows})], "residencies")
    notes = [f"{held} on {', '.join(devices) or 'no device'}; measured once each, at opening"]
    if unknown := sum(row.mib is None for row in rows):
        notes.append(f"{unknown} of {len(rows)} readings could not be made and have no band")
    panels = tuple(
        Panel(x=x, y=y, marks=tuple(drawn), height=170, title=device if len(marks) > 1 else "")
        for device, drawn in marks.items()
    )
    return Figure(
        name=name,
        title=title,
        notes=tuple(notes),
        caption=(
            "Each band lasts as long as a residency, whose epoch stands above, and is as high as what was measured."
        ),
        plot=Plot(panels=panels, keys=tuple(Key(text=model, colour=colour) for model, colour in colours.items())),
        rows=tuple(rows),
    )


def _sum_memory_of_all_models(rows: Iterable[MemoryRow]) -> list[float]:
    """Return the memory that all models of a device need together, by the largest reading of each; nothing if a
    residency held as much, or if a reading is missing.
    """
    models: dict[str, float] = {}
    epochs: dict[int, float] = {}
    for row in rows:
        if row.mib is None:
            return []
        models[row.model] = max(models.get(row.model, 0.0), row.mib)
        epochs[row.epoch] = epochs.get(row.epoch, 0.0) + row.mib
    needed = sum(models.values())
    return [needed] if needed > max(epochs.values(), default=0.0) + 1 else []  # less than 1 MiB is no difference


FRONT, BEHIND = "nothing else is better in both", "something else is better"
CHANCE = "as many questions, drawn by chance"


class ParetoRow(msgspec.Struct, frozen=True, kw_only=True):
    """One threshold of routing."""

    threshold: float
    """A question that is hard with a lower probability is scored by rules."""
    saved: float
    """Share of the judge calls that are saved, in [0, 1]."""
    value: float | None
    """Share of correct answers, in [0, 1]; None: nothing was graded."""
    low: float | None = None
    high: float | None = None
    """Bounds of its interval."""
    n: int
    """Number of items."""
    chance_saved: float | None = None
    chance_value: float | None = None
    """Both values if the same number of questions were drawn at random; None: not known."""


def find_front(rows: Sequence[ParetoRow]) -> list[bool]:
    """Return which rows are on the Pareto front: no other row is better in one of the two and as good in the other."""
    known = [(row.value, row.saved) for row in rows if row.value is not None]
    return [
        row.value is not None
        and not any(
            value >= row.value and saved >= row.saved and (value, saved) != (row.value, row.saved)
            for value, saved in known
        )
        for row in rows
    ]


def draw_pareto(
    rows: Sequence[ParetoRow], *, title: str = "Accuracy against judge calls saved", name: str = "pareto"
) -> Figure:
    """Draw the accuracy against the judge calls saved, a point for each threshold, and the line of chance."""
    looks = {FRONT: (BLUE, "circle"), BEHIND: (ORANGE, "diamond")}
    # The interval of no observation is [0, 1]: drawn without a value it would only mislead.
    marked = [(row, first) for row, first in zip(rows, find_front(rows), strict=True) if row.value is not None]
    by_chance = sorted(
        (row.chance_saved, row.chance_value)
        for row, _ in marked
        if row.chance_saved is not None and row.chance_value is not None
    )
    marks: list[Mark] = [Line(tuple(by_chance), "faint", dash="5 4")] if by_chance else []
    values: list[float | None] = [value for _, value in by_chance]
    for row, is_first in marked:
        if row.value is not None:
            colour, shape = looks[FRONT if is_first else BEHIND]
            if row.low is not None and row.high is not None:
                marks.append(Line(((row.saved, row.low), (row.saved, row.high)), "faint", 1.5))
            marks.append(Dot((row.saved, row.value), colour, shape))
            marks.append(Label((row.saved, row.value), f"{row.threshold:.2g}", "start", (7, -7)))
            values += [row.value, row.low, row.high]
    panel = Panel(
        x=make_axis("Judge calls saved (%)", ends=(0, 1), is_percentage=True, inset=8),
        y=make_axis("Accuracy (% of items)", values, is_percentage=True),
        marks=tuple(marks),
        height=260,
    )
    counts = format_n((row.n for row in rows), "items")
    return Figure(
        name=name,
        title=title,
        notes=(f"{counts}; lines: 95 %; numbers: thresholds; dashed: {CHANCE}",),
        caption=(
            "Each point is a threshold of routing: further right the judge is asked less, further down it is missed."
        ),
        plot=Plot(
            panels=(panel,),
            keys=tuple(Key(text=kind, colour=colour, shape=shape) for kind, (colour, shape) in looks.items()),
        ),
        rows=tuple(rows),
    )
