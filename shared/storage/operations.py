"""The append-only journal of operators' actions: who did what to which target."""

from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

LOCAL = "local"
"""The actor without authentication: the operator's own shell, or an API without keys."""
INSERT = text("""
    INSERT INTO operations (actor, action, target, detail) VALUES (:actor, :action, :target, CAST(:detail AS jsonb))""")


async def record_operation(connection: AsyncConnection, actor: str, action: str, target: str, **detail: Any) -> None:
    """Add a row to the journal, in the transaction of the recorded action."""
    values = {"actor": actor, "action": action, "target": target, "detail": msgspec.json.encode(detail).decode()}
    await connection.execute(INSERT, values)
