"""The names of fields in the known layouts, and functions that read their values; a wrong type is a `Defect`."""

from collections.abc import Sequence
from typing import Any

from shared.ingest.lines import Defect, Fields, name

IDS = ("custom_id", "_id", "id", "unique_id", "doc_id", "qid")
QUESTIONS = ("question", "problem", "query", "user_input")
"""Fields with a question: AutoRAG has `query`, ragas `user_input`, MATH `problem`."""
PASSAGES = ("text", "contents")
"""Fields with a passage: BEIR has `text`, for its queries too; FlashRAG and AutoRAG have `contents`."""
REFERENCES = ("golden_answers", "generation_gt", "reference", "ground_truth", "ground_truths")
"""Fields that can only hold expected answers: those of FlashRAG, AutoRAG, ragas and older ragas."""
ANSWERS = ("answer", "gold", "expected_answer", "gt", "golden", "answerKey", "gold_answer")
"""Fields with an answer; ARC has `answerKey`, BRIGHT `gold_answer`."""
CHOICES = ("choices", "options")
"""Fields with the choices of a multiple-choice question: `choices` in MMLU and ARC, `options` in MedQA."""
RUBRIC = ("rubric",)
RETRIEVED = ("contexts", "retrieved_contexts")
"""Fields with what a system retrieved: an `answer` beside them may be that system's."""
GOLD_DOCUMENTS = ("gold_documents", "retrieval_gt", "reference_context_ids", "gold_ids")
"""Fields with relevant documents: AutoRAG has `retrieval_gt`, ragas `reference_context_ids`, BRIGHT `gold_ids`."""
EXCLUDED = "excluded_ids"
"""Field of BRIGHT with documents that must not be found for one item, which searches cannot leave out."""
NONE_GIVEN = "N/A"
"""BRIGHT's word for no answer and no document."""
SUBJECTS = ("subject", "type", "topic")
METAS = ("meta", "metadata")
TITLE = ("title",)
SOLUTION = ("solution",)
LEVEL = ("level",)
RELATION = ("relation",)
"""Field with the relation of a graph that a question asks for."""
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
        EXCLUDED,
    )
)
"""Every field that is looked at; all others are ignored."""
NESTED = frozenset((*MESSAGES, *REFERENCES, *CHOICES, *RETRIEVED, *GOLD_DOCUMENTS, *METAS, EXCLUDED))
"""Fields that may hold lists or objects; in the cell of a table these are written as JSON."""

MOST_COLUMNS = 1000
"""Maximum number of a table's columns: most of them are ignored, but each of them is read in every row."""
MAX_ID_BYTES = 1024
"""Maximum length of an id, in bytes of UTF-8: PostgreSQL's B-tree indexes entries of at most 2704 bytes."""
MAX_NAME_CHARS = 1000
"""Maximum length of the name of an entity or relation, in characters."""
SHAPES = 64
"""Number of different sets of fields in the cache."""


class Present:
    """Tells which names of each group a line has; cached, because most lines of an upload have the same fields."""

    def __init__(self, *groups: tuple[str, ...]) -> None:
        self._groups = groups
        self._known: dict[tuple[str, ...], list[tuple[str, ...]]] = {}

    def __call__(self, line: Fields) -> list[tuple[str, ...]]:
        """Return, for each group, the names that `line` has, in the group's order."""
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
        raise Defect(f"has {len(columns)} columns, more than {MOST_COLUMNS}; remove those that are not needed")


def find_given_name(fields: Fields, names: tuple[str, ...]) -> str | None:
    """Return the first of `names` whose value in the object is not null."""
    for each in names:
        if fields.get(each) is not None:
            return each
    return None


def find_single_name(fields: Fields, names: tuple[str, ...]) -> str | None:
    """Return the one of `names` whose value in the object is not null.

    Raises:
        Defect: it has two, and they differ.
    """
    if len(names) < 2:
        return find_given_name(fields, names)
    found = None
    for each in names:
        value = fields.get(each)
        if value is None:
            continue
        if found is not None and fields[found] != value:
            raise Defect(f"has both `{found}` and `{each}` with different values; keep one of them")
        found = found or each
    return found


def text(fields: Fields, field: str) -> str:
    """Return the string in `field`.

    Raises:
        Defect: it is not a string.
    """
    value = fields[field]
    if not isinstance(value, str):
        raise Defect(f"`{field}` is {name(value)}; write it as a string")
    return value


def scalar(value: Any, field: str) -> str:
    """Return the string or number in `field` as text ("5" for 5), without blanks around it.

    Raises:
        Defect: it is neither, or it is empty.
    """
    if not isinstance(value, str) and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Defect(f"`{field}` is {name(value)}; write it as a string or a number")
    found = str(value).strip()
    if not found:
        raise Defect(f"`{field}` is empty; write a value or remove the field")
    return found


def identifier(fields: Fields, names: tuple[str, ...]) -> str | None:
    """Return the line's id, from the first of `names` that it has, or None.

    Raises:
        Defect: it is neither text nor a number, empty, or longer than `MAX_ID_BYTES`.
    """
    field = find_given_name(fields, names)
    if field is None:
        return None
    found = scalar(fields[field], field)
    if len(found) > MAX_ID_BYTES // 4 and (size := len(found.encode())) > MAX_ID_BYTES:
        raise Defect(f"`{field}` has {size} bytes, more than {MAX_ID_BYTES}; shorten it")
    return found


def label(fields: Fields, names: tuple[str, ...]) -> str | None:
    """Return a subject or level as text; None if it is absent or blank."""
    field = find_given_name(fields, names)
    return None if field is None or fields[field] == "" else scalar(fields[field], field)


def level(fields: Fields) -> str | None:
    """Return the difficulty as text: "5" for 5 and for "Level 5"; None for "Level ?"."""
    value = label(fields, LEVEL)
    if value is None:
        return None
    value = value.removeprefix("Level").strip()
    return None if value in ("", "?") else value
