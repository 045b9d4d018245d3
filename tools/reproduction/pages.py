"""What both reproductions write: the origin of their figures, tables, and curves."""

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure
from shared.settings import REPOSITORY

# Describe the origin of measured figures: the code's commit, and the machine.


def commit(file: Path | None = None) -> str:
    """Return the abbreviated commit of the code, or the last one that changed a file."""
    return _git("log", "-1", "--format=%h", *(["--", str(file)] if file else []))


def is_changed(file: Path) -> bool:
    """Whether the file differs from the committed one."""
    return bool(_git("status", "--porcelain", "--", str(file)))


def machine() -> str:
    """Name the number of processor cores and Python's version."""
    return f"{os.cpu_count()} processor cores, Python {platform.python_version()}"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


# Write tables in Markdown.


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table with its header."""

    def lines() -> Iterator[str]:
        yield line(header)
        yield "|---" * len(header) + "|"
        yield from map(line, rows)

    return "\n".join(lines())


def line(cells: Sequence[Any]) -> str:
    """Write one row of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


# Draw accuracy, or another share, over a varied parameter, with a line for each system.

HEIGHT = 280


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one system at one value."""

    x: float
    label: str
    """The system, which has a colour, dash and shape of its own in the order given."""
    value: float | None
    """Accuracy in [0, 1]."""
    low: float
    high: float
    """Wilson's interval."""
    n: int


def chart(
    rows: Sequence[Row], *, name: str, title: str, axis: str, share: str = "Accuracy", of: str = "items"
) -> Figure:
    """Draw `share` of `of` over `axis`, which names the varied parameter with its unit.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.import_altair()
    labels = list(dict.fromkeys(row.label for row in rows))
    base = alt.Chart(style.make_data(map(style.to_plain, rows)), width=style.WIDTH, height=HEIGHT).encode(
        x=alt.X("x:Q", title=axis, scale=alt.Scale(padding=12, nice=False), axis=alt.Axis(grid=False)),
        color=_encode(alt.Color, alt, labels, style.PALETTE),
    )
    up = {"axis": alt.Axis(format=".0%", title=f"{share} (% of {of})"), "scale": alt.Scale(domain=[0, 1])}
    layers = [
        base.mark_rule(size=1.4, opacity=0.6).encode(y=alt.Y("low:Q", **up), y2="high:Q"),
        base.mark_line().encode(
            y=alt.Y("value:Q", **up), strokeDash=_encode(alt.StrokeDash, alt, labels, style.DASHES)
        ),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=alt.Y("value:Q", **up), shape=_encode(alt.Shape, alt, labels, style.SHAPES)
        ),
    ]
    note = f"{style.format_n((row.n for row in rows), f'{of} a point')}; lines: Wilson, 95 %"
    caption = f"Each point is the {share.lower()} of a system; {axis[0].lower()}{axis[1:]} grows to the right."
    return style.make_figure(name, title, [note], caption, alt.layer(*layers), rows)


def _encode(channel: type, alt: object, labels: Sequence[str], looks: Sequence[object]) -> object:
    """Encode the label in one channel, so that colour, dash and shape share one legend."""
    scale = alt.Scale(domain=labels, range=list(looks[: len(labels)]))  # type: ignore[attr-defined]
    return channel("label:N", title=None, sort=list(labels), scale=scale)
