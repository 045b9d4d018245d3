"""Find the rules that guide a question: the relation that it asks for, and the rules that predict this relation."""

from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple

from shared import canonical
from shared.calls import FindRules, RuleChoice, Write, Yielded
from shared.params import Params
from shared.rag.language import localised
from shared.rag.relation_names import RelationNames, list_nearest
from shared.rag.rule_choice import Side
from shared.replies import Failure, FailureKind, FoundRules, Generated, NumberedRule, require
from shared.samples import Decision, Item

STAGE = "relation"
"""Of the decision that says how the relation was found: the item `named` it, a `phrase`, the `judge`, or `none`."""
NO_RULE = "no_rule"
"""Fallback: there are no rules for the question, which is searched for as it is."""
UNKNOWN = "unknown_relation"
"""Fallback: the judge model's reply names no relation of the bank."""
_SEEDS = 1 << 63

How = Literal["named", "phrase", "judge", "none"]


class Guidance(NamedTuple):
    """Rules for a question; without rules, retrieval is the plain one."""

    rules: tuple[NumberedRule, ...]
    """The chosen rules, in the order of the choice."""
    phrases: Mapping[str, str]
    """The words for their relations."""
    decision: Decision


def find_guidance(item: Item, params: Params) -> Generator[Yielded, Any, Guidance]:
    """Find the relation that the item asks for, and its rules.

    Raises:
        CallFailed: the bank or the graph's phrases cannot be read.
    """
    if not params.rulerag.most:
        return _make_no_guidance(NO_RULE, params)
    if item.query is not None:
        return _make_guidance("named", require((yield find_rules(item, params, item.query.relation))), params)
    found = require((yield find_rules(item, params)))
    if found.relation is not None:
        return _make_guidance("phrase", found, params)
    return (yield from _ask_judge(item, params))


def find_rules(item: Item, params: Params, relation: str = "") -> FindRules:
    """Find the rules of a relation; without one, those of the relation whose phrase occurs in the question."""
    rulerag = params.rulerag
    choice = RuleChoice(
        most=rulerag.most, confidence=rulerag.confidence, support=rulerag.support, order=rulerag.order,
        seed=_derive_seed(item, params.seed) if rulerag.order == "random" else 0,
    )  # fmt: skip
    question = "" if relation else item.question
    return FindRules(
        relation=relation, question=question, side=get_asked_side(item), phrases=rulerag.phrases, choice=choice
    )  # fmt: skip


def _ask_judge(item: Item, params: Params) -> Generator[Yielded, Any, Guidance]:
    """Ask the judge model which relation is meant; any result is a decision, never a failure."""
    rulerag, question = params.rulerag, item.question
    if not rulerag.ask:
        return _make_no_guidance(FailureKind.NOT_CONFIGURED.value, params)
    heads = require((yield FindRules(phrases=rulerag.phrases, choice=RuleChoice(most=0))))
    if not heads.phrases:
        return _make_no_guidance(NO_RULE, params)
    slots = {"question": question, "relations": "\n".join(list_nearest(question, heads.phrases))}
    reply = yield Write(template=localised("relation", question), decoding=rulerag.decoding, slots=slots)
    if fallback := _explain_no_answer(reply):
        return _make_no_guidance(fallback, params)
    relation = RelationNames(heads.phrases.items()).find_in(_get_first_line(reply.text))
    if relation is None:
        return _make_no_guidance(UNKNOWN, params)
    return _make_guidance("judge", require((yield find_rules(item, params, relation))), params)


def _explain_no_answer(reply: Generated | Failure) -> str | None:
    if isinstance(reply, Failure):
        return reply.kind.value
    return None if _get_first_line(reply.text) else FailureKind.UNPARSED.value


def _get_first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def _make_guidance(how: How, found: FoundRules, params: Params) -> Guidance:
    detail: dict[str, str | float | bool | list[str] | None] = {"relation": found.relation, "bank": params.rules}
    fallback = None if found.rules else NO_RULE
    return Guidance(found.rules, found.phrases, Decision(stage=STAGE, action=how, detail=detail, fallback=fallback))


def _make_no_guidance(fallback: str, params: Params) -> Guidance:
    decision = Decision(stage=STAGE, action="none", detail={"bank": params.rules}, fallback=fallback)
    return Guidance((), {}, decision)


def get_asked_side(item: Item) -> Side:
    """Return the end that the item asks for; `object` is the default."""
    query = item.query
    return query.side if query is not None and (query.entity or query.side == "subject") else ""


def _derive_seed(item: Item, seed: int) -> int:
    """Derive a seed that differs between questions and is the same in each repeat."""
    return int.from_bytes(canonical.digest([seed, item.question])[:8]) % _SEEDS
