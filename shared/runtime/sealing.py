"""Seal rule banks: when a mining job has ended, its replies become the bank in one transaction.

A kill in between leaves nothing behind, and sealing is repeated. Relations are in the dataset's order and rules in the
miner's, so equal graphs and limits give byte-identical banks.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.replies import Mined
from shared.contracts.rules import Rule
from shared.storage import rule_banks
from shared.storage.database import Database
from shared.storage.sql import sql

DUE = text("""
    SELECT b.name FROM rule_banks b LEFT JOIN jobs j ON j.id = b.job_id
    WHERE b.state = 'mining' AND (j.id IS NULL OR j.ended_at IS NOT NULL) ORDER BY b.id""")
# A transaction that holds the row is sealing the bank.
TAKE = text("""
    SELECT b.id, b.job_id FROM rule_banks b WHERE b.name = :name AND b.state = 'mining' FOR UPDATE OF b SKIP LOCKED""")
JOB = text("SELECT state, reason FROM jobs WHERE id = :job")
FAILED = sql("""
    SELECT i.question AS relation, s.failure, s.detail, count(*) OVER () AS failed FROM samples s
    JOIN jobs j ON j.id = s.job_id JOIN items i ON {ASKED_BY_SAMPLE}
    WHERE s.job_id = :job AND s.state = {FAILED} ORDER BY s.ordinal LIMIT 1""")
REPLY = sql("""
    SELECT s.ordinal, a.reply FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN attempts a ON {ACCEPTED_FOR} t.call_id
    WHERE s.job_id = :job AND s.kind = 'item' AND s.ordinal > :after ORDER BY s.ordinal LIMIT 1""")
AGAIN = "mine it again with the same command, and what is done is kept"


async def list_due_banks(database: Database) -> list[str]:
    """List the names of banks whose mining jobs have ended."""
    return await database.column(DUE, {})


async def seal_bank(database: Database, name: str) -> None:
    """Fill the bank with the rules that its job has found, or record why it has none."""
    async with database.transaction() as connection:
        taken = (await connection.execute(TAKE, {"name": name})).first()
        if taken is None:
            return
        job = (await connection.execute(JOB, {"job": taken.job_id})).first()
        if job is None:
            await rule_banks.end_without_rules(
                connection, taken.id, "failed", f"the job that mined it was purged; {AGAIN}"
            )
        elif job.state == "cancelled":
            await rule_banks.end_without_rules(connection, taken.id, "cancelled", f"its job was cancelled; {AGAIN}")
        elif failed := (await connection.execute(FAILED, {"job": taken.job_id})).first():
            await rule_banks.end_without_rules(connection, taken.id, "failed", _reason(failed))
        else:
            bank = await rule_banks.get_bank(connection, name)
            await rule_banks.store_rules(connection, bank, _read_mined_rules(connection, taken.job_id))


def _reason(failed: Row[tuple[str, str, str, int]]) -> str:
    others = f", as could {failed.failed - 1} more" if failed.failed > 1 else ""
    return f"relation {failed.relation!r} could not be mined{others}: {failed.failure}: {failed.detail}; {AGAIN}"


async def _read_mined_rules(connection: AsyncConnection, job: int) -> AsyncIterator[Sequence[Rule]]:
    """Yield the rules relation by relation, with a single reply in memory at a time."""
    after = -1
    while found := (await connection.execute(REPLY, {"job": job, "after": after})).first():
        yield msgspec.json.decode(found.reply, type=Mined).rules
        after = found.ordinal
