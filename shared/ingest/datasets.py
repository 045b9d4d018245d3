"""Questions and documents of uploads: choices, gold answers, fact queries and strata."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from operator import attrgetter
from random import Random
from typing import Any

import msgspec

from mathrag.messages import find_nearest, format_count
from mathrag.reading import columns, lines
from mathrag.reading.columns import Columns
from mathrag.reading.lines import Content, Defect, Empty, Fields, Reader, Row
from shared.calls import MATHEMATICAL, MAX_QUESTION, Expected
from shared.mathtext import answers
from shared.mathtext.mathematics import equal_strict
from shared.rag.grading import LETTERS, InvalidGold, check_gold, describe_words, is_words
from shared.replies import CorpusRecord, Document
from shared.samples import DatasetItem, FactQuery

# Read the choices of a multiple-choice question, and which of them is right, as data sets write them.


def read_choices(line: Fields) -> tuple[str, ...]:
    """Read the texts of the choices A, B, C ... of a line; empty if it has no `choices` (or `options`).

    They are a list (MMLU), an object of letters (`{"A": "Bern"}`), or lists of labels and texts (ARC).
    """
    field = lines.find_single_name(line, columns.CHOICES)
    if field is None:
        return ()
    value = line[field]
    if isinstance(value, dict):
        value = value["text"] if isinstance(value.get("text"), list) else [value[key] for key in sorted(value)]
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise Defect(f'`{field}` must be a list of 2 to 26 texts such as ["Bern", "Paris"]')
    return tuple(lines.scalar(each, field) for each in value)


def format_question(question: str, choices: Sequence[str]) -> str:
    """Append the choices to the question, each on a line with its letter."""
    return "\n".join([question, *(f"{letter}. {text}" for letter, text in zip(LETTERS, choices, strict=False))])


def find_right_letter(value: Any, field: str, choices: Sequence[str]) -> str:
    """Return the letter of the right choice, which may be given as a letter, its text, a label from "1" (ARC), or, for
    a number in the upload, its position from 0 (MMLU).

    Raises:
        Defect: it names none of the choices, or may be read in two ways.
    """
    text = lines.scalar(value, field)
    letters = LETTERS[: len(choices) or len(LETTERS)]
    is_place = isinstance(value, int) and value < len(letters)
    readings = {
        *([text.upper()] if len(text) == 1 and text.upper() in letters else []),
        *(letter for letter, choice in zip(letters, choices, strict=False) if choice == text),
        *([letters[value]] if is_place and choices else []),
    }
    if not readings and isinstance(value, str) and text.isdecimal() and 0 < int(text) <= len(choices):
        readings = {letters[int(text) - 1]}
    if len(readings) != 1:
        ways = "may mean the position of one choice or the text of another" if readings else "names none of the choices"
        raise Defect(f"`{field}` is {text!r}, which {ways}; write the letter of the correct choice")
    return readings.pop()


# Read the gold answers of a line in the form that the dataset's grader needs.

_GSM8K_MARK = "####"


def parse_golds(
    value: Any, field: str, grader: str | None, choices: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the gold answer and the others, in the order of the line, without repetitions.

    For `set`, a list is one answer with many members. For mathematics, other notations of the first answer are left
    out.

    Raises:
        Defect: an answer that the grader cannot use.
    """
    is_mathematical = grader in (None, *MATHEMATICAL)
    golds: list[str] = []
    for each in value if isinstance(value, list) else [value]:
        text = find_right_letter(each, field, choices) if grader == "choice" else lines.scalar(each, field)
        if is_mathematical and _GSM8K_MARK in text:
            # What follows `#### 1,000`, without commas, as the official reader does; no answer if nothing follows.
            text = text.rpartition(_GSM8K_MARK)[2].strip().replace(",", "")
        if text:
            golds.append(text)
    if grader == "set" and golds:
        golds = ["\n".join(golds)]
    for each in golds:
        try:
            check_gold(grader or "math", each)
        except InvalidGold as error:
            raise Defect(f"`{field}`: {error}") from error
    if len(golds) < 2:
        return (golds[0] if golds else None), ()
    first, *others = dict.fromkeys(golds)
    return first, tuple(each for each in others if not (is_mathematical and equal_strict(each, first)))


# Read the query to a graph of an uploaded question.

QUERY = "query"
"""Field that holds an object in exported items; any other value is the question's text."""


def read_fact_query(line: Fields) -> FactQuery | None:
    """Read `query` if it is an object, or else the relation in `relation`; None if there is neither.

    Raises:
        Defect: one of them cannot be used.
    """
    given = line.get(QUERY)
    field = lines.find_given_name(line, columns.RELATION)
    relation = None if field is None else lines.text(line, field).strip() or None
    if not isinstance(given, dict):
        return None if relation is None else FactQuery(relation=relation)
    try:
        found = msgspec.convert(given, FactQuery)
    except msgspec.ValidationError as error:
        raise Defect(f"`query`: {error}; write it as in an exported item, or only name the `relation`") from error
    if not found.relation:
        raise Defect("`query.relation` is empty; name the relation")
    if relation not in (None, found.relation):
        raise Defect(f"`{field}` is {relation[:80]!r}, but `query.relation` is {found.relation[:80]!r}; keep one")
    return found


# Read items from lines: questions with their data (MATH, GSM8K, BEIR, BRIGHT, FlashRAG, AutoRAG, ragas).

ITEM_COLUMNS = Columns(columns.ITEMS)
MAX_RUBRIC = 8000
"""Maximum length of an item's rubric, in characters."""
MOST_NUGGETS = 20
"""Maximum number of an item's nuggets: each costs a call for every answer."""
MAX_NUGGET = 1000
"""Maximum length of a nugget, in characters."""
READ = frozenset((
    *columns.QUESTION_IDS, *columns.QUESTIONS, "text", *columns.MESSAGES, *columns.REFERENCES, *columns.ANSWERS,
    *columns.SOLUTION, *columns.GOLD_DOCUMENTS, *columns.NUGGETS, *columns.SUBJECTS, *columns.LEVEL, *columns.RELATION,
    columns.OUTPUTS,
))  # fmt: skip
"""Fields that are read for every grader."""
READ_FOR = {"choice": columns.CHOICES, "rubric": columns.RUBRIC}
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
question_id = attrgetter("custom_id")
"""Return the id, which must be unique within an upload."""
_choose_names = lines.make_chooser(
    columns.QUESTION_IDS, columns.QUESTIONS, columns.REFERENCES, columns.ANSWERS, columns.GOLD_DOCUMENTS,
    columns.SUBJECTS, (QUERY, *columns.RELATION), columns.NUGGETS,
)  # fmt: skip


def item(line: Fields, grader: str | None = None, named: Columns = ITEM_COLUMNS) -> DatasetItem:
    """Make an item from the fields of a line, for the grader that the dataset declares; `named` finds its columns.

    The question is in one of `columns.QUESTIONS`, else in `text`, else what the user says in a chat of one question
    (`messages`); the gold answer in one of `columns.REFERENCES`, else of `columns.ANSWERS` (GSM8K: what follows ####),
    else in the last box of `solution`; what it asks of a graph in `relation`, or in an object in `query`; statements
    that a complete answer contains in `nuggets`.
    `choice` reads `choices` as well, and asks them; `rubric` reads `rubric`.

    Raises:
        Defect: a field cannot be used; `Empty` without a question.
    """
    return named.read(_open_example(line), lambda found: _make_item(found, grader))


def _open_example(line: Fields) -> Fields:
    """Return an example of LangSmith with the members of its objects `inputs` and `outputs` as fields of the line.

    An object with a single text is the question, or the expected answer, whatever its name is.
    """
    inputs = line.get("inputs")
    if not isinstance(inputs, dict):
        return line
    outputs = line.get(columns.OUTPUTS)
    opened = {name: value for name, value in line.items() if name not in ("inputs", columns.OUTPUTS)}
    for field, given in (("question", inputs), ("gold", outputs if isinstance(outputs, dict) else {})):
        values = [value for value in given.values() if isinstance(value, str | int | float)]
        opened |= {field: values[0]} if len(given) == len(values) == 1 else given
    return opened


def _make_item(line: Fields, grader: str | None) -> DatasetItem:
    """Make the item of a line whose columns have known names."""
    ids, questions, references, given, documents, subjects, asked, listed = _choose_names(line)
    query = read_fact_query(line) if asked else None
    choices = read_choices(line) if grader == "choice" else ()
    gold, golds = _read_golds(line, references, given, grader, choices)
    rubric = _read_rubric(line) if grader == "rubric" else ""
    nuggets = _read_nuggets(line, listed)
    is_more_expected = golds or choices or rubric or nuggets
    texts = [name for name in questions if not isinstance(line[name], dict)]
    field = lines.find_single_name(line, texts) or lines.find_given_name(line, ("text", *columns.MESSAGES))
    if field is None:
        raise Defect(_explain_no_question(line))
    is_chat = field == "messages" or isinstance(line[field], list)
    question = _read_only_message(line, field) if is_chat else lines.text(line, field).strip()
    if not question:
        raise Empty(f"`{field}` is empty; write the question, or leave such lines out: --skip-empty")
    question = format_question(question, choices) if choices else question
    if len(question) > MAX_QUESTION:
        raise Defect(f"`{field}` has {len(question)} characters, more than {MAX_QUESTION}; shorten it")
    return DatasetItem(
        question=question,
        gold=gold,
        gold_documents=_read_gold_documents(line, documents),
        subject=lines.label(line, subjects) or lines.label(_read_metadata(line, field), columns.SUBJECTS),
        level=lines.level(line) or lines.level(_read_metadata(line, field)),
        custom_id=lines.identifier(line, ids),
        expected=Expected(golds=golds, choices=choices, rubric=rubric, nuggets=nuggets) if is_more_expected else None,
        query=query,
    )


class ItemReader:
    """Makes the items of an upload for one grader, and notes missing fields."""

    def __init__(self, grader: str | None = None, named: Columns = ITEM_COLUMNS) -> None:
        self._grader = grader
        self._named = named
        self._read = READ.union(READ_FOR.get(grader or "", ()))
        self._items = 0
        self._golds = 0
        self._words = 0
        self._choices = 0
        self._documents = 0
        self._excludes = 0
        self._unread: dict[str, None] = {}
        # Most lines of an upload have the same fields.
        self._note_unread = lru_cache(lines.SHAPES)(self._add_unread)

    def read(self, line: Fields) -> DatasetItem:
        """Make the item of a line.

        Raises:
            Defect: see `item`.
        """
        found = item(line, self._grader, self._named)
        self._items += 1
        self._golds += found.gold is not None
        self._words += found.gold is not None and is_words(found.gold)
        self._documents += bool(found.gold_documents)
        if columns.EXCLUDED in line:
            value = line[columns.EXCLUDED]
            excluded = value if isinstance(value, list) else [value]
            self._excludes += any(each not in (None, "", lines.NONE_GIVEN) for each in excluded)
        self._choices += "choices" in line and isinstance(line["choices"], list | dict)
        self._note_unread(tuple(line))
        return found

    def _add_unread(self, names: tuple[str, ...]) -> None:
        for name in names:
            is_passed_over = self._named.find(name) is None and self._named.knows(name)
            if self._named.find(name) not in self._read and not is_passed_over and len(self._unread) < MOST_UNREAD:
                self._unread[name[:LONGEST_UNREAD_NAME]] = None

    def list_warnings(self) -> list[str]:
        """Return which fields grading and measures of searches will lack, and fields that look misspelt."""
        warnings, unread = list[str](), sorted(self._unread)
        if self._items and not (self._golds or self._documents) and self._grader != "rubric":
            wanted = "no item has an expected answer (`answer`) or relevant documents (`gold_documents`)"
            choose = "; to name the column of the answers: --column gold=COLUMN"
            unread_fields = f"; fields that were not read: {_name_unread(unread)}{choose}" if unread else ""
            warnings.append(f"{wanted}, so no answer to them can be graded{unread_fields}")
        else:
            meant = {name: _find_misspelt(name, self._read) for name in unread if name not in FOREIGN_FIELDS}
            warnings += [f"`{name}` was not read: did you mean `{near}`?" for name, near in meant.items() if near]
            if 0 < self._golds < self._items:
                without = f"{self._items - self._golds} of {self._items} items have no expected answer"
                warnings.append(f"{without}: answers to them are not graded")
        if self._grader is None and 2 * self._choices > self._items:
            items = format_count(self._choices, "item")
            warnings.append(f"`choices` of {items} were not read: to ask and grade them, --grader choice")
        elif self._grader is None and 2 * self._words > self._golds:
            warnings.append(describe_words(self._words, self._golds))
        if self._excludes:
            some = f"`{columns.EXCLUDED}` of {self._excludes} items was not read"
            warnings.append(f"{some}: a search finds these documents like all others")
        return warnings


def _name_unread(names: list[str]) -> str:
    """Return the names, each with the field of answers or documents that it looks like."""
    wanted = (*columns.ANSWERS, *columns.REFERENCES, *columns.GOLD_DOCUMENTS)
    near = {name: find_nearest(name, wanted) for name in names}
    listed = [f"`{name}`" + (f" (did you mean `{meant}`?)" if meant else "") for name, meant in near.items()]
    first = sorted(listed, key=lambda each: "did you mean" not in each)[:NAMED]
    return ", ".join([*first, *(["…"] if len(names) > NAMED else [])])


def _find_misspelt(name: str, read: frozenset[str]) -> str | None:
    """Return the field that `name` misspells; a longer name such as `question_id` is another field."""
    meant = find_nearest(name, read)
    if meant is None or (meant.casefold() in name.casefold() and len(name) > len(meant) + 1):
        return None
    return meant if SequenceMatcher(None, name.casefold(), meant.casefold()).ratio() >= ALIKE else None


def read_dataset_line(raw: Content, source: str, number: int) -> DatasetItem:
    """Read one line of a dataset; see `lines.read_one`."""
    return lines.read_one(item, raw, source, number)


def read_dataset(rows: Iterable[Row]) -> Iterator[DatasetItem]:
    """Yield the item of every line of a dataset; ids must be unique.

    Raises:
        InvalidLine: lines that cannot be used.
    """
    return iter(Reader(rows, lambda line, _: item(line), question_id))


def _explain_no_question(line: Fields) -> str:
    """Say why the line has no question, and what to do about it."""
    rows = [name for name, value in line.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(line) == 1 and rows and rows[0] not in columns.MESSAGES:
        return f"has no question, but all rows in `{rows[0]}`; upload these alone: jq '.{rows[0]}' FILE > rows.json"
    given = ", ".join(line)[: columns.LONGEST_LIST] or "nothing"
    return f"has no question (it has {given}); write it into `question`, or name its column: --column question=COLUMN"


def _read_only_message(line: Fields, field: str) -> str:
    """Return the user's message, if the field is a chat with a single question."""
    messages = line[field]
    if not isinstance(messages, list):
        raise Defect(_explain_no_question(line))
    contents = [each.get("content") for each in messages if isinstance(each, dict) and each.get("role") == "user"]
    if len(contents) != 1 or not isinstance(contents[0], str):
        raise Defect(f"`{field}` does not hold exactly one question; put one into `question`")
    return contents[0].strip()


def _read_metadata(line: Fields, question: str) -> Fields:
    """Return inspect_ai's metadata, which may have subject and level; empty where `question` is another program's."""
    found = line.get("metadata") if question in columns.INPUTS else None
    return found if isinstance(found, dict) else {}


def _read_golds(
    line: Fields, references: tuple[str, ...], given: tuple[str, ...], grader: str | None, choices: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the gold answer, and the other right answers."""
    field = lines.find_single_name(line, references) or _find_answer(line, given)
    if field is not None:
        return parse_golds(line[field], field, grader, choices)
    if line.get("solution") is None:
        return None, ()
    return answers.extract(lines.text(line, "solution"))[0], ()


def _read_rubric(line: Fields) -> str:
    field = lines.find_given_name(line, columns.RUBRIC)
    rubric = "" if field is None else lines.text(line, field).strip()
    if len(rubric) > MAX_RUBRIC:
        raise Defect(f"`rubric` has {len(rubric)} characters, more than {MAX_RUBRIC}; shorten it")
    return rubric


def _read_nuggets(line: Fields, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the item's nuggets in the order of the line, without repetitions; a text alone is one of them."""
    field = lines.find_given_name(line, names)
    if field is None:
        return ()
    given = line[field] if isinstance(line[field], list) else [line[field]]
    nuggets = tuple(dict.fromkeys(lines.scalar(each, field) for each in given))
    if len(nuggets) > MOST_NUGGETS:
        raise Defect(
            f"`{field}` has {len(nuggets)} texts, more than {MOST_NUGGETS}; keep those that a complete answer needs"
        )
    if (longest := max(map(len, nuggets), default=0)) > MAX_NUGGET:
        raise Defect(f"`{field}` has a text of {longest} characters, more than {MAX_NUGGET}; split it, or shorten it")
    return nuggets


def _find_answer(line: Fields, names: tuple[str, ...]) -> str | None:
    field = lines.find_single_name(line, names)
    if field == "answer" and (beside := lines.find_given_name(line, columns.RETRIEVED)) is not None:
        raise Defect(
            f"`answer` next to `{beside}` may be a system's answer or the expected one; if it is the expected one, name"
            " it: --column gold=answer"
        )
    return None if field == "gold_answer" and line[field] == lines.NONE_GIVEN else field


def _read_gold_documents(line: Fields, names: tuple[str, ...]) -> dict[str, int] | None:
    field = lines.find_single_name(line, names)
    if field is None:
        return None
    value = line[field]
    if isinstance(value, dict):
        if not all(isinstance(grade, int) and not isinstance(grade, bool) for grade in value.values()):
            raise Defect(f'`{field}` must be a list of ids, or an object of ids and whole numbers such as {{"id": 1}}')
        return value
    # AutoRAG has lists of lists, "one of these, and one of those": here each document is relevant.
    groups = value if isinstance(value, list) else [value]
    ids = (each for group in groups for each in (group if isinstance(group, list) else [group]))
    return {lines.scalar(each, field): 1 for each in ids}


# Read documents from lines: MATH, GSM8K, BEIR, FlashRAG, AutoRAG, and plain {id, text} objects.

DOCUMENT_COLUMNS = Columns(columns.DOCUMENTS)
document_id = attrgetter("external_id")
_choose_document_names = lines.make_chooser(
    columns.DOCUMENT_IDS, columns.PROBLEMS, columns.PASSAGES, columns.METAS, columns.SUBJECTS
)
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")


def record(line: Fields, external_id: str | None = None, named: Columns = DOCUMENT_COLUMNS) -> CorpusRecord:
    """Make a document from the fields of a line; `external_id` is used if they have no id, `named` finds its columns.

    The text is in one of `columns.PASSAGES`, else in `solution`, else (GSM8K) in `answer`, without its <<...>>
    calculator notes. A `title` becomes the first line of the text.

    Raises:
        Defect: a field cannot be used; `Empty` without a text.
    """
    return named.read(line, lambda found: _make_record(found, external_id))


def _make_record(line: Fields, external_id: str | None) -> CorpusRecord:
    """Make the document of a line whose columns have known names."""
    ids, problems, passages, metas, subjects = _choose_document_names(line)
    field = lines.find_single_name(line, problems)
    problem = "" if field is None else lines.text(line, field).strip()
    return CorpusRecord(
        external_id=lines.identifier(line, ids) or external_id,
        document=Document(problem=problem, text=_read_text(line, passages)),
        meta=_read_meta(line, metas, subjects),
    )


def read_corpus_line(raw: Content, source: str, number: int) -> CorpusRecord:
    """Read one line of a corpus; see `lines.read_one`."""
    return lines.read_one(record, raw, source, number)


def read_corpus(rows: Iterable[Row]) -> Iterator[CorpusRecord]:
    """Yield the document of every line of a corpus; ids must be unique.

    Raises:
        InvalidLine: lines that cannot be used.
    """
    return iter(Reader(rows, lambda line, _: record(line), document_id))


def _read_text(line: Fields, names: tuple[str, ...]) -> str:
    field = lines.find_single_name(line, names) or lines.find_given_name(line, columns.SOLUTION)
    answer = line.get("answer")
    if field is not None:
        body = lines.text(line, field).strip()
    elif isinstance(answer, str) and _GSM8K_MARK in answer:
        body = _CALCULATOR.sub("", answer).strip()
    else:
        given = ", ".join(line)[: columns.LONGEST_LIST] or "nothing"
        problem = f"has no text (it has {given})"
        raise Defect(f"{problem}; write it into `text`, or name its column: --column text=COLUMN")
    title = lines.text(line, "title").strip() if line.get("title") is not None else ""
    if not (title or body):
        raise Empty("has an empty text; write one, or leave such lines out: --skip-empty")
    return "\n".join(filter(None, (title, body)))


def _read_meta(line: Fields, metas: tuple[str, ...], subjects: tuple[str, ...]) -> dict[str, Any]:
    field = lines.find_given_name(line, metas)
    meta = {} if field is None else line[field]
    if not isinstance(meta, dict):
        is_broken = isinstance(meta, str) and meta.lstrip().startswith("{")  # the cell of a table
        problem = "is not JSON" if is_broken else f"is {lines.name(meta)}, not a JSON object"
        raise Defect(f"`{field}` {problem}; write {{...}} or remove it")
    known = {"subject": lines.label(line, subjects), "level": lines.level(line)}
    return {**meta, **{key: value for key, value in known.items() if value is not None}}


def draw_stratified(labels: Sequence[str], count: int, seed: int) -> list[int]:
    """Draw a sample: `count` positions in order, in proportion to each label, by largest remainders; ties by name.

    Raises:
        ValueError: `labels` has fewer entries.
    """
    if count > len(labels):
        raise ValueError(f"cannot draw {count} items from {len(labels)}")
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        groups[label].append(position)
    shares = {label: count * len(group) / len(labels) for label, group in groups.items()}
    taken = {label: int(share) for label, share in shares.items()}
    for label in sorted(shares, key=lambda name: (taken[name] - shares[name], name))[: count - sum(taken.values())]:
        taken[label] += 1
    rng = Random(seed)  # noqa: S311 - a sample, no secret
    return sorted(position for label in sorted(groups) for position in rng.sample(groups[label], taken[label]))
