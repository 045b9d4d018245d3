"""Draw memory over time: a band for each residency, as high as the measured memory of its models."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure

NAME = "memory"
HEIGHT = 170
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


def draw(
    rows: Sequence[MemoryRow], *, until: datetime | None = None, title: str = "Memory over time", name: str = NAME
) -> Figure:
    """Draw a panel for each device; open residencies reach to `until` (default: the last instant of the rows).

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    bands = _make_bands(rows, until)
    models = sorted({row.model for row in rows})
    alt = library.import_altair()
    base = alt.Chart(width=style.WIDTH, height=HEIGHT)
    rectangles = base.mark_rect(stroke="white", strokeWidth=0.6).encode(
        x=alt.X("start:Q", title="Time since the first residency opened (s)", scale=alt.Scale(nice=False)),
        x2="end:Q",
        y=alt.Y("base:Q", title="Memory (MiB)"),
        y2="top:Q",
        color=alt.Color(
            "model:N",
            sort=models,
            title="Model",
            scale=alt.Scale(domain=models, range=list(style.PALETTE[: len(models)])),
            legend=alt.Legend(orient="bottom", columns=3),
        ),
    )
    named = base.transform_filter("datum.said !== ''").mark_text(dy=-6, fontSize=10)
    epochs = named.encode(x="middle:Q", y="top:Q", text="said:N")
    drawn = _split_by_device(alt.layer(rectangles, epochs, data=style.make_data(bands)), rows)
    caption = "Each band lasts as long as a residency, whose epoch stands above, and is as high as what was measured."
    return style.make_figure(name, title, list(_describe_rows(rows)), caption, drawn, rows)


def _split_by_device(panel: Any, rows: Sequence[MemoryRow]) -> Any:
    """Make a panel for each device if there are several."""
    if len(devices := _list_devices(rows)) < 2:
        return panel
    alt = library.import_altair()
    header = alt.Header(labelOrient="top", labelAnchor="start", title=None)
    return panel.facet(row=alt.Row("device:N", sort=devices, header=header), spacing=18)


def _list_devices(rows: Sequence[MemoryRow]) -> list[str]:
    return sorted({row.device for row in rows})


def _describe_rows(rows: Sequence[MemoryRow]) -> Iterator[str]:
    """Yield the lines of the subtitle."""
    held = style.format_n([len({(row.device, row.epoch) for row in rows})], "residencies")
    yield f"{held} on {', '.join(_list_devices(rows)) or 'no device'}; measured once each, at opening"
    if unknown := sum(row.mib is None for row in rows):
        yield f"{unknown} of {len(rows)} readings could not be made and have no band"


def _make_bands(rows: Sequence[MemoryRow], until: datetime | None) -> list[dict[str, object]]:
    first = min((row.opened_at for row in rows), default=None)
    last = until or max(
        (instant for row in rows for instant in (row.opened_at, row.closed_at) if instant), default=None
    )
    if first is None or last is None:
        return []
    span = max((last - first).total_seconds(), 1e-9)
    bands: list[dict[str, object]] = []
    for together in _group_by_residency(rows):
        height = 0.0
        for row in together:
            start, end = ((instant - first).total_seconds() for instant in (row.opened_at, row.closed_at or last))
            base, height = height, height + (row.mib or 0.0)
            label = str(row.epoch) if row is together[-1] and end - start >= MIN_LABELLED_SHARE * span else ""
            bands.append({
                "device": row.device, "model": row.model, "start": start, "end": end, "middle": (start + end) / 2,
                "base": base, "top": height, "said": label,
            })  # fmt: skip
    return bands


def _group_by_residency(rows: Iterable[MemoryRow]) -> list[list[MemoryRow]]:
    found: dict[tuple[str, int], list[MemoryRow]] = {}
    for row in sorted(rows, key=lambda row: (row.device, row.epoch, row.model)):
        if row.mib is not None:
            found.setdefault((row.device, row.epoch), []).append(row)
    return list(found.values())
