"""Read the input of a question set: facts held out from a graph, and templates for the questions of a relation."""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from shared.ingest import facts, fields, lines
from shared.ingest.fact_rows import TEMPLATE, TEMPLATES
from shared.ingest.lines import Defect, Fields, Row
from shared.questions.wording import QuestionTemplates, check


class ParsedQuestions(NamedTuple):
    """The facts and templates of an upload."""

    facts: facts.ParsedGraph
    templates: dict[str, QuestionTemplates]
    """Templates by relation."""


class QuestionReader(NamedTuple):
    """Reads facts and templates for one graph."""

    relations: Container[str]
    timed: bool
    """Whether the graph's facts have times."""

    def read(self, rows: Iterable[Row], source: str, most: int) -> ParsedQuestions:
        """Read facts and templates from at most `most` lines.

        Raises:
            Invalid: there are no facts.
            InvalidLine: lines that cannot be used.
            TooLarge: there are more lines.
        """
        templates: dict[str, QuestionTemplates] = {}
        found = facts.read(self._take_out_templates(rows, templates), source, most)
        return ParsedQuestions(found, templates)

    def _take_out_templates(self, rows: Iterable[Row], templates: dict[str, QuestionTemplates]) -> Iterator[Row]:
        """Yield the other rows, and the defects of templates that cannot be used."""
        for source, number, content in rows:
            try:
                line = lines.fields(content)
                if TEMPLATE[1] in line or TEMPLATE[2] in line:
                    self._add(line, templates)
                    continue
                _check_no_phrase(line)
            except Defect as defect:
                yield source, number, defect
                continue
            yield source, number, line

    def _add(self, line: Fields, templates: dict[str, QuestionTemplates]) -> None:
        relation, asks_object, asks_subject = (_text(line, field) for field in TEMPLATE)
        if relation not in self.relations:
            raise Defect(f"the graph has no relation {relation[:80]!r}; remove the line")
        if relation in templates:
            raise Defect(f"repeats the relation {relation[:80]!r}; write one line for each")
        for field, text, slot in ((TEMPLATE[1], asks_object, "subject"), (TEMPLATE[2], asks_subject, "object")):
            self._check(field, text, slot)
        templates[relation] = QuestionTemplates(asks_object, asks_subject)

    def _check(self, field: str, template: str, slot: str) -> None:
        try:
            check(template, slot, timed=self.timed)
        except ValueError as error:
            raise Defect(f"`{field}` {error}") from error


def _text(line: Fields, field: str) -> str:
    if line.get(field) is None or not (found := fields.text(line, field).strip()):
        raise Defect(f"has no {field}; {TEMPLATES}")
    return found


def _check_no_phrase(line: Fields) -> None:
    if "phrase" in line:
        raise Defect("is a phrase; upload phrases with the graph: mathrag graph create --phrases FILE")
