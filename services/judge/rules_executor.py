"""Answer calls that find rules; a chunk reads all that it needs from the bank at once."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.calls import Request, RuleChoice
from shared.rag.guidance import RelationNames, RuleRequest, choose, draw
from shared.recent import LruCache
from shared.replies import Failure, FailureKind, FoundRules, NumberedRule, Reply
from shared.rules.graph import phrase
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.samples import Phrase
from shared.storage import rules as stored_rules
from shared.storage.database import Database

CHOICES = 10_000
"""Choices that are cached: two per relation of the running jobs, with at most 20 rules each."""
VOCABULARIES = 8
"""Banks whose relations and phrases are cached, and thresholds of random choices whose rule numbers are."""
NO_BANK = Failure(
    kind=FailureKind.BACKEND_ERROR,
    detail="the rule bank does not exist any more: mine or import it again, then requeue the job",
)
NO_PHRASES = Failure(
    kind=FailureKind.BACKEND_ERROR,
    detail="the graph with the job's phrases does not exist any more: create it again, then requeue the job",
)
NO_CHOICE = Failure(kind=FailureKind.REFUSED, detail="the call does not say which rules to choose")
_REQUEST = msgspec.json.Decoder(Request)
ChosenRules = tuple[NumberedRule, ...]


class BankVocabulary(NamedTuple):
    """The relations of a bank's heads, and words for relations."""

    heads: Sequence[str]
    declared: Mapping[str, Phrase]
    names: RelationNames

    def phrases(self, relations: Collection[str]) -> dict[str, str]:
        """Return the words for these relations by name."""
        return {relation: phrase(relation, self.declared.get(relation)) for relation in sorted(relations)}


class RulesExecutor:
    """The executor of calls that find rules. Its caches of banks and phrases are keyed by their hashes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._choices: LruCache[ChosenRules] = LruCache(CHOICES)
        self._vocabularies: LruCache[BankVocabulary] = LruCache(VOCABULARIES)
        self._numbers: LruCache[Sequence[int]] = LruCache(VOCABULARIES)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall]:  # noqa: ARG002 - no lease
        """Yield one reply per call, all computed at once; the calls of a chunk have the same bank."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        async with self._database.transaction() as connection:
            bank = await stored_rules.find_pinned_bank(connection, calls[0].model_id)
            replies = [NO_BANK] * len(calls) if bank is None else await self._make_replies(connection, bank, requests)
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)

    async def _make_replies(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, requests: Sequence[Request]
    ) -> list[Reply]:
        known = {
            hash_: await self._read_vocabulary(connection, bank, hash_) for hash_ in {each.phrases for each in requests}
        }
        choices = [_find_choice(request, known[request.phrases]) for request in requests]
        taken = await self._find_rules(connection, bank, {each for each in choices if each is not None})
        return [
            _make_reply(request, known[request.phrases], each, taken)
            for request, each in zip(requests, choices, strict=True)
        ]

    async def _read_vocabulary(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, phrases: str
    ) -> BankVocabulary | None:
        key = f"{bank.hash} {phrases}"
        if found := self._vocabularies.find([key]):
            return found[key]
        declared = await stored_rules.find_phrases(connection, phrases) if phrases else {}
        if declared is None:
            return None
        relations = await stored_rules.list_relations(connection, bank.id)
        heads = [relation for relation, is_head in relations.items() if is_head]
        made = BankVocabulary(heads, declared, RelationNames(_list_names(relations, declared)))
        self._vocabularies.keep({key: made})
        return made

    async def _find_rules(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, asked: Collection[RuleRequest]
    ) -> Mapping[RuleRequest, ChosenRules]:
        keys = {each: f"{bank.hash} {each}" for each in asked}
        kept = self._choices.find(keys.values())
        missing = [each for each in asked if keys[each] not in kept]
        random = [each for each in missing if each.choice.order == "random"]
        found = await self._read_random(connection, bank, random)
        found |= await _read_choices(connection, bank, [each for each in missing if each.choice.order != "random"])
        self._choices.keep({keys[each]: rules for each, rules in found.items()})
        return {each: found[each] if each in found else kept[keys[each]] for each in asked}

    async def _read_random(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, asked: Sequence[RuleRequest]
    ) -> dict[RuleRequest, ChosenRules]:
        """Draw random rules by their numbers, so that the bank need not be read."""
        numbers = {each: await self._draw_numbers(connection, bank, each.choice) for each in asked}
        wanted = {number for drawn in numbers.values() for number in drawn}
        rules = await stored_rules.find_rules_by_number(connection, bank.id, wanted) if wanted else {}
        return {each: tuple(rules[number] for number in drawn) for each, drawn in numbers.items()}

    async def _draw_numbers(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, choice: RuleChoice
    ) -> list[int]:  # fmt: skip
        key = f"{bank.hash} {choice.confidence} {choice.support}"
        if key not in (known := self._numbers.find([key])):
            known = {key: await stored_rules.list_rule_numbers(connection, bank.id, choice.confidence, choice.support)}
            self._numbers.keep(known)
        return [known[key][place] for place in draw(choice.seed, choice.most, len(known[key]))]


async def _read_choices(
    connection: AsyncConnection, bank: stored_rules.PinnedBank, asked: Sequence[RuleRequest]
) -> dict[RuleRequest, ChosenRules]:  # fmt: skip
    """Read the rules of each choice; the bank is read once, in batches."""
    taken: dict[RuleRequest, ChosenRules] = dict.fromkeys(asked, ())
    relations = {each.relation for each in asked}
    if not relations:
        return taken
    least = min(each.choice.confidence for each in asked)
    async for batch in stored_rules.stream_rules_for_heads(connection, bank.id, relations, least):
        by_head: dict[str, list[NumberedRule]] = defaultdict(list)
        for rule in batch:
            by_head[rule.rule.head.relation].append(rule)
        for each in asked:
            if each.relation in by_head:
                taken[each] = choose((*taken[each], *by_head[each.relation]), each, bank.miner)
    return taken


def _list_names(relations: Collection[str], declared: Mapping[str, Phrase]) -> list[tuple[str, str]]:
    """List (relation, words) for all words by which questions may name a relation, with rules or without."""
    names = [(relation, phrase(relation, declared.get(relation))) for relation in {*relations, *declared}]
    return names + [
        (relation, declaration.inverse) for relation, declaration in declared.items() if declaration.inverse
    ]


def _find_choice(request: Request, known: BankVocabulary | None) -> RuleRequest | None:
    """Find the choice that a request asks for; None if its relation is missing or not recognised."""
    if known is None or request.choice is None:
        return None
    relation, question = str(request.values["relation"]), str(request.values["question"])
    found = relation or known.names.find_in(question)
    return None if found is None else RuleRequest(found, request.side, request.choice)


def _make_reply(
    request: Request, known: BankVocabulary | None, asked: RuleRequest | None, taken: Mapping[RuleRequest, ChosenRules]
) -> Reply:
    if request.choice is None:
        return NO_CHOICE
    if known is None:
        return NO_PHRASES
    if asked is None:
        return FoundRules(relation=None, phrases={} if request.values["question"] else known.phrases(known.heads))
    atoms = {atom for each in taken[asked] for atom in (each.rule.head, *each.rule.body)}
    return FoundRules(
        relation=asked.relation, rules=taken[asked], phrases=known.phrases({atom.relation for atom in atoms})
    )
