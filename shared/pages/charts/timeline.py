"""Draw a device's residencies over time: a band for each, as high as its models' memory against the budget."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 1000, 100
SHOWN = timedelta(minutes=10)
"""How much of the past is shown, back from the last change or from now."""
STEP_S = 5
"""An open timeline ends at the next multiple of this, so that it does not change every second."""


class Timeline(NamedTuple):
    """The drawing, with its ends and its legend."""

    svg: Markup
    start: datetime
    end: datetime
    legend: list[tuple[str, str]]
    """The class of each colour, and the models that it stands for."""


def draw_timeline(flips: Sequence[Mapping[str, Any]], budget_mib: int | None, now: datetime) -> Timeline | None:
    """Draw the residencies of one device; None if there never was one.

    Args:
        flips: the flips from `GET /v1/gpus/{device}`, newest first; times as ISO 8601 or `datetime`.
        now: the end of residencies that are still open.
        budget_mib: the memory at full height; None: that of the largest residency.
    """
    known = [_make_band(flip, now) for flip in reversed(flips)]
    if not known:
        return None
    end = _find_end(known, now)
    start = max(min(band.wanted for band in known), end - SHOWN)
    bands = [band for band in known if band.closed > start] or known[-1:]
    top = budget_mib or max(max(band.memory_mib for band in bands), 1)
    names = list(dict.fromkeys(band.models for band in bands if band.models))
    colours = {models: f"series-{1 + number % 6}" for number, models in enumerate(names)}
    frame = _Frame(start, max((end - start).total_seconds(), 0.001), top)
    shapes = "".join(shape for band in bands for shape in _draw_band(band, frame, colours))
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(_describe_band(bands[-1]))}">{shapes}<line class="threshold" x2="{WIDTH}" y1="1" y2="1"/>'
        f'<line class="axis" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/></svg>'
    )
    return Timeline(Markup(svg), start, end, [(colours[models], models) for models in names])  # noqa: S704 - escaped


class _Band(NamedTuple):
    models: str
    cause: str
    state: str
    wanted: datetime
    opened: datetime | None
    closed: datetime
    """Now, if it is still open."""
    over: bool
    memory_mib: int


class _Frame(NamedTuple):
    start: datetime
    seconds: float
    top_mib: int

    def x(self, at: datetime) -> float:
        return round(min(max((at - self.start).total_seconds() / self.seconds, 0.0), 1.0) * WIDTH, 2)

    def y(self, mib: int) -> float:
        return round(HEIGHT * (1 - min(mib / self.top_mib, 1.0)), 2)


def _make_band(flip: Mapping[str, Any], now: datetime) -> _Band:
    wanted, opened, closed = (_parse_time(flip[name]) for name in ("wanted_at", "opened_at", "closed_at"))
    return _Band(
        ", ".join(flip["models"]), flip["cause"], flip["state"], wanted or now, opened, closed or now,
        closed is not None, flip["declared_mib"],
    )  # fmt: skip


def _find_end(bands: Sequence[_Band], now: datetime) -> datetime:
    last = max(band.closed for band in bands)
    if all(band.over for band in bands):
        return last
    return now + timedelta(seconds=STEP_S - now.timestamp() % STEP_S)


def _draw_band(band: _Band, frame: _Frame, colours: Mapping[str, str]) -> list[str]:
    """Draw one residency: faint while loading, solid while open; a line at the bottom if it is empty."""
    opened = band.opened or band.closed
    colour, y = (colours[band.models], frame.y(band.memory_mib)) if band.models else ("drained", float(HEIGHT - 6))
    title = f"<title>{escape(_describe_band(band))}</title>"
    return [
        f'<rect class="{colour} {kind}" x="{frame.x(begin)}" y="{y}" height="{HEIGHT - y:.2f}" '
        f'width="{max(frame.x(end) - frame.x(begin), 0.5):.2f}">{title}</rect>'
        for kind, begin, end in (("loading", band.wanted, opened), ("resident", opened, band.closed))
        if end > begin and end > frame.start
    ]


def _describe_band(band: _Band) -> str:
    return f"{band.models or 'nothing'}: {band.state}, {band.memory_mib} MiB declared, cause {band.cause}"


def _parse_time(value: str | datetime | None) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
