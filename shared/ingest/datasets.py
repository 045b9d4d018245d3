"""Read items from lines: questions with what is known about them (MATH, GSM8K, BEIR, FlashRAG, AutoRAG, ragas,
plain)."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from shared.contracts.calls import MAX_QUESTION
from shared.contracts.datasets import DatasetItem
from shared.contracts.grading import Expected
from shared.ingest import fact_queries, fields, lines
from shared.ingest.choices import format_question
from shared.ingest.choices import read as read_choices
from shared.ingest.golds import GoldReader
from shared.ingest.lines import Content, Defect, Empty, Fields, Row
from shared.ingest.reader import Reader
from shared.mathtext import answers

IDS = ("custom_id", "id", "unique_id", "_id", "qid")
MAX_RUBRIC = 8000
"""Maximum length of an item's rubric, in characters."""
identifier = attrgetter("custom_id")
"""Return the id, which must be unique within an upload."""
_present = fields.Present(
    IDS, fields.QUESTIONS, fields.REFERENCES, fields.ANSWERS, fields.GOLD_DOCUMENTS, fields.SUBJECTS
)


def item(line: Fields, grader: str | None = None) -> DatasetItem:
    """Make an item from the fields of a line, for the grader that the dataset declares.

    Fields: question from `question`, `problem`, `query` or `user_input`, else `text`, else what the user says in a
    chat of one question (`messages`); gold answer from
    `golden_answers`, `generation_gt`, `reference` or `ground_truth`, else `answer`, `gold`, `expected_answer`, `gt` or
    `golden` (GSM8K: what follows ####), else the last box of `solution`; gold documents from `gold_documents`,
    `retrieval_gt` or `reference_context_ids`; what it asks of a graph from `relation`, or an object in `query`.
    `choice` reads `choices`, too, and asks them; `rubric` reads `rubric`.

    Raises:
        Defect: what is wrong with which field, and what to write instead; `Empty` where there is no question.
    """
    ids, questions, references, given, documents, subjects = _present(line)
    query = fact_queries.read(line)
    choices = read_choices(line) if grader == "choice" else ()
    gold, golds = _gold(line, references, given, GoldReader(grader, choices))
    expected = Expected(golds=golds, choices=choices, rubric=_rubric(line) if grader == "rubric" else "")
    return DatasetItem(
        question=_question(line, questions, choices),
        gold=gold,
        gold_documents=_gold_documents(line, documents),
        subject=fields.label(line, subjects),
        level=fields.level(line),
        custom_id=fields.identifier(line, ids),
        expected=None if expected == Expected() else expected,
        query=query,
    )


def read_dataset_line(raw: Content, source: str, number: int) -> DatasetItem:
    """Read one line of a dataset.

    Raises:
        InvalidLine: where `item` finds a defect.
    """
    try:
        return item(lines.fields(raw))
    except Defect as defect:
        raise lines.locate_defect(defect, source, number) from defect


def read_dataset(rows: Iterable[Row]) -> Iterator[DatasetItem]:
    """Yield the item of every line of a dataset; ids must be unique.

    Raises:
        InvalidLine: lines that cannot be used.
    """
    return iter(Reader(rows, lambda line, _: item(line), identifier))


def _question(line: Fields, names: tuple[str, ...], choices: tuple[str, ...]) -> str:
    texts = tuple(name for name in names if not isinstance(line[name], dict))
    field = fields.find_single_name(line, texts) or fields.find_given_name(line, ("text",))
    if field is None:
        field = "messages"
        question = _only_message(line)
    else:
        question = fields.text(line, field).strip()
    if not question:
        raise Empty(f"`{field}` is empty; write the question or remove the line")
    question = format_question(question, choices) if choices else question
    if len(question) > MAX_QUESTION:
        raise Defect(f"`{field}` has {len(question)} characters, more than {MAX_QUESTION}; shorten it")
    return question


def _only_message(line: Fields) -> str:
    """Return the user's message, if the line is a chat with a single question."""
    messages = line.get("messages")
    if not isinstance(messages, list):
        raise Defect("has no question; write it into `question` (or `problem`)")
    contents = [each.get("content") for each in messages if isinstance(each, dict) and each.get("role") == "user"]
    if len(contents) != 1 or not isinstance(contents[0], str):
        raise Defect("`messages` does not hold exactly one question; put one into `question`")
    return contents[0].strip()


def _gold(
    line: Fields, references: tuple[str, ...], given: tuple[str, ...], reading: GoldReader
) -> tuple[str | None, tuple[str, ...]]:
    """Return the gold answer, and the other right answers."""
    field = fields.find_single_name(line, references) or _answer(line, given)
    if field is not None:
        return reading.golds(line[field], field)
    if line.get("solution") is None:
        return None, ()
    return answers.extract(fields.text(line, "solution"))[0], ()


def _rubric(line: Fields) -> str:
    field = fields.find_given_name(line, fields.RUBRIC)
    rubric = "" if field is None else fields.text(line, field).strip()
    if len(rubric) > MAX_RUBRIC:
        raise Defect(f"`rubric` has {len(rubric)} characters, more than {MAX_RUBRIC}; shorten it")
    return rubric


def _answer(line: Fields, names: tuple[str, ...]) -> str | None:
    field = fields.find_single_name(line, names)
    if field == "answer" and (beside := fields.find_given_name(line, fields.RETRIEVED)) is not None:
        raise Defect(
            f"`answer` beside `{beside}` may be a system's answer or the expected one; rename that one to `gold`"
        )
    return field


def _gold_documents(line: Fields, names: tuple[str, ...]) -> dict[str, int] | None:
    field = fields.find_single_name(line, names)
    if field is None:
        return None
    value = line[field]
    if not isinstance(value, dict):
        return dict.fromkeys(_ids(value, field), 1)
    if not all(isinstance(grade, int) and not isinstance(grade, bool) for grade in value.values()):
        raise Defect(f'`{field}` must be a list of ids or an object such as {{"id": 1}}')
    return value


def _ids(value: Any, field: str) -> Iterator[str]:
    """Flatten AutoRAG's lists of lists, "one of these, and one of those": here each document is relevant."""
    if not isinstance(value, list):
        yield fields.scalar(value, field)
        return
    for each in value:
        for inner in each if isinstance(each, list) else [each]:
            yield fields.scalar(inner, field)
