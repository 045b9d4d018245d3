"""Look up rules of a sealed bank, by head relation or by number."""

from array import array
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.graphs import Phrase
from shared.contracts.replies import NumberedRule
from shared.contracts.rules import Miner, Rule

BANK = text("""
    SELECT m.digest AS hash, b.id, b.miner FROM models m JOIN rule_banks b ON encode(b.hash, 'hex') = m.digest
    WHERE m.id = :model ORDER BY b.id LIMIT 1""")
# A rule's bytes are JSON: the relations of its body and its support have no columns.
RELATIONS = text("""
    SELECT relation, bool_or(is_head) AS is_head FROM rules r CROSS JOIN LATERAL (
        SELECT r.head AS relation, true AS is_head
        UNION ALL SELECT atom ->> 0, false
        FROM json_array_elements(CAST(convert_from(r.rule, 'UTF8') AS json) -> 'body') b(atom)) named
    WHERE bank_id = :bank GROUP BY relation ORDER BY relation""")
OF_HEADS = text("""
    SELECT ordinal, rule FROM rules WHERE bank_id = :bank AND head = ANY(:heads) AND certainty >= :least""")
NUMBERS = text("""
    SELECT ordinal FROM rules WHERE bank_id = :bank AND certainty >= :least
        AND CAST(CAST(convert_from(rule, 'UTF8') AS json) ->> 'support' AS bigint) >= :support ORDER BY ordinal""")
BY_NUMBER = text("SELECT ordinal, rule FROM rules WHERE bank_id = :bank AND ordinal = ANY(:numbers)")
PHRASES = text("SELECT phrases FROM graphs WHERE phrases_hash = :hash ORDER BY id LIMIT 1")
BATCH = 1000
"""Rules read per round trip."""


class PinnedBank(NamedTuple):
    """The bank to which a job is pinned."""

    hash: str
    id: int
    miner: Miner


async def find_pinned_bank(connection: AsyncConnection, model: int) -> PinnedBank | None:
    """Find the bank of a model row, the first one if several are equal; None if it was deleted."""
    row = (await connection.execute(BANK, {"model": model})).first()
    return None if row is None else PinnedBank(hash=row.hash, id=row.id, miner=row.miner)


async def list_relations(connection: AsyncConnection, bank: int) -> dict[str, bool]:
    """List the relations in the bank's rules, sorted by name, with whether a rule leads to the relation."""
    return {row.relation: row.is_head for row in await connection.execute(RELATIONS, {"bank": bank})}


async def stream_rules_for_heads(
    connection: AsyncConnection, bank: int, relations: Collection[str], least: float
) -> AsyncIterator[list[NumberedRule]]:
    """Yield batches of rules that lead to one of the relations with at least this certainty, in no order."""
    values = {"bank": bank, "heads": sorted(relations), "least": least}
    async with connection.stream(OF_HEADS, values, execution_options={"yield_per": BATCH}) as found:
        async for rows in found.partitions(BATCH):
            yield [_rule(row.ordinal, row.rule) for row in rows]


async def list_rule_numbers(connection: AsyncConnection, bank: int, least: float, support: int) -> Sequence[int]:
    """List the numbers of all rules with at least this certainty and support, in order."""
    values = {"bank": bank, "least": least, "support": support}
    return array("i", (await connection.execute(NUMBERS, values)).scalars().all())


async def find_rules_by_number(
    connection: AsyncConnection, bank: int, wanted: Collection[int]
) -> dict[int, NumberedRule]:
    """Find the rules with these numbers; missing numbers are left out."""
    rows = await connection.execute(BY_NUMBER, {"bank": bank, "numbers": sorted(wanted)})
    return {row.ordinal: _rule(row.ordinal, row.rule) for row in rows}


async def find_phrases(connection: AsyncConnection, hash_: str) -> Mapping[str, Phrase] | None:
    """Find the relation phrases with this hash (hex); None if no graph has them any more."""
    found = (await connection.execute(PHRASES, {"hash": bytes.fromhex(hash_)})).scalar()
    return None if found is None else msgspec.convert(found, dict[str, Phrase])


def _rule(number: int, raw: bytes) -> NumberedRule:
    return NumberedRule(number, msgspec.json.decode(raw, type=Rule))
