"""Calls that find rules: a chunk reads what it lacks of the bank at once."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import RuleChoice
from shared.contracts.graphs import Phrase
from shared.contracts.replies import Failure, FailureKind, FoundRules, NumberedRule, Reply
from shared.contracts.requests import Request
from shared.rag.relation_names import RelationNames
from shared.rag.rule_choice import Asked, choose, draw
from shared.recent import Recent
from shared.rules.sentences import phrase
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed
from shared.storage import bank_rules
from shared.storage.database import Database

CHOICES = 10_000
"""Choices that are kept: as many as jobs under way have relations, times two ends; a choice has 20 rules at most."""
VOCABULARIES = 8
"""Banks whose relations are kept with their phrases, and thresholds of random choices with the numbers they leave."""
NO_BANK = Failure(
    kind=FailureKind.BACKEND_ERROR,
    detail="the rule bank is not there any more: mine or import it again, then requeue the job",
)
NO_PHRASES = Failure(
    kind=FailureKind.BACKEND_ERROR,
    detail="the graph whose phrases the job was given is not there any more: create it again, then requeue the job",
)
NO_CHOICE = Failure(kind=FailureKind.REFUSED, detail="the call does not say which rules are taken")
_REQUEST = msgspec.json.Decoder(Request)
Taken = tuple[NumberedRule, ...]


class Vocabulary(NamedTuple):
    """The relations that a bank leads to, and words for relations."""

    heads: Sequence[str]
    declared: Mapping[str, Phrase]
    names: RelationNames

    def phrases(self, relations: Collection[str]) -> dict[str, str]:
        """The words for these relations, by name."""
        return {relation: phrase(relation, self.declared.get(relation)) for relation in sorted(relations)}


class FindingRules:
    """The executor of calls that find rules. What it keeps of banks and phrases it keeps by their hashes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._taken: Recent[Taken] = Recent(CHOICES)
        self._vocabularies: Recent[Vocabulary] = Recent(VOCABULARIES)
        self._numbers: Recent[Sequence[int]] = Recent(VOCABULARIES)

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered]:  # noqa: ARG002 - no lease
        """One reply a call, all at once; the calls of a chunk are of one bank."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        async with self._database.transaction() as connection:
            bank = await bank_rules.pinned(connection, calls[0].model_id)
            replies = [NO_BANK] * len(calls) if bank is None else await self._replies(connection, bank, requests)
        receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
        for call, reply in zip(calls, replies, strict=True):
            yield Answered(call_id=call.id, reply=reply, receipt=receipt)

    async def _replies(
        self, connection: AsyncConnection, bank: bank_rules.PinnedBank, requests: Sequence[Request]
    ) -> list[Reply]:
        known = {
            hash_: await self._vocabulary(connection, bank, hash_) for hash_ in {each.phrases for each in requests}
        }
        asked = [_asked(request, known[request.phrases]) for request in requests]
        taken = await self._rules(connection, bank, {each for each in asked if each is not None})
        return [
            _reply(request, known[request.phrases], each, taken) for request, each in zip(requests, asked, strict=True)
        ]

    async def _vocabulary(
        self, connection: AsyncConnection, bank: bank_rules.PinnedBank, phrases: str
    ) -> Vocabulary | None:
        key = f"{bank.hash} {phrases}"
        if found := self._vocabularies.find([key]):
            return found[key]
        declared = await bank_rules.phrases(connection, phrases) if phrases else {}
        if declared is None:
            return None
        relations = await bank_rules.relations(connection, bank.id)
        heads = [relation for relation, is_head in relations.items() if is_head]
        made = Vocabulary(heads, declared, RelationNames(_names(relations, declared)))
        self._vocabularies.keep({key: made})
        return made

    async def _rules(
        self, connection: AsyncConnection, bank: bank_rules.PinnedBank, asked: Collection[Asked]
    ) -> Mapping[Asked, Taken]:
        keys = {each: f"{bank.hash} {each}" for each in asked}
        kept = self._taken.find(keys.values())
        missing = [each for each in asked if keys[each] not in kept]
        random = [each for each in missing if each.choice.order == "random"]
        found = await self._drawn(connection, bank, random)
        found |= await _chosen(connection, bank, [each for each in missing if each.choice.order != "random"])
        self._taken.keep({keys[each]: rules for each, rules in found.items()})
        return {each: found[each] if each in found else kept[keys[each]] for each in asked}

    async def _drawn(
        self, connection: AsyncConnection, bank: bank_rules.PinnedBank, asked: Sequence[Asked]
    ) -> dict[Asked, Taken]:
        """Random rules: drawn by number, so that no bank is read for a few."""
        numbers = {each: await self._draw(connection, bank, each.choice) for each in asked}
        wanted = {number for drawn in numbers.values() for number in drawn}
        rules = await bank_rules.by_number(connection, bank.id, wanted) if wanted else {}
        return {each: tuple(rules[number] for number in drawn) for each, drawn in numbers.items()}

    async def _draw(
        self, connection: AsyncConnection, bank: bank_rules.PinnedBank, choice: RuleChoice
    ) -> list[int]:  # fmt: skip
        key = f"{bank.hash} {choice.confidence} {choice.support}"
        if key not in (known := self._numbers.find([key])):
            known = {key: await bank_rules.numbers(connection, bank.id, choice.confidence, choice.support)}
            self._numbers.keep(known)
        return [known[key][place] for place in draw(choice.seed, choice.most, len(known[key]))]


async def _chosen(
    connection: AsyncConnection, bank: bank_rules.PinnedBank, asked: Sequence[Asked]
) -> dict[Asked, Taken]:  # fmt: skip
    """The rules of each choice: the bank is read once, a batch at a time."""
    taken: dict[Asked, Taken] = dict.fromkeys(asked, ())
    relations = {each.relation for each in asked}
    if not relations:
        return taken
    least = min(each.choice.confidence for each in asked)
    async for batch in bank_rules.of_heads(connection, bank.id, relations, least):
        by_head: dict[str, list[NumberedRule]] = defaultdict(list)
        for rule in batch:
            by_head[rule.rule.head.relation].append(rule)
        for each in asked:
            if each.relation in by_head:
                taken[each] = choose((*taken[each], *by_head[each.relation]), each, bank.miner)
    return taken


def _names(relations: Collection[str], declared: Mapping[str, Phrase]) -> list[tuple[str, str]]:
    """Relations, with rules or without, and the words that questions may name them by."""
    names = [(relation, phrase(relation, declared.get(relation))) for relation in {*relations, *declared}]
    return names + [(relation, said.inverse) for relation, said in declared.items() if said.inverse]


def _asked(request: Request, known: Vocabulary | None) -> Asked | None:
    """None: no relation is asked for, or none can be told."""
    if known is None or request.choice is None:
        return None
    relation, question = str(request.values["relation"]), str(request.values["question"])
    found = relation or known.names.named_in(question)
    return None if found is None else Asked(found, request.side, request.choice)


def _reply(request: Request, known: Vocabulary | None, asked: Asked | None, taken: Mapping[Asked, Taken]) -> Reply:
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
