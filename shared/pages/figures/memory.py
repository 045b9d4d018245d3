"""Memory over time: a band for each residency, as high as its models were measured."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "memory"
HEIGHT = 170
WIDE = 0.04
"""Least share of the time that a band lasts whose epoch is written above it."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A model during a residency."""

    device: str
    epoch: int
    model: str
    opened_at: datetime
    closed_at: datetime | None
    """None: still open."""
    mib: float | None
    """Measured once, when the residency opened; None: nothing could be measured."""


def chart(
    rows: Sequence[Row], *, until: datetime | None = None, title: str = "Memory over time", name: str = NAME
) -> Figure:
    """A panel for each device; open residencies reach to `until` (default: the last instant of the rows).

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    drawn = _by_device(_panel(_bands(rows, until), sorted({row.model for row in rows})), rows)
    caption = "Each band lasts as long as a residency, whose epoch stands above, and is as high as what was measured."
    return look.figure(name, title, list(_said(rows)), caption, drawn, rows)


def _panel(bands: list[dict[str, object]], models: Sequence[str]) -> Any:
    """The bands, and the epochs above them."""
    alt = library.altair()
    base = alt.Chart(width=look.WIDTH, height=HEIGHT)
    rectangles = base.mark_rect(stroke="white", strokeWidth=0.6).encode(
        x=alt.X("start:Q", title="Time since the first residency opened (s)", scale=alt.Scale(nice=False)),
        x2="end:Q",
        y=alt.Y("base:Q", title="Memory (MiB)"),
        y2="top:Q",
        color=alt.Color(
            "model:N",
            sort=models,
            title="Model",
            scale=alt.Scale(domain=models, range=list(look.PALETTE[: len(models)])),
            legend=alt.Legend(orient="bottom", columns=3),
        ),
    )
    named = base.transform_filter("datum.said !== ''").mark_text(dy=-6, fontSize=10)
    epochs = named.encode(x="middle:Q", y="top:Q", text="said:N")
    return alt.layer(rectangles, epochs, data=look.values(bands))


def _by_device(panel: Any, rows: Sequence[Row]) -> Any:
    """A panel for each device, where there are several."""
    if len(devices := _devices(rows)) < 2:
        return panel
    alt = library.altair()
    header = alt.Header(labelOrient="top", labelAnchor="start", title=None)
    return panel.facet(row=alt.Row("device:N", sort=devices, header=header), spacing=18)


def _devices(rows: Sequence[Row]) -> list[str]:
    return sorted({row.device for row in rows})


def _said(rows: Sequence[Row]) -> Iterator[str]:
    """What stands below the title."""
    held = look.numbered([len({(row.device, row.epoch) for row in rows})], "residencies")
    yield f"{held} on {', '.join(_devices(rows)) or 'no device'}; measured once each, at opening"
    if unknown := sum(row.mib is None for row in rows):
        yield f"{unknown} of {len(rows)} readings could not be made and have no band"


def _bands(rows: Sequence[Row], until: datetime | None) -> list[dict[str, object]]:
    first = min((row.opened_at for row in rows), default=None)
    last = until or max(
        (instant for row in rows for instant in (row.opened_at, row.closed_at) if instant), default=None
    )
    if first is None or last is None:
        return []
    span = max((last - first).total_seconds(), 1e-9)
    bands: list[dict[str, object]] = []
    for together in _residencies(rows):
        height = 0.0
        for row in together:
            start, end = ((instant - first).total_seconds() for instant in (row.opened_at, row.closed_at or last))
            base, height = height, height + (row.mib or 0.0)
            said = str(row.epoch) if row is together[-1] and end - start >= WIDE * span else ""
            bands.append({
                "device": row.device, "model": row.model, "start": start, "end": end, "middle": (start + end) / 2,
                "base": base, "top": height, "said": said,
            })  # fmt: skip
    return bands


def _residencies(rows: Iterable[Row]) -> list[list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.device, row.epoch, row.model)):
        if row.mib is not None:
            found.setdefault((row.device, row.epoch), []).append(row)
    return list(found.values())
