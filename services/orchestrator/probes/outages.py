"""Checks for outages that workers and guards have met."""

from datetime import UTC, datetime

from services.orchestrator.deps import Deps
from shared.checks import NotReady
from shared.storage import jobs


async def check_outages(deps: Deps) -> str:
    """Check that no call waits for an unavailable server, or for a device that cannot be loaded."""
    async with deps.database.transaction() as connection:
        found = await jobs.find_all_waiting(connection)
    if found:
        raise NotReady("; ".join(map(_describe_outage, found)))
    return ""


def _describe_outage(found: jobs.Waiting) -> str:
    left_s = max(0.0, ((found.next_try or found.since) - datetime.now(UTC)).total_seconds())
    since = f"{found.since.astimezone(UTC):%H:%M} UTC"
    return f"calls wait for {found.what} since {since}, next try in {left_s:.0f} s: {found.said}"
