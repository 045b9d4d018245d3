"""Delete corpora and datasets as the owner of the database, the only role that may."""

import asyncio
import getpass
from pathlib import Path

from mathrag.client.errors import Failed
from mathrag.stack.addresses import find_embedded
from shared.runtime import purge
from shared.settings import Settings
from shared.storage.database import Database


def owner_url(settings: Settings, data_dir: Path | None) -> str:
    """Return the configured URL of the database's owner, else that of the embedded database.

    Raises:
        Failed: a database is configured without its owner, or no embedded one runs.
    """
    if settings.owner_url:
        return settings.owner_url
    if settings.database_url:
        raise Failed("usage", "only the owner of the database may delete", hint="set MATHRAG_OWNER_URL")
    return find_embedded(data_dir or settings.data_dir).owner_url()


def delete(owner_url: str, kind: purge.Kind, name: str) -> None:
    """Delete a corpus or dataset that no job uses.

    Raises:
        MathragError: there is no such corpus or dataset, or a job uses it.
    """
    asyncio.run(_delete(owner_url, kind, name))


async def _delete(owner_url: str, kind: purge.Kind, name: str) -> None:
    owner = Database(owner_url, pinned=False)
    try:
        await purge.delete(owner, kind, name, getpass.getuser())
    finally:
        await owner.close()
