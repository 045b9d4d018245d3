"""What is searched for each rule: question and rule, or what the judge model makes of them (seed document 002)."""

from collections.abc import Generator
from typing import Any, NamedTuple

from shared.contracts.calls import MAX_QUESTION, Write, Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Failure, Generated
from shared.rag.guidance import Guidance
from shared.rag.language import localised
from shared.rag.rewriting import rewritten
from shared.rag.rule_sentences import rule_sentence


class Query(NamedTuple):
    """What is searched for a rule."""

    text: str
    fallback: str | None = None
    """Why it is question and rule and not what the judge model was to write."""


def rule_queries(question: str, guidance: Guidance, params: Params) -> Generator[Yielded, Any, list[Query]]:
    """A query for each rule. What the judge model is to write, it is asked for at once, and once for equal rules."""
    sentences = [rule_sentence(found.rule, guidance.phrases) for found in guidance.rules]
    if params.rulerag.query == "joined":
        return [_joined(question, sentence) for sentence in sentences]
    distinct = list(dict.fromkeys(sentences))
    replies = yield [_write(question, sentence, params) for sentence in distinct]
    queries = {
        sentence: _read(question, sentence, reply) for sentence, reply in zip(distinct, replies, strict=True)
    }  # fmt: skip
    return [queries[sentence] for sentence in sentences]


def _write(question: str, sentence: str, params: Params) -> Write:
    slots = {"question": question, "rule": sentence}
    return Write(template=localised("rule-query", question), decoding=params.rulerag.decoding, slots=slots)


def _read(question: str, sentence: str, reply: Generated | Failure) -> Query:
    written = rewritten(question, reply)
    if written.queries:
        return Query(written.queries[0])
    return _joined(question, sentence, written.decision.fallback or written.decision.action)


def _joined(question: str, sentence: str, fallback: str | None = None) -> Query:
    return Query(f"{question} {sentence}"[:MAX_QUESTION], fallback)
