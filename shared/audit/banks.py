"""Compare the rule bank that a job uses with its hash; a bank that has been deleted cannot be checked."""

from collections.abc import AsyncIterator

import msgspec
from sqlalchemy import RowMapping, text

from shared.audit.finding import AuditedJob
from shared.contracts.rules import Rule
from shared.storage.rules import BankDigest

BATCH = 5000
BANK = text("""
    SELECT b.id, b.name, b.hash, encode(b.graph_hash, 'hex') AS graph_hash, b.miner, b.limits, b.rules
    FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
    JOIN rule_banks b ON encode(b.hash, 'hex') = m.digest WHERE j.id = :job ORDER BY b.id""")
RULES = text("""
    SELECT ordinal, head, certainty, rule FROM rules WHERE bank_id = :bank AND ordinal > :after
    ORDER BY ordinal LIMIT :n""")


async def find_altered_banks(audit: AuditedJob) -> AsyncIterator[str]:
    """Yield the banks pinned by the job whose rules do not match their hash or their columns."""
    for bank in (await audit.connection.execute(BANK, {"job": audit.job["id"]})).mappings().all():
        content, shown = BankDigest(bank["graph_hash"], bank["miner"], bank["limits"]), True
        async for row in _rules(audit, bank["id"]):
            shown = shown and _columns_match(row)
            content.add(row["rule"])
        if content.digest() != bank["hash"] or content.rules != bank["rules"] or not shown:
            yield f"rule_banks {bank['name']}"


def _columns_match(row: RowMapping) -> bool:
    """Return whether the columns used to select rules equal the values inside the rule."""
    rule = msgspec.json.decode(row["rule"], type=Rule)
    return bool(row["head"] == rule.head.relation and row["certainty"] == rule.certainty)


async def _rules(audit: AuditedJob, bank: int) -> AsyncIterator[RowMapping]:
    after = -1
    while True:
        rows = (await audit.connection.execute(RULES, {"bank": bank, "after": after, "n": BATCH})).mappings().all()
        for row in rows:
            yield row
        if len(rows) < BATCH:
            return
        after = rows[-1]["ordinal"]
