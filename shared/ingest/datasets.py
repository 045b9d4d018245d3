"""Dataset lines: questions with what is known about them (MATH-500, MATH, GSM8K, BEIR queries, plain objects)."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shared.contracts.calls import MAX_QUESTION
from shared.errors import InvalidLine
from shared.ingest import lines
from shared.ingest.corpora import SUBJECTS
from shared.ingest.lines import EmptyText, Fields
from shared.ingest.unique import UniqueIds
from shared.rag import answers

IDS = ("custom_id", "id", "unique_id", "_id")
QUESTIONS = ("question", "problem", "text")
ANSWERS = ("answer", "gold", "expected_answer", "gt", "golden")
_GSM8K_MARK = "####"


class DatasetItem(msgspec.Struct, frozen=True, kw_only=True):
    """One question."""

    question: str
    gold: str | None
    """The expected answer; None where the dataset has none."""
    gold_documents: dict[str, int] | None
    """External id of a corpus document -> grade (1 where ungraded); None: unknown."""
    subject: str | None
    level: str | None
    custom_id: str | None


def read_dataset_line(raw: bytes | str, source: str, line: int) -> DatasetItem:
    """One line of a dataset.

    Fields: question from `question`, `problem` or `text`; gold answer from `answer`, `gold`, `expected_answer`, `gt`
    or `golden` (GSM8K: what follows ####), else the last box of `solution`; `gold_documents` as a list of ids or an
    object id -> grade.

    Raises:
        InvalidLine: what is wrong with which field, and what to write instead; `EmptyText` where there is no question.
    """
    fields = lines.parse(raw, source, line)
    return DatasetItem(
        question=_question(fields, source, line),
        gold=_gold(fields, source, line),
        gold_documents=_gold_documents(fields, source, line),
        subject=lines.label(fields, SUBJECTS, source, line),
        level=lines.level(fields, source, line),
        custom_id=lines.identifier(fields, IDS, source, line),
    )


def read_dataset(numbered: Iterable[tuple[str, int, bytes | str]]) -> Iterator[DatasetItem]:
    """Every line of a dataset, as (source, line number, raw line); ids are unique.

    Raises:
        InvalidLine: at the first line that cannot be used.
    """
    seen = UniqueIds()
    for source, line, raw in numbered:
        item = read_dataset_line(raw, source, line)
        seen.check(item.custom_id, source, line)
        yield item


def _question(fields: Fields, source: str, line: int) -> str:
    name = lines.first(fields, QUESTIONS)
    if name is None:
        raise InvalidLine(source, line, "has no question; put it into `question` (or `problem`)")
    question = lines.text(fields, name, source, line).strip()
    if not question:
        raise EmptyText(source, line, f"`{name}` is empty; write the question or remove the line")
    if len(question) > MAX_QUESTION:
        said = f"`{name}` has {len(question)} characters, a question may have {MAX_QUESTION}; shorten it"
        raise InvalidLine(source, line, said)
    return question


def _gold(fields: Fields, source: str, line: int) -> str | None:
    name = lines.first(fields, ANSWERS)
    if name is not None:
        return _after_mark(lines.scalar(fields, name, source, line))
    if fields.get("solution") is None:
        return None
    return answers.extract(lines.text(fields, "solution", source, line))[0]


def _after_mark(answer: str) -> str | None:
    """GSM8K ends its steps with `#### 1,000`; the official reader drops the commas. Nothing after it is no answer."""
    if _GSM8K_MARK not in answer:
        return answer
    return answer.rpartition(_GSM8K_MARK)[2].strip().replace(",", "") or None


def _gold_documents(fields: Fields, source: str, line: int) -> dict[str, int] | None:
    value: Any = fields.get("gold_documents")
    if value is None:
        return None
    grades = {document: 1 for document in value if isinstance(document, str)} if isinstance(value, list) else value
    if (
        not isinstance(grades, dict)
        or len(grades) != len(value)
        or not all(_is_grade(grade) for grade in grades.values())
    ):
        raise InvalidLine(source, line, '`gold_documents` must be a list of ids or an object such as {"id": 1}')
    return grades


def _is_grade(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
