"""Facts of uploads: graphs, documents of facts, names and questions."""

from array import array
from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from shared.errors import Invalid, InvalidLine, TooLarge
from shared.ingest import lines
from shared.ingest import lines as fields
from shared.ingest.graph_paths import FACT, PHRASE, TEMPLATE, TEMPLATES, WHAT
from shared.ingest.lines import Defect, Fields, Reader, Row
from shared.questions.items import QuestionTemplates, check
from shared.replies import CorpusRecord, Document
from shared.rules import graph as graph_module
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
        Invalid: there are no facts.
        InvalidLine: lines that cannot be used.
        TooLarge: there are more lines.
    """
    found = _FactNumbering(source)
    for record in Reader(rows, found.record, _no_id, most=most):
        found.add(record)
    return found.read()


def _no_id(_: Fact | Phrase) -> None:
    """Return None: facts may repeat."""


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

    def record(self, line: Fields, number: int) -> Fact | Phrase:
        """Read the fact or phrase of a line.

        Raises:
            Defect: what is wrong with it.
        """
        if "phrase" in line:
            _check_known(line, PHRASE)
            found = Phrase(
                relation=_name(line, "relation"),
                phrase=_name(line, "phrase"),
                inverse=_name(line, "inverse") if line.get("inverse") is not None else None,
            )
            if found.relation in self._phrases:
                raise Defect(f"repeats the relation {found.relation[:80]!r}; write one phrase for each")
            self._phrases[found.relation] = found
            self._lines[found.relation] = number
            return found
        _check_known(line, FACT)
        time = None if line.get("time") is None else lines.scalar(line["time"], "time")
        unit = None if time is None else _parse_time(time)[0]
        if self._units and unit not in self._units:
            (before,) = self._units
            raise Defect(
                f"has {UNITS[unit]}, but the facts before it have {UNITS[before]};"
                f" {graph_module.ADVICE} for all, or none"
            )
        self._units.add(unit)
        return Fact(time=time, **{key: _name(line, key) for key in FACT[:3]})

    def add(self, record: Fact | Phrase) -> None:
        """Add a fact or phrase."""
        if isinstance(record, Phrase):
            return
        number, entities = self._relations.setdefault(record.relation, len(self._relations)), self._entities
        before = len(entities)
        subject = entities.setdefault(record.subject, before)
        self._triples.extend((subject, number, entities.setdefault(record.object, len(entities))))
        if len(entities) > before:
            self._name_bytes += len(record.subject) + len(record.object)
            if self._name_bytes > MOST_NAMES:
                raise TooLarge(
                    f"{self._source}: the names of the entities have more than {MOST_NAMES >> 20} MiB in all",
                    hint="shorten them, or split the graph",
                )
        if record.time is not None:
            self._times.append(graph_module.parse(record.time)[1])

    def read(self) -> ParsedGraph:
        """Return all that was added.

        Raises:
            Invalid: there are no facts.
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
        graph = Graph(triples[kept], distinct, list(self._entities), list(self._relations))
        return ParsedGraph(GraphFacts(graph, unit, self._phrases), int(len(kept) - kept.sum()))


def _parse_time(time: str) -> tuple[TimeUnit, int]:
    try:
        return graph_module.parse(time)
    except ValueError as error:
        raise Defect(f"the time {time[:50]!r} is not valid; {graph_module.ADVICE}") from error


def _check_known(line: Fields, known: tuple[str, ...]) -> None:
    unknown = [key for key in line if key not in known]
    if unknown:
        raise Defect(f"has a field `{unknown[0][:80]}`; the fields are {', '.join(known)}")


def _name(line: Fields, field: str) -> str:
    value: Any = line.get(field)
    if value is None or value == "":
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
    relations = upload.graph.relations
    words = [graph_module.phrase(each, upload.phrases.get(each)) for each in relations]
    inverses = [graph_module.inverse_phrase(each, upload.phrases.get(each)) for each in relations]
    entities = upload.graph.entities
    for number, (subject, relation, obj, time) in enumerate(_facts(upload)):
        names = entities[subject], entities[obj]
        meta = {"subject": names[0], "relation": relations[relation], "object": names[1]}
        meta |= {} if time is None else {"time": time}
        yield _document(str(number), graph_module.sentence(names[0], words[relation], names[1], time), meta)
        if inverse:
            sentence = graph_module.sentence(names[1], inverses[relation], names[0], time)
            yield _document(f"{number}-inverse", sentence, meta)


def _facts(upload: GraphFacts) -> Iterator[tuple[int, int, int, str | None]]:
    """Yield the numbers of subject, relation and object of each fact, and its time as text."""
    graph, unit, _ = upload
    for first in range(0, len(graph.triples), CHUNK):
        triples = graph.triples[first : first + CHUNK].tolist()
        if graph.times is None or unit is None:
            yield from ((*triple, None) for triple in triples)
            continue
        steps = graph.times[first : first + CHUNK].tolist()
        yield from ((*triple, graph_module.written(step, unit)) for triple, step in zip(triples, steps, strict=True))


def _document(identifier: str, text: str, meta: dict[str, str]) -> CorpusRecord:
    return CorpusRecord(external_id=identifier, document=Document(text=text), meta=meta)


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
            Invalid: there are no facts.
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
                line = fields.fields(content)
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
