"""The guards that a worker is configured with, each identified by the device that it reports.

So a worker needs only the addresses of guards, and no device names have to agree between hosts.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from redis.asyncio import Redis

from shared.contracts.guard import Completion, ModelCall
from shared.lease.guard_client import GuardClient, NotGranted
from shared.lease.lease import DeviceLease, RedisLease

ASK_S = 2.0
"""Timeout of a request for the device of a guard."""
PAUSE_S = 2.0
"""Between two attempts to identify guards."""

_log = logging.getLogger(__name__)


class DeviceGuard(NamedTuple):
    """A device's guard and its lease."""

    guard: GuardClient
    lease: RedisLease


class Guards:
    """The guards of a worker, by the devices that they own."""

    def __init__(self, redis: Redis, urls: Sequence[str], service_key: str = "") -> None:
        self._redis = redis
        self._unidentified = {url: GuardClient(url, service_key) for url in urls}
        """Guards, by URL, whose device is not known yet."""
        self._owners: dict[str, DeviceGuard] = {}
        self._asked_at = float("-inf")

    async def read_leases(self) -> dict[str, DeviceLease | None]:
        """Read the lease of every device whose guard is known; with None, calls that need it must not be claimed."""
        await self._identify_guards()
        owners = dict(self._owners)
        found = await asyncio.gather(*(owner.lease.read() for owner in owners.values()))
        return dict(zip(owners, found, strict=True))

    async def run(self, device: str | None, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """Run a chunk on the device's guard and yield its completions as they come.

        Raises:
            NotGranted, ChunkRejected, StreamBroken: as `GuardClient.run`; the first also if no guard owns the device.
        """
        owner = self._owners.get(device or "")
        if owner is None:
            raise NotGranted(f"no reachable guard owns device {device!r}")
        try:
            async for completion in owner.guard.run(epoch, calls):
                yield completion
        except NotGranted:
            owner.lease.forget()
            raise

    async def close(self) -> None:
        guards = [*self._unidentified.values(), *(owner.guard for owner in self._owners.values())]
        await asyncio.gather(*(guard.close() for guard in guards))

    async def _identify_guards(self) -> None:
        """Ask unidentified guards for their devices, at most every `PAUSE_S`, so that they do not delay the others."""
        if not self._unidentified or time.monotonic() - self._asked_at < PAUSE_S:
            return
        await asyncio.gather(*(self._identify_guard(url, guard) for url, guard in list(self._unidentified.items())))
        self._asked_at = time.monotonic()

    async def _identify_guard(self, url: str, guard: GuardClient) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                device = await guard.read_device()
        except (NotGranted, TimeoutError) as refused:
            _log.warning("no guard answers at %r yet, the calls of its device wait: %r", url, refused)
            return
        del self._unidentified[url]
        self._owners[device] = DeviceGuard(guard, RedisLease(self._redis, device))
