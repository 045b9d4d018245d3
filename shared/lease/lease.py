"""The lease: a live copy of a device's residency in Redis, which tells workers whether to claim calls.

The authority is the guard, which checks the epoch of every chunk, so a stale lease costs only a refused request.
"""

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

TTL_S = 15
RENEW_S = 5
RETRY_S = 120
"""How long a request to try a quarantined device again stays, if no call needs the device."""

# The epoch only grows, and so does the phase within an epoch: a late writer changes nothing.
PUBLISH = """
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
local step = tonumber(redis.call('HGET', KEYS[1], 'step') or '0')
if tonumber(ARGV[1]) < epoch or (tonumber(ARGV[1]) == epoch and tonumber(ARGV[5]) < step) then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'phase', ARGV[2], 'models', ARGV[3], 'step', ARGV[5])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""


class Phase(StrEnum):
    """Phase of a device's residency."""

    DRAINING = "draining"
    LOADING = "loading"
    OPEN = "open"
    QUARANTINED = "quarantined"


STEPS = tuple(Phase)
"""The order of the phases within an epoch."""


class DeviceLease(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch, phase and models of a device's residency."""

    epoch: int
    phase: Phase
    models: tuple[int, ...]

    def grants(self, model_id: int) -> bool:
        """Tell whether calls of this model may be sent now."""
        return self.phase is Phase.OPEN and model_id in self.models


class _CachedLease(NamedTuple):
    """The lease that was last read."""

    lease: DeviceLease | None
    until: float
    """When it expires in Redis unless it is renewed, in monotonic seconds."""


class RedisLease:
    """Publishes and reads the lease of one device."""

    def __init__(self, redis: Redis, device: str) -> None:
        self._redis = redis
        self._cached = _CachedLease(None, 0.0)
        self._key = f"mathrag:gpu:{{{device}}}:lease"
        self._retry_key = f"mathrag:gpu:{{{device}}}:retry"
        self._publish = redis.register_script(PUBLISH)

    async def publish(self, epoch: int, phase: Phase, models: Sequence[int] = ()) -> bool:
        """Write the lease for another TTL and return true, or false if a later epoch or phase is there.

        Raises:
            RedisError: Redis does not answer.
        """
        values = [epoch, phase.value, ",".join(map(str, models)), TTL_S, STEPS.index(phase)]
        return bool(await self._publish(keys=[self._key], args=values))

    async def is_reachable(self) -> bool:
        """Tell whether Redis answers; without it no flip is begun."""
        try:
            return bool(await self._redis.ping())
        except RedisError:
            return False

    async def request_retry(self, epoch: int) -> None:
        """Request that the device be tried again at once after the quarantine of this epoch.

        Raises:
            RedisError: Redis does not answer.
        """
        await self._redis.set(self._retry_key, epoch, ex=RETRY_S)

    async def is_retry_requested(self, epoch: int) -> bool:
        """Tell whether a retry after this epoch was requested; a request that was lost costs only the usual pause."""
        try:
            found = await self._redis.get(self._retry_key)
        except RedisError:
            return False
        return found is not None and int(found) == epoch

    async def read(self) -> DeviceLease | None:
        """Return the lease; if it is None, leased calls must not be claimed.

        While Redis does not answer, the lease that was last read stays valid until its time to live is over.
        """
        read_at = time.monotonic()
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hgetall(self._key)
                pipeline.pttl(self._key)
                fields, ttl_ms = await pipeline.execute()
        except RedisError:
            return self._cached.lease if time.monotonic() < self._cached.until else None
        lease = _parse_lease(fields) if fields else None
        self._cached = _CachedLease(lease, read_at + ttl_ms / 1000)
        return lease

    def forget(self) -> None:
        """Drop the last lease after the guard has refused a chunk under it, so that only Redis can grant again."""
        self._cached = _CachedLease(None, 0.0)


def _parse_lease(fields: Mapping[bytes | str, bytes | str]) -> DeviceLease:
    values = {_decode(name): _decode(value) for name, value in fields.items()}
    models = tuple(int(model) for model in values["models"].split(",") if model)
    return DeviceLease(epoch=int(values["epoch"]), phase=Phase(values["phase"]), models=models)


def _decode(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
