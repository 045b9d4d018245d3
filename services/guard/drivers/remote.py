"""Somebody else's endpoint: nothing to load, nothing to free, no lease."""

import asyncio
import os

import httpx2

from services.guard.drivers.ports import DriverError
from shared.contracts.calls import Decoding
from shared.lease.footprint import Architecture
from shared.models import ollama
from shared.models.chat import ChatReply
from shared.models.openai_compatible import OpenAICompatible
from shared.runtime.models import ModelIdentity
from shared.settings import Device, Model

PROBE_S = 5.0


class RemoteDriver:
    """An OpenAI-compatible or TGI server that the operator named."""

    def __init__(self, name: str, model: Model, device: Device) -> None:
        if model.url is None:
            raise DriverError(f"model {name!r}: driver `remote` needs a `url`")
        self._name = name
        self._model = model
        self._device = device
        self._url = model.url
        self._key = os.environ.get(model.api_key_env) if model.api_key_env else None

    async def identify(self) -> ModelIdentity:
        """TGI names the model's revision at `/info`; other servers name nothing, and the row stays unpinned.

        Raises:
            DriverError: it is Ollama, whose `/v1` cuts prompts in silence.
        """
        info = await self._info()
        if not info and (found := await ollama.behind(self._url)):
            said = "is Ollama, whose /v1 cuts prompts in silence"
            raise DriverError(f"model {self._name!r}: {found} {said}; use `driver: ollama` with `url: {found}`")
        return ModelIdentity(
            name=self._name,
            backend="tgi" if info else "openai",
            digest=info.get("model_sha"),
            version=str(info.get("version", "")),
            options={"url": self._url},
            device=self._device.id,
        )

    async def take_over(self) -> None:
        """Nothing is held."""

    async def architecture(self) -> Architecture | None:
        """Not told."""
        return None

    async def warm(self) -> None:
        """Nothing to read ahead."""

    async def start(self, parallel: int | None = None) -> "RemoteServer":  # noqa: ARG002 - its slots are not ours
        """Nothing is started; the endpoint is used as it is."""
        return RemoteServer(
            OpenAICompatible(self._url, model=self._name, api_key=self._key, timeout_s=self._model.call_timeout_s)
        )

    async def _info(self) -> dict[str, str]:
        async with httpx2.AsyncClient(timeout=PROBE_S, trust_env=False) as client:
            try:
                response = await client.get(self._url.rstrip("/").removesuffix("/v1") + "/info")
                found = response.json() if response.status_code == 200 else {}
            except (httpx2.TransportError, ValueError):
                return {}
        return found if isinstance(found, dict) and "model_id" in found else {}


class RemoteServer:
    """The endpoint, always up as far as the guard knows."""

    pid = None
    alive = True
    died = False
    exit_status = None

    def __init__(self, chat: OpenAICompatible) -> None:
        self._chat = chat

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ChatReply:
        """Answer one prompt."""
        return await self._chat.complete(prompt, decoding, seed, logprobs)

    async def confirm(self) -> bool:
        """Not looked at."""
        return True

    async def exited(self) -> None:
        """Never: its process is not ours."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Close connections."""
        await self._chat.close()

    def memory_mib(self) -> float | None:
        """Not ours to measure."""
        return None
