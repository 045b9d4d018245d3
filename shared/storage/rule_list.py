"""List the rules of a bank, filtered and sorted, page by page."""

from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.rules import Rule
from shared.storage import pages, rule_banks

Order = Literal["bank", "confidence"]
"""`bank` is the bank's own order; `confidence` lists the most certain rules first."""
# Support has no column of its own: it is part of the rule's JSON.
CHOSEN = """
    r.bank_id = :bank AND r.head = COALESCE(CAST(:head AS text), r.head) AND r.certainty >= :least
        AND (CAST(:support AS bigint) <= 1
            OR CAST(CAST(convert_from(r.rule, 'UTF8') AS json) ->> 'support' AS bigint) >= :support)"""
NUMBERED = "SELECT r.ordinal, r.rule FROM rules r"
IN_ORDER = text(f"{NUMBERED} WHERE {CHOSEN} AND r.ordinal > :after ORDER BY r.ordinal LIMIT :n")
BY_CERTAINTY = text(f"""{NUMBERED} LEFT JOIN rules a ON a.bank_id = r.bank_id AND a.ordinal = :after
    WHERE {CHOSEN} AND (a.ordinal IS NULL OR (r.certainty, -r.ordinal) < (a.certainty, -a.ordinal))
    ORDER BY r.certainty DESC, r.ordinal LIMIT :n""")


class RuleSelection(NamedTuple):
    """Filters and order of a list of rules."""

    head: str | None = None
    """Only rules that lead to this relation; None lists all."""
    least: float = 0.0
    """Lowest certainty: PCA confidence if there is one, otherwise standard confidence."""
    support: int = 1
    order: Order = "bank"


async def list_rules(
    connection: AsyncConnection, name: str, chosen: RuleSelection, limit: int, cursor: str | None
) -> pages.Page[Rule]:
    """List the selected rules of the bank.

    Raises:
        BadRequest: the cursor belongs to another list.
        NotFound: there is no such bank.
    """
    filters = {name: None if value is None else str(value) for name, value in chosen._asdict().items()}
    scope = pages.cursor_scope("rules of", bank=name, **filters)
    after = pages.decode_cursor(cursor, scope, 1)[0] if cursor else -1
    values = {
        "bank": (await rule_banks.get_bank(connection, name)).id, "after": after, "head": chosen.head,
        "least": chosen.least, "support": chosen.support,
        "n": limit + 1,
    }  # fmt: skip
    statement = BY_CERTAINTY if chosen.order == "confidence" else IN_ORDER
    rows = (await connection.execute(statement, values)).all()
    found = [msgspec.json.decode(row.rule, type=Rule) for row in rows]
    return pages.make_page(found, limit, scope, *(row.ordinal for row in rows[:limit][-1:]))
