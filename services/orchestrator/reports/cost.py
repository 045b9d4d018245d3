"""Computes the cost of a job's model calls: tokens from the calls' rows, at the currently configured prices."""

from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.reports.work import select_over_calls
from shared.settings import Model, TokenPrice

# `uncounted` are replies of a server that does not count tokens. A failure without tokens never reached the model.
USED = select_over_calls("""
    SELECT m.name, COALESCE(sum(a.prompt_tokens), 0) AS prompt_tokens,
        COALESCE(sum(a.completion_tokens), 0) AS completion_tokens,
        COALESCE(sum(a.prompt_tokens) FILTER (WHERE mine.made), 0) AS prompt_made,
        COALESCE(sum(a.completion_tokens) FILTER (WHERE mine.made), 0) AS completion_made,
        count(*) FILTER (WHERE a.outcome IN ('value', 'unparsed', 'truncated')
            AND (a.prompt_tokens IS NULL OR a.completion_tokens IS NULL)) AS uncounted
    FROM mine JOIN calls c ON c.id = mine.call_id JOIN models m ON m.id = c.model_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE c.role IN ('judge', 'write', 'generate') GROUP BY m.name ORDER BY m.name""")


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost in US dollars at the currently configured prices; null if a model has no price or its server does not
    count tokens.
    """

    made: float | None
    """Cost of the calls that this job made."""
    all: float | None
    """Cost of the calls made and reused: the job's cost if nothing had been reused."""
    models: dict[str, float | None]
    """`all` by the name of the model."""


async def compute_cost(connection: AsyncConnection, job: int, configured: Mapping[str, Model]) -> TokenCost | None:
    """Return the cost of the job with this row id; None if no model has answered."""
    used = (await connection.execute(USED, {"job": job})).all()
    if not used:
        return None
    prices = {row.name: None if row.uncounted else _find_price(row.name, configured) for row in used}
    costs = {row.name: _compute_usd(prices[row.name], row.prompt_tokens, row.completion_tokens) for row in used}
    made = [_compute_usd(prices[row.name], row.prompt_made, row.completion_made) for row in used]
    return TokenCost(made=_sum(made), all=_sum(costs.values()), models=costs)


def _find_price(name: str, configured: Mapping[str, Model]) -> TokenPrice | None:
    return configured[name].price if name in configured else None


def _compute_usd(price: TokenPrice | None, prompt_tokens: int, completion_tokens: int) -> float | None:
    return None if price is None else price.of(prompt_tokens, completion_tokens)


def _sum(parts: Collection[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
