"""Driver `remote`: an endpoint of another operator, without loads and without a lease.

Its operator may change the model. The endpoint's report about it is part of the model's identity, and is checked again
before a reply is used.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import httpx2

from services.guard.drivers.ports import Confirmation, Driver, DriverError
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.headers import authorization
from shared.models import ollama
from shared.models.chat import BY_BACKEND, label_options
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model

if TYPE_CHECKING:
    from shared.models.openai_compatible import OpenAICompatible

PROBE_S = 5.0
MAX_CHECKS = 3
"""Checks of a server that does not answer, before paid-for replies are discarded."""
PAUSE_S = 1.0
LASTING = ("id", "root", "parent", "max_model_len", "meta", "owned_by")
"""Fields of a listed model that do not change between answers, unlike vLLM's `created`."""

OWNERS = {"llamacpp": "llama.cpp", "vllm": "vllm", "sglang": "sglang"}
"""Backends by the `owned_by` of the models that they list."""

_log = logging.getLogger(__name__)

Statement = dict[str, Any]
"""The report of a server about its model."""


class _Unavailable(Exception):
    """The server answers 429 or 5xx."""


class RemoteDriver(Driver):
    """Drives a model on the OpenAI-compatible or TGI server at the configured `url`; the guard holds nothing of it."""

    def __init__(self, name: str, model: Model, device: Device) -> None:
        if model.url is None:
            raise DriverError(f"model {name!r}: driver `remote` needs a `url`")
        self._name = name
        self._model = model
        self._device = device
        self._url = model.url
        self._key = os.environ.get(model.api_key_env) if model.api_key_env else None
        self._stated: Statement | None = None
        """The report of the server when it was identified; calls are pinned to it."""

    async def identify(self) -> ModelIdentity:
        """Identify the model by TGI's `/info`, or by what other servers list under the model's name.

        Only TGI reports a revision, which pins the weights; a listed name may stand for other weights tomorrow.

        Raises:
            DriverError: the server is away; or it is Ollama, whose `/v1` silently truncates prompts; or it cannot do
                what `constrain_labels` needs.
        """
        stated = await self._read_statement()
        if "model_id" not in stated and (found := await ollama.find_ollama(self._url)):
            problem = "is Ollama, whose /v1 silently truncates prompts"
            raise DriverError(f"model {self._name!r}: {found} {problem}; use `driver: ollama` with `url: {found}`")
        backend, version = _detect_backend(stated), str(stated.get("version", ""))
        try:
            labels = label_options(constrained=self._model.constrain_labels, backend=backend, version=version)
        except ValueError as error:
            raise DriverError(f"model {self._name!r}: {error}") from error
        self._stated = stated
        return ModelIdentity(
            name=self._name,
            backend=backend,
            digest=stated.get("model_sha"),
            version=version,
            options={
                "url": self._url,
                **{name: stated[name] for name in ("serves", "template") if name in stated},
                **labels,
                "sampling": dict(BY_BACKEND[backend]),
            },
            device=self._device.id,
        )

    async def start(self, parallel: int | None = None) -> "RemoteServer":  # noqa: ARG002 - its slots are not ours
        stated = self._stated or await self._read_statement()
        from shared.models.openai_compatible import OpenAICompatible  # 6 MiB, which an idle guard does not need

        chat = OpenAICompatible(
            self._url, model=self._name, api_key=self._key, timeout_s=self._model.call_timeout_s,
            backend=_detect_backend(stated),
        )  # fmt: skip
        return RemoteServer(chat, self, stated)

    async def still_serves(self, before: Statement) -> bool | None:
        """Tell whether the server still reports `before`; None if it does not answer."""
        try:
            stated = await self._read_statement()
        except DriverError as error:
            _log.warning("cannot confirm the model of the server: %s", error)
            return None
        if stated != before:
            _log.error("model %r: %s serves %s now, not %s", self._name, self._url, stated, before)
        return stated == before

    async def _read_statement(self) -> Statement:
        """Read the report of the server: TGI's `/info`, or the version and the listed model of others.

        Raises:
            DriverError: it is away, or answers 429 or 5xx.
        """
        base = self._url.rstrip("/").removesuffix("/v1")
        key = authorization(self._key or "")
        async with httpx2.AsyncClient(base_url=base, timeout=PROBE_S, trust_env=False, headers=key) as client:
            try:
                info = await _read_page(client, "/info")
                if "model_id" in info:
                    return {name: info.get(name) for name in ("model_id", "model_sha", "version")}
                return {**_find_card(await _read_page(client, "/v1/models"), self._name), **await _read_version(client)}
            except (httpx2.TransportError, _Unavailable) as error:
                raise DriverError(f"model {self._name!r}: {self._url} is away: {error!r}") from error


class RemoteServer:
    """The endpoint, which counts as alive as long as it reports the same model."""

    pid = None
    died = False
    exit_status = None

    def __init__(self, chat: "OpenAICompatible", driver: RemoteDriver, stated: Statement) -> None:
        self._chat = chat
        self._driver = driver
        self._stated = stated
        self._changed = asyncio.Event()
        self._confirmation = Confirmation(self._check_statement)

    @property
    def alive(self) -> bool:
        """Return whether it reported the same model at the last check."""
        return not self._changed.is_set()

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        """Answer one prompt."""
        with self._confirmation.track_call():
            return await self._chat.complete(prompt, decoding, seed, logprobs, choices)

    async def confirm(self) -> bool:
        """Check the report of the server, at most four times a second while calls run."""
        return await self._confirmation.check()

    async def wait_exited(self) -> None:
        """Return when the server reports another model."""
        await self._changed.wait()

    async def stop(self) -> None:
        """Close the connections to the endpoint."""
        await self._chat.close()

    def memory_mib(self) -> float | None:
        """Return None: the endpoint's memory cannot be measured."""
        return None

    async def _check_statement(self) -> bool:
        for _ in range(MAX_CHECKS):
            if (same := await self._driver.still_serves(self._stated)) is not None:
                break
            await asyncio.sleep(PAUSE_S)
        if same is False:
            self._changed.set()
        return bool(same) and self.alive


async def _read_page(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    """Read a JSON object; empty if the server has none at `path`."""
    response = await client.get(path)
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS or response.is_server_error:
        raise _Unavailable(f"HTTP {response.status_code} at {path}")
    try:
        found = response.json() if response.status_code == httpx2.codes.OK else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _find_card(page: dict[str, Any], name: str) -> Statement:
    """Find the listed entry of the model, or the only one that there is: some servers answer to any name."""
    listed = page.get("data")
    cards = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    card = next((each for each in cards if each.get("id") == name), cards[0] if len(cards) == 1 else {})
    found = {field: card[field] for field in LASTING if card.get(field) is not None}
    return {"serves": found} if found else {}


def _detect_backend(stated: Statement) -> str:
    """Return the kind of server, which decides which sampling settings are sent."""
    return "tgi" if "model_id" in stated else OWNERS.get(stated.get("serves", {}).get("owned_by"), "openai")


async def _read_version(client: httpx2.AsyncClient) -> Statement:
    """Read the version of vLLM, or that of llama-server with the digest of its chat template."""
    if isinstance(version := (await _read_page(client, "/version")).get("version"), str):
        return {"version": version}
    props = await _read_page(client, "/props")
    version, template = props.get("build_info"), props.get("chat_template")
    found = {"version": version} if isinstance(version, str) else {}
    return found | ({"template": sha256(template.encode()).hexdigest()} if isinstance(template, str) else {})
