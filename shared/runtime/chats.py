"""Chats are deleted a while after their end, by the database's owner: nobody asks for an old answer under its id.

`python -m shared.runtime.chats` does it again and again where no supervisor does, with MATHRAG_OWNER_URL.
With `--check` it ends with an error unless that URL reaches the database: a container's health check.
"""

import asyncio
import logging
import sys
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from shared.runtime import purge, retention
from shared.settings import load
from shared.storage.database import Database
from shared.telemetry import logs

ACTOR = "retention"
LOOKS = 4
"""In the time that a chat is kept."""

_log = logging.getLogger(__name__)


def pause_s(hours: float) -> float:
    """Between two looks for chats that are kept for so many hours."""
    return hours * 3600 / LOOKS


async def purge_ended(owner_url: str, hours: float) -> None:
    """Delete the chats that ended so many hours ago, and the calls of that age that no job needs any more."""
    owner = Database(owner_url, pinned=False)
    before = datetime.now(UTC) - timedelta(hours=hours)
    try:
        ended = await purge.outdated(owner, before, 0, online=True)
        for job in ended:
            await purge.purge(owner, job, ACTOR)
        await purge.forget_questions(owner)
        if ended:
            await retention.remove_unused(owner, ACTOR, before)
    finally:
        await owner.close()
    if ended:
        _log.info("%d chats deleted that ended more than %g h ago", len(ended), hours)


async def main() -> None:
    """Look for ever; a database that is away is asked again at the next look."""
    settings = load()
    hours = settings.retention.chat_hours
    logs.configure(settings.telemetry, "retention")
    while True:
        try:
            if hours:
                await purge_ended(settings.owner_url, hours)
        except (OSError, SQLAlchemyError) as error:
            _log.warning("chats not deleted, trying again later: %r", error)
        await asyncio.sleep(pause_s(hours or 24.0))


async def check() -> None:
    """Raises OSError or SQLAlchemyError where the owner cannot reach the database."""
    owner = Database(load().owner_url, pinned=False)
    try:
        async with owner.transaction() as connection:
            await connection.execute(text("SELECT 1"))
    finally:
        await owner.close()


if __name__ == "__main__":
    asyncio.run(check() if sys.argv[1:] == ["--check"] else main())
