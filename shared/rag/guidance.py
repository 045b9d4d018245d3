"""The rules that guide a question: the relation that it asks for, and the rules of the bank that lead there."""

from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple

from shared.contracts import canonical
from shared.contracts.calls import FindRules, RuleChoice, Write, Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Failure, FailureKind, FoundRules, Generated, NumberedRule, require
from shared.contracts.samples import Decision, Item
from shared.rag.language import localised
from shared.rag.relation_names import RelationNames, nearest
from shared.rag.rule_choice import Side

STAGE = "relation"
"""Of the decision that says how the relation was found: the item `named` it, a `phrase`, the `judge`, or `none`."""
NO_RULE = "no_rule"
"""Fallback: there are no rules for the question, which is searched for as it is."""
UNKNOWN = "unknown_relation"
"""Fallback: the judge model's reply names no relation of the bank."""
_SEEDS = 1 << 63

How = Literal["named", "phrase", "judge", "none"]


class Guidance(NamedTuple):
    """Rules for a question; none: plain retrieval."""

    rules: tuple[NumberedRule, ...]
    """In the order of the choice."""
    phrases: Mapping[str, str]
    """The words for their relations."""
    decision: Decision


def guidance(item: Item, params: Params) -> Generator[Yielded, Any, Guidance]:
    """Find the relation that the item asks for, and its rules.

    Raises:
        CallFailed: the bank or the graph's phrases cannot be read.
    """
    if not params.rulerag.most:
        return _unguided(NO_RULE, params)
    if item.query is not None:
        return _guided("named", require((yield find(item, params, item.query.relation))), params)
    found = require((yield find(item, params)))
    if found.relation is not None:
        return _guided("phrase", found, params)
    return (yield from _by_judge(item, params))


def find(item: Item, params: Params, relation: str = "") -> FindRules:
    """Look for the rules of a relation; without one, of that whose phrase stands in the question."""
    rulerag = params.rulerag
    choice = RuleChoice(
        most=rulerag.most, confidence=rulerag.confidence, support=rulerag.support, order=rulerag.order,
        seed=_seed(item, params.seed) if rulerag.order == "random" else 0,
    )  # fmt: skip
    question = "" if relation else item.question
    return FindRules(
        relation=relation, question=question, side=side_of(item), phrases=rulerag.phrases, choice=choice
    )  # fmt: skip


def _by_judge(item: Item, params: Params) -> Generator[Yielded, Any, Guidance]:
    """Ask the judge model which relation is meant; what comes of it is a decision, never a failure."""
    rulerag, question = params.rulerag, item.question
    if not rulerag.ask:
        return _unguided(FailureKind.NOT_CONFIGURED.value, params)
    heads = require((yield FindRules(phrases=rulerag.phrases, choice=RuleChoice(most=0))))
    if not heads.phrases:
        return _unguided(NO_RULE, params)
    slots = {"question": question, "relations": "\n".join(nearest(question, heads.phrases))}
    reply = yield Write(template=localised("relation", question), decoding=rulerag.decoding, slots=slots)
    if fallback := _unanswered(reply):
        return _unguided(fallback, params)
    relation = RelationNames(heads.phrases.items()).named_in(_first_line(reply.text))
    if relation is None:
        return _unguided(UNKNOWN, params)
    return _guided("judge", require((yield find(item, params, relation))), params)


def _unanswered(reply: Generated | Failure) -> str | None:
    if isinstance(reply, Failure):
        return reply.kind.value
    return None if _first_line(reply.text) else FailureKind.UNPARSED.value


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def _guided(how: How, found: FoundRules, params: Params) -> Guidance:
    detail: dict[str, str | float | bool | list[str] | None] = {"relation": found.relation, "bank": params.rules}
    fallback = None if found.rules else NO_RULE
    return Guidance(found.rules, found.phrases, Decision(stage=STAGE, action=how, detail=detail, fallback=fallback))


def _unguided(fallback: str, params: Params) -> Guidance:
    decision = Decision(stage=STAGE, action="none", detail={"bank": params.rules}, fallback=fallback)
    return Guidance((), {}, decision)


def side_of(item: Item) -> Side:
    """The end that is asked for, as far as the item says it: `object` is what it says by default."""
    query = item.query
    return query.side if query is not None and (query.entity or query.side == "subject") else ""


def _seed(item: Item, seed: int) -> int:
    """Other random rules for each question, the same in each repeat."""
    return int.from_bytes(canonical.digest([seed, item.question])[:8]) % _SEEDS
