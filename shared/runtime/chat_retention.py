"""Delete chats some hours after they ended. This needs the database's owner.

`python -m shared.runtime.chat_retention` does this periodically where no supervisor does, with MATHRAG_OWNER_URL.
With `--check` it only checks that this URL reaches the database, for a container's health check.
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
"""Number of purges in the time for which a chat is kept."""

_log = logging.getLogger(__name__)


def seconds_between_purges(hours: float) -> float:
    """Return the pause between two purges, for chats that are kept for `hours`."""
    return hours * 3600 / LOOKS


async def purge_ended(owner_url: str, hours: float) -> None:
    """Delete the chats that ended more than `hours` ago, and the calls of that age that no job uses."""
    owner = Database(owner_url, pinned=False)
    before = datetime.now(UTC) - timedelta(hours=hours)
    try:
        ended = await purge.find_outdated(owner, before, 0, online=True)
        for job in ended:
            await purge.purge(owner, job, ACTOR)
        await purge.forget_questions(owner)
        if ended:
            await retention.remove_unused(owner, ACTOR, before)
    finally:
        await owner.close()
    if ended:
        _log.info("%d chats deleted that ended more than %g h ago", len(ended), hours)


async def purge_forever() -> None:
    """Purge periodically; a purge that fails because the database is away is repeated at the next turn."""
    settings = load()
    hours = settings.retention.chat_hours
    logs.configure(settings.telemetry, "retention")
    while True:
        try:
            if hours:
                await purge_ended(settings.owner_url, hours)
        except (OSError, SQLAlchemyError) as error:
            _log.warning("chats not deleted, trying again later: %r", error)
        await asyncio.sleep(seconds_between_purges(hours or 24.0))


async def check_owner_connection() -> None:
    """Raise OSError or SQLAlchemyError if the owner cannot reach the database."""
    owner = Database(load().owner_url, pinned=False)
    try:
        async with owner.transaction() as connection:
            await connection.execute(text("SELECT 1"))
    finally:
        await owner.close()


if __name__ == "__main__":
    asyncio.run(check_owner_connection() if sys.argv[1:] == ["--check"] else purge_forever())
