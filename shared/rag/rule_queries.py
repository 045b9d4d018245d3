"""Make the search query for each rule: question and rule, or a query by the judge model (seed document 002)."""

from collections.abc import Generator
from typing import Any, NamedTuple

from shared.calls import MAX_QUESTION, Write, Yielded
from shared.params import Params
from shared.rag.guidance import Guidance
from shared.rag.language import localised
from shared.rag.rewriting import read_rewrite
from shared.rag.rule_sentences import write_rule
from shared.replies import Failure, Generated


class RuleQuery(NamedTuple):
    """The query for a rule."""

    text: str
    fallback: str | None = None
    """Why it is question and rule and not what the judge model was to write."""


def make_rule_queries(question: str, guidance: Guidance, params: Params) -> Generator[Yielded, Any, list[RuleQuery]]:
    """Make a query for each rule; the judge model is asked for all at once, and once for equal rules."""
    sentences = [write_rule(found.rule, guidance.phrases) for found in guidance.rules]
    if params.rulerag.query == "joined":
        return [_join(question, sentence) for sentence in sentences]
    distinct = list(dict.fromkeys(sentences))
    replies = yield [_write(question, sentence, params) for sentence in distinct]
    queries = {
        sentence: _read(question, sentence, reply) for sentence, reply in zip(distinct, replies, strict=True)
    }  # fmt: skip
    return [queries[sentence] for sentence in sentences]


def _write(question: str, sentence: str, params: Params) -> Write:
    slots = {"question": question, "rule": sentence}
    return Write(template=localised("rule-query", question), decoding=params.rulerag.decoding, slots=slots)


def _read(question: str, sentence: str, reply: Generated | Failure) -> RuleQuery:
    written = read_rewrite(question, reply)
    if written.queries:
        return RuleQuery(written.queries[0])
    return _join(question, sentence, written.decision.fallback or written.decision.action)


def _join(question: str, sentence: str, fallback: str | None = None) -> RuleQuery:
    return RuleQuery(f"{question} {sentence}"[:MAX_QUESTION], fallback)
