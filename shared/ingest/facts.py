"""Facts of uploads: graphs, documents of facts, names and questions."""

from array import array
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from mathrag.errors import Invalid, InvalidLine, TooLarge
from mathrag.reading import lines
from mathrag.reading.graph_paths import FACT, PHRASE, TEMPLATE, TEMPLATES, WHAT
from mathrag.reading.lines import Defect, Fields, Reader, Row
from shared.questions.items import QuestionTemplates, check_template
from shared.replies import CorpusRecord, Document
from shared.rules import facts
from shared.rules.graph import Graph
from shared.samples import Fact, Phrase, TimeUnit
from shared.storage.graphs import CHUNK, GraphFacts

# Number the facts of an upload: distinct ones in their order, entities and relations by first appearance.

CONTROLS = "\0\t\n\r"
"""Characters that names must not hold, because names are written into lines, between tabs."""
MOST_NAMES = 64 << 20
"""Upper bound of the length of all entities' names, in characters: the whole graph is held in memory while it is
stored. A million facts about Wikidata have some 30 MiB."""
UNITS: dict[TimeUnit | None, str] = {None: "no time", "day": "a date", "step": "a whole number as time"}


class ParsedGraph(NamedTuple):
    """The facts and phrases of an upload."""

    upload: GraphFacts
    repeated: int
    """Number of facts that were left out because they occur earlier."""


def read_facts(rows: Iterable[Row], source: str, most: int) -> ParsedGraph:
    """Read all facts and phrases of an upload of at most `most` lines, in 12 bytes per fact (20 with times) and the
    names.

    Raises:
        Invalid: facts are missing.
        InvalidLine: lines that cannot be used.
        TooLarge: there are more lines.
    """
    numbering = _FactNumbering(source)
    for record in Reader(rows, numbering.read, lambda _: None, most=most):  # without ids: facts may repeat
        if isinstance(record, Fact):
            numbering.add(record)
    return numbering.finish()


class _FactNumbering:
    """Numbers facts while they are read."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._entities: dict[str, int] = {}
        self._relations: dict[str, int] = {}
        self._triples = array("i")
        self._times = array("q")
        self._name_bytes = 0
        self._units: set[TimeUnit | None] = set()
        self._phrases: dict[str, Phrase] = {}
        self._lines: dict[str, int] = {}
        """Line number of each phrase."""

    def read(self, line: Fields, number: int) -> Fact | Phrase:
        """Read the fact of a line, or read and add its phrase.

        Raises:
            Defect: the line cannot be used.
        """
        if "phrase" in line:
            _check_known(line, PHRASE)
            found = Phrase(
                relation=_read_name(line, "relation"),
                phrase=_read_name(line, "phrase"),
                inverse=_read_name(line, "inverse") if line.get("inverse") is not None else None,
            )
            if found.relation in self._phrases:
                raise Defect(f"repeats the relation {found.relation[:80]!r}; write one phrase for each")
            self._phrases[found.relation] = found
            self._lines[found.relation] = number
            return found
        _check_known(line, FACT)
        time: str | None = None
        unit: TimeUnit | None = None
        if line.get("time") is not None:
            time = lines.scalar(line["time"], "time")
            try:
                unit = facts.parse(time)[0]
            except ValueError as error:
                raise Defect(f"the time {time[:50]!r} is not valid; {facts.ADVICE}") from error
        if self._units and unit not in self._units:
            (before,) = self._units
            raise Defect(
                f"has {UNITS[unit]}, but the facts before it have {UNITS[before]};"
                " give all facts a date, or all a whole number, or no fact a time"
            )
        self._units.add(unit)
        return Fact(time=time, **{key: _read_name(line, key) for key in FACT[:3]})

    def add(self, fact: Fact) -> None:
        number, entities = self._relations.setdefault(fact.relation, len(self._relations)), self._entities
        before = len(entities)
        subject = entities.setdefault(fact.subject, before)
        self._triples.extend((subject, number, entities.setdefault(fact.object, len(entities))))
        if len(entities) > before:
            self._name_bytes += len(fact.subject) + len(fact.object)
            if self._name_bytes > MOST_NAMES:
                message = f"{self._source}: the names of the entities have more than {MOST_NAMES >> 20} MiB in all"
                raise TooLarge(message, hint="shorten them, or split the graph")
        if fact.time is not None:
            self._times.append(facts.parse(fact.time)[1])

    def finish(self) -> ParsedGraph:
        """Return all that was added.

        Raises:
            Invalid: facts are missing.
            InvalidLine: a phrase is for a relation that no fact has.
        """
        if not self._triples:
            raise Invalid(f"{self._source} has no facts", hint=f"write one per line: {WHAT}")
        for relation, number in self._lines.items():
            if relation not in self._relations:
                raise InvalidLine(self._source, number, f"no fact has the relation {relation[:80]!r}; remove the line")
        triples = np.array(self._triples, np.int32).reshape(-1, 3)
        (unit,) = self._units
        steps = None if unit is None else np.array(self._times, np.int64)
        columns = [*triples.T, *([] if steps is None else [steps])]
        order = np.lexsort(columns)
        same = np.ones(len(order) - 1, np.bool_)
        for column in columns:
            ordered = column[order]
            same &= ordered[1:] == ordered[:-1]
        kept = np.ones(len(order), np.bool_)
        kept[order[1:][same]] = False
        distinct = None if steps is None else steps[kept]
        found = Graph(triples[kept], distinct, list(self._entities), list(self._relations))
        return ParsedGraph(GraphFacts(found, unit, self._phrases), int(len(kept) - kept.sum()))


def _check_known(line: Fields, known: tuple[str, ...]) -> None:
    unknown = [key for key in line if key not in known]
    if unknown:
        raise Defect(f"has a field `{unknown[0][:80]}`; the fields are {', '.join(known)}")


def _read_name(line: Fields, field: str) -> str:
    if line.get(field) in (None, ""):
        raise Defect(f"has no {field}; write one")
    found = lines.text(line, field)
    if len(found) > lines.MAX_NAME_CHARS:
        raise Defect(f"`{field}` has {len(found)} characters, more than {lines.MAX_NAME_CHARS}; shorten it")
    if any(control in found for control in CONTROLS):
        raise Defect(f"`{field}` holds a tab, a line end or a NUL character; remove it")
    return found


# Make a corpus from a graph: one document per fact, and on request one for its inverse.


def documents(upload: GraphFacts, *, inverse: bool) -> Iterator[CorpusRecord]:
    """Yield the documents in the order of the facts; ids are the facts' numbers from 0, and "7-inverse" follows "7"."""
    relations, entities = upload.graph.relations, upload.graph.entities
    words = [facts.phrase(each, upload.phrases.get(each)) for each in relations]
    inverses = [facts.inverse_phrase(each, upload.phrases.get(each)) for each in relations]
    for number, (subject, relation, obj, time) in enumerate(_iterate_facts(upload)):
        one, other = entities[subject], entities[obj]
        meta = {"subject": one, "relation": relations[relation], "object": other}
        meta |= {} if time is None else {"time": time}
        document = Document(text=facts.sentence(one, words[relation], other, time))
        yield CorpusRecord(external_id=str(number), document=document, meta=meta)
        if inverse:
            document = Document(text=facts.sentence(other, inverses[relation], one, time))
            yield CorpusRecord(external_id=f"{number}-inverse", document=document, meta=meta)


def _iterate_facts(upload: GraphFacts) -> Iterator[tuple[int, int, int, str | None]]:
    """Yield the numbers of subject, relation and object of each fact, and its time as text."""
    graph, unit = upload.graph, upload.time_unit
    for first in range(0, len(graph.triples), CHUNK):
        triples = graph.triples[first : first + CHUNK].tolist()
        if graph.times is None or unit is None:
            yield from ((*triple, None) for triple in triples)
            continue
        steps = graph.times[first : first + CHUNK].tolist()
        yield from ((*triple, facts.format_time(step, unit)) for triple, step in zip(triples, steps, strict=True))


# Read the input of a question set: facts held out from a graph, and templates for the questions of a relation.


class ParsedQuestions(NamedTuple):
    """The facts and templates of an upload."""

    facts: ParsedGraph
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
            Invalid: facts are missing.
            InvalidLine: lines that cannot be used.
            TooLarge: there are more lines.
        """
        templates: dict[str, QuestionTemplates] = {}
        found = read_facts(self._take_out_templates(rows, templates), source, most)
        return ParsedQuestions(found, templates)

    def _take_out_templates(self, rows: Iterable[Row], templates: dict[str, QuestionTemplates]) -> Iterator[Row]:
        """Yield the other rows, and the defects of templates that cannot be used."""
        for source, number, content in rows:
            try:
                line = lines.fields(content)
                if TEMPLATE[1] in line or TEMPLATE[2] in line:
                    self._add(line, templates)
                    continue
            except Defect as defect:
                yield source, number, defect
                continue
            advice = "upload phrases with the graph: mathrag graph create --phrases FILE"
            yield source, number, Defect(f"is a phrase; {advice}") if "phrase" in line else line

    def _add(self, line: Fields, templates: dict[str, QuestionTemplates]) -> None:
        texts: list[str] = []
        for field in TEMPLATE:
            texts.append("" if line.get(field) is None else lines.text(line, field).strip())
            if not texts[-1]:
                raise Defect(f"has no {field}; {TEMPLATES}")
        relation, asks_object, asks_subject = texts
        if relation not in self.relations:
            raise Defect(f"the graph has no relation {relation[:80]!r}; remove the line")
        if relation in templates:
            raise Defect(f"repeats the relation {relation[:80]!r}; write one line for each")
        for field, text, slot in ((TEMPLATE[1], asks_object, "subject"), (TEMPLATE[2], asks_subject, "object")):
            try:
                check_template(text, slot, timed=self.timed)
            except ValueError as error:
                raise Defect(f"`{field}` {error}") from error
        templates[relation] = QuestionTemplates(asks_object, asks_subject)
