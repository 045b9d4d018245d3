"""A job's report as a notebook shows it: the headline, the interval as a bar, and every figure."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import msgspec

from mathrag.client import answers
from shared.pages import lines as lines_module
from shared.pages.formatting import format_accuracy, format_headline

BAR = (
    '<div style="position:relative;height:.8em;max-width:24em;background:#8883;border-radius:.4em">'
    '<div style="position:absolute;left:{left:.2f}%;width:{width:.2f}%;height:100%;background:#48a8;'
    'border-radius:.4em"></div>'
    '<div style="position:absolute;left:{at:.2f}%;width:2px;height:100%;background:#c33"></div></div>'
)
"""From 0 to 100 %: the interval, and the figure in it; readable on light and dark pages."""


class Report(answers.Report, frozen=True, kw_only=True):
    """A job's report."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and value of each figure that the report has, as `mathrag job report` prints them."""
        for name, value in lines_module.build_lines(self._to_json()):
            if value not in (None, ""):
                yield name, str(value)

    def __str__(self) -> str:
        return "\n".join(f"{name:<14}{value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        """Return the report as HTML for a notebook; all texts of the server are escaped."""
        headline = escape(format_headline(self._to_json()))
        return "".join(
            (
                f"<p><strong>{escape(self.name)}</strong> ({escape(self.state)}): {headline}</p>",
                _draw_bar(self.accuracy),
                _draw_table(self.lines()),
                _draw_parts("by subject", self.by_subject),
                _draw_parts("by level", self.by_level),
                "".join(f"<p><em>{escape(note)}</em></p>" for note in self.notes),
            )
        )

    def _to_json(self) -> Any:
        return msgspec.to_builtins(self)


def _draw_bar(found: answers.Accuracy) -> str:
    if found.value is None:
        return ""
    low, high, at = (100 * min(1.0, max(0.0, each)) for each in (found.low, found.high, found.value))
    return BAR.format(left=low, width=high - low, at=at)


def _draw_table(rows: Iterator[tuple[str, str]]) -> str:
    cells = (
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _draw_parts(title: str, figures: Mapping[str, answers.Accuracy]) -> str:
    if len(figures) < 2:
        return ""
    rows = ((name, format_accuracy(msgspec.to_builtins(figure))) for name, figure in figures.items())
    return f"<details><summary>{title}</summary>{_draw_table(rows)}</details>"
