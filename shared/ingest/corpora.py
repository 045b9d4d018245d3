"""Corpus lines: MATH and MATH-500, BEIR, GSM8K, and plain {id, text} objects become documents."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shared.contracts.documents import Document
from shared.errors import InvalidLine
from shared.ingest import lines
from shared.ingest.lines import EmptyText, Fields
from shared.ingest.unique import UniqueIds

IDS = ("_id", "id", "unique_id")
PROBLEMS = ("problem", "question")
TEXTS = ("text", "contents", "solution")
SUBJECTS = ("subject", "type", "topic")
METAS = ("meta", "metadata")
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")


class CorpusRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A document and what the corpus says about it."""

    external_id: str | None
    """The id in the upload; None where lines carry none, and the caller numbers them."""
    document: Document
    meta: dict[str, Any]
    """`meta` or `metadata` of the line, with `subject` and `level` as text where known."""


def read_corpus_line(raw: bytes | str, source: str, line: int) -> CorpusRecord:
    """One line of a corpus.

    Fields: id from `_id`, `id` or `unique_id`; problem from `problem` or `question`; text from `text`, `contents` or
    `solution` (GSM8K: from `answer`, without its <<...>> calculator notes). A BEIR `title` becomes the first line of
    the text.

    Raises:
        InvalidLine: what is wrong with which field, and what to write instead; `EmptyText` where there is no text.
    """
    fields = lines.parse(raw, source, line)
    return CorpusRecord(
        external_id=lines.identifier(fields, IDS, source, line),
        document=Document(problem=_problem(fields, source, line), text=_text(fields, source, line)),
        meta=_meta(fields, source, line),
    )


def read_corpus(numbered: Iterable[tuple[str, int, bytes | str]]) -> Iterator[CorpusRecord]:
    """Every line of a corpus, as (source, line number, raw line); ids are unique.

    Raises:
        InvalidLine: at the first line that cannot be used.
    """
    seen = UniqueIds()
    for source, line, raw in numbered:
        record = read_corpus_line(raw, source, line)
        seen.check(record.external_id, source, line)
        yield record


def _problem(fields: Fields, source: str, line: int) -> str:
    name = lines.first(fields, PROBLEMS)
    return "" if name is None else lines.text(fields, name, source, line).strip()


def _text(fields: Fields, source: str, line: int) -> str:
    body = _body(fields, source, line)
    title = lines.text(fields, "title", source, line).strip() if fields.get("title") is not None else ""
    text = "\n".join(part for part in (title, body.strip()) if part)
    if not text:
        raise EmptyText(source, line, "has an empty text; give it one or remove the line")
    return text


def _body(fields: Fields, source: str, line: int) -> str:
    name = lines.first(fields, TEXTS)
    if name is not None:
        return lines.text(fields, name, source, line)
    if isinstance(fields.get("answer"), str) and "####" in fields["answer"]:
        return _CALCULATOR.sub("", fields["answer"])
    raise InvalidLine(source, line, "has no text; put it into `text` (or `contents`, or `solution`)")


def _meta(fields: Fields, source: str, line: int) -> dict[str, Any]:
    name = lines.first(fields, METAS)
    meta = {} if name is None else fields[name]
    if not isinstance(meta, dict):
        raise InvalidLine(source, line, f"`{name}` is not a JSON object; write {{...}} or leave it out")
    known = {"subject": lines.label(fields, SUBJECTS, source, line), "level": lines.level(fields, source, line)}
    return {**meta, **{key: value for key, value in known.items() if value is not None}}
