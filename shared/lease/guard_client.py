"""How a worker talks to the guard: a chunk goes out, completions stream back."""

from collections.abc import AsyncIterator, Sequence

import httpx2
import msgspec

from shared.bearer import authorization
from shared.contracts.guard import Completion, ModelCall, RunRequest
from shared.trace_headers import add_trace_headers

UNTOUCHED = (401, 403, 409)
"""The guard looked at the envelope alone: another service key, or another epoch."""


class Owned(msgspec.Struct, frozen=True):
    """Of a guard's state, what a worker asks for."""

    device: str


_LINE = msgspec.json.Decoder(Completion)
_STATE = msgspec.json.Decoder(Owned)
_ENCODER = msgspec.json.Encoder()


class NotGranted(Exception):
    """The guard took no byte of the chunk: another epoch, a drain, another service key, or no guard at all.

    The calls go back uncharged.
    """


class Rejected(Exception):
    """The guard cannot run the chunk at all: not a matter of epochs, so the calls are charged."""


class Broken(Exception):
    """The guard went away while the chunk ran: what it has not answered is suspect."""


class GuardClient:
    """One device's guard."""

    def __init__(self, url: str, service_key: str = "") -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
        timeout = httpx2.Timeout(10.0, read=None)  # a model may be silent for long; the guard has the deadlines
        self._client = httpx2.AsyncClient(
            base_url=url, limits=limits, timeout=timeout, trust_env=False, event_hooks={"request": [add_trace_headers]},
            headers=authorization(service_key),
        )  # fmt: skip

    async def run(self, epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        """Completions as they come.

        Raises:
            NotGranted: the guard refused the chunk or cannot be reached.
            Rejected: the guard answered with an error.
            Broken: the stream ended early.
        """
        body = _ENCODER.encode(RunRequest(epoch=epoch, calls=tuple(calls)))
        answered = 0
        try:
            async with self._client.stream("POST", "/run", content=body) as response:
                if response.status_code != 200:
                    said = f"HTTP {response.status_code}: {(await response.aread()).decode()[:300]}"
                    raise NotGranted(said) if response.status_code in UNTOUCHED else Rejected(said)
                async for line in response.aiter_lines():
                    if line:
                        answered += 1
                        yield _LINE.decode(line)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NotGranted(repr(error)) from error
        except httpx2.TransportError as error:
            raise Broken(repr(error)) from error
        if answered < len(calls):
            raise Broken(f"{len(calls) - answered} of {len(calls)} calls got no answer")

    async def device(self) -> str:
        """The name of its device, under which the lease is kept.

        Raises:
            NotGranted: it cannot be reached, or does not answer to our service key.
        """
        try:
            response = await self._client.get("/state", timeout=10.0)
        except httpx2.TransportError as error:
            raise NotGranted(repr(error)) from error
        if response.status_code != 200:
            raise NotGranted(f"HTTP {response.status_code}: {response.text[:300]}")
        return _STATE.decode(response.content).device

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()
