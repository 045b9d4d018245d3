"""Details of a rule bank: the relations that its rules lead to, and the jobs that use it."""

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import models, rule_banks
from shared.storage.models import ModelJob

HEADS = text("""
    SELECT head AS relation, count(*) AS rules, max(certainty) AS best FROM rules WHERE bank_id = :bank
    GROUP BY head ORDER BY count(*) DESC, head LIMIT 500""")
ROWS = text("SELECT id FROM models WHERE backend = 'rules' AND digest = :hash")


class HeadRules(msgspec.Struct, frozen=True, kw_only=True):
    """Number of rules that lead to a relation."""

    relation: str
    rules: int
    best: float
    """Certainty of the most certain rule."""


class RuleBankDetails(rule_banks.RuleBank, frozen=True, kw_only=True):
    """A bank with its head relations and jobs."""

    heads: list[HeadRules]
    """The 500 relations with the most rules."""
    followed_by: list[ModelJob]
    """The newest jobs pinned to its content."""


async def load_details(connection: AsyncConnection, name: str) -> RuleBankDetails:
    """Load the bank called `name` with its details.

    Raises:
        NotFound: there is none.
    """
    bank = await rule_banks.get_bank(connection, name)
    heads = (await connection.execute(HEADS, {"bank": bank.id})).mappings()
    ids = (await connection.execute(ROWS, {"hash": bank.hash})).scalars().all() if bank.hash else []
    return RuleBankDetails(
        heads=[HeadRules(**row) for row in heads],
        followed_by=await models.list_jobs_naming(connection, ids) if ids else [],
        **msgspec.structs.asdict(bank),
    )
