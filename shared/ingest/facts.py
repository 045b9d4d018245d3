"""Number the facts of an upload: distinct ones in their order, entities and relations by first appearance."""

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.errors import Invalid, InvalidLine, TooLarge
from shared.ingest import fields
from shared.ingest.fact_rows import FACT, PHRASE, WHAT
from shared.ingest.lines import Defect, Fields, Row
from shared.ingest.reader import Reader
from shared.rules import times
from shared.rules.graph import Graph
from shared.samples import Fact, Phrase, TimeUnit
from shared.storage.graphs import GraphFacts

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


def read(rows: Iterable[Row], source: str, most: int) -> ParsedGraph:
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
            return self._phrase(line, number)
        time = _time(line)
        unit = None if time is None else _parse_time(time)[0]
        if self._units and unit not in self._units:
            (before,) = self._units
            raise Defect(
                f"has {UNITS[unit]}, but the facts before it have {UNITS[before]}; {times.ADVICE} for all, or none"
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
            self._times.append(times.parse(record.time)[1])

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
        kept = _mark_first_occurrences(triples, steps)
        distinct = None if steps is None else steps[kept]
        graph = Graph(triples[kept], distinct, list(self._entities), list(self._relations))
        return ParsedGraph(GraphFacts(graph, unit, self._phrases), int(len(kept) - kept.sum()))

    def _phrase(self, line: Fields, number: int) -> Phrase:
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


def _time(line: Fields) -> str | None:
    _check_known(line, FACT)
    return None if line.get("time") is None else fields.scalar(line["time"], "time")


def _parse_time(time: str) -> tuple[TimeUnit, int]:
    try:
        return times.parse(time)
    except ValueError as error:
        raise Defect(f"the time {time[:50]!r} is not valid; {times.ADVICE}") from error


def _check_known(line: Fields, known: tuple[str, ...]) -> None:
    unknown = [key for key in line if key not in known]
    if unknown:
        raise Defect(f"has a field `{unknown[0][:80]}`; the fields are {', '.join(known)}")


def _name(line: Fields, field: str) -> str:
    value: Any = line.get(field)
    if value is None or value == "":
        raise Defect(f"has no {field}; write one")
    found = fields.text(line, field)
    if len(found) > fields.MAX_NAME_CHARS:
        raise Defect(f"`{field}` has {len(found)} characters, more than {fields.MAX_NAME_CHARS}; shorten it")
    if any(control in found for control in CONTROLS):
        raise Defect(f"`{field}` holds a tab, a line end or a NUL character; remove it")
    return found


def _mark_first_occurrences(triples: NDArray[np.int32], steps: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Mark the facts that do not occur earlier."""
    columns = [*triples.T, *([] if steps is None else [steps])]
    order = np.lexsort(columns)
    same = np.ones(len(order) - 1, np.bool_)
    for column in columns:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    kept = np.ones(len(order), np.bool_)
    kept[order[1:][same]] = False
    return kept
