"""What both reproductions write: the origin of their figures, tables, and curves."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from shared.pages.figures import Figure, format_n
from shared.pages.plots import DASHES, SHAPES, Dot, Key, Line, Mark, Panel, Plot, make_axis, name_series
from shared.settings import REPOSITORY


def commit(file: Path | None = None) -> str:
    """Return the abbreviated commit of the code, or the last one that changed a file."""
    return _git("log", "-1", "--format=%h", *(["--", str(file)] if file else []))


def is_changed(file: Path) -> bool:
    """Whether the file differs from the committed one."""
    return bool(_git("status", "--porcelain", "--", str(file)))


def describe_origin(seconds: float) -> dict[str, Any]:
    """Describe the origin of figures; `seconds` are those of all steps that led to them."""
    return {
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} processor cores, Python {platform.python_version()}",
        "minutes": seconds / 60,
    }


def format_origin(about: Mapping[str, Any], results: str) -> str:
    """Write the origin of a page's figures; `results` is the name of the file with all of them."""
    return (
        f"{about['ended'][:10]}, commit {about['commit']}, {about['minutes']:.0f} minutes on {about['machine']}. "
        f"Raw: [{results}](results/{results})."
    )


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


HEIGHT = 280


class PlottedShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one system at one value."""

    x: float
    label: str
    """The system; each has a different colour, dash and shape, in the given order."""
    value: float | None
    """Accuracy in [0, 1]."""
    low: float
    high: float
    """Wilson's interval."""
    n: int


def chart(
    rows: Sequence[PlottedShare], *, name: str, title: str, axis: str, share: str = "Accuracy", of: str = "items"
) -> Figure:
    """Draw `share` of `of` over `axis`, which names the varied parameter with its unit."""
    marks: list[Mark] = []
    keys = []
    for number, label in enumerate(dict.fromkeys(row.label for row in rows)):
        own = sorted((row for row in rows if row.label == label), key=lambda row: row.x)
        known = [(row, row.value) for row in own if row.value is not None]
        colour, dash, shape = name_series(number), DASHES[number % len(DASHES)], SHAPES[number % len(SHAPES)]
        keys.append(Key(text=label, colour=colour, shape=shape))
        marks += [Line(((row.x, row.low), (row.x, row.high)), colour) for row, _ in known]
        marks.append(Line(tuple((row.x, value) for row, value in known), colour, 2, dash))
        marks += [Dot((row.x, value), colour, shape) for row, value in known]
    places = [row.x for row in rows]
    panel = Panel(
        x=make_axis(axis, ends=(min(places), max(places)) if places else None, inset=12, has_grid=False),
        y=make_axis(f"{share} (% of {of})", ends=(0, 1), is_percentage=True),
        marks=tuple(marks),
        height=HEIGHT,
    )
    return Figure(
        name=name,
        title=title,
        notes=(f"{format_n((row.n for row in rows), f'{of} a point')}; lines: Wilson, 95 %",),
        caption=f"Each point is the {share.lower()} of a system; {axis[0].lower()}{axis[1:]} grows to the right.",
        plot=Plot(panels=(panel,), keys=tuple(keys)),
        rows=tuple(rows),
    )
