"""The GPU lease: which models may run on a device, as the guard grants and workers read it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import httpx2
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.calls import Completion, ModelCall, RunRequest
from shared.headers import add_trace_headers, authorization
from shared.keepalive import make_transport

# The lease: a live copy of a device's residency in Redis, which tells workers whether to claim calls.
#
# The authority is the guard, which checks the epoch of every chunk, so a stale lease costs only a refused request.

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


class RedisLease:
    """Publishes and reads the lease of one device."""

    def __init__(self, redis: Redis, device: str) -> None:
        self._redis = redis
        self._last: DeviceLease | None = None
        """The lease that was last read."""
        self._expires_at = 0.0
        """When it expires in Redis unless it is renewed, in monotonic seconds."""
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
            return self._last if time.monotonic() < self._expires_at else None
        self._last, self._expires_at = None, read_at + ttl_ms / 1000
        if fields:
            values = {_decode(name): _decode(value) for name, value in fields.items()}
            models = tuple(int(model) for model in values["models"].split(",") if model)
            self._last = DeviceLease(epoch=int(values["epoch"]), phase=Phase(values["phase"]), models=models)
        return self._last

    def forget(self) -> None:
        """Drop the last lease after the guard has refused a chunk under it, so that only Redis can grant again."""
        self._last = None


def _decode(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


REFUSED_STATUSES = (401, 403, 409)
"""Statuses with which the guard refuses a chunk before it runs any call: another service key, or another epoch."""


_LINE = msgspec.json.Decoder(Completion)
_ENCODER = msgspec.json.Encoder()


class NotGranted(Exception):
    """The guard refused the chunk or was not reached: another epoch, a drain, another service key, or no guard.

    The calls go back uncharged.
    """


class ChunkRejected(Exception):
    """The guard answered the chunk with an error that another epoch would not fix, so the calls are charged."""


class StreamBroken(Exception):
    """The connection broke while the chunk ran; the calls without a completion are suspects."""


class GuardClient:
    """Client of one device's guard."""

    def __init__(self, url: str, service_key: str = "") -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
        timeout = httpx2.Timeout(10.0, read=None)  # a model may be silent for long; the guard bounds the calls
        self._client = httpx2.AsyncClient(
            base_url=url, transport=make_transport(limits=limits), timeout=timeout, trust_env=False,
            event_hooks={"request": [add_trace_headers]}, headers=authorization(service_key),
        )  # fmt: skip

    async def run(self, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """Run a chunk and yield its completions as they arrive.

        Raises:
            NotGranted: the guard refused the chunk or cannot be reached.
            ChunkRejected: the guard answered with an error.
            StreamBroken: the stream ended early.
        """
        body = _ENCODER.encode(RunRequest(epoch=epoch, calls=tuple(calls)))
        answered = 0
        try:
            async with self._client.stream("POST", "/run", content=body) as response:
                if response.status_code != 200:
                    problem = f"HTTP {response.status_code}: {(await response.aread()).decode()[:300]}"
                    raise NotGranted(problem) if response.status_code in REFUSED_STATUSES else ChunkRejected(problem)
                async for line in response.aiter_lines():
                    if line:
                        answered += 1
                        yield _LINE.decode(line)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NotGranted(repr(error)) from error
        except httpx2.TransportError as error:
            raise StreamBroken(repr(error)) from error
        if answered < len(calls):
            raise StreamBroken(f"{len(calls) - answered} of {len(calls)} calls got no answer")

    async def read_device(self) -> str:
        """Read the id of its device, under which the lease is kept.

        Raises:
            NotGranted: it cannot be reached, or refuses our service key.
        """
        try:
            response = await self._client.get("/state", timeout=10.0)
        except httpx2.TransportError as error:
            raise NotGranted(repr(error)) from error
        if response.status_code != 200:
            raise NotGranted(f"HTTP {response.status_code}: {response.text[:300]}")
        return str(response.json()["device"])

    async def close(self) -> None:
        await self._client.aclose()


# The guards that a worker is configured with, each identified by the device that it reports.
#
# So a worker needs only the addresses of guards, and no device names have to agree between hosts.

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
        # Ask unidentified guards for their devices, at most every `PAUSE_S`, so that they do not delay the others.
        if self._unidentified and time.monotonic() - self._asked_at >= PAUSE_S:
            await asyncio.gather(*(self._identify_guard(url, guard) for url, guard in list(self._unidentified.items())))
            self._asked_at = time.monotonic()
        owners = dict(self._owners)
        found = await asyncio.gather(*(owner.lease.read() for owner in owners.values()))
        return dict(zip(owners, found, strict=True))

    async def run(self, device: str | None, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """Run a chunk on the device's guard and yield its completions as they arrive.

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

    async def _identify_guard(self, url: str, guard: GuardClient) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                device = await guard.read_device()
        except (NotGranted, TimeoutError) as refused:
            _log.warning("no guard answers at %r yet, the calls of its device wait: %r", url, refused)
            return
        del self._unidentified[url]
        self._owners[device] = DeviceGuard(guard, RedisLease(self._redis, device))
