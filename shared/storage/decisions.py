"""Decisions of gates with the vectors that they were made from; jobs show them without."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import GateDecision
from shared.storage.stored import decoded

PREPARED = text("SELECT prepared FROM jobs WHERE id = :job")


async def decision(connection: AsyncConnection, job: int) -> GateDecision | None:
    """Of the job with this row id; None: there is none yet, or none that this release can read."""
    prepared = (await connection.execute(PREPARED, {"job": job})).scalar_one()
    return decoded(prepared, GateDecision, "")[0]
