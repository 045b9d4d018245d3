"""The client with which a worker sends chunks of calls to a guard and streams back their completions."""

from collections.abc import AsyncIterator, Sequence

import httpx2
import msgspec

from shared.bearer import authorization
from shared.contracts.guard import Completion, ModelCall, RunRequest
from shared.trace_headers import add_trace_headers

REFUSED_STATUSES = (401, 403, 409)
"""Statuses with which the guard refuses a chunk before it runs any call: another service key, or another epoch."""


class GuardIdentity(msgspec.Struct, frozen=True):
    """The part of a guard's state that a worker needs."""

    device: str


_LINE = msgspec.json.Decoder(Completion)
_STATE = msgspec.json.Decoder(GuardIdentity)
_ENCODER = msgspec.json.Encoder()


class NotGranted(Exception):
    """The guard refused the chunk or was not reached: another epoch, a drain, another service key, or no guard.

    The calls go back uncharged.
    """


class ChunkRejected(Exception):
    """The guard answered the chunk with an error that another epoch would not mend, so the calls are charged."""


class StreamBroken(Exception):
    """The connection broke while the chunk ran; the calls without a completion are suspects."""


class GuardClient:
    """Client of one device's guard."""

    def __init__(self, url: str, service_key: str = "") -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
        timeout = httpx2.Timeout(10.0, read=None)  # a model may be silent for long; the guard bounds the calls
        self._client = httpx2.AsyncClient(
            base_url=url, limits=limits, timeout=timeout, trust_env=False, event_hooks={"request": [add_trace_headers]},
            headers=authorization(service_key),
        )  # fmt: skip

    async def run(self, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """Run a chunk and yield its completions as they come.

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
        return _STATE.decode(response.content).device

    async def close(self) -> None:
        await self._client.aclose()
