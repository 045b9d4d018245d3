"""Columns of uploads: their known names, the fields that they fill, and the columns that the user chose."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from mathrag.errors import Invalid
from mathrag.messages import make_hint
from mathrag.reading.lines import MOST_COLUMNS, SHAPES, Defect, Fields, TwoColumns

# Names of columns, by the field that they fill. Letter case, blanks, `_` and `-` are ignored.

IDS = ("custom_id", "_id", "id", "unique_id", "doc_id", "qid")
QUESTION_IDS = ("custom_id", "id", "unique_id", "_id", "qid")
DOCUMENT_IDS = ("_id", "id", "unique_id", "doc_id")
INPUTS = ("input", "inputs")
"""Columns with a question: inspect_ai's `input` is a text or the messages of a chat, LangSmith's `inputs` an object."""
OUTPUTS = "outputs"
"""LangSmith's object with the expected answer."""
QUESTIONS = ("question", "problem", "query", "user_input", "prompt", *INPUTS)
"""Columns with a question: AutoRAG has `query`, ragas `user_input`, MATH `problem`."""
PROBLEMS = ("problem", "question")
"""Columns with the problem that a document solves."""
PASSAGES = ("text", "contents", "content", "page_content", "body", "passage", "document")
"""Columns with a passage: BEIR has `text`, for its queries too; FlashRAG and AutoRAG `contents`, LangChain
`page_content`."""
REFERENCES = (
    *("golden_answers", "generation_gt", "reference", "ground_truth", "ground_truths"),
    *("reference_answer", "expected_output"),
)
"""Columns that can only contain expected answers: those of FlashRAG, AutoRAG, ragas, older ragas and DeepEval."""
ANSWERS = (
    *("answer", "gold", "expected_answer", "gt", "golden", "answerKey", "gold_answer"),
    *("target", "expected", "correct_answer"),
)
"""Columns with an answer; ARC has `answerKey`, BRIGHT `gold_answer`, inspect_ai `target`."""
CHOICES = ("choices", "options")
"""Columns with the choices of a multiple-choice question: `choices` in MMLU and ARC, `options` in MedQA."""
RUBRIC = ("rubric",)
NUGGETS = ("nuggets",)
"""Column with short statements, each of which a complete answer contains."""
RETRIEVED = ("contexts", "retrieved_contexts")
"""Columns with retrieved passages: in a file with one of them, an `answer` may be that system's answer."""
SHOWN = (*RETRIEVED, "retrieval_context", "context")
"""Columns with the passages in another system's prompt: DeepEval has `retrieval_context`."""
GOLD_DOCUMENTS = ("gold_documents", "retrieval_gt", "reference_context_ids", "gold_ids")
"""Columns with relevant documents: AutoRAG has `retrieval_gt`, ragas `reference_context_ids`, BRIGHT `gold_ids`."""
EXCLUDED = "excluded_ids"
"""Column of BRIGHT with documents that must not be found for one item; searches cannot exclude them."""
SUBJECTS = ("subject", "type", "topic")
LEVEL = ("level",)
METAS = ("meta", "metadata")
SOLUTION = ("solution",)
RELATION = ("relation",)
"""Column with the relation of a graph that a question asks for."""
MESSAGES = ("messages",)

Table = Mapping[str, tuple[str, ...]]
"""Known columns by the field that they fill; a field has the name of one of its columns."""
ITEMS: Table = {
    "id": QUESTION_IDS, "question": QUESTIONS, "text": ("text",), "messages": MESSAGES,
    "gold": (*REFERENCES, *ANSWERS, *SOLUTION), "gold_documents": GOLD_DOCUMENTS, "choices": CHOICES,
    "rubric": RUBRIC, "nuggets": NUGGETS, "subject": SUBJECTS, "level": LEVEL, "relation": RELATION, "metadata": METAS,
    "contexts": RETRIEVED, EXCLUDED: (EXCLUDED,), OUTPUTS: (OUTPUTS,),
}  # fmt: skip
DOCUMENTS: Table = {
    "id": DOCUMENT_IDS, "text": (*PASSAGES, *SOLUTION), "title": ("title",), "problem": PROBLEMS,
    "subject": SUBJECTS, "level": LEVEL, "metadata": METAS, "answer": ("answer",),
}  # fmt: skip
UPLOADED: Table = {
    field: tuple(dict.fromkeys((*ITEMS.get(field, ()), *DOCUMENTS.get(field, ()))))
    for field in (*ITEMS, *DOCUMENTS)
}  # fmt: skip
"""Table of items and documents."""
IMPORTED: Table = {
    "id": ("custom_id", "id"),
    "index": ("index",),
    "question": QUESTIONS,
    "repeat": ("repeat",),
    "answer": ("answer",),
    "text": ("text", "response", "actual_output"),
    "contexts": SHOWN,
    "score": ("score", "exact_match"),
    "error": ("error",),
    "seconds": ("seconds",),
    "prompt_tokens": ("prompt_tokens",),
    "completion_tokens": ("completion_tokens",),
}
"""Table of another system's answers; some columns are those of ragas and DeepEval."""

_SEPARATORS = re.compile(r"[\s_-]+")
LONGEST_LIST = 200
"""Largest number of characters of a list of columns in a message."""
LONGEST_KEPT = 100
"""Largest number of characters of a cached name: an upload may have a thousand names of a megabyte each."""
T = TypeVar("T")


def fold(name: str) -> str:
    """Return the name in its comparable form: "Expected answer" and `expected_answer` are the same column."""
    return _SEPARATORS.sub("", name).casefold()


class _Plan(NamedTuple):
    """New names of the columns, for all lines with the same columns."""

    names: dict[str, str | None]
    """Name by column; None omits the column."""
    missing: tuple[str, str] | None
    """Field and column that the user chose and that the line lacks."""
    changes: bool
    """A column has another name or is omitted."""


class Columns:
    """Finds the field that each column fills: by its known name, or by the user's choice."""

    def __init__(self, table: Table, pairs: Sequence[str] = ()) -> None:
        """Read the user's choices from pairs such as "question=Frage".

        Raises:
            Invalid: a text is not a pair, or it names an unknown field; the message names it.
        """
        self.fields = tuple(table)
        self.pairs = tuple(pairs)
        self._known = {name: field for field, names in table.items() for name in names}
        self._folded = {fold(name): name for name in reversed(self._known)}
        self.chosen = dict[str, str]()
        """Columns that the user chose, by field."""
        for pair in pairs:
            what, equals, column = pair.partition("=")
            if not equals or not column:
                raise Invalid(
                    f"`column`: {pair!r} is not of the form FIELD=COLUMN", hint="write for example question=prompt"
                )
            name = self._find_known(what)
            field = what if what in table else self._known.get(name or "")
            if field is None:
                hint = make_hint(what, table, f"write one of {', '.join(table)}")
                raise Invalid(f"`column`: unknown field {what!r}", hint=hint)
            if field in self.chosen:
                raise Invalid(f"`column`: {field!r} is given twice", hint="name one column for it")
            self.chosen[field] = column
        self._fields = {fold(column): field for field, column in self.chosen.items()}
        # Most lines of an upload have the same columns.
        self._plan = lru_cache(SHAPES)(self._make_plan)
        self._found = lru_cache(MOST_COLUMNS)(self._find)

    def _find_known(self, column: str) -> str | None:
        return column if column in self._known else self._folded.get(fold(column))

    def find(self, column: str) -> str | None:
        """Return the known name of the column; None if the column is ignored."""
        return self._found(column) if len(column) <= LONGEST_KEPT else self._find(column)

    def _find(self, column: str) -> str | None:
        if (field := self._fields.get(fold(column))) is not None:
            return field
        name = self._find_known(column)
        return None if name is None or self._known[name] in self.chosen else name

    def knows(self, column: str) -> bool:
        """Return True if the column has a known name, even if it is ignored because the user chose another column."""
        return self.find(column) is not None or self._find_known(column) is not None

    def read(self, line: Fields, make: Callable[[Fields], T]) -> T:
        """Return the result of `make` for the line with known names.

        Raises:
            Defect: two columns fill the same field, a chosen column is missing, or `make` finds a defect; the message
                uses the line's names of the columns.
        """
        plan = self._plan(tuple(line))
        if plan.missing is not None:
            field, column = plan.missing
            listed = ", ".join(line)[:LONGEST_LIST]
            raise Defect(f"has no column `{column}` for the field `{field}`; its columns: {listed or 'none'}")
        if not plan.changes:
            return make(line)
        columns = dict[str, str]()
        for column, name in plan.names.items():
            if name is not None and (name not in columns or line[columns[name]] is None):
                columns[name] = column
            elif name is not None and line[column] not in (None, line[columns[name]]):
                raise TwoColumns(columns[name], column, name)
        try:
            return make({name: line[column] for name, column in columns.items()})
        except TwoColumns as defect:
            first, second = (columns.get(name, name) for name in (defect.first, defect.second))
            raise TwoColumns(first, second, defect.field) from defect
        except Defect as defect:
            renamed = {name: column for name, column in columns.items() if name != column}
            message = re.sub(r"`([^`]+)`", lambda found: f"`{renamed.get(found[1], found[1])}`", str(defect))
            raise type(defect)(message) from defect

    def _make_plan(self, line: tuple[str, ...]) -> _Plan:
        names: dict[str, str | None] = {}
        for column in line:
            name = self.find(column)
            is_shadowed = name in self.chosen and column != self.chosen[name] and self.chosen[name] in line
            is_read_otherwise = name is None and self._find_known(column) is not None
            names[column] = None if is_shadowed or is_read_otherwise else name or column
        missing = [each for each in self.chosen.items() if each[0] not in names.values()]
        changes = any(name != column for column, name in names.items())
        return _Plan(names, missing[0] if missing else None, changes)
