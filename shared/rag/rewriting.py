"""What the judge model writes about a question: another wording of it, simpler questions. Small models write anything.

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
from shared.rag.tfidf import terms

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


class Written(NamedTuple):
    """Queries that a reply holds; none where the original question stays alone."""

    queries: tuple[str, ...]
    decision: Decision


def rewrite(question: str, params: EnhanceParams) -> Write:
    """Ask for another wording."""
    template = localised("rewrite", question)
    return Write(template=template, decoding=params.decoding, slots={"question": question})


def decompose(question: str, params: EnhanceParams) -> Write:
    """Ask for at most `params.subqueries` simpler questions."""
    slots = {"question": question, "subqueries": str(params.subqueries)}
    return Write(template=localised("decompose", question), decoding=params.decoding, slots=slots)


def keywords(question: str, params: EnhanceParams) -> Write:
    """Ask for what another corpus is to be searched for."""
    return Write(template=localised("keywords", question), decoding=params.decoding, slots={"question": question})


def rewritten(question: str, reply: Generated | Failure) -> Written:
    """The first line of the reply that holds anything, without labels and quotes."""
    return _written("rewrite", question, reply, lines=1, most=1)


def decomposed(question: str, reply: Generated | Failure, params: EnhanceParams) -> Written:
    """The first `params.subqueries` lines that can be searched with, each once, without numbers."""
    return _written("decompose", question, reply, lines=MOST_LINES, most=params.subqueries)


def named(question: str, reply: Generated | Failure) -> Written:
    """The keywords: the first line of the reply that holds anything."""
    return _written("keywords", question, reply, lines=1, most=1)


def is_about(question: str, text: str) -> bool:
    """Whether they share a term; of a question without terms, whether the text has any."""
    asked, said = set(terms(question)), set(terms(text))
    return bool(asked & said if asked else said)


def _written(stage: str, question: str, reply: Generated | Failure, lines: int, most: int) -> Written:
    if isinstance(reply, Failure):
        return _original(stage, reply.kind)
    read = list(islice(_lines(reply), lines))
    new = _new(read, question)
    if read and not new:
        return Written((), Decision(stage=stage, action="unchanged"))
    queries = tuple(islice((line for line in new if _searchable(line, question)), most))
    if queries:
        return Written(queries, Decision(stage=stage, action="written", detail={"queries": list(queries)}))
    return _original(stage, FailureKind.TRUNCATED if reply.truncated and not read else FailureKind.UNPARSED)


def _original(stage: str, kind: FailureKind) -> Written:
    return Written((), Decision(stage=stage, action="original", fallback=kind.value))


def _lines(reply: Generated) -> Iterator[str]:
    """Whole lines without what models put around them; the one that the token limit cut off is none."""
    for line in (reply.text.rpartition("\n")[0] if reply.truncated else reply.text).splitlines():
        bare = _LABEL.sub("", _NUMBER.sub("", line.strip().strip(_QUOTES).strip())).strip(_QUOTES).strip()
        if bare:
            yield bare


def _new(lines: Sequence[str], question: str) -> list[str]:
    """Each line once, without the question itself."""
    first: dict[str, str] = {}
    for line in lines:
        first.setdefault(_same(line), line)
    first.pop(_same(question), None)
    return list(first.values())


def _searchable(line: str, question: str) -> bool:
    return len(line) <= max(SHORT, LONGEST * len(question)) and is_about(question, line)


def _same(text: str) -> str:
    """What is left of a text when case, blanks and signs at its end do not count."""
    return " ".join(text.lower().split()).rstrip(" .?!。？！")
