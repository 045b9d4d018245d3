"""A figure: what is drawn, the rows that it is drawn from, and the files that it becomes."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

import msgspec

from shared.pages.figures import library

SCALE = 2.0
"""Pixels of the PNG per unit of the SVG: sharp in print and on dense screens."""
NARROW = {
    ("width", 460): 150,
    ("value", 470): 160,
    ("labelLimit", 260): 110,
    ("labelLimit", 420): 190,
    ("columns", 4): 1,
}
"""What charts set along their width (plot, what stands right of it, labels, panels), and what a narrow window gets."""
PARTS = re.compile(r' (?:role|aria-roledescription|aria-label)="[^"]*"')
"""What the parts of a figure are called: it is one image to who hears it."""
ID = re.compile(r'\bid="([^"]+)"')


class Inline(NamedTuple):
    """A figure as a part of a page, which has its title and lines as text."""

    wide: str
    narrow: str
    """For windows in which the wide one could not be read."""
    said: list[str]
    """Lines that stand under its title."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, drawn the same by whoever has the same rows."""

    name: str
    """Of its files."""
    title: str
    caption: str
    """One sentence: what is to be seen, and how it is read."""
    chart: dict[str, Any]
    """Vega-Lite, with the data that it draws."""
    rows: tuple[Any, ...]
    """What it was drawn from."""


def write(figure: Figure, folder: Path) -> tuple[Path, Path, Path]:
    """Write NAME.svg, NAME.png and NAME.json (title, caption, rows) into `folder`, which is made if it is not there.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = (folder / f"{figure.name}.svg", folder / f"{figure.name}.png", folder / f"{figure.name}.json")
    drawn = svg(figure)
    written[0].write_text(drawn, "utf-8")
    written[1].write_bytes(png(drawn))
    written[2].write_bytes(data(figure))
    return written


def write_all(figures: Iterable[Figure], folder: Path) -> list[str]:
    """Write all of them; their names.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    drawn = list(figures)
    for figure in drawn:
        write(figure, folder)
    return [figure.name for figure in drawn]


def inline(figure: Figure) -> Inline:
    """Two widths of it without title and ground, so that the page's style gives it the colours of the theme.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    title = figure.chart["title"]
    bare = {**figure.chart, "title": None, "config": {**figure.chart["config"], "background": None, "padding": 4}}
    wide = svg(msgspec.structs.replace(figure, chart=bare))
    narrow = svg(msgspec.structs.replace(figure, name=f"{figure.name}-narrow", chart=narrowed(bare)))
    return Inline(_as_one(wide), _as_one(narrow), list(title.get("subtitle", ())))


def _as_one(drawn: str) -> str:
    head, _, parts = drawn.partition(">")
    return f"{head}>{PARTS.sub('', parts)}"


def narrowed(chart: Any, key: str = "") -> Any:
    """`chart` with everything that is measured along its width made as small as a telephone wants it."""
    if isinstance(chart, dict):
        return {name: narrowed(value, name) for name, value in chart.items()}
    if isinstance(chart, list):
        return [narrowed(value) for value in chart]
    return NARROW.get((key, chart), chart) if isinstance(chart, int) else chart


def svg(figure: Figure) -> str:
    """Text stays text, and title and caption are what is read aloud.

    Ids begin with the figure's name, so that several figures can stand in one page.
    """
    drawn = library.converter().vegalite_to_svg(figure.chart, vl_version=library.grammar(), allowed_base_urls=[])
    for place, id_ in enumerate(dict.fromkeys(ID.findall(drawn))):
        # The converter counts on from the figure before: without this the same rows would not make the same bytes.
        drawn = re.sub(rf'(\bid="|url\(#){re.escape(id_)}(?=["\)])', rf"\g<1>{figure.name}-{place}", drawn)
    said = quoteattr(f"{figure.title}. {figure.caption}")
    return str(drawn).replace("<svg ", f'<svg role="img" aria-label={said} ', 1)


def png(drawn: str) -> bytes:
    """An SVG as pixels."""
    return bytes(library.converter().svg_to_png(drawn, scale=SCALE))


def data(figure: Figure) -> bytes:
    """Title, caption and rows as JSON."""
    named: dict[str, str | Sequence[Any]] = {
        "name": figure.name, "title": figure.title, "caption": figure.caption, "rows": figure.rows
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(named), indent=1) + b"\n"
