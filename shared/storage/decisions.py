"""Gate decisions with their score vectors, which the view of a job leaves out."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import GateDecision
from shared.storage.decoding import try_decode

PREPARED = text("SELECT prepared FROM jobs WHERE id = :job")


async def load_decision(connection: AsyncConnection, job: int) -> GateDecision | None:
    """Load a job's gate decision; None if there is none yet or this release cannot read it."""
    prepared = (await connection.execute(PREPARED, {"job": job})).scalar_one()
    return try_decode(prepared, GateDecision, "")[0]
