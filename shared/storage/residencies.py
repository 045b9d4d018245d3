"""Residencies as users see them: which models a device held, when, and how much memory they took."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.provenance import Residency

RESIDENCIES = text("""
    SELECT r.epoch, r.device, r.cause, r.state, r.opened_at, r.closed_at,
        ARRAY(SELECT m.name FROM models m WHERE m.id = ANY(r.models) ORDER BY m.name) AS models,
        (SELECT COALESCE(jsonb_object_agg(m.name, r.measured -> 'memory_mib' -> CAST(m.id AS text)), '{}')
         FROM models m WHERE m.id = ANY(r.models)) AS memory_mib
    FROM residencies r WHERE r.epoch = ANY(:epochs) ORDER BY r.epoch""")


async def load_residencies(connection: AsyncConnection, epochs: Sequence[int]) -> tuple[Residency, ...]:
    """Load the residencies with these epochs, with their models' names."""
    rows = (await connection.execute(RESIDENCIES, {"epochs": list(epochs)})).mappings()
    return tuple(msgspec.convert(dict(row), Residency) for row in rows)
