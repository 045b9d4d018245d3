"""The lease: the live copy of a device's residency in Redis. Workers read it to know whether to claim.

It is not the authority: the guard checks the epoch of every chunk, so a stale lease costs a refused request.
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

# The epoch only grows, and within an epoch the phase: a late writer changes nothing.
PUBLISH = """
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
local step = tonumber(redis.call('HGET', KEYS[1], 'step') or '0')
if tonumber(ARGV[1]) < epoch or (tonumber(ARGV[1]) == epoch and tonumber(ARGV[5]) < step) then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'phase', ARGV[2], 'models', ARGV[3], 'step', ARGV[5])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""


class Phase(StrEnum):
    """What the device is doing."""

    DRAINING = "draining"
    LOADING = "loading"
    OPEN = "open"
    QUARANTINED = "quarantined"


STEPS = tuple(Phase)
"""The order of the phases within an epoch."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the device."""

    epoch: int
    phase: Phase
    models: tuple[int, ...]

    def grants(self, model_id: int) -> bool:
        """Whether calls of this model may be sent now."""
        return self.phase is Phase.OPEN and model_id in self.models


class _Remembered(NamedTuple):
    """The lease that was read last."""

    lease: Lease | None
    until: float
    """When it expires in Redis unless it is renewed, by the monotonic clock."""


class RedisLease:
    """The lease of one device."""

    def __init__(self, redis: Redis, device: str) -> None:
        self._redis = redis
        self._remembered = _Remembered(None, 0.0)
        self._key = f"mathrag:gpu:{{{device}}}:lease"
        self._publish = redis.register_script(PUBLISH)

    async def publish(self, epoch: int, phase: Phase, models: Sequence[int] = ()) -> bool:
        """Write the lease for another TTL; False if a later epoch or phase is there.

        Raises:
            RedisError: Redis does not answer.
        """
        values = [epoch, phase.value, ",".join(map(str, models)), TTL_S, STEPS.index(phase)]
        return bool(await self._publish(keys=[self._key], args=values))

    async def reachable(self) -> bool:
        """Whether Redis answers: without it no flip is begun."""
        try:
            return bool(await self._redis.ping())
        except RedisError:
            return False

    async def read(self) -> Lease | None:
        """The lease, or None if there is none: then nobody claims leased calls.

        While Redis does not answer, the lease that was read last is believed until its time to live is over.
        """
        asked = time.monotonic()
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hgetall(self._key)
                pipeline.pttl(self._key)
                fields, ttl_ms = await pipeline.execute()
        except RedisError:
            return self._remembered.lease if time.monotonic() < self._remembered.until else None
        lease = _lease(fields) if fields else None
        self._remembered = _Remembered(lease, asked + ttl_ms / 1000)
        return lease

    def forget(self) -> None:
        """Believe it no longer without Redis: the guard has refused what was sent under it."""
        self._remembered = _Remembered(None, 0.0)


def _lease(fields: Mapping[bytes | str, bytes | str]) -> Lease:
    values = {_text(name): _text(value) for name, value in fields.items()}
    models = tuple(int(model) for model in values["models"].split(",") if model)
    return Lease(epoch=int(values["epoch"]), phase=Phase(values["phase"]), models=models)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
