"""A comparison of jobs, as text and for a notebook."""

from html import escape

import msgspec

from mathrag.client import answers
from mathrag.client.job import draw_bar, draw_table
from mathrag.formatting import format_accuracy, format_mean


class Comparison(answers.Comparison, frozen=True, kw_only=True):
    """Jobs compared on their common questions."""

    def __str__(self) -> str:
        width = max((len(each.name) for each in self.jobs), default=0)
        return "\n".join(
            [
                f"{self.finding}.",
                f"{self.measure.capitalize()} with 95 % intervals:",
                *(f"  {each.name:<{width}}  {self._format_figure(each)}" for each in self.jobs),
                *(f"  {pair.left} against {pair.right}: {pair.words}" for pair in self.pairs),
                *(f"  note: {note}" for note in self.notes),
            ]
        )

    def _repr_html_(self) -> str:
        """Return the comparison as HTML for a notebook; all texts of the server are escaped."""
        figures = (f"{escape(each.name)}: {escape(self._format_figure(each))}" for each in self.jobs)
        return "".join(
            [
                f"<p><strong>{escape(self.finding)}.</strong></p>",
                f"<p>{escape(self.measure.capitalize())} with 95 % intervals:</p>",
                *(f"<p>{text}</p>{draw_bar(each.measured)}" for each, text in zip(self.jobs, figures, strict=True)),
                draw_table((f"{pair.left} against {pair.right}", pair.words) for pair in self.pairs),
                *(f"<p><em>{escape(note)}</em></p>" for note in self.notes),
            ]
        )

    def _format_figure(self, job: answers.Compared) -> str:
        if self.measure == "accuracy":
            return format_accuracy(msgspec.to_builtins(job.accuracy))
        return format_mean(msgspec.to_builtins(job.measured))
