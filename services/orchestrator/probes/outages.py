"""What is away, by what the workers and the guard have met."""

from datetime import UTC, datetime

from services.orchestrator.deps import Deps
from shared.checks.check import NotReady
from shared.storage import waiting


async def none(deps: Deps) -> str:
    """No call waits for a server that is away, or for a device that cannot be loaded."""
    async with deps.database.transaction() as connection:
        found = await waiting.of_all(connection)
    if found:
        raise NotReady("; ".join(map(_words, found)))
    return ""


def _words(found: waiting.Waiting) -> str:
    left_s = max(0.0, (found.next_try - datetime.now(UTC)).total_seconds())
    since = f"{found.since.astimezone(UTC):%H:%M} UTC"
    return f"calls wait for {found.what} since {since}, next try in {left_s:.0f} s: {found.said}"
