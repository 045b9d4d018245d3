"""Somebody else's endpoint: nothing to load, nothing to free, no lease.

Whoever runs it may change what it serves. What it says of that is part of the model's identity, and is looked at once
more before a reply is believed.
"""

import asyncio
import logging
import os
from hashlib import sha256
from typing import Any

import httpx2

from services.guard.drivers.confirmation import Confirmation
from services.guard.drivers.ports import DriverError
from shared.bearer import authorization
from shared.contracts.architecture import Architecture
from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.device_settings import Device
from shared.model_settings import Model
from shared.models import ollama
from shared.models.openai_compatible import OpenAICompatible
from shared.models.sampling import BY_BACKEND
from shared.runtime.models import ModelIdentity

PROBE_S = 5.0
TRIES = 3
"""Looks at a server that does not answer, before replies that were paid for are thrown away."""
PAUSE_S = 1.0
LASTING = ("id", "root", "parent", "max_model_len", "meta", "owned_by")
"""Of a model in a server's list; other fields are made anew with each answer, such as vLLM's `created`."""

OWNERS = {"llamacpp": "llama.cpp", "vllm": "vllm"}
"""Backends by the owner that their lists of models name."""

_log = logging.getLogger(__name__)


Statement = dict[str, Any]
"""What a server says that it serves."""


class _Away(Exception):
    """The server answers nobody for now."""


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
        self._stated: Statement | None = None
        """When it was identified: what calls are pinned to."""

    async def identify(self) -> ModelIdentity:
        """TGI names the model's revision at `/info`; of others it is what they list under the model's name.

        Only a revision pins a model: a name in a list may stand for other weights tomorrow.

        Raises:
            DriverError: it is away, or it is Ollama, whose `/v1` cuts prompts in silence.
        """
        stated = await self._statement()
        if "model_id" not in stated and (found := await ollama.behind(self._url)):
            said = "is Ollama, whose /v1 cuts prompts in silence"
            raise DriverError(f"model {self._name!r}: {found} {said}; use `driver: ollama` with `url: {found}`")
        self._stated = stated
        return ModelIdentity(
            name=self._name,
            backend=_backend(stated),
            digest=stated.get("model_sha"),
            version=str(stated.get("version", "")),
            options={
                "url": self._url,
                **{name: stated[name] for name in ("serves", "template") if name in stated},
                "sampling": dict(BY_BACKEND[_backend(stated)]),
            },
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
        stated = self._stated or await self._statement()
        chat = OpenAICompatible(
            self._url,
            model=self._name,
            api_key=self._key,
            timeout_s=self._model.call_timeout_s,
            sampling=BY_BACKEND[_backend(stated)],
        )
        return RemoteServer(chat, self, stated)

    async def serves(self, before: Statement) -> bool | None:
        """Whether it still says what it said; None: it says nothing."""
        try:
            stated = await self._statement()
        except DriverError as error:
            _log.warning("whether replies can be believed is not known: %s", error)
            return None
        if stated != before:
            _log.error("model %r: %s serves %s now, not %s", self._name, self._url, stated, before)
        return stated == before

    async def _statement(self) -> Statement:
        """What the server says that it serves: of TGI its `/info`, of others version and model.

        Raises:
            DriverError: it is away, or refuses everybody for now.
        """
        base = self._url.rstrip("/").removesuffix("/v1")
        key = authorization(self._key or "")
        async with httpx2.AsyncClient(base_url=base, timeout=PROBE_S, trust_env=False, headers=key) as client:
            try:
                info = await _page(client, "/info")
                if "model_id" in info:
                    return {name: info.get(name) for name in ("model_id", "model_sha", "version")}
                return {**_card(await _page(client, "/v1/models"), self._name), **await _version(client)}
            except (httpx2.TransportError, _Away) as error:
                raise DriverError(f"model {self._name!r}: {self._url} is away: {error!r}") from error


class RemoteServer:
    """The endpoint: up as far as the guard knows, as long as it says that it serves the same."""

    pid = None
    died = False
    exit_status = None

    def __init__(self, chat: OpenAICompatible, driver: RemoteDriver, stated: Statement) -> None:
        self._chat = chat
        self._driver = driver
        self._stated = stated
        self._changed = asyncio.Event()
        self._confirmation = Confirmation(self._look)

    @property
    def alive(self) -> bool:
        """Whether it served the same at the last look."""
        return not self._changed.is_set()

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one prompt."""
        with self._confirmation.call():
            return await self._chat.complete(prompt, decoding, seed, logprobs)

    async def confirm(self) -> bool:
        """By what it says of itself, once a second at most while calls run."""
        return await self._confirmation.next()

    async def exited(self) -> None:
        """Return when it serves something else; its process is not ours."""
        await self._changed.wait()

    async def stop(self) -> None:
        """Close connections."""
        await self._chat.close()

    def memory_mib(self) -> float | None:
        """Not ours to measure."""
        return None

    async def _look(self) -> bool:
        for _ in range(TRIES):
            if (same := await self._driver.serves(self._stated)) is not None:
                break
            await asyncio.sleep(PAUSE_S)
        if same is False:
            self._changed.set()
        return bool(same) and self.alive


async def _page(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    """A page; empty where the server has none that can be read there."""
    response = await client.get(path)
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS or response.is_server_error:
        raise _Away(f"HTTP {response.status_code} at {path}")
    try:
        found = response.json() if response.status_code == httpx2.codes.OK else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _card(page: dict[str, Any], name: str) -> Statement:
    """What the list says of the model, or of the only one that there is: some servers answer to any name."""
    listed = page.get("data")
    cards = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    card = next((each for each in cards if each.get("id") == name), cards[0] if len(cards) == 1 else {})
    found = {field: card[field] for field in LASTING if card.get(field) is not None}
    return {"serves": found} if found else {}


def _backend(stated: Statement) -> str:
    """The kind of server: it decides which sampling settings are sent."""
    return "tgi" if "model_id" in stated else OWNERS.get(stated.get("serves", {}).get("owned_by"), "openai")


async def _version(client: httpx2.AsyncClient) -> Statement:
    """vLLM's; llama-server's, with the digest of its chat template."""
    if isinstance(said := (await _page(client, "/version")).get("version"), str):
        return {"version": said}
    props = await _page(client, "/props")
    said, template = props.get("build_info"), props.get("chat_template")
    found = {"version": said} if isinstance(said, str) else {}
    return found | ({"template": sha256(template.encode()).hexdigest()} if isinstance(template, str) else {})
