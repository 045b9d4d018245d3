"""Figures as SVG and PNG, each with its data: one module per figure, all of them pure until they are written.

`accuracy.chart(rows)` and its siblings make a `Figure`; `write(figure, folder)` makes its three files. The same rows
make the same bytes. What is drawn needs the extra `report`.
"""

from shared.pages.figures.figure import Figure, inline, svg, write

__all__ = ["Figure", "inline", "svg", "write"]
