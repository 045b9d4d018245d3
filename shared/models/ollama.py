"""The native API of an Ollama server, whose every call says all that decides how the model is loaded.

Never `/v1`: it ignores `keep_alive`, `num_ctx`, `truncate` and `shift`, so a prompt would be cut in silence and a model
loaded anew (ollama#3645, #9355). A call whose runner options differ from those of the load replaces the runner, and so
does another `shift`: both are in every body.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from shared.contracts.calls import Decoding, FailureKind
from shared.models.chat import AWAY, CUT, REPETITION, Away, ChatFailed, ChatReply, Unreached
from shared.models.logprobs import tokens
from shared.models.sampling import OLLAMA
from shared.telemetry import traces

DEFAULT_URL = "http://127.0.0.1:11434"
"""Where `ollama serve` listens."""
OLDEST = (0, 12, 6)
"""The first version that knows `truncate` and `shift`; older ones ignore them and cut prompts in silence."""
FIXED: dict[str, bool] = {"truncate": False, "shift": False, "think": False}
"""A prompt that does not fit is refused, a context that is full ends the answer, and answers are all that is said."""
RELOAD_S = 1.0
"""Finding a loaded model takes milliseconds; a call that waited longer than this for it has had it loaded."""
ANSWER_S = 120.0
"""Longest answer to one prompt, where none is given."""
LOOK_S = 5.0
SIGNS_OF_LENGTH = ("exceed_context_size", "exceeds the context length", "exceeds the available context")
"""How its runners say that a prompt does not fit."""
SIGNS_OF_DEATH = ("runner process has terminated", "runner has unexpectedly stopped", "out of memory", "CUDA error")
"""How it says that a runner is gone, or on a GPU that it can use no more (ollama#9782, #11421)."""

REPEATS = 30
"""Pieces of an answer in a row that are equal but for blanks; of one more Ollama stops it (llm/server.go)."""
SIGN_OF_REPETITION = "token repeat limit reached"
"""What some versions say when they do; others (0.33.0) just end the stream."""

T = TypeVar("T")


class OllamaFailed(Exception):
    """The server refused, said something strange, or is not there (`away`)."""

    def __init__(self, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.away = away


class Reloaded(ChatFailed):
    """The call was answered by a runner that is not the one that was verified; the connection to that one was lost."""


class RunnerDied(ChatFailed):
    """The process that held the model is gone, and with it all calls that it answered at the time."""


class Cut(ChatFailed):
    """The server answered what was left of the prompt."""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of its weights."""

    quantization_level: str = ""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """A model on the server's disk; the digest is its manifest's, so it changes with weights, template and defaults."""

    name: str
    digest: str
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


class _Message(msgspec.Struct, frozen=True):
    content: str = ""


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; the last one has the figures, durations in nanoseconds."""

    message: _Message = _Message()
    error: str = ""
    done: bool = False
    done_reason: str = ""
    load_duration: int = 0
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: Any = None


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
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        # trust_env off: a proxy of the environment must not see prompts.
        self._client = httpx2.AsyncClient(
            base_url=self.url, timeout=answer_s, limits=limits, trust_env=False, event_hooks=traces.hooks()
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
        found = {each.name: each for each in (await self._get("/api/tags", _Tags)).models}
        if full_tag(tag) not in found:
            raise OllamaFailed(f"{self.url} has no model {tag!r}: ollama pull {tag}")
        return found[full_tag(tag)]

    async def shown(self, tag: str) -> dict[str, Any]:
        """What the server says of a pulled model: `model_info` has the keys of its GGUF header."""
        content = await self._content("POST", "/api/show", timeout_s=LOOK_S, body={"model": tag})
        return self._decoded("/api/show", content, dict[str, Any])

    async def resident(self) -> tuple[Resident, ...]:
        """What is loaded."""
        return (await self._get("/api/ps", _Processes)).models

    async def load(self, tag: str) -> None:
        """Load a model and keep it; without a time limit, as a client that goes away cancels the load."""
        await self._ask(self._body(tag, keep_alive=-1), timeout_s=None)

    async def unload(self, tag: str) -> None:
        """Ask for a model to be unloaded: an answer says only that it will be, once it is idle."""
        await self._ask(self._body(tag, keep_alive=0), timeout_s=LOOK_S)

    async def chat(self, tag: str, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ChatReply:
        """Answer one user message; with so many alternatives of each token, from version 0.12.11 on.

        Raises:
            Reloaded: the model was not there any more.
            RunnerDied: it went while it answered.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        body = self._body(tag, keep_alive=-1, prompt=prompt)
        body["options"] |= {
            **OLLAMA,
            "temperature": decoding.temperature,
            "num_predict": decoding.max_tokens,
            "seed": seed,
        }
        if logprobs:
            body |= {"logprobs": True, "top_logprobs": logprobs}
        try:
            return self._reply(await self._pieces(body))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise Unreached(repr(error)) from error
        except httpx2.TimeoutException as error:
            raise ChatFailed(FailureKind.TIMEOUT, repr(error)) from error
        except httpx2.TransportError as error:
            raise ChatFailed(FailureKind.CONNECTION, repr(error)) from error

    async def cuts(self, tag: str) -> bool:
        """Whether a prompt of twice the context is answered: a server that cuts it says so nowhere.

        Raises:
            ChatFailed: it said something else.
        """
        try:
            await self.chat(tag, "1 " * 2 * self._options["num_ctx"], Decoding(max_tokens=1), 0)
        except Cut:
            return True
        except ChatFailed as failed:
            if failed.kind is FailureKind.CONTEXT_EXCEEDED:
                return False
            raise
        return True

    async def _pieces(self, body: dict[str, Any]) -> list[_Piece]:
        """An answer as it came in; an error that the server puts at its end is the last piece."""
        async with self._client.stream("POST", "/api/chat", json=body) as response:
            if response.status_code != httpx2.codes.OK:
                await response.aread()
                if SIGN_OF_REPETITION in response.text:
                    return [_Piece(error=response.text)]
                raise _refused(response)
            try:
                return [msgspec.json.decode(line, type=_Piece) async for line in response.aiter_lines() if line]
            except msgspec.MsgspecError as error:
                raise ChatFailed(FailureKind.BACKEND_ERROR, f"no answer of Ollama: {error}") from error

    def _reply(self, pieces: Sequence[_Piece]) -> ChatReply:
        """The answer; one that the server ended without saying so is kept as a cut one."""
        if not pieces:
            raise ChatFailed(FailureKind.BACKEND_ERROR, "Ollama sent an empty stream")
        last = pieces[-1]
        self._check(last)
        return ChatReply(
            text="".join(piece.message.content for piece in pieces),
            finish_reason=last.done_reason if last.done else _cut(pieces),
            tokens=tokens([entry for piece in pieces for entry in piece.logprobs or ()]),
            prompt_tokens=last.prompt_eval_count,
            completion_tokens=last.eval_count,
            prompt_ms=_milliseconds(last.prompt_eval_duration),
            completion_ms=_milliseconds(last.eval_duration),
        )

    def _check(self, last: _Piece) -> None:
        """Raise ChatFailed for an end that is none of an answer by the loaded model to the whole prompt."""
        if last.error and SIGN_OF_REPETITION not in last.error:
            raise _ended_with(last.error)
        if last.load_duration > RELOAD_S * 1e9:
            took = f"{last.load_duration / 1e9:.1f} s"
            raise Reloaded(FailureKind.CONNECTION, f"the model was loaded again within its residency, in {took}")
        if last.done and last.done_reason not in ("stop", "length"):
            raise ChatFailed(FailureKind.BACKEND_ERROR, f"the answer was broken off (reason {last.done_reason!r})")
        context = self._options["num_ctx"]
        if (last.prompt_eval_count or 0) >= context:
            raise Cut(FailureKind.CONTEXT_EXCEEDED, f"the prompt was cut to the {context} tokens of the context")

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


def _refused(response: httpx2.Response) -> ChatFailed:
    """A prompt that does not fit is a fact about the prompt, every other refusal one about the server.

    A runner's death looks like a lost connection: what ran on it may have killed it.
    """
    body = response.text[:500]
    if response.is_server_error and any(sign in body for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.BAD_REQUEST and any(sign in body for sign in SIGNS_OF_LENGTH):
        return ChatFailed(FailureKind.CONTEXT_EXCEEDED, body)
    said = f"HTTP {response.status_code}: {body}"
    return Away(said) if response.status_code in AWAY else ChatFailed(FailureKind.BACKEND_ERROR, said)


def _ended_with(said: str) -> ChatFailed:
    """An error at the end of a stream that had begun."""
    if any(sign in said for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, said[:500])
    return ChatFailed(FailureKind.BACKEND_ERROR, f"the server ended its stream with {said[:500]!r}")


def _cut(pieces: Sequence[_Piece]) -> str:
    """Why the server ended an answer that it does not call done; bytes that are no UTF-8 it ends without a word."""
    if pieces[-1].error:
        return REPETITION
    last = [piece.message.content.strip() for piece in pieces[-REPEATS:]]
    return REPETITION if len(last) == REPEATS and len(set(last)) == 1 else CUT


def _milliseconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
