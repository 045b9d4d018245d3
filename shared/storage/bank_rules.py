"""Rules of a sealed bank as pipelines look for them: by head relation, or by their numbers."""

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
"""Rules that are read together."""


class PinnedBank(NamedTuple):
    """A bank that a model row stands for."""

    hash: str
    id: int
    miner: Miner


async def pinned(connection: AsyncConnection, model: int) -> PinnedBank | None:
    """The bank that the model row with this id stands for, of equal ones the first; None: it is not there any more."""
    row = (await connection.execute(BANK, {"model": model})).first()
    return None if row is None else PinnedBank(hash=row.hash, id=row.id, miner=row.miner)


async def relations(connection: AsyncConnection, bank: int) -> dict[str, bool]:
    """Every relation that rules of the bank name, in the order of their names, and whether one leads to it."""
    return {row.relation: row.is_head for row in await connection.execute(RELATIONS, {"bank": bank})}


async def of_heads(
    connection: AsyncConnection, bank: int, relations: Collection[str], least: float
) -> AsyncIterator[list[NumberedRule]]:
    """The rules that lead to one of the relations and are at least so certain, in batches, in no order."""
    values = {"bank": bank, "heads": sorted(relations), "least": least}
    async with connection.stream(OF_HEADS, values, execution_options={"yield_per": BATCH}) as found:
        async for rows in found.partitions(BATCH):
            yield [_rule(row.ordinal, row.rule) for row in rows]


async def numbers(connection: AsyncConnection, bank: int, least: float, support: int) -> Sequence[int]:
    """The numbers of all rules that are at least so certain and so well supported, in order."""
    values = {"bank": bank, "least": least, "support": support}
    return array("i", (await connection.execute(NUMBERS, values)).scalars().all())


async def by_number(connection: AsyncConnection, bank: int, wanted: Collection[int]) -> dict[int, NumberedRule]:
    """The rules with these numbers."""
    rows = await connection.execute(BY_NUMBER, {"bank": bank, "numbers": sorted(wanted)})
    return {row.ordinal: _rule(row.ordinal, row.rule) for row in rows}


async def phrases(connection: AsyncConnection, hash_: str) -> Mapping[str, Phrase] | None:
    """The words for relations with this hash, in hex; None: no graph has them any more."""
    found = (await connection.execute(PHRASES, {"hash": bytes.fromhex(hash_)})).scalar()
    return None if found is None else msgspec.convert(found, dict[str, Phrase])


def _rule(number: int, raw: bytes) -> NumberedRule:
    return NumberedRule(number, msgspec.json.decode(raw, type=Rule))
