"""The guards that a worker was given: each is asked which device it owns, and serves the calls of that device's models.

So an address alone is enough on another host, and no name of a device has to be the same there.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from redis.asyncio import Redis

from shared.contracts.guard import Completion, ModelCall
from shared.lease.guard_client import GuardClient, NotGranted
from shared.lease.lease import Lease, RedisLease

ASK_S = 2.0
"""Longest try to learn the device of a guard."""
PAUSE_S = 2.0
"""Between two tries."""

_log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """A device's guard, and where its lease is read."""

    guard: GuardClient
    lease: RedisLease


class Guards:
    """By the devices that they own."""

    def __init__(self, redis: Redis, urls: Sequence[str], service_key: str = "") -> None:
        self._redis = redis
        self._silent = {url: GuardClient(url, service_key) for url in urls}
        """Those that have not said yet whose they are."""
        self._owners: dict[str, Owner] = {}
        self._asked_at = float("-inf")

    async def leases(self) -> dict[str, Lease | None]:
        """The lease of every device that may be reached; None: nobody may claim calls that need it."""
        await self._ask()
        owners = dict(self._owners)
        found = await asyncio.gather(*(owner.lease.read() for owner in owners.values()))
        return dict(zip(owners, found, strict=True))

    async def run(self, device: str | None, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """Completions of the device's guard, as they come.

        Raises:
            NotGranted, Rejected, Broken: as `GuardClient.run`; the first also where no guard owns the device.
        """
        owner = self._owners.get(device or "")
        if owner is None:
            raise NotGranted(f"no guard that answers owns {device!r}")
        try:
            async for completion in owner.guard.run(epoch, calls):
                yield completion
        except NotGranted:
            owner.lease.forget()
            raise

    async def close(self) -> None:
        """Close connections."""
        guards = [*self._silent.values(), *(owner.guard for owner in self._owners.values())]
        await asyncio.gather(*(guard.close() for guard in guards))

    async def _ask(self) -> None:
        """A guard that is away must not hold up the devices of the others: it is asked now and then."""
        if not self._silent or time.monotonic() - self._asked_at < PAUSE_S:
            return
        await asyncio.gather(*(self._learn(url, guard) for url, guard in list(self._silent.items())))
        self._asked_at = time.monotonic()

    async def _learn(self, url: str, guard: GuardClient) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                device = await guard.device()
        except (NotGranted, TimeoutError) as refused:
            _log.warning("no guard at %r yet, its device's calls wait: %r", url, refused)
            return
        del self._silent[url]
        self._owners[device] = Owner(guard, RedisLease(self._redis, device))
