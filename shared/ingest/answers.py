"""Another system's answers: the item that a line answers, and the answer."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mathrag.messages import find_nearest
from mathrag.reading import lines
from mathrag.reading.answers import ColumnMapping
from mathrag.reading.columns import IMPORTED, SHOWN
from mathrag.reading.lines import Defect, Empty, Fields, name
from shared.params import MOST_REPEATS
from shared.replies import Document
from shared.samples import Given

MOST_TOKENS = 1 << 53
MOST_CONTEXTS = 100
"""Maximum number of documents of one answer."""
MAX_CONTEXT_LENGTH = 100_000
"""Maximum length of one of them, in characters."""
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
    """The field that named the item: "id", "question" or "index"; "order" if several lines named it and its position
    decided."""
    documents: tuple[Document, ...] = ()
    """The texts that its prompt had; `given` has their hashes."""

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
        """Find the item with this id."""
        if id_ in self._ids:
            return self._ids[id_]
        near = find_nearest(id_, list(self._ids)[:1000])
        meant = (
            f"did you mean {near!r}?"
            if near
            else "correct --dataset, or name the column of the ids: --column id=COLUMN"
        )
        raise Defect(f"no item of the dataset has the id {_shorten(id_)}; {meant}")

    def at(self, index: int) -> int:
        """Return `index`, if there is such an item."""
        if index < self.count:
            return index
        problem = f"the dataset has {self.count} items, counted from 0, so none has the index {index}"
        raise Defect(f"{problem}; correct the index, or --dataset")

    def find_by_question(self, question: str) -> int:
        """Find the only item with exactly this question, however its blanks and lines are laid out."""
        found = self._questions.get(_join_blanks(question), -1)
        if found is None:
            raise Defect("several items of the dataset have this question; name the item by its id or index")
        if found < 0:
            problem = f"no item of the dataset has the exact question {_shorten(question)}"
            raise Defect(f"{problem}; correct --dataset, or name the item by its id or index")
        return found


class AnswerReader:
    """Reads lines into answers, and remembers which (item, repeat) it has seen."""

    def __init__(self, items: ItemIndex, columns: ColumnMapping) -> None:
        self._items = items
        self._columns = columns
        self._lines: dict[tuple[int, int], int] = {}

    def __call__(self, line: Fields, number: int) -> ImportedAnswer:
        """Read the answer on one line.

        Raises:
            Defect: the line cannot be used; `Empty` if it reports a failure of the other system.
        """
        return self._columns.columns.read(line, lambda found: self._read(found, number))

    def _read(self, line: Fields, number: int) -> ImportedAnswer:
        (ordinal, matched_by), repeat = self._find_item(line), self._read_repeat(line)
        # A column of answers that holds nothing is the reply of a system that wrote nothing.
        present = [each for what in ("answer", "text") for each in IMPORTED[what] if each in line]
        answer, text = self._field(line, "answer"), self._field(line, "text")
        if answer is not None and isinstance(line[answer], str) and not line[answer].strip():
            answer = None
        if answer is None and text is None:
            if (error := self._field(line, "error")) is not None:
                raise Empty(f"has no answer, because the other system failed: {_describe_error(line[error])}")
            if not present:
                raise Defect(
                    "has no answer; write it into `answer`, or the complete text into `text`, or name its column:"
                    " --column answer=COLUMN"
                )
        seconds = self._field(line, "seconds")
        documents = _read_documents(line)
        given = Given(
            text=(None if answer is not None else "") if text is None else lines.text(line, text),
            answer=None if answer is None else lines.scalar(line[answer], answer),
            contexts=None if documents is None else tuple(each.hash for each in documents),
            score=self._read_score(line),
            seconds=None if seconds is None else _read_seconds(line[seconds], seconds),
            prompt_tokens=self._read_tokens(line, "prompt_tokens"),
            completion_tokens=self._read_tokens(line, "completion_tokens"),
        )
        seen = self._lines.setdefault((ordinal, repeat), number)
        if seen != number:
            again = f"repeat {repeat} of item {ordinal}" if repeat else f"item {ordinal}"
            raise Defect(f"answers {again}, which line {seen} answers already; give each its own `repeat`")
        return ImportedAnswer(ordinal, repeat, given, number, matched_by, documents or ())

    def _field(self, line: Fields, what: str) -> str | None:
        """Find the column that holds this part; a column with an empty cell holds nothing."""
        return next((each for each in IMPORTED[what] if line.get(each) not in (None, "")), None)

    def _find_item(self, line: Fields) -> tuple[int, str]:
        """Find the item and the field that named it: its id, else its question, else its index.

        Where id or index names another item than the question, the question decides: programs number their samples
        themselves.
        """
        items = self._items
        ways: dict[str, Callable[[str], int]] = {
            "id": lambda field: items.find_by_id(lines.scalar(line[field], field)),
            "question": lambda field: items.find_by_question(lines.text(line, field)),
            "index": lambda field: items.at(_read_whole(line[field], field)),
        }
        found: dict[str, int] = {}
        defects: list[Defect] = []
        for what, find in ways.items():
            if (field := self._field(line, what)) is None:
                continue
            try:
                found[what] = find(field)
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

    def _read_repeat(self, line: Fields) -> int:
        field = self._field(line, "repeat")
        if field is None:
            return 0
        repeat = _read_whole(line[field], field) - self._columns.first_repeat
        if not 0 <= repeat < MOST_REPEATS:
            first = self._columns.first_repeat
            allowed = f"from {first} (`first_repeat`) to {first + MOST_REPEATS - 1}"
            raise Defect(f"`{field}` is {repeat + first}; write a number {allowed}")
        return repeat

    def _read_score(self, line: Fields) -> float | None:
        """Read the other system's own score; a text that is not a number is ignored, unless a mapping named the
        column."""
        field = self._field(line, "score")
        if field is None:
            return None
        score = _parse_float(line[field])
        if math.isfinite(score):
            return score
        if "score" in self._columns.columns.chosen and not isinstance(line[field], float):
            raise Defect(f"`{field}` is {_describe(line[field])}; write a number, 1 for right and 0 for wrong")
        return None

    def _read_tokens(self, line: Fields, what: str) -> int | None:
        field = self._field(line, what)
        return None if field is None else _read_whole(line[field], field)


def _read_documents(line: Fields) -> tuple[Document, ...] | None:
    """Read the texts that the system's prompt had, in order; None if the line does not say.

    DeepEval's `context` lists the texts that should have been found, so it is read only without another column, and
    only if it is a list. Into a cell DeepEval writes a list as texts with `|` between them.
    """
    present = [each for each in SHOWN if each in line]
    field = next((each for each in present if line[each] not in (None, "")), None)
    if field is None or (field == "context" and (len(present) > 1 or not isinstance(line[field], list))):
        return None
    texts = line[field]
    if field == "retrieval_context" and isinstance(texts, str):
        texts = texts.split("|")
    if not isinstance(texts, list):
        raise Defect(f'`{field}` is {name(texts)}; write a list of texts, such as ["a", "b"]')
    if len(texts) > MOST_CONTEXTS:
        raise Defect(f"`{field}` has {len(texts)} texts, more than {MOST_CONTEXTS}; leave out the last ones")
    for place, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise Defect(f"text {place} of `{field}` is {name(text)}; write it as a string")
        if len(text) > MAX_CONTEXT_LENGTH:
            problem = f"text {place} of `{field}` has {len(text)} characters, more than {MAX_CONTEXT_LENGTH}"
            raise Defect(f"{problem}; split it into passages")
    return tuple(Document(text=text) for text in texts)


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
        raise Defect(f"`{field}` is {value}, which is out of range; write a number from 0 to {MOST_TOKENS - 1}")
    return value


def _parse_float(value: Any) -> float:
    """Parse a number; NaN for other values."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _read_seconds(value: Any, field: str) -> float:
    seconds = math.nan if isinstance(value, bool) else _parse_float(value)
    if not 0 <= seconds < math.inf:
        raise Defect(f"`{field}` is {_describe(value)}; write seconds, such as 4.2")
    return seconds


def _describe(value: Any) -> str:
    return _shorten(value) if isinstance(value, str) else f"{value}" if isinstance(value, float) else name(value)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
