"""What another system answered, from lines: which item a line is about, and what stands there for it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shared import suggestions
from shared.contracts.params import MOST_REPEATS
from shared.contracts.samples import Given
from shared.errors import Invalid
from shared.ingest import fields
from shared.ingest.lines import Defect, Fields, name
from shared.ingest.tables import Names

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("custom_id", "id"),
    "index": ("index",),
    "question": ("question",),
    "repeat": ("repeat",),
    "answer": ("answer",),
    "text": ("text",),
    "seconds": ("seconds",),
    "prompt_tokens": ("prompt_tokens",),
    "completion_tokens": ("completion_tokens",),
}
"""What a line may say, and the columns that say it unless a mapping names another."""
MOST_TOKENS = 1 << 53


class Answered(NamedTuple):
    """One line."""

    ordinal: int
    """Of the item."""
    repeat: int
    given: Given


class Items:
    """The items of a dataset as lines name them."""

    def __init__(self, rows: Iterable[tuple[str | None, str]]) -> None:
        """Of (id, question), in the dataset's order."""
        self._ids: dict[str, int] = {}
        self._questions: dict[str, int | None] = {}
        self.count = 0
        for ordinal, (id_, question) in enumerate(rows):
            if id_ is not None:
                self._ids[id_] = ordinal
            self._questions[question] = None if question in self._questions else ordinal
            self.count += 1

    def called(self, id_: str) -> int:
        """The item with this id.

        Raises:
            Defect: there is none.
        """
        if id_ in self._ids:
            return self._ids[id_]
        near = suggestions.nearest(id_, list(self._ids)[:1000])
        raise Defect(f"no item of the dataset has the id {_short(id_)}{f'; did you mean {near!r}?' if near else ''}")

    def at(self, index: int) -> int:
        """`index` itself.

        Raises:
            Defect: there are fewer items.
        """
        if index < self.count:
            return index
        raise Defect(f"the dataset has {self.count} items, counted from 0: there is none at index {index}")

    def asking(self, question: str) -> int:
        """The item with exactly this question, but for blanks around it.

        Raises:
            Defect: there is none, or several.
        """
        found = self._questions.get(question.strip(), -1)
        if found is None:
            raise Defect("several items of the dataset have this question; name the item by its id or index")
        if found < 0:
            raise Defect(f"no item of the dataset has exactly the question {_short(question)}")
        return found


class ColumnMapping(NamedTuple):
    """Which column says what."""

    columns: Mapping[str, tuple[str, ...]]
    named: frozenset[str]
    """What the user has named a column for: it must be there."""
    first_repeat: int = 0

    @property
    def names(self) -> Names:
        """Of a table's columns."""
        known = frozenset(column for columns in self.columns.values() for column in columns)
        return Names(known, known, frozenset())


def mapping(pairs: Sequence[str], first_repeat: int = 0) -> ColumnMapping:
    """From pairs such as "answer=prediction".

    Raises:
        Invalid: it is no pair, or nothing is called so; the message names it.
    """
    said: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        what, equals, column = pair.partition("=")
        if not equals or not column:
            raise Invalid(f"`column`: {pair!r} is no pair", hint="write WHAT=COLUMN, such as answer=prediction")
        if what not in COLUMNS:
            hint = suggestions.hint(what, COLUMNS, f"there are {', '.join(COLUMNS)}")
            raise Invalid(f"`column`: a line says nothing called {what!r}", hint=hint)
        if what in said:
            raise Invalid(f"`column`: {what!r} is named twice", hint="name one column for it")
        said[what] = (column,)
    return ColumnMapping({**COLUMNS, **said}, frozenset(said), first_repeat)


class AnswerReader:
    """Reads lines into answers; remembers which (item, repeat) it has seen."""

    def __init__(self, items: Items, columns: ColumnMapping) -> None:
        self._items = items
        self._columns = columns
        self._lines: dict[tuple[int, int], int] = {}

    def __call__(self, line: Fields, number: int) -> Answered:
        """The answer on one line.

        Raises:
            Defect: what is wrong with it.
        """
        for what in sorted(self._columns.named):
            (column,) = self._columns.columns[what]
            if column not in line:
                raise Defect(f"has no column `{column}`, which should say {what}; it has {_short(', '.join(line))}")
        ordinal, repeat = self._item(line), self._repeat(line)
        given = self._given(line)
        seen = self._lines.setdefault((ordinal, repeat), number)
        if seen != number:
            again = f"repeat {repeat} of it" if repeat else "it"
            raise Defect(f"answers item {ordinal}, and line {seen} answers {again} already; number the repeats")
        return Answered(ordinal, repeat, given)

    def _field(self, line: Fields, what: str) -> str | None:
        """The column that says it; one that is empty says nothing."""
        return next((each for each in self._columns.columns[what] if line.get(each) not in (None, "")), None)

    def _item(self, line: Fields) -> int:
        if (field := self._field(line, "id")) is not None:
            return self._items.called(fields.scalar(line[field], field))
        if (field := self._field(line, "index")) is not None:
            return self._items.at(_whole(line[field], field))
        if (field := self._field(line, "question")) is not None:
            return self._items.asking(fields.text(line, field))
        raise Defect("does not say which item it answers; put its id into `id`, or name a column: --column id=COLUMN")

    def _repeat(self, line: Fields) -> int:
        field = self._field(line, "repeat")
        if field is None:
            return 0
        repeat = _whole(line[field], field) - self._columns.first_repeat
        if not 0 <= repeat < MOST_REPEATS:
            raise Defect(f"`{field}` says repeat {repeat}; repeats are counted from 0 to {MOST_REPEATS - 1}")
        return repeat

    def _given(self, line: Fields) -> Given:
        answer, text = self._field(line, "answer"), self._field(line, "text")
        if answer is None and text is None:
            raise Defect("holds no answer; put it into `answer`, or all that was written into `text`")
        seconds = self._field(line, "seconds")
        return Given(
            text=None if text is None else _written(line, text),
            answer=None if answer is None else fields.scalar(line[answer], answer),
            seconds=None if seconds is None else _seconds(line[seconds], seconds),
            prompt_tokens=self._tokens(line, "prompt_tokens"),
            completion_tokens=self._tokens(line, "completion_tokens"),
        )

    def _tokens(self, line: Fields, what: str) -> int | None:
        field = self._field(line, what)
        return None if field is None else _whole(line[field], field)


def _written(line: Fields, field: str) -> str:
    text = fields.text(line, field)
    if not text.strip():
        raise Defect(f"`{field}` is empty; write what was answered, or leave the line out")
    return text


def _whole(value: Any, field: str) -> int:
    """From 0: a number, or digits in a table's cell."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value.strip()) < 17:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Defect(f"`{field}` is {_said(value)}; write a whole number")
    if not 0 <= value < MOST_TOKENS:
        raise Defect(f"`{field}` is {value}, which is out of range")
    return value


def _seconds(value: Any, field: str) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise Defect(f"`{field}` is {_said(value)}; write seconds, such as 4.2")
    return seconds


def _said(value: Any) -> str:
    return _short(value) if isinstance(value, str) else f"{value}" if isinstance(value, float) else name(value)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
