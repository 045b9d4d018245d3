"""The journal of what operators did: who, what, to what. Rows are only ever added."""

from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

LOCAL = "local"
"""The actor where nobody had to say who they are: the operator's own shell, or an API without keys."""
INSERT = text("""
    INSERT INTO operations (actor, action, target, detail) VALUES (:actor, :action, :target, CAST(:detail AS jsonb))""")


async def note(connection: AsyncConnection, actor: str, action: str, target: str, **detail: Any) -> None:
    """Add a row in the transaction of what it tells, so that neither is there without the other."""
    values = {"actor": actor, "action": action, "target": target, "detail": msgspec.json.encode(detail).decode()}
    await connection.execute(INSERT, values)
