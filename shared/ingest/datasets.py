"""Read items from lines: questions with what is known about them (MATH, GSM8K, BEIR, BRIGHT, FlashRAG, AutoRAG, ragas,
plain)."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from operator import attrgetter
from typing import Any

from shared import suggestions
from shared.calls import MAX_QUESTION, Expected
from shared.ingest import fact_queries, fields, lines
from shared.ingest.choices import format_question
from shared.ingest.choices import read as read_choices
from shared.ingest.golds import GoldReader
from shared.ingest.lines import Content, Defect, Empty, Fields, Row
from shared.ingest.reader import Reader
from shared.mathtext import answers
from shared.samples import DatasetItem

IDS = ("custom_id", "id", "unique_id", "_id", "qid")
MAX_RUBRIC = 8000
"""Maximum length of an item's rubric, in characters."""
READ = frozenset((
    *IDS, *fields.QUESTIONS, "text", *fields.MESSAGES, *fields.REFERENCES, *fields.ANSWERS, *fields.SOLUTION,
    *fields.GOLD_DOCUMENTS, *fields.SUBJECTS, *fields.LEVEL, *fields.RELATION,
))  # fmt: skip
"""Fields that are read for every grader."""
READ_FOR = {"choice": fields.CHOICES, "rubric": fields.RUBRIC}
"""Further fields that are read for a grader."""
FOREIGN_FIELDS = frozenset({"reference_contexts"})
"""Fields of other programs that are not read although their names are near to one that is: ragas has the texts beside
the ids."""
MOST_UNREAD = 100
"""Maximum number of unread fields whose names are kept."""
NAMED = 10
"""Maximum number of unread fields that a warning names."""
LONGEST_UNREAD_NAME = 40
"""Characters of an unread field's name that are kept."""
ALIKE = 0.8
"""Similarity of two names from which one is taken for a misspelling of the other (`anwser` and `answer` have 0.83)."""
identifier = attrgetter("custom_id")
"""Return the id, which must be unique within an upload."""
_present = fields.Present(
    IDS, fields.QUESTIONS, fields.REFERENCES, fields.ANSWERS, fields.GOLD_DOCUMENTS, fields.SUBJECTS
)


def item(line: Fields, grader: str | None = None) -> DatasetItem:
    """Make an item from the fields of a line, for the grader that the dataset declares.

    Fields: question from `question`, `problem`, `query` or `user_input`, else `text`, else what the user says in a
    chat of one question (`messages`); gold answer from
    `golden_answers`, `generation_gt`, `reference` or `ground_truth`, else `answer`, `gold`, `expected_answer`, `gt`,
    `golden` (GSM8K: what follows ####) or `gold_answer`, else the last box of `solution`; gold documents from
    `gold_documents`, `retrieval_gt`, `reference_context_ids` or `gold_ids`; what it asks of a graph from `relation`, or
    an object in `query`.
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


class ItemReader:
    """Makes the items of an upload for one grader, and notes what they lack."""

    def __init__(self, grader: str | None = None) -> None:
        self._grader = grader
        self._read = READ.union(READ_FOR.get(grader or "", ()))
        self._items = 0
        self._golds = 0
        self._documents = 0
        self._excludes = 0
        self._unread: dict[str, None] = {}

    def read(self, line: Fields) -> DatasetItem:
        """Make the item of a line.

        Raises:
            Defect: see `item`.
        """
        found = item(line, self._grader)
        self._items += 1
        self._golds += found.gold is not None
        self._documents += bool(found.gold_documents)
        self._excludes += bool(_list_excluded(line.get(fields.EXCLUDED)))
        for name in line.keys() - self._read:
            if len(self._unread) < MOST_UNREAD:
                self._unread[name[:LONGEST_UNREAD_NAME]] = None
        return found

    def list_warnings(self) -> list[str]:
        """Return what a grade or a measure of a search will lack, and fields that look like misspelt ones."""
        warnings, unread = list[str](), sorted(self._unread)
        if self._items and not (self._golds or self._documents) and self._grader != "rubric":
            wanted = "no item has an expected answer (`answer`) or relevant documents (`gold_documents`)"
            unread_fields = f"; fields that were not read: {_name_unread(unread)}" if unread else ""
            warnings.append(f"{wanted}, so no answer to them can be graded{unread_fields}")
        else:
            meant = {name: _find_misspelt(name, self._read) for name in unread if name not in FOREIGN_FIELDS}
            warnings += [f"`{name}` was not read: did you mean `{near}`?" for name, near in meant.items() if near]
        if self._excludes:
            some = f"`{fields.EXCLUDED}` of {self._excludes} items was not read"
            warnings.append(f"{some}: a search finds these documents like all others")
        return warnings


def _name_unread(names: list[str]) -> str:
    """Return the names, each with the field of answers or documents that it looks like."""
    wanted = (*fields.ANSWERS, *fields.REFERENCES, *fields.GOLD_DOCUMENTS)
    near = {name: suggestions.find_nearest(name, wanted) for name in names}
    listed = [f"`{name}`" + (f" (did you mean `{meant}`?)" if meant else "") for name, meant in near.items()]
    first = sorted(listed, key=lambda each: "did you mean" not in each)[:NAMED]
    return ", ".join([*first, *(["…"] if len(names) > NAMED else [])])


def _find_misspelt(name: str, read: frozenset[str]) -> str | None:
    """Return the field that `name` misspells; a longer name such as `question_id` is another field."""
    meant = suggestions.find_nearest(name, read)
    if meant is None or (meant.casefold() in name.casefold() and len(name) > len(meant) + 1):
        return None
    return meant if SequenceMatcher(None, name.casefold(), meant.casefold()).ratio() >= ALIKE else None


def _list_excluded(value: Any) -> list[Any]:
    """Return the documents in `excluded_ids`, which BRIGHT fills with "N/A" where there are none."""
    return [
        each for each in (value if isinstance(value, list) else [value]) if each not in (None, "", fields.NONE_GIVEN)
    ]


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
    return None if field == "gold_answer" and line[field] == fields.NONE_GIVEN else field


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
