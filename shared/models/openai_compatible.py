"""Chat with an OpenAI-compatible or text-generation-inference server through `huggingface_hub`'s client.

Only `chat_completion` is used: with a base URL, the client's `text_generation` has been seen to send prompts to a
public model instead (huggingface_hub#2804). Besides, requests to hosts that were not declared are refused.

Answers are streamed, so that the beginning of an answer that a server breaks off is kept.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from huggingface_hub import AsyncInferenceClient, ChatCompletionInputStreamOptions, set_async_client_factory
from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, TextGenerationError

from shared.calls import Decoding, ModelAnswer, Prompt, messages_of, text_of
from shared.headers import add_trace_headers
from shared.models.chat import (
    AWAY_STATUSES,
    BROKEN_BYTE,
    BY_BACKEND,
    ChatFailed,
    PromptCut,
    ServerAway,
    ServerUnreached,
    constrain_reply,
    parse_tokens,
    read_lines,
)
from shared.replies import FailureKind

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


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta
    finish_reason: str | None = None


class _StreamedChunk(msgspec.Struct, frozen=True):
    """The part of a chunk that is read here, besides figures."""

    choices: tuple[_Choice, ...]


async def _refuse_undeclared(request: httpx2.Request) -> None:
    host = request.url.netloc.decode()
    if host not in _declared:
        raise ForeignHost(f"refused a request to {host!r}; declared model servers: {sorted(_declared)}")


async def _require_stream(response: httpx2.Response) -> None:
    """Read the body of a refusal, so that the client library can quote it; refuse an answer that is not a stream."""
    if response.is_success and "event-stream" in response.headers.get("content-type", ""):
        response.aiter_lines = partial(_read_events, response)  # type: ignore[method-assign]  # the attribute that the library reads
        return
    await response.aread()
    if response.is_success:
        raise ValueError(f"the server does not stream its answer: {response.text!r}")


async def _read_events(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield the events of a stream as the client library expects them, a line each.

    Comments, and events without data, only keep the connection open (WHATWG HTML, 9.2.6).

    Raises:
        ValueError: an event is not part of an answer; the message is for the operator.
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
        msgspec.convert(piece, _StreamedChunk)
    except msgspec.ValidationError as error:
        raise ValueError(f"the model server sent an event that is not part of an answer ({error}): {data!r}") from error


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
        backend: str = "openai",
    ) -> None:
        """`backend` is the kind of server, by which its sampling settings and further fields are chosen."""
        _declared.add(urlsplit(base_url).netloc)
        set_async_client_factory(_make_client)
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s / 2))
        self._client = AsyncInferenceClient(base_url=base_url, api_key=api_key or "none", timeout=timeout)  # type: ignore[arg-type]
        self._model = model
        self._key = api_key
        self._backend = backend

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        """Answer a prompt, with `logprobs` alternatives of each token if the server gives them, and with nothing but
        one of `choices` if there are any.

        Raises:
            PromptCut: the server has answered a truncated prompt.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        answer = _Answer()
        further = {**BY_BACKEND[self._backend], **constrain_reply(self._backend, choices)}
        try:
            async with AsyncExitStack() as stack:
                client = await self._open_session(stack)
                chunks = await client.chat_completion(
                    messages_of(prompt), model=self._model, temperature=decoding.temperature,
                    max_tokens=decoding.max_tokens, seed=seed, logprobs=True if logprobs else None,
                    top_logprobs=logprobs or None, extra_body=further, stream=True,
                    stream_options=ChatCompletionInputStreamOptions(include_usage=True),
                )  # fmt: skip
                async for chunk in chunks:
                    answer.add(chunk)
        except FAILURES as error:
            # Tell whether a byte that is not UTF-8 ended the answer, in the stream or before its first text.
            if isinstance(error, HfHubHTTPError):
                is_broken_byte = error.response.is_server_error and SIGN_OF_A_BROKEN_BYTE in error.response.text
            else:
                is_broken_byte = isinstance(error, TextGenerationError) and SIGN_OF_A_BROKEN_BYTE in str(error)
            if not is_broken_byte:
                raise _translate_error(error, self._key) from error
            answer.finish_reason = BROKEN_BYTE
        reply, words = answer.make_answer(), len(text_of(prompt).split())
        if reply.prompt_tokens is not None and reply.prompt_tokens < words:
            # No tokenizer makes fewer tokens than words.
            detail = f"the prompt was truncated: it has {words} words, the server saw {reply.prompt_tokens} tokens"
            raise PromptCut(FailureKind.CONTEXT_EXCEEDED, detail)
        return reply

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
            cached_tokens=self._read_cached_tokens(),
            completion_tokens=self.usage.completion_tokens if self.usage else None,
            prompt_ms=self._read_milliseconds("prompt_ms"),
            completion_ms=self._read_milliseconds("predicted_ms"),
        )

    def _read_cached_tokens(self) -> int | None:
        """Read the prompt tokens that the server took from its cache; None if it does not report them.

        vLLM and SGLang report them only with `--enable-prompt-tokens-details` and `--enable-cache-report`; llama.cpp
        always does, before September 2025 not at all, and then at first only in its timings.
        """
        details = getattr(self.usage, "prompt_tokens_details", None)
        places = ((details, "cached_tokens"), (self.timings, "cache_n"))
        found = next((each[name] for each, name in places if isinstance(each, dict) and name in each), None)
        return found if self.usage and type(found) is int and 0 <= found <= self.usage.prompt_tokens else None

    def _read_milliseconds(self, name: str) -> float | None:
        figure = self.timings.get(name) if isinstance(self.timings, dict) else None
        return float(figure) if isinstance(figure, int | float) and 0 <= figure < MAX_MS else None


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
