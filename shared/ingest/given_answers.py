"""Read another system's answers from lines: the item that a line answers, and the answer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shared import suggestions
from shared.errors import Invalid
from shared.ingest import fields
from shared.ingest.lines import Defect, Empty, Fields, name
from shared.ingest.tables import ColumnNames
from shared.params import MOST_REPEATS
from shared.samples import Given

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("custom_id", "id"),
    "index": ("index",),
    "question": ("question", "user_input", "input"),
    "repeat": ("repeat",),
    "answer": ("answer",),
    "text": ("text", "response", "actual_output"),
    "score": ("score", "exact_match"),
    "error": ("error",),
    "seconds": ("seconds",),
    "prompt_tokens": ("prompt_tokens",),
    "completion_tokens": ("completion_tokens",),
}
"""Parts of a line, each with the columns that hold it unless a mapping names another; some are those of ragas and
DeepEval."""
MOST_TOKENS = 1 << 53
MAX_MESSAGE_LENGTH = 200
"""Maximum length of another system's error in a message, in characters."""


class ImportedAnswer(NamedTuple):
    """The answer on one line."""

    ordinal: int
    """Position of the item in the dataset."""
    repeat: int
    given: Given
    line: int
    matched_by: str
    """What named the item: "id", "question", "index"; "order" if only its place was left of several."""

    @property
    def is_empty(self) -> bool:
        """Return whether the system wrote nothing, which is a wrong answer."""
        return self.given.answer is None and not (self.given.text or "").strip()


class ItemIndex:
    """The items of a dataset, by id, position or question."""

    def __init__(self, rows: Iterable[tuple[str | None, str]]) -> None:
        """Index the items, given as (id, question) in the dataset's order."""
        self._ids: dict[str, int] = {}
        self._questions: dict[str, int | None] = {}
        self.count = 0
        for ordinal, (id_, question) in enumerate(rows):
            if id_ is not None:
                self._ids[id_] = ordinal
            question = _join_blanks(question)
            self._questions[question] = None if question in self._questions else ordinal
            self.count += 1

    def find_by_id(self, id_: str) -> int:
        """Find the item with this id.

        Raises:
            Defect: there is none.
        """
        if id_ in self._ids:
            return self._ids[id_]
        near = suggestions.find_nearest(id_, list(self._ids)[:1000])
        raise Defect(f"no item of the dataset has the id {_shorten(id_)}{f'; did you mean {near!r}?' if near else ''}")

    def at(self, index: int) -> int:
        """Return `index`, if there is such an item.

        Raises:
            Defect: there are fewer items.
        """
        if index < self.count:
            return index
        raise Defect(f"the dataset has {self.count} items, counted from 0, so none has the index {index}")

    def find_by_question(self, question: str) -> int:
        """Find the only item with exactly this question, however its blanks and lines are laid out.

        Raises:
            Defect: there is none, or several.
        """
        found = self._questions.get(_join_blanks(question), -1)
        if found is None:
            raise Defect("several items of the dataset have this question; name the item by its id or index")
        if found < 0:
            raise Defect(f"no item of the dataset has the exact question {_shorten(question)}")
        return found


class ColumnMapping(NamedTuple):
    """Tells which column holds which part of a line."""

    columns: Mapping[str, tuple[str, ...]]
    named: frozenset[str]
    """Parts for which the user has named a column, which must exist."""
    first_repeat: int = 0

    @property
    def names(self) -> ColumnNames:
        """Return the names of a table's columns."""
        known = frozenset(column for columns in self.columns.values() for column in columns)
        return ColumnNames(known, known, frozenset(), empty=None)


def make_mapping(pairs: Sequence[str], first_repeat: int = 0) -> ColumnMapping:
    """Make a mapping from pairs such as "answer=prediction".

    Raises:
        Invalid: it is no pair, or nothing is called so; the message names it.
    """
    said: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        what, equals, column = pair.partition("=")
        if not equals or not column:
            raise Invalid(f"`column`: {pair!r} is not a pair", hint="write WHAT=COLUMN, such as answer=prediction")
        if what not in COLUMNS:
            hint = suggestions.make_hint(what, COLUMNS, f"there are {', '.join(COLUMNS)}")
            raise Invalid(f"`column`: a line has no part called {what!r}", hint=hint)
        if what in said:
            raise Invalid(f"`column`: {what!r} is given twice", hint="name one column for it")
        said[what] = (column,)
    return ColumnMapping({**COLUMNS, **said}, frozenset(said), first_repeat)


class AnswerReader:
    """Reads lines into answers, and remembers which (item, repeat) it has seen."""

    def __init__(self, items: ItemIndex, columns: ColumnMapping) -> None:
        self._items = items
        self._columns = columns
        self._lines: dict[tuple[int, int], int] = {}

    def __call__(self, line: Fields, number: int) -> ImportedAnswer:
        """Read the answer on one line.

        Raises:
            Defect: what is wrong with it; `Empty` if it says that the other system failed.
        """
        for what in sorted(self._columns.named):
            (column,) = self._columns.columns[what]
            if column not in line:
                raise Defect(f"has no column `{column}`, which should say {what}; it has {_shorten(', '.join(line))}")
        (ordinal, matched_by), repeat = self._item(line), self._repeat(line)
        given = self._read_answer(line)
        seen = self._lines.setdefault((ordinal, repeat), number)
        if seen != number:
            again = f"repeat {repeat} of it" if repeat else "it"
            raise Defect(f"answers item {ordinal}, and line {seen} answers {again}, too; give each its own `repeat`")
        return ImportedAnswer(ordinal, repeat, given, number, matched_by)

    def _field(self, line: Fields, what: str) -> str | None:
        """Find the column that holds this part; a column with an empty cell holds nothing."""
        return next((each for each in self._columns.columns[what] if line.get(each) not in (None, "")), None)

    def _item(self, line: Fields) -> tuple[int, str]:
        """Find the item, and what named it: its id, else its question, else its index.

        Where id or index names another item than the question, the question decides: programs number their samples
        themselves.
        """
        found: dict[str, int] = {}
        defects: list[Defect] = []
        for what, find in (("id", self._find_by_id), ("question", self._find_by_question), ("index", self._find_at)):
            if (field := self._field(line, what)) is None:
                continue
            try:
                found[what] = find(line, field)
            except Defect as defect:
                defects.append(defect)
        if not found and not defects:
            raise Defect(
                "does not name the item that it answers; write its id into `id`, or name a column: --column id=COLUMN"
            )
        if not found:
            raise defects[0]
        what = next(iter(found))
        if found[what] != found.get("question", found[what]):
            what = "question"
        return found[what], "order" if what == "index" and defects else what

    def _find_by_id(self, line: Fields, field: str) -> int:
        return self._items.find_by_id(fields.scalar(line[field], field))

    def _find_by_question(self, line: Fields, field: str) -> int:
        return self._items.find_by_question(fields.text(line, field))

    def _find_at(self, line: Fields, field: str) -> int:
        return self._items.at(_read_whole(line[field], field))

    def _repeat(self, line: Fields) -> int:
        field = self._field(line, "repeat")
        if field is None:
            return 0
        repeat = _read_whole(line[field], field) - self._columns.first_repeat
        if not 0 <= repeat < MOST_REPEATS:
            raise Defect(f"`{field}` says repeat {repeat}; repeats are counted from 0 to {MOST_REPEATS - 1}")
        return repeat

    def _read_answer(self, line: Fields) -> Given:
        """Read the answer; a column of answers that holds nothing is the reply of a system that wrote nothing."""
        present = [each for what in ("answer", "text") for each in self._columns.columns[what] if each in line]
        answer, text = self._field(line, "answer"), self._field(line, "text")
        if answer is not None and isinstance(line[answer], str) and not line[answer].strip():
            answer = None
        if answer is None and text is None:
            if (error := self._field(line, "error")) is not None:
                raise Empty(f"has no answer, because the other system failed: {_describe_error(line[error])}")
            if not present:
                raise Defect("has no answer; write it into `answer`, or the complete text into `text`")
        seconds = self._field(line, "seconds")
        return Given(
            text=(None if answer is not None else "") if text is None else fields.text(line, text),
            answer=None if answer is None else fields.scalar(line[answer], answer),
            score=self._read_score(line),
            seconds=None if seconds is None else _seconds(line[seconds], seconds),
            prompt_tokens=self._tokens(line, "prompt_tokens"),
            completion_tokens=self._tokens(line, "completion_tokens"),
        )

    def _read_score(self, line: Fields) -> float | None:
        """Read the other system's own score; what is no number is none, unless a mapping named the column."""
        field = self._field(line, "score")
        if field is None:
            return None
        try:
            score = float(line[field])
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if math.isfinite(score):
            return score
        if "score" in self._columns.named and not isinstance(line[field], float):
            raise Defect(f"`{field}` is {_describe(line[field])}; write a number, 1 for right and 0 for wrong")
        return None

    def _tokens(self, line: Fields, what: str) -> int | None:
        field = self._field(line, what)
        return None if field is None else _read_whole(line[field], field)


def _join_blanks(text: str) -> str:
    return " ".join(text.split())


def _describe_error(error: Any) -> str:
    """Return the message; of a long one the end, because inspect_ai writes the request in front of the reason."""
    message = str((error.get("message") if isinstance(error, dict) else error) or "it gives no reason")
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"… {message[-MAX_MESSAGE_LENGTH:]}"


def _read_whole(value: Any, field: str) -> int:
    """Read a whole number, 0 or more: a number, or digits in a table's cell."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value.strip()) < 17:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Defect(f"`{field}` is {_describe(value)}; write a whole number")
    if not 0 <= value < MOST_TOKENS:
        raise Defect(f"`{field}` is {value}, which is out of range; write a smaller number")
    return value


def _seconds(value: Any, field: str) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise Defect(f"`{field}` is {_describe(value)}; write seconds, such as 4.2")
    return seconds


def _describe(value: Any) -> str:
    return _shorten(value) if isinstance(value, str) else f"{value}" if isinstance(value, float) else name(value)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
