"""The program that `mathrag doctor` runs if no service answers: it checks with the settings of its environment."""

import asyncio
import sys

import httpx2
import msgspec
from redis.asyncio import Redis

from services.orchestrator.deps import Deps
from services.orchestrator.probes.probe import PATIENCE_S, checks
from services.orchestrator.probes.registry import probes
from shared.access.filters import authorization
from shared.checks import Check
from shared.settings import Settings, load
from shared.storage.database import Database

NOWHERE = "postgresql+asyncpg://"
"""Address that is never connected to: probes that need the database are left out if none is configured."""


async def look(settings: Settings) -> list[Check]:
    """Run all checks; without a database or Redis, only those that need neither."""
    runs = bool(settings.database_url and settings.redis_url)
    chosen = [probe for probe in probes(settings) if probe.alone or runs]
    database = Database(settings.database_url or NOWHERE, pinned=False)
    known = authorization(settings.service_key)
    try:
        async with (
            Redis.from_url(settings.redis_url or "redis://") as redis,
            httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False, headers=known) as http,
        ):
            deps = Deps(
                settings=settings, database=database, admission=database, redis=redis, http=http, wake=lambda: None
            )
            return await checks(chosen, deps)
    finally:
        await database.close()


def main() -> None:
    """Run the checks and print the results."""
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(look(load()))))


if __name__ == "__main__":
    main()
