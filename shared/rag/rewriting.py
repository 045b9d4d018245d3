"""Use what the judge model writes about a question: another wording or simpler questions.

A reply is taken if it can be searched with: a query that is new, not far longer than the question, and about the same
thing, which is to say that they share a term. Anything else leaves the original question (seed document 001).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shared.contracts.calls import Write
from shared.contracts.params import EnhanceParams
from shared.contracts.replies import Failure, FailureKind, Generated
from shared.contracts.samples import Decision
from shared.rag.language import localised
from shared.rag.tfidf import extract_terms

LONGEST = 2
"""A query may be so many times as long as the question, or have `SHORT` characters."""
SHORT = 200
MOST_LINES = 100
"""Lines of a reply that are looked at."""

_LABEL = re.compile(
    r"\A(?:(?:the |here (?:is|are) (?:the |a )?)?(?:re-?written |search |new |sub-?|simpler )*"
    r"(?:query|queries|questions?|keywords?)|[改重]写后的(?:查询|问题)|查询|子问题|问题|关键词)(?: *\d+)? *[:：]\s*",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\A(?:[-*•]\s+|\(?\d{1,2}[).、:：]\s*(?!\d)|[（(]\d{1,2}[）)]\s*|[①-⑩]\s*)")
_QUOTES = "\"'`*“”‘’「」『』"


class WrittenQueries(NamedTuple):
    """Queries from a reply; none if the original question is used."""

    queries: tuple[str, ...]
    decision: Decision


def rewrite(question: str, params: EnhanceParams) -> Write:
    """Make the call for another wording."""
    template = localised("rewrite", question)
    return Write(template=template, decoding=params.decoding, slots={"question": question})


def decompose(question: str, params: EnhanceParams) -> Write:
    """Make the call for at most `params.subqueries` simpler questions."""
    slots = {"question": question, "subqueries": str(params.subqueries)}
    return Write(template=localised("decompose", question), decoding=params.decoding, slots=slots)


def ask_for_keywords(question: str, params: EnhanceParams) -> Write:
    """Make the call for the keywords to search another corpus with."""
    return Write(template=localised("keywords", question), decoding=params.decoding, slots={"question": question})


def read_rewrite(question: str, reply: Generated | Failure) -> WrittenQueries:
    """Return the first line of the reply with content, without labels and quotes."""
    return _make_queries("rewrite", question, reply, lines=1, most=1)


def read_subqueries(question: str, reply: Generated | Failure, params: EnhanceParams) -> WrittenQueries:
    """Return the first `params.subqueries` distinct lines that can be searched with, without numbers."""
    return _make_queries("decompose", question, reply, lines=MOST_LINES, most=params.subqueries)


def read_keywords(question: str, reply: Generated | Failure) -> WrittenQueries:
    """Return the keywords: the first line of the reply with content."""
    return _make_queries("keywords", question, reply, lines=1, most=1)


def is_about(question: str, text: str) -> bool:
    """Return whether both share a term; if the question has no terms, whether the text has any."""
    question_terms, text_terms = set(extract_terms(question)), set(extract_terms(text))
    return bool(question_terms & text_terms if question_terms else text_terms)


def _make_queries(stage: str, question: str, reply: Generated | Failure, lines: int, most: int) -> WrittenQueries:
    if isinstance(reply, Failure):
        return _keep_original(stage, reply.kind)
    read = list(islice(_split_lines(reply), lines))
    new = _drop_repeated(read, question)
    if read and not new:
        return WrittenQueries((), Decision(stage=stage, action="unchanged"))
    queries = tuple(islice((line for line in new if _is_searchable(line, question)), most))
    if queries:
        return WrittenQueries(queries, Decision(stage=stage, action="written", detail={"queries": list(queries)}))
    return _keep_original(stage, FailureKind.TRUNCATED if reply.truncated and not read else FailureKind.UNPARSED)


def _keep_original(stage: str, kind: FailureKind) -> WrittenQueries:
    return WrittenQueries((), Decision(stage=stage, action="original", fallback=kind.value))


def _split_lines(reply: Generated) -> Iterator[str]:
    """Return complete lines without decoration; a line cut off by the token limit is left out."""
    for line in (reply.text.rpartition("\n")[0] if reply.truncated else reply.text).splitlines():
        bare = _LABEL.sub("", _NUMBER.sub("", line.strip().strip(_QUOTES).strip())).strip(_QUOTES).strip()
        if bare:
            yield bare


def _drop_repeated(lines: Sequence[str], question: str) -> list[str]:
    """Return each line once, without the question itself."""
    first: dict[str, str] = {}
    for line in lines:
        first.setdefault(_normalise(line), line)
    first.pop(_normalise(question), None)
    return list(first.values())


def _is_searchable(line: str, question: str) -> bool:
    return len(line) <= max(SHORT, LONGEST * len(question)) and is_about(question, line)


def _normalise(text: str) -> str:
    """Normalise a text so that case, blanks and marks at its end do not count."""
    return " ".join(text.lower().split()).rstrip(" .?!。？！")
