"""Items from lines: questions with what is known about them (MATH, GSM8K, BEIR, FlashRAG, AutoRAG, ragas, plain)."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from shared.contracts.calls import MAX_QUESTION
from shared.contracts.datasets import DatasetItem
from shared.contracts.grading import Expected
from shared.ingest import fact_queries, fields, lines
from shared.ingest.choices import asked
from shared.ingest.choices import read as read_choices
from shared.ingest.golds import Reading
from shared.ingest.lines import Content, Defect, Empty, Fields, Row
from shared.ingest.reader import Reader
from shared.mathtext import answers

IDS = ("custom_id", "id", "unique_id", "_id", "qid")
MAX_RUBRIC = 8000
"""Characters of an item's rubric."""
identifier = attrgetter("custom_id")
"""What no other item of an upload may be called."""
_present = fields.Present(
    IDS, fields.QUESTIONS, fields.REFERENCES, fields.ANSWERS, fields.GOLD_DOCUMENTS, fields.SUBJECTS
)


def item(line: Fields, grader: str | None = None) -> DatasetItem:
    """An item from the fields of a line, for the grader that the dataset declares.

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
    gold, golds = _gold(line, references, given, Reading(grader, choices))
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
    """One line of a dataset.

    Raises:
        InvalidLine: where `item` finds a defect.
    """
    try:
        return item(lines.fields(raw))
    except Defect as defect:
        raise lines.located(defect, source, number) from defect


def read_dataset(rows: Iterable[Row]) -> Iterator[DatasetItem]:
    """Every line of a dataset; ids are unique.

    Raises:
        InvalidLine: lines that cannot be used.
    """
    return iter(Reader(rows, lambda line, _: item(line), identifier))


def _question(line: Fields, names: tuple[str, ...], choices: tuple[str, ...]) -> str:
    texts = tuple(name for name in names if not isinstance(line[name], dict))
    field = fields.only(line, texts) or fields.first(line, ("text",))
    if field is None:
        field = "messages"
        question = _only_message(line)
    else:
        question = fields.text(line, field).strip()
    if not question:
        raise Empty(f"`{field}` is empty; write the question or remove the line")
    question = asked(question, choices) if choices else question
    if len(question) > MAX_QUESTION:
        raise Defect(f"`{field}` has {len(question)} characters, a question may have {MAX_QUESTION}; shorten it")
    return question


def _only_message(line: Fields) -> str:
    """What the user says, where a line is a chat with a single question."""
    messages = line.get("messages")
    if not isinstance(messages, list):
        raise Defect("has no question; put it into `question` (or `problem`)")
    said = [each.get("content") for each in messages if isinstance(each, dict) and each.get("role") == "user"]
    if len(said) != 1 or not isinstance(said[0], str):
        raise Defect("`messages` holds more or less than one question; put one into `question`")
    return said[0].strip()


def _gold(
    line: Fields, references: tuple[str, ...], given: tuple[str, ...], reading: Reading
) -> tuple[str | None, tuple[str, ...]]:
    """The gold answer, and the others that are right as well."""
    field = fields.only(line, references) or _answer(line, given)
    if field is not None:
        return reading.golds(line[field], field)
    if line.get("solution") is None:
        return None, ()
    return answers.extract(fields.text(line, "solution"))[0], ()


def _rubric(line: Fields) -> str:
    field = fields.first(line, fields.RUBRIC)
    rubric = "" if field is None else fields.text(line, field).strip()
    if len(rubric) > MAX_RUBRIC:
        raise Defect(f"`rubric` has {len(rubric)} characters, it may have {MAX_RUBRIC}; shorten it")
    return rubric


def _answer(line: Fields, names: tuple[str, ...]) -> str | None:
    field = fields.only(line, names)
    if field == "answer" and (beside := fields.first(line, fields.RETRIEVED)) is not None:
        raise Defect(
            f"`answer` beside `{beside}` may be a system's answer or the expected one; call the expected one `gold`"
        )
    return field


def _gold_documents(line: Fields, names: tuple[str, ...]) -> dict[str, int] | None:
    field = fields.only(line, names)
    if field is None:
        return None
    value = line[field]
    if not isinstance(value, dict):
        return dict.fromkeys(_ids(value, field), 1)
    if not all(isinstance(grade, int) and not isinstance(grade, bool) for grade in value.values()):
        raise Defect(f'`{field}` must be a list of ids or an object such as {{"id": 1}}')
    return value


def _ids(value: Any, field: str) -> Iterator[str]:
    """AutoRAG's lists of lists say "one of these, and one of those"; here every one of them is relevant."""
    if not isinstance(value, list):
        yield fields.scalar(value, field)
        return
    for each in value:
        for inner in each if isinstance(each, list) else [each]:
            yield fields.scalar(inner, field)
