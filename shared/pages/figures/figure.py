"""A figure, the rows that it is drawn from, and the files that it is written to."""

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
"""Horizontal measures in charts (plot, text beside it, labels, panels), with their values in narrow windows."""
PARTS = re.compile(r' (?:role|aria-roledescription|aria-label)="[^"]*"')
"""Labels of a figure's parts, which are removed: for screen readers it is one image."""
ID = re.compile(r'\bid="([^"]+)"')


class InlineFigure(NamedTuple):
    """A figure inside a page, which shows its title and lines as text."""

    wide: str
    narrow: str
    """The drawing for narrow windows."""
    said: list[str]
    """Lines that stand under the title."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure; the same rows always make the same drawing."""

    name: str
    """The stem of its files' names."""
    title: str
    caption: str
    """One sentence that tells what the figure shows and how to read it."""
    chart: dict[str, Any]
    """The Vega-Lite specification, with its data."""
    rows: tuple[Any, ...]
    """The rows that it was drawn from."""


def write_figure(figure: Figure, folder: Path) -> tuple[Path, Path, Path]:
    """Write NAME.svg, NAME.png and NAME.json (title, caption, rows) into `folder`, which is made if it is not there.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = (folder / f"{figure.name}.svg", folder / f"{figure.name}.png", folder / f"{figure.name}.json")
    drawn = render_svg(figure)
    written[0].write_text(drawn, "utf-8")
    written[1].write_bytes(render_png(drawn))
    written[2].write_bytes(encode_data(figure))
    return written


def write_all(figures: Iterable[Figure], folder: Path) -> list[str]:
    """Write all of them; their names.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    drawn = list(figures)
    for figure in drawn:
        write_figure(figure, folder)
    return [figure.name for figure in drawn]


def render_inline(figure: Figure) -> InlineFigure:
    """Render two widths without title and background, so that the page's style sets the colours of the theme.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    title = figure.chart["title"]
    bare = {**figure.chart, "title": None, "config": {**figure.chart["config"], "background": None, "padding": 4}}
    wide = render_svg(msgspec.structs.replace(figure, chart=bare))
    narrow = render_svg(msgspec.structs.replace(figure, name=f"{figure.name}-narrow", chart=narrow_chart(bare)))
    return InlineFigure(_strip_part_labels(wide), _strip_part_labels(narrow), list(title.get("subtitle", ())))


def _strip_part_labels(drawn: str) -> str:
    head, _, parts = drawn.partition(">")
    return f"{head}>{PARTS.sub('', parts)}"


def narrow_chart(chart: Any, key: str = "") -> Any:
    """Return `chart` with its horizontal measures reduced for the screen of a telephone."""
    if isinstance(chart, dict):
        return {name: narrow_chart(value, name) for name, value in chart.items()}
    if isinstance(chart, list):
        return [narrow_chart(value) for value in chart]
    return NARROW.get((key, chart), chart) if isinstance(chart, int) else chart


def render_svg(figure: Figure) -> str:
    """Render the figure as SVG: text stays text, and a screen reader reads title and caption.

    Ids begin with the figure's name, so that one page can show several figures.
    """
    drawn = library.import_converter().vegalite_to_svg(
        figure.chart, vl_version=library.get_vega_lite_version(), allowed_base_urls=[]
    )
    for place, id_ in enumerate(dict.fromkeys(ID.findall(drawn))):
        # The converter's ids continue from the figure before, so the same rows would not make the same bytes.
        drawn = re.sub(rf'(\bid="|url\(#){re.escape(id_)}(?=["\)])', rf"\g<1>{figure.name}-{place}", drawn)
    label = quoteattr(f"{figure.title}. {figure.caption}")
    return str(drawn).replace("<svg ", f'<svg role="img" aria-label={label} ', 1)


def render_png(drawn: str) -> bytes:
    """Render an SVG as PNG."""
    return bytes(library.import_converter().svg_to_png(drawn, scale=SCALE))


def encode_data(figure: Figure) -> bytes:
    """Encode title, caption and rows as JSON."""
    named: dict[str, str | Sequence[Any]] = {
        "name": figure.name, "title": figure.title, "caption": figure.caption, "rows": figure.rows
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(named), indent=1) + b"\n"
