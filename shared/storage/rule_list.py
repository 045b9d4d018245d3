"""The rules of a bank as people read them: filtered, in an order, page by page."""

from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.rules import Rule
from shared.storage import pages, rule_banks

Order = Literal["bank", "confidence"]
"""`bank`: as the bank's hash counts them; `confidence`: the most certain first."""
# A rule's bytes are JSON: its support has no column.
CHOSEN = """
    r.bank_id = :bank AND r.head = COALESCE(CAST(:head AS text), r.head) AND r.certainty >= :least
        AND (CAST(:support AS bigint) <= 1
            OR CAST(CAST(convert_from(r.rule, 'UTF8') AS json) ->> 'support' AS bigint) >= :support)"""
NUMBERED = "SELECT r.ordinal, r.rule FROM rules r"
IN_ORDER = text(f"{NUMBERED} WHERE {CHOSEN} AND r.ordinal > :after ORDER BY r.ordinal LIMIT :n")
BY_CERTAINTY = text(f"""{NUMBERED} LEFT JOIN rules a ON a.bank_id = r.bank_id AND a.ordinal = :after
    WHERE {CHOSEN} AND (a.ordinal IS NULL OR (r.certainty, -r.ordinal) < (a.certainty, -a.ordinal))
    ORDER BY r.certainty DESC, r.ordinal LIMIT :n""")


class Chosen(NamedTuple):
    """Which rules of a bank are listed."""

    head: str | None = None
    """Only those that lead to this relation."""
    least: float = 0.0
    """PCA confidence where there is one, else standard confidence."""
    support: int = 1
    order: Order = "bank"


async def page(
    connection: AsyncConnection, name: str, chosen: Chosen, limit: int, cursor: str | None
) -> pages.Page[Rule]:
    """The chosen rules of the bank.

    Raises:
        BadRequest: the cursor is not of this list.
        NotFound: there is no such bank.
    """
    filters = {name: None if value is None else str(value) for name, value in chosen._asdict().items()}
    scope = pages.scope("rules of", bank=name, **filters)
    after = pages.decode(cursor, scope, 1)[0] if cursor else -1
    values = {
        "bank": (await rule_banks.one(connection, name)).id, "after": after, "head": chosen.head, "least": chosen.least,
        "support": chosen.support,
        "n": limit + 1,
    }  # fmt: skip
    statement = BY_CERTAINTY if chosen.order == "confidence" else IN_ORDER
    rows = (await connection.execute(statement, values)).all()
    found = [msgspec.json.decode(row.rule, type=Rule) for row in rows]
    return pages.page(found, limit, scope, *(row.ordinal for row in rows[:limit][-1:]))
