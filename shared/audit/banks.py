"""The rule bank that a job follows, held against its hash; one that was deleted since cannot be."""

from collections.abc import AsyncIterator

import msgspec
from sqlalchemy import RowMapping, text

from shared.audit.finding import Audit
from shared.contracts.rules import Rule
from shared.storage.rule_banks import Content

BATCH = 5000
BANK = text("""
    SELECT b.id, b.name, b.hash, encode(b.graph_hash, 'hex') AS graph_hash, b.miner, b.limits, b.rules
    FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
    JOIN rule_banks b ON encode(b.hash, 'hex') = m.digest WHERE j.id = :job ORDER BY b.id""")
RULES = text("""
    SELECT ordinal, head, certainty, rule FROM rules WHERE bank_id = :bank AND ordinal > :after
    ORDER BY ordinal LIMIT :n""")


async def altered(audit: Audit) -> AsyncIterator[str]:
    """Banks that the job is pinned to whose rules do not give their hash, or are shown as something else."""
    for bank in (await audit.connection.execute(BANK, {"job": audit.job["id"]})).mappings().all():
        content, shown = Content(bank["graph_hash"], bank["miner"], bank["limits"]), True
        async for row in _rules(audit, bank["id"]):
            shown = shown and _is_shown(row)
            content.add(row["rule"])
        if content.digest() != bank["hash"] or content.rules != bank["rules"] or not shown:
            yield f"rule_banks {bank['name']}"


def _is_shown(row: RowMapping) -> bool:
    """Whether the columns that rules are chosen by are the rule's own."""
    rule = msgspec.json.decode(row["rule"], type=Rule)
    return bool(row["head"] == rule.head.relation and row["certainty"] == rule.certainty)


async def _rules(audit: Audit, bank: int) -> AsyncIterator[RowMapping]:
    after = -1
    while True:
        rows = (await audit.connection.execute(RULES, {"bank": bank, "after": after, "n": BATCH})).mappings().all()
        for row in rows:
            yield row
        if len(rows) < BATCH:
            return
        after = rows[-1]["ordinal"]
