"""Chat models of an Ollama server."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import httpx2
import msgspec

from shared.calls import Decoding, ModelAnswer, Prompt, messages_of
from shared.headers import add_trace_headers
from shared.models.chat import (
    AWAY_STATUSES,
    CUT,
    OLLAMA,
    REPETITION,
    ChatFailed,
    ServerAway,
    ServerUnreached,
    constrain_reply,
    parse_tokens,
    read_lines,
)
from shared.replies import FailureKind

# Read Ollama's answer to a prompt: a complete answer, one that the server cut off, or a failure.

SIGNS_OF_LENGTH = ("exceed_context_size", "exceeds the context length", "exceeds the available context")
"""Parts of its runners' messages that a prompt does not fit."""
SIGNS_OF_DEATH = (
    "error was encountered while running the model", "llama-server process has terminated",
    "runner process has terminated", "runner has unexpectedly stopped", "out of memory", "CUDA error",
)  # fmt: skip
"""Parts of its messages that a runner is gone, or that its GPU cannot be used any more (ollama#9782, #11421): the first
in all versions, the second since 0.30."""
REPEATS = 30
"""Equal pieces in a row, but for blanks, that count as repetition; Ollama stops at one or two more (llm/server.go)."""
SIGN_OF_REPETITION = "token repeat limit reached"
"""Part of the message with which some versions stop; others (0.33.0) just end the stream."""


class TimedAnswer(NamedTuple):
    """An answer, and the seconds for which the call waited for its model."""

    answer: ModelAnswer
    load_s: float
    """Milliseconds where the model is loaded, tenths of a second on a busy host; longer where it had to be loaded."""


class RunnerDied(ChatFailed):
    """The process that held the model died, and with it all calls that it was answering."""


class ModelRemoved(ChatFailed):
    """The server has no model of that name any more, though it may still have it loaded."""


class PromptTruncated(ChatFailed):
    """The server answered a truncated prompt."""


class _Message(msgspec.Struct, frozen=True):
    content: str = ""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; the last one has the figures, with durations in nanoseconds, or an error."""

    message: _Message = _Message()
    error: str = ""
    done: bool = False
    done_reason: str = ""
    load_duration: int = 0
    prompt_eval_count: int | None = None
    prompt_eval_cached_count: int | None = None
    """Part of `prompt_eval_count`; servers from before August 2026 do not report it (ollama#17943)."""
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: Any = None


async def read_pieces(response: httpx2.Response) -> list[Piece]:
    """Read the pieces of an answer.

    Raises:
        ChatFailed: the server refuses, or sends a malformed answer.
    """
    if response.status_code != httpx2.codes.OK:
        await response.aread()
        if SIGN_OF_REPETITION not in response.text:
            raise _translate_refusal(response)
        return [Piece(error=response.text)]
    try:
        found = [msgspec.json.decode(line, type=Piece) async for line in read_lines(response)]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"the answer is not in Ollama's format: {error}") from error
    if not found:
        raise ChatFailed(FailureKind.BACKEND_ERROR, "Ollama sent an empty stream")
    return found


def make_answer(found: Sequence[Piece], *, room: int) -> TimedAnswer:
    """Make the answer from its pieces; one that the server ended early is kept, with the reason of the cut.

    `room` is the tokens of a slot.

    Raises:
        ChatFailed: it is not an answer of the loaded model to the whole prompt.
    """
    last = found[-1]
    if last.error and SIGN_OF_REPETITION not in last.error:
        raise _translate_stream_error(last.error)
    if last.done and last.done_reason not in ("stop", "length"):
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"the server ended the answer with reason {last.done_reason!r}")
    if (last.prompt_eval_count or 0) >= room:
        detail = f"the prompt was truncated to the {room} tokens of the context"
        raise PromptTruncated(FailureKind.CONTEXT_EXCEEDED, detail)
    answer = ModelAnswer(
        text="".join(piece.message.content for piece in found),
        finish_reason=last.done_reason if last.done else _find_cut_reason(found),
        tokens=parse_tokens([entry for piece in found for entry in piece.logprobs or ()]),
        prompt_tokens=last.prompt_eval_count,
        cached_tokens=last.prompt_eval_cached_count,
        completion_tokens=last.eval_count,
        prompt_ms=_to_milliseconds(last.prompt_eval_duration),
        completion_ms=_to_milliseconds(last.eval_duration),
    )
    return TimedAnswer(answer, last.load_duration / 1e9)


def _find_cut_reason(found: Sequence[Piece]) -> str:
    """Find why the server ended an answer that is not done; it does not report bytes that are not UTF-8."""
    if found[-1].error:
        return REPETITION
    last = [piece.message.content.strip() for piece in found[-REPEATS:]]
    return REPETITION if len(last) == REPEATS and len(set(last)) == 1 else CUT


def _translate_stream_error(message: str) -> ChatFailed:
    """Translate an error at the end of a stream that had begun."""
    if any(sign in message for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, message[:500])
    return ChatFailed(FailureKind.BACKEND_ERROR, f"the server ended its stream with {message[:500]!r}")


def _translate_refusal(response: httpx2.Response) -> ChatFailed:
    """Translate a refusal: only a prompt that does not fit is the call's own failure.

    A runner's death counts as a lost connection, since the call may have caused it.
    """
    body = response.text[:500]
    if response.is_server_error and any(sign in body for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.NOT_FOUND:
        return ModelRemoved(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.BAD_REQUEST and any(sign in body for sign in SIGNS_OF_LENGTH):
        return ChatFailed(FailureKind.CONTEXT_EXCEEDED, body)
    detail = f"HTTP {response.status_code}: {body}"
    is_away = response.status_code in AWAY_STATUSES
    return ServerAway(detail) if is_away else ChatFailed(FailureKind.BACKEND_ERROR, detail)


def _to_milliseconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


# A client of Ollama's native API, which sends all options that decide how a model is loaded with every call.
#
# It never uses `/v1`, which ignores `keep_alive`, `num_ctx`, `truncate` and `shift`, so that prompts would be silently
# truncated and models loaded again (ollama#3645, #9355). A call whose runner options or `shift` differ from those of
# the load replaces the runner, so both are in every body.

DEFAULT_URL = "http://127.0.0.1:11434"
"""Default address of `ollama serve`."""
OLDEST = (0, 12, 6)
"""First version that knows `truncate` and `shift`; older ones ignore them and silently truncate prompts."""
FIXED: dict[str, bool] = {"truncate": False, "shift": False, "think": False}
"""Options of every call: refuse a prompt that does not fit, end the answer at a full context, and do not think."""
KEEP_S = 30
"""How long a model stays loaded after a call. It is not for ever, because a server with room for one model would then
hang when a client requests another. To stay loaded, a model is requested again before that."""
PADDING = 256
"""A runner rounds its context up to a multiple of this."""
WEIGHTS = re.compile(r"^FROM\s.*?(sha256-[0-9a-f]+)", re.MULTILINE)
"""The line of a Modelfile that names the file of the weights."""
ANSWER_S = 120.0
"""Default timeout of an answer to one prompt."""
QUERY_S = 5.0
T = TypeVar("T")


class OllamaFailed(Exception):
    """The server refused, sent a malformed answer, or was not reached (`away`)."""

    def __init__(self, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.away = away


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a manifest's weights."""

    quantization_level: str = ""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """A model on the server's disk; the digest of its manifest changes with weights, template and defaults."""

    name: str
    digest: str
    modified_at: str = ""
    """When the tag was last written."""
    size: int = 0
    """Bytes."""
    details: Details = Details()


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model. Sizes in bytes; `size_vram` is the part on the GPU; `context_length` in tokens per slot."""

    name: str
    digest: str
    size: int = 0
    size_vram: int = 0
    context_length: int = 0


class _Version(msgspec.Struct, frozen=True):
    version: str


class Tags(msgspec.Struct, frozen=True):
    """The models on the server's disk."""

    models: tuple[Pulled, ...] = ()


class _Processes(msgspec.Struct, frozen=True):
    models: tuple[LoadedModel, ...] = ()


async def find_ollama(url: str) -> str | None:
    """Return the address of the Ollama server whose `/v1` is at `url`; None if it is not Ollama."""
    async with Ollama(url.rstrip("/").removesuffix("/v1"), {}) as api:
        try:
            await api.read_version()
        except OllamaFailed:
            return None
        return api.url


def make_full_tag(name: str) -> str:
    """Return the name under which the server lists a model; a name without a tag means `latest`."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def advise_fetching(tag: str, command: str = "ollama") -> str:
    """Return the commands that bring a model to the server; a model that was created there cannot be pulled."""
    return f"{command} pull {tag}; if it was made from a Modelfile: {command} create {tag} -f Modelfile"


class Ollama:
    """Client of one server with one set of runner options."""

    def __init__(self, url: str, options: Mapping[str, int], answer_s: float = ANSWER_S) -> None:
        self.url = url.rstrip("/")
        self.load_s = 0.0
        """Seconds of the last load."""
        self._options = dict(options)
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
        await self._client.aclose()

    async def require_version(self) -> str:
        """Return the server's version.

        Raises:
            OllamaFailed: the server is not reached, or is too old to refuse prompts that do not fit.
        """
        version = await self.read_version()
        numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
        if numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise OllamaFailed(
                f"{self.url} is Ollama {version}, which silently truncates prompts; install {oldest} or newer"
            )
        return version

    async def read_version(self) -> str:
        """Read the server's version, whether or not it is new enough.

        Raises:
            OllamaFailed: the server is not reached, or is not Ollama.
        """
        return (await self._get("/api/version", _Version)).version

    async def require_pulled(self, tag: str) -> Pulled:
        """Return the model that is on the server's disk now.

        Raises:
            OllamaFailed: it is not there; the message names the commands that fetch or create it.
        """
        found = await self.find_pulled(tag)
        if found is None:
            raise OllamaFailed(f"{self.url} has no model {tag!r}: {advise_fetching(tag)}")
        return found

    async def find_pulled(self, tag: str) -> Pulled | None:
        """Find the model on the server's disk; None if no model has that name."""
        return next((each for each in await self.list_pulled() if each.name == make_full_tag(tag)), None)

    async def list_pulled(self) -> tuple[Pulled, ...]:
        """List the models on the server's disk."""
        return (await self._get("/api/tags", Tags)).models

    async def show(self, tag: str) -> dict[str, Any]:
        """Read the description of a pulled model, whose `model_info` has the keys of its GGUF header."""
        content = await self._request("POST", "/api/show", body={"model": tag})
        return self._decode("/api/show", content, dict[str, Any])

    async def find_weights(self, tag: str) -> str | None:
        """Find the name of the model's file of weights, which its runner's command line has; None if it is not told."""
        found = WEIGHTS.search(str((await self.show(tag)).get("modelfile")))
        return found[1] if found else None

    async def list_resident(self) -> tuple[LoadedModel, ...]:
        return (await self._get("/api/ps", _Processes)).models

    async def load(self, tag: str) -> None:
        """Load a model and keep it for `KEEP_S`. It has no timeout, since a disconnect would cancel the load."""
        began = time.monotonic()
        await self._request("POST", "/api/chat", timeout_s=None, body=self._make_body(tag, keep_alive=KEEP_S))
        self.load_s = time.monotonic() - began

    async def keep(self, tag: str) -> None:
        """Keep a model loaded for another `KEEP_S`; load it if it is not."""
        await self._request("POST", "/api/chat", body=self._make_body(tag, keep_alive=KEEP_S))

    async def unload(self, tag: str) -> None:
        """Request the unload of a model, which the server carries out later, once the model is idle."""
        await self._request("POST", "/api/chat", body=self._make_body(tag, keep_alive=0))

    async def chat(
        self, tag: str, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> TimedAnswer:
        """Answer a prompt, with `logprobs` alternatives of each token from version 0.12.11 on, and with nothing but one
        of `choices`, as a JSON string, if there are any.

        Raises:
            ModelRemoved: the server has no such model any more.
            RunnerDied: the model's runner died while it answered.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        body = self._make_body(tag, keep_alive=KEEP_S, prompt=prompt)
        decoded = {"temperature": decoding.temperature, "num_predict": decoding.max_tokens, "seed": seed}
        body["options"] |= {**OLLAMA, **decoded}
        if logprobs:
            body |= {"logprobs": True, "top_logprobs": logprobs}
        body |= constrain_reply("ollama", choices)
        try:
            async with self._client.stream("POST", "/api/chat", json=body) as response:
                found = await read_pieces(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise ServerUnreached(repr(error)) from error
        except httpx2.TimeoutException as error:
            raise ChatFailed(FailureKind.TIMEOUT, repr(error)) from error
        except httpx2.TransportError as error:
            raise ChatFailed(FailureKind.CONNECTION, repr(error)) from error
        return make_answer(found, room=self._slot_tokens())

    async def truncates_prompts(self, tag: str) -> bool:
        """Tell whether the server answers a prompt of twice the context, which it then has truncated.

        Raises:
            ChatFailed: the call failed for another reason.
        """
        try:
            await self.chat(tag, "1 " * 2 * self._slot_tokens(), Decoding(max_tokens=1), 0)
        except PromptTruncated:
            return True
        except ChatFailed as failed:
            if failed.kind is FailureKind.CONTEXT_EXCEEDED:
                return False
            raise
        return True

    def _slot_tokens(self) -> int:
        """Return the tokens of a slot: the context rounded up, as a runner does."""
        return -(-self._options["num_ctx"] // PADDING) * PADDING

    def _make_body(self, tag: str, *, keep_alive: int, prompt: Prompt | None = None) -> dict[str, Any]:
        """Make the body of a chat; without a prompt it loads the model or, with `keep_alive` 0, unloads it."""
        messages = [] if prompt is None else messages_of(prompt)
        return {
            "model": tag, "messages": messages, "stream": prompt is not None, "keep_alive": keep_alive, **FIXED,
            "options": dict(self._options),
        }  # fmt: skip

    async def _get(self, path: str, kind: type[T]) -> T:
        return self._decode(path, await self._request("GET", path), kind)

    def _decode(self, path: str, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise OllamaFailed(f"{self.url}{path} does not answer like Ollama: {error}") from error

    async def _request(self, method: str, path: str, *, body: Any = None, timeout_s: float | None = QUERY_S) -> bytes:
        try:
            response = await self._client.request(method, path, json=body, timeout=timeout_s)
        except httpx2.TimeoutException as error:
            raise OllamaFailed(f"{self.url}{path} does not answer: {error!r}") from error
        except httpx2.TransportError as error:
            raise OllamaFailed(f"no Ollama at {self.url}: {error!r}; try `ollama serve`", away=True) from error
        if response.status_code != httpx2.codes.OK:
            raise OllamaFailed(f"{self.url}{path}: HTTP {response.status_code}: {response.text[:500]}")
        return response.content
