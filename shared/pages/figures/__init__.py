"""Make figures as SVG and PNG, each with its data: one module for each figure.

`accuracy.draw(rows)` and its siblings make a `Figure` without I/O; `write_figure(figure, folder)` writes its three
files. The same rows make the same bytes. Drawing needs the extra `report`.
"""

from shared.pages.figures.figure import Figure, render_inline, render_svg, write_figure

__all__ = ["Figure", "render_inline", "render_svg", "write_figure"]
