"""Deleting, which only the owner of the database may."""

import asyncio
import getpass
from pathlib import Path

from mathrag.client.errors import Failed
from mathrag.stack.addresses import embedded
from shared.runtime import deleting
from shared.settings import Settings
from shared.storage.database import Database


def owner_url(settings: Settings, data_dir: Path | None) -> str:
    """The operator's, else that of the embedded database: the services themselves never have it."""
    if settings.owner_url:
        return settings.owner_url
    if settings.database_url:
        raise Failed("usage", "only the owner of the database may delete", hint="set MATHRAG_OWNER_URL")
    return embedded(data_dir or settings.data_dir).owner_url()


def delete(owner_url: str, kind: deleting.Kind, name: str) -> None:
    """Delete a corpus or dataset that no job uses.

    Raises:
        MathragError: there is none, or a job uses it.
    """
    asyncio.run(_delete(owner_url, kind, name))


async def _delete(owner_url: str, kind: deleting.Kind, name: str) -> None:
    owner = Database(owner_url, pinned=False)
    try:
        await deleting.delete(owner, kind, name, getpass.getuser())
    finally:
        await owner.close()
