"""Names of the fields that the known layouts use, and the values under them; a wrong type is a `Defect`."""

from collections.abc import Sequence
from typing import Any

from shared.ingest.lines import Defect, Fields, name

IDS = ("custom_id", "_id", "id", "unique_id", "doc_id", "qid")
QUESTIONS = ("question", "problem", "query", "user_input")
"""AutoRAG says `query`, ragas `user_input`, MATH `problem`."""
PASSAGES = ("text", "contents")
"""BEIR says `text`, for its queries too; FlashRAG and AutoRAG `contents`."""
REFERENCES = ("golden_answers", "generation_gt", "reference", "ground_truth", "ground_truths")
"""Can only be what was expected: FlashRAG, AutoRAG, ragas and older ragas."""
ANSWERS = ("answer", "gold", "expected_answer", "gt", "golden", "answerKey")
"""ARC says `answerKey`."""
CHOICES = ("choices", "options")
"""Of a multiple-choice question: MMLU and ARC, and MedQA."""
RUBRIC = ("rubric",)
RETRIEVED = ("contexts", "retrieved_contexts")
"""What a system retrieved: an `answer` beside it may be that system's."""
GOLD_DOCUMENTS = ("gold_documents", "retrieval_gt", "reference_context_ids")
SUBJECTS = ("subject", "type", "topic")
METAS = ("meta", "metadata")
TITLE = ("title",)
SOLUTION = ("solution",)
LEVEL = ("level",)
RELATION = ("relation",)
"""Of a graph, that a question asks for."""
MESSAGES = ("messages",)
KNOWN = frozenset(
    (
        *IDS,
        *QUESTIONS,
        *PASSAGES,
        *REFERENCES,
        *ANSWERS,
        *CHOICES,
        *RUBRIC,
        *RETRIEVED,
        *GOLD_DOCUMENTS,
        *SUBJECTS,
        *METAS,
        *TITLE,
        *SOLUTION,
        *LEVEL,
        *RELATION,
        *MESSAGES,
    )
)
"""Every name that means something; all other fields are left alone."""
NESTED = frozenset((*MESSAGES, *REFERENCES, *CHOICES, *RETRIEVED, *GOLD_DOCUMENTS, *METAS))
"""May hold lists or objects: in a table cell they are written as JSON."""

MOST_COLUMNS = 1000
"""Of a table; most of them mean nothing here, but every one of them is looked at for every row."""
MAX_ID_BYTES = 1024
"""Of UTF-8. Ids of documents are indexed, and PostgreSQL's B-tree keeps no entry of more than 2704 bytes."""
SHAPES = 64
"""Sets of fields that are remembered."""


class Present:
    """Which names of each group a line has: most lines of an upload have the same fields, so it is asked once."""

    def __init__(self, *groups: tuple[str, ...]) -> None:
        self._groups = groups
        self._known: dict[tuple[str, ...], list[tuple[str, ...]]] = {}

    def __call__(self, line: Fields) -> list[tuple[str, ...]]:
        """Of every group the names that `line` has, in the group's order."""
        shape = tuple(line)
        found = self._known.get(shape)
        if found is None:
            if len(self._known) == SHAPES:
                self._known.clear()
            found = [tuple(each for each in group if each in line) for group in self._groups]
            self._known[shape] = found
        return found


def check_count(columns: Sequence[str]) -> None:
    """Refuse a table of too many columns before its rows are read.

    Raises:
        Defect: there are more than `MOST_COLUMNS`.
    """
    if len(columns) > MOST_COLUMNS:
        raise Defect(
            f"has {len(columns)} columns, a table may have {MOST_COLUMNS}; leave out those that are not needed"
        )


def first(fields: Fields, names: tuple[str, ...]) -> str | None:
    """The first of `names` that the object has with a value other than null."""
    for each in names:
        if fields.get(each) is not None:
            return each
    return None


def only(fields: Fields, names: tuple[str, ...]) -> str | None:
    """The one of `names` that the object has with a value other than null.

    Raises:
        Defect: it has two, and they differ.
    """
    if len(names) < 2:
        return first(fields, names)
    found = None
    for each in names:
        value = fields.get(each)
        if value is None:
            continue
        if found is not None and fields[found] != value:
            raise Defect(f"has both `{found}` and `{each}`, and they differ; keep the one that is meant")
        found = found or each
    return found


def text(fields: Fields, field: str) -> str:
    """The string in `field`.

    Raises:
        Defect: it is not a string.
    """
    value = fields[field]
    if not isinstance(value, str):
        raise Defect(f"`{field}` is {name(value)}; write it as a string")
    return value


def scalar(value: Any, field: str) -> str:
    """A string or number found in `field`, as text ("5" for 5); blanks around it are dropped.

    Raises:
        Defect: it is neither, or it is empty.
    """
    if not isinstance(value, str) and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Defect(f"`{field}` is {name(value)}; write it as a string or a number")
    found = str(value).strip()
    if not found:
        raise Defect(f"`{field}` is empty; give it a value or leave the field out")
    return found


def identifier(fields: Fields, names: tuple[str, ...]) -> str | None:
    """The line's id from the first of `names` that it has, or None.

    Raises:
        Defect: it is neither text nor a number, empty, or longer than `MAX_ID_BYTES`.
    """
    field = first(fields, names)
    if field is None:
        return None
    found = scalar(fields[field], field)
    if len(found) > MAX_ID_BYTES // 4 and (size := len(found.encode())) > MAX_ID_BYTES:
        raise Defect(f"`{field}` has {size} bytes, an id may have {MAX_ID_BYTES}; shorten it")
    return found


def label(fields: Fields, names: tuple[str, ...]) -> str | None:
    """A subject or level as text; absent and blank are None."""
    field = first(fields, names)
    return None if field is None or fields[field] == "" else scalar(fields[field], field)


def level(fields: Fields) -> str | None:
    """The difficulty as text: "5" for 5 and for "Level 5"; "Level ?" is None."""
    value = label(fields, LEVEL)
    if value is None:
        return None
    value = value.removeprefix("Level").strip()
    return None if value in ("", "?") else value
