"""Chat models behind OpenAI's protocol: sampling, streams and log probabilities."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from huggingface_hub import AsyncInferenceClient, ChatCompletionInputStreamOptions, set_async_client_factory
from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, TextGenerationError

from shared.calls import Decoding, ModelAnswer, Prompt, messages_of, text_of
from shared.redaction import redact
from shared.replies import FailureKind, Token
from shared.trace_headers import add_trace_headers

# Reasons why a model ended its answer, and the failures of a call.

LENGTH = "length"
"""The answer reached the token limit or the end of the context."""
REPETITION = "repetition"
"""The server stopped a text that repeated itself."""
BROKEN_BYTE = "broken_byte"
"""The model wrote a byte that is not valid UTF-8, and the server stopped there."""
CUT = "cut"
"""The server ended the text without a reason."""
CUT_REASONS = frozenset({LENGTH, REPETITION, BROKEN_BYTE, CUT, "content_filter"})
"""Finish reasons of a text that the model did not end itself."""
AWAY_STATUSES = (429, 502, 503, 504)
"""Statuses with which a server, or a proxy before it, refuses all calls for now."""


class ChatFailed(Exception):
    """The model gave no answer; `detail` says why, without secrets, since it becomes part of the provenance."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        self.kind = kind
        self.detail = redact(detail)
        super().__init__(f"{kind.value}: {self.detail}")


class ServerAway(ChatFailed):
    """The server refuses all calls now, since it restarts, loads or is overloaded; the call itself has not failed."""

    def __init__(self, detail: str, kind: FailureKind = FailureKind.UNAVAILABLE) -> None:
        super().__init__(kind, detail)


class ServerUnreached(ServerAway):
    """No connection was made, so the server has not seen the call, which cannot have harmed it."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, FailureKind.CONNECTION)


# Sampling settings for every model server, besides temperature, length and seed, that leave a model's distribution
# unchanged.
#
# A setting that is not sent takes the server's default, which differs between servers and versions: top-k 40, top-p
# 0.95 and min-p 0.05 in llama.cpp, a repeat penalty of 1.1 in Ollama before 0.32.10. So every setting that a server
# knows is sent with its neutral value. The settings are part of a model's identity.

Sampling = Mapping[str, float]
OPENAI: Sampling = MappingProxyType({"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0})
"""Settings of OpenAI's protocol; servers that implement only this refuse others."""
LLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "repeat_penalty": 1.0,
        "dynatemp_range": 0.0, "xtc_probability": 0.0, "dry_multiplier": 0.0, "mirostat": 0, "adaptive_target": -1.0,
    }
)  # fmt: skip
"""Settings of llama.cpp's server, named as in `/props` (b10434); versions that do not know one ignore it."""
VLLM: Sampling = MappingProxyType({**OPENAI, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0})
"""vLLM's settings; a top-k of -1 means all tokens in every version, 0 only in newer ones (vllm/sampling_params.py)."""
SGLANG = VLLM
"""SGLang has the same fields; those that are not sent take the values of the model's `generation_config.json`, where a
repetition penalty changes greedy answers as well (srt/entrypoints/openai/protocol.py, `to_sampling_params`)."""
TGI: Sampling = MappingProxyType({"frequency_penalty": 0.0})
"""text-generation-inference refuses a top-p of 1, turns a presence penalty of 0 into a repetition penalty of 2, and
has no other field for chats (router/src/lib.rs, router/src/validation.rs); settings that are not sent are off."""
OLLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0, "repeat_last_n": 64,
    }
)  # fmt: skip
"""Ollama's options (api/types.go); it warns of unknown ones."""
BY_BACKEND: Mapping[str, Sampling] = MappingProxyType(
    {"llama.cpp": LLAMA, "vllm": VLLM, "sglang": SGLANG, "tgi": TGI, "openai": OPENAI}
)
"""Settings by the name of the backend in a model's row."""

# Parse log-probabilities in OpenAI's form, which llama.cpp, TGI, vLLM and Ollama share.

MIN_LOGPROB = -9999.0
"""OpenAI's value for a practically impossible token, since JSON cannot hold the logarithm of 0."""


class _Alternative(msgspec.Struct, frozen=True):
    token: str
    logprob: float


class _Entry(_Alternative, frozen=True):
    top_logprobs: tuple[_Alternative, ...] | None = None


def parse_tokens(content: object) -> tuple[Token, ...]:
    """Parse the tokens of a reply, in order; empty if the server gives none or they are malformed."""
    try:
        entries = msgspec.convert(content or (), tuple[_Entry, ...], from_attributes=True)
    except msgspec.ValidationError:
        return ()
    return tuple(_make_token(entry) for entry in entries)


def _make_token(entry: _Entry) -> Token:
    """Convert an entry; of alternatives with the same text, such as parts of one character, keep the likeliest."""
    top: dict[str, float] = {}
    for each in sorted(entry.top_logprobs or (), key=lambda each: -_bound(each.logprob)):
        top.setdefault(_make_storable(each.token), _bound(each.logprob))
    return Token(text=_make_storable(entry.token), logprob=_bound(entry.logprob), top=top)


def _bound(logprob: float) -> float:
    """Clamp to [MIN_LOGPROB, 0]; NaN becomes MIN_LOGPROB."""
    return min(logprob, 0.0) if logprob > MIN_LOGPROB else MIN_LOGPROB


def _make_storable(text: str) -> str:
    """Replace characters that PostgreSQL or UTF-8 cannot hold."""
    return text.replace("\0", "�").encode(errors="replace").decode()


# Read the lines of an answer that a server sends piece by piece: server-sent events, or one JSON document a line.

BOM = "\ufeff"


async def read_lines(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield the lines that are not blank, without blanks around them.

    LF, CR or both end a line (WHATWG HTML, 9.2.6). The HTTP library's own lines also end at U+0085, U+2028 and U+2029,
    which JSON may hold. Bytes that are not UTF-8 are replaced.
    """
    parts: list[bytes] = []
    async for piece in response.aiter_bytes():
        first, *others = piece.replace(b"\r", b"\n").split(b"\n")
        parts.append(first)
        for other in others:
            if line := _decode(parts):
                yield line
            parts = [other]
    if line := _decode(parts):
        yield line


def _decode(parts: list[bytes]) -> str:
    return b"".join(parts).decode(errors="replace").removeprefix(BOM).strip(" \t\n")


# Chat with an OpenAI-compatible or text-generation-inference server through `huggingface_hub`'s client.
#
# Only `chat_completion` is used: with a base URL, the client's `text_generation` has been seen to send prompts to a
# public model instead (huggingface_hub#2804). Besides, requests to hosts that were not declared are refused.
#
# Answers are streamed, so that the beginning of an answer that a server breaks off is kept.

_declared: set[str] = set()
SIGNS_OF_LENGTH = (
    "exceed_context_size", "max_new_tokens", "must have less than", "maximum context length",
    "cannot be greater than max_model_len", "longer than the model's context length",
)  # fmt: skip
"""Parts of the messages of llama.cpp, TGI (two), vLLM (two, the first also SGLang's) and SGLang that a prompt, or an
answer of that length, does not fit."""
SIGN_OF_OVERLOAD = "Model is overloaded"
"""Part of text-generation-inference's message for 429."""
SIGN_OF_A_BROKEN_BYTE = "does not match the expected"
"""Part of llama.cpp's (b10434, b10566) message at a byte that is not UTF-8: "... the expected peg-native format"."""
ABORTED = ("abort", "error")
"""vLLM's finish reasons of an answer that the server aborted."""
CONNECT_S = 5.0
"""Longest wait for a connection; shorter than a call's timeout, to tell a server that does not accept connections from
one that does not answer."""
LAST = "[DONE]"
"""Data of the event after the last piece."""
QUOTED = 500
"""Characters of a server's text that a failure quotes."""
MAX_MS = 1e9
"""Longer times in an answer are ignored: no call takes that long."""


class ForeignHost(RuntimeError):
    """A request was about to be sent to a host that the operator has not declared."""


FAILURES = (
    InferenceTimeoutError, HfHubHTTPError, TextGenerationError, httpx2.HTTPError, ForeignHost, ValueError,
    AttributeError, TypeError, KeyError, IndexError,
)  # fmt: skip
"""Exceptions of the client library, including those that a malformed answer causes in it."""


class PromptCut(ChatFailed):
    """The server answered a truncated prompt."""


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta
    finish_reason: str | None = None


class _Piece(msgspec.Struct, frozen=True):
    """The part of a chunk that is read here, besides figures."""

    choices: tuple[_Choice, ...]


async def _refuse_undeclared(request: httpx2.Request) -> None:
    host = request.url.netloc.decode()
    if host not in _declared:
        raise ForeignHost(f"refused a request to {host!r}; declared model servers: {sorted(_declared)}")


async def _require_stream(response: httpx2.Response) -> None:
    """Read the body of a refusal, so that the client library can quote it; refuse an answer that is not a stream."""
    if response.is_success and "event-stream" in response.headers.get("content-type", ""):
        response.aiter_lines = partial(_read_events, response)  # type: ignore[method-assign]  # what the library reads
        return
    await response.aread()
    if response.is_success:
        raise ValueError(f"the server does not stream its answer: {response.text!r}")


async def _read_events(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield the events of a stream as the client library expects them, a line each.

    Comments, and events without data, only keep the connection open (WHATWG HTML, 9.2.6).

    Raises:
        ValueError: an event is no piece of an answer; the message is for the operator.
    """
    async for line in read_lines(response):
        name, _, data = line.partition(":")
        data = data.strip()
        if name == "data" and data:
            if data != LAST:
                _check_piece(data)
            yield f"data: {data}"


def _check_piece(data: str) -> None:
    try:
        piece = json.loads(data)
    except RecursionError as error:
        raise ValueError(f"the model server sent JSON that is nested too deeply: {data!r}") from error
    except ValueError as error:
        raise ValueError(f"the model server sent an event that is not JSON: {data!r}") from error
    if isinstance(piece, dict) and piece.get("error") is not None:
        return
    try:
        msgspec.convert(piece, _Piece)
    except msgspec.ValidationError as error:
        raise ValueError(f"the model server sent an event that is no piece of an answer ({error}): {data!r}") from error


def _make_client() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    # trust_env off: a proxy of the environment must not see prompts.
    return httpx2.AsyncClient(
        event_hooks={"request": [_refuse_undeclared, add_trace_headers], "response": [_require_stream]},
        limits=limits,
        trust_env=False,
    )


class OpenAICompatible:
    """Client of one model on one server."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        sampling: Sampling = OPENAI,
    ) -> None:
        _declared.add(urlsplit(base_url).netloc)
        set_async_client_factory(_make_client)
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s / 2))
        self._client = AsyncInferenceClient(base_url=base_url, api_key=api_key or "none", timeout=timeout)  # type: ignore[arg-type]
        self._model = model
        self._key = api_key
        self._sampling = dict(sampling)

    async def complete(self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer a prompt, with `logprobs` alternatives of each token if the server gives them.

        Raises:
            PromptCut: the server has answered a truncated prompt.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        answer = _Answer()
        try:
            async with AsyncExitStack() as stack:
                client = await self._open_session(stack)
                chunks = await client.chat_completion(
                    messages_of(prompt),
                    model=self._model,
                    temperature=decoding.temperature,
                    max_tokens=decoding.max_tokens,
                    seed=seed,
                    logprobs=True if logprobs else None,
                    top_logprobs=logprobs or None,
                    extra_body=self._sampling,
                    stream=True,
                    stream_options=ChatCompletionInputStreamOptions(include_usage=True),
                )
                async for chunk in chunks:
                    answer.add(chunk)
        except FAILURES as error:
            if not _is_broken_byte(error):
                raise _translate_error(error, self._key) from error
            answer.finish_reason = BROKEN_BYTE
        return _require_whole_prompt(answer.make_answer(), prompt)

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def _open_session(self, stack: AsyncExitStack) -> AsyncInferenceClient:
        """Return a client for one call, on the shared connections. The library keeps every stream open until its client
        is closed, so each call has its own client, whose streams `stack` closes."""
        await self._client._get_async_client()  # type: ignore[no-untyped-call]
        session = copy(self._client)
        session.exit_stack = stack
        return session


@dataclass
class _Answer:
    """The part of an answer that has arrived."""

    text: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str = ""
    usage: Any = None
    timings: Any = None
    """Timings of llama.cpp; None for other servers."""

    def add(self, chunk: Any) -> None:
        """Add a chunk; the last ones have figures and no text."""
        for choice in chunk.choices[:1]:
            self.text.append(choice.delta.content or "")
            self.logprobs += getattr(choice.logprobs, "content", None) or ()
            self.finish_reason = choice.finish_reason or self.finish_reason
        self.usage = chunk.usage or self.usage
        self.timings = getattr(chunk, "timings", None) or self.timings

    def make_answer(self) -> ModelAnswer:
        """Return the answer.

        Raises:
            ChatFailed: the stream ended without a finish reason, or the server aborted the answer.
        """
        if not self.finish_reason:
            raise ChatFailed(FailureKind.CONNECTION, "the stream ended before the answer did")
        if self.finish_reason in ABORTED:
            raise ChatFailed(FailureKind.BACKEND_ERROR, f"the server aborted the answer ({self.finish_reason!r})")
        return ModelAnswer(
            text="".join(self.text),
            finish_reason=self.finish_reason,
            tokens=parse_tokens(self.logprobs),
            prompt_tokens=self.usage.prompt_tokens if self.usage else None,
            completion_tokens=self.usage.completion_tokens if self.usage else None,
            prompt_ms=self._read_milliseconds("prompt_ms"),
            completion_ms=self._read_milliseconds("predicted_ms"),
        )

    def _read_milliseconds(self, name: str) -> float | None:
        figure = self.timings.get(name) if isinstance(self.timings, dict) else None
        return float(figure) if isinstance(figure, int | float) and 0 <= figure < MAX_MS else None


def _require_whole_prompt(reply: ModelAnswer, prompt: Prompt) -> ModelAnswer:
    """Refuse the answer to a prompt that the server silently truncated: no tokenizer makes fewer tokens than words."""
    words = len(text_of(prompt).split())
    if reply.prompt_tokens is not None and reply.prompt_tokens < words:
        detail = f"the prompt was truncated: it has {words} words, the server saw {reply.prompt_tokens} tokens"
        raise PromptCut(FailureKind.CONTEXT_EXCEEDED, detail)
    return reply


def _is_broken_byte(error: Exception) -> bool:
    """Tell whether a byte that is not UTF-8 ended the answer, in the stream or before its first text."""
    if isinstance(error, HfHubHTTPError):
        return error.response.is_server_error and SIGN_OF_A_BROKEN_BYTE in error.response.text
    return isinstance(error, TextGenerationError) and SIGN_OF_A_BROKEN_BYTE in str(error)


def _translate_error(error: Exception, key: str | None) -> ChatFailed:
    match error:
        case InferenceTimeoutError() if isinstance(error.__cause__, httpx2.ConnectTimeout):
            return ServerUnreached(repr(error.__cause__))
        case InferenceTimeoutError() | httpx2.TimeoutException():
            return ChatFailed(FailureKind.TIMEOUT, str(error) or repr(error))
        case HfHubHTTPError():
            return _translate_refusal(error, key)
        case TextGenerationError():
            return _translate_stream_error(_hide(str(error), key))
        case httpx2.ConnectError():
            return ServerUnreached(repr(error))
        case httpx2.TransportError():
            return ChatFailed(FailureKind.CONNECTION, repr(error))
        case ForeignHost() | ValueError():
            return ChatFailed(FailureKind.BACKEND_ERROR, _hide(str(error), key)[:QUOTED])
    said = _hide(f"the model server's answer cannot be read ({error!r})", key)
    return ChatFailed(FailureKind.BACKEND_ERROR, said[:QUOTED])


def _hide(text: str, key: str | None) -> str:
    """Hide the key, which a server may echo."""
    return text.replace(key, "***") if key else text


def _translate_stream_error(message: str) -> ChatFailed:
    """Translate an error in the stream, where text-generation-inference also reports prompts that do not fit, and
    overload."""
    detail = f"the server ended its stream with {message[:QUOTED]}"
    if SIGN_OF_OVERLOAD in message:
        return ServerAway(detail)
    return ChatFailed(FailureKind.CONTEXT_EXCEEDED if _exceeds_context(message) else FailureKind.BACKEND_ERROR, detail)


def _translate_refusal(error: HfHubHTTPError, key: str | None) -> ChatFailed:
    """Translate a refusal: only a prompt that does not fit is the call's own failure, and some refusals are an
    outage."""
    body = _hide(error.response.text, key)[:QUOTED]
    if error.response.status_code in (400, 413, 422) and _exceeds_context(body):
        return ChatFailed(FailureKind.CONTEXT_EXCEEDED, body)
    detail = f"HTTP {error.response.status_code}: {body}"
    is_away = error.response.status_code in AWAY_STATUSES
    return ServerAway(detail) if is_away else ChatFailed(FailureKind.BACKEND_ERROR, detail)


def _exceeds_context(body: str) -> bool:
    try:
        text = json.dumps(json.loads(body)).lower()
    except ValueError:
        text = body.lower()
    return any(sign in text for sign in SIGNS_OF_LENGTH)
