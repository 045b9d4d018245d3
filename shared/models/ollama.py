"""The native API of an Ollama server, whose every call says all that decides how the model is loaded.

Never `/v1`: it ignores `keep_alive`, `num_ctx`, `truncate` and `shift`, so a prompt would be cut in silence and a model
loaded anew (ollama#3645, #9355). A call whose runner options differ from those of the load replaces the runner, and so
does another `shift`: both are in every body.
"""

import time
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import FailureKind
from shared.models import ollama_answers
from shared.models.chat import ChatFailed, Unreached
from shared.models.ollama_answers import Cut
from shared.models.sampling import OLLAMA
from shared.trace_headers import add_trace_headers

DEFAULT_URL = "http://127.0.0.1:11434"
"""Where `ollama serve` listens."""
OLDEST = (0, 12, 6)
"""The first version that knows `truncate` and `shift`; older ones ignore them and cut prompts in silence."""
FIXED: dict[str, bool] = {"truncate": False, "shift": False, "think": False}
"""A prompt that does not fit is refused, a context that is full ends the answer, and answers are all that is said."""
RELOAD_S = 1.0
"""Finding a loaded model takes milliseconds; a call that waited longer than this for it has had it loaded. A model that
loads fast is loaded again even faster, from the page cache: then a quarter of its load says so (0.8 s were seen)."""
SHORTEST_RELOAD_S = 0.2
"""A busy server may take up to this to find a model."""
KEEP_S = 30
"""How long a model stays loaded after a call. Never for ever: a server with room for one model then hangs when another
client asks it for another model. A model that is to stay is asked for again sooner than that."""
PADDING = 256
"""A runner rounds its context up to a multiple of this."""
ANSWER_S = 120.0
"""Longest answer to one prompt, where none is given."""
LOOK_S = 5.0

T = TypeVar("T")


class OllamaFailed(Exception):
    """The server refused, said something strange, or is not there (`away`)."""

    def __init__(self, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.away = away


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of its weights."""

    quantization_level: str = ""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """A model on the server's disk; the digest is its manifest's, so it changes with weights, template and defaults."""

    name: str
    digest: str
    modified_at: str = ""
    """When the tag was last written."""
    size: int = 0
    """Bytes."""
    details: Details = Details()


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model. Sizes in bytes; `size_vram` is the part on the GPU; `context_length` in tokens per slot."""

    name: str
    digest: str
    size: int = 0
    size_vram: int = 0
    context_length: int = 0


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Tags(msgspec.Struct, frozen=True):
    models: tuple[Pulled, ...] = ()


class _Processes(msgspec.Struct, frozen=True):
    models: tuple[Resident, ...] = ()


async def behind(url: str) -> str | None:
    """The address of the Ollama server whose `/v1` this is; None: another server's, or nobody is there."""
    async with Ollama(url.rstrip("/").removesuffix("/v1"), {}) as api:
        try:
            await api.stated_version()
        except OllamaFailed:
            return None
        return api.url


def full_tag(name: str) -> str:
    """The name under which the server lists a model: without a tag it is `latest`."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


class Ollama:
    """One server, with one set of runner options."""

    def __init__(self, url: str, options: Mapping[str, int], answer_s: float = ANSWER_S) -> None:
        self.url = url.rstrip("/")
        self._options = dict(options)
        self._reload_s = RELOAD_S
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        # trust_env off: a proxy of the environment must not see prompts.
        self._client = httpx2.AsyncClient(
            base_url=self.url,
            timeout=answer_s,
            limits=limits,
            trust_env=False,
            event_hooks={"request": [add_trace_headers]},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def version(self) -> str:
        """The server's version.

        Raises:
            OllamaFailed: nobody is there, or it is too old to refuse what it cannot hold.
        """
        version = await self.stated_version()
        numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
        if numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise OllamaFailed(f"{self.url} is Ollama {version}, which cuts prompts in silence; take {oldest} or newer")
        return version

    async def stated_version(self) -> str:
        """What the server says, new enough or not.

        Raises:
            OllamaFailed: nobody is there, or it is no Ollama.
        """
        return (await self._get("/api/version", _Version)).version

    async def pulled(self, tag: str) -> Pulled:
        """The model as it lies on the server's disk now.

        Raises:
            OllamaFailed: it is not there; the message names the command that pulls it.
        """
        found = await self.listed(tag)
        if found is None:
            raise OllamaFailed(f"{self.url} has no model {tag!r}: ollama pull {tag}")
        return found

    async def listed(self, tag: str) -> Pulled | None:
        """The same; None where no model has that name."""
        models = (await self._get("/api/tags", _Tags)).models
        return next((each for each in models if each.name == full_tag(tag)), None)

    async def shown(self, tag: str) -> dict[str, Any]:
        """What the server says of a pulled model: `model_info` has the keys of its GGUF header."""
        content = await self._content("POST", "/api/show", timeout_s=LOOK_S, body={"model": tag})
        return self._decoded("/api/show", content, dict[str, Any])

    async def resident(self) -> tuple[Resident, ...]:
        """What is loaded."""
        return (await self._get("/api/ps", _Processes)).models

    async def load(self, tag: str) -> None:
        """Load a model and keep it for `KEEP_S`; without a time limit, as a client that goes away cancels the load.

        What it takes is the measure of a reload.
        """
        began = time.monotonic()
        await self._ask(self._body(tag, keep_alive=KEEP_S), timeout_s=None)
        self._reload_s = min(RELOAD_S, max(SHORTEST_RELOAD_S, (time.monotonic() - began) / 4))

    async def keep(self, tag: str) -> None:
        """Have a model that is loaded stay for another `KEEP_S`; one that is not is loaded."""
        await self._ask(self._body(tag, keep_alive=KEEP_S), timeout_s=LOOK_S)

    async def unload(self, tag: str) -> None:
        """Ask for a model to be unloaded: an answer says only that it will be, once it is idle."""
        await self._ask(self._body(tag, keep_alive=0), timeout_s=LOOK_S)

    async def chat(self, tag: str, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one user message; with so many alternatives of each token, from version 0.12.11 on.

        Raises:
            Reloaded: the model was not there any more.
            Removed: it has no such model any more.
            RunnerDied: it went while it answered.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        body = self._body(tag, keep_alive=KEEP_S, prompt=prompt)
        decoded = {"temperature": decoding.temperature, "num_predict": decoding.max_tokens, "seed": seed}
        body["options"] |= {**OLLAMA, **decoded}
        if logprobs:
            body |= {"logprobs": True, "top_logprobs": logprobs}
        try:
            async with self._client.stream("POST", "/api/chat", json=body) as response:
                found = await ollama_answers.pieces(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise Unreached(repr(error)) from error
        except httpx2.TimeoutException as error:
            raise ChatFailed(FailureKind.TIMEOUT, repr(error)) from error
        except httpx2.TransportError as error:
            raise ChatFailed(FailureKind.CONNECTION, repr(error)) from error
        return ollama_answers.reply(found, room=self._room(), reload_s=self._reload_s)

    async def cuts(self, tag: str) -> bool:
        """Whether a prompt of twice the context is answered: a server that cuts it says so nowhere.

        Raises:
            ChatFailed: it said something else.
        """
        try:
            await self.chat(tag, "1 " * 2 * self._room(), Decoding(max_tokens=1), 0)
        except Cut:
            return True
        except ChatFailed as failed:
            if failed.kind is FailureKind.CONTEXT_EXCEEDED:
                return False
            raise
        return True

    def _room(self) -> int:
        """Tokens of a slot: a runner rounds the context up."""
        return -(-self._options["num_ctx"] // PADDING) * PADDING

    def _body(self, tag: str, *, keep_alive: int, prompt: str | None = None) -> dict[str, Any]:
        """A chat without a message loads or, with `keep_alive` 0, unloads."""
        messages = [] if prompt is None else [{"role": "user", "content": prompt}]
        return {
            "model": tag, "messages": messages, "stream": prompt is not None, "keep_alive": keep_alive, **FIXED,
            "options": dict(self._options),
        }  # fmt: skip

    async def _get(self, path: str, kind: type[T]) -> T:
        return self._decoded(path, await self._content("GET", path, timeout_s=LOOK_S), kind)

    def _decoded(self, path: str, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise OllamaFailed(f"{self.url}{path} is no answer of Ollama: {error}") from error

    async def _ask(self, body: dict[str, Any], *, timeout_s: float | None) -> None:
        await self._content("POST", "/api/chat", timeout_s=timeout_s, body=body)

    async def _content(self, method: str, path: str, *, timeout_s: float | None, body: Any = None) -> bytes:
        try:
            response = await self._client.request(method, path, json=body, timeout=timeout_s)
        except httpx2.TimeoutException as error:
            raise OllamaFailed(f"{self.url}{path} does not answer: {error!r}") from error
        except httpx2.TransportError as error:
            raise OllamaFailed(f"no Ollama at {self.url}: {error!r}; try `ollama serve`", away=True) from error
        if response.status_code != httpx2.codes.OK:
            raise OllamaFailed(f"{self.url}{path}: HTTP {response.status_code}: {response.text[:500]}")
        return response.content
