"""Read documents from lines: MATH, GSM8K, BEIR, FlashRAG, AutoRAG, and plain {id, text} objects."""

import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from shared.ingest import fields, lines
from shared.ingest.lines import Content, Defect, Empty, Fields, Row
from shared.ingest.reader import Reader
from shared.replies import CorpusRecord, Document

IDS = ("_id", "id", "unique_id", "doc_id")
PROBLEMS = ("problem", "question")
identifier = attrgetter("external_id")
"""Return the id, which must be unique within an upload."""
_present = fields.Present(IDS, PROBLEMS, fields.PASSAGES, fields.METAS, fields.SUBJECTS)
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")


def record(line: Fields, external_id: str | None = None) -> CorpusRecord:
    """Make a document from the fields of a line; `external_id` is used if they have no id.

    Fields: id from `_id`, `id`, `unique_id` or `doc_id`; problem from `problem` or `question`; text from `text`,
    `contents` or `solution` (GSM8K: from `answer`, without its <<...>> calculator notes). A `title` becomes the first
    line of the text.

    Raises:
        Defect: what is wrong with which field, and what to write instead; `Empty` where there is no text.
    """
    ids, problems, passages, metas, subjects = _present(line)
    return CorpusRecord(
        external_id=fields.identifier(line, ids) or external_id,
        document=Document(problem=_problem(line, problems), text=_text(line, passages)),
        meta=_meta(line, metas, subjects),
    )


def read_corpus_line(raw: Content, source: str, number: int) -> CorpusRecord:
    """Read one line of a corpus.

    Raises:
        InvalidLine: where `record` finds a defect.
    """
    try:
        return record(lines.fields(raw))
    except Defect as defect:
        raise lines.locate_defect(defect, source, number) from defect


def read_corpus(rows: Iterable[Row]) -> Iterator[CorpusRecord]:
    """Yield the document of every line of a corpus; ids must be unique.

    Raises:
        InvalidLine: lines that cannot be used.
    """
    return iter(Reader(rows, lambda line, _: record(line), identifier))


def _problem(line: Fields, names: tuple[str, ...]) -> str:
    field = fields.find_single_name(line, names)
    return "" if field is None else fields.text(line, field).strip()


def _text(line: Fields, names: tuple[str, ...]) -> str:
    body = _body(line, names).strip()
    title = fields.text(line, "title").strip() if line.get("title") is not None else ""
    text = f"{title}\n{body}" if title and body else title or body
    if not text:
        raise Empty("has an empty text; give it one or remove the line")
    return text


def _body(line: Fields, names: tuple[str, ...]) -> str:
    field = fields.find_single_name(line, names) or fields.find_given_name(line, fields.SOLUTION)
    if field is not None:
        return fields.text(line, field)
    answer = line.get("answer")
    if isinstance(answer, str) and "####" in answer:
        return _CALCULATOR.sub("", answer)
    raise Defect("has no text; write it into `text` (or `contents`, or `solution`)")


def _meta(line: Fields, metas: tuple[str, ...], subjects: tuple[str, ...]) -> dict[str, Any]:
    field = fields.find_given_name(line, metas)
    meta = {} if field is None else line[field]
    if not isinstance(meta, dict):
        is_broken = isinstance(meta, str) and meta.lstrip().startswith("{")  # the cell of a table
        problem = "is not JSON" if is_broken else f"is {lines.name(meta)}, not a JSON object"
        raise Defect(f"`{field}` {problem}; write {{...}} or remove it")
    known = {"subject": fields.label(line, subjects), "level": fields.level(line)}
    return {**meta, **{key: value for key, value in known.items() if value is not None}}
