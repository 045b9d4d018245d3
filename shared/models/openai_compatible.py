"""Chat with an OpenAI-compatible or text-generation-inference server through `huggingface_hub`'s client.

Only `chat_completion` is used: with a base URL, the client's `text_generation` has been seen to send prompts to a
public model instead (huggingface_hub#2804). Besides, every request of the process is held against the hosts that were
declared.

Answers are asked for as streams, so that of an answer which a server breaks off the text before that is there.
"""

import json
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import AsyncInferenceClient, ChatCompletionInputStreamOptions, set_async_client_factory
from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, TextGenerationError

from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import FailureKind
from shared.models.chat import AWAY, BROKEN_BYTE, Away, ChatFailed, Unreached
from shared.models.logprobs import tokens
from shared.models.sampling import OPENAI, Sampling
from shared.trace_headers import add_trace_headers

_declared: set[str] = set()


SIGNS_OF_LENGTH = (
    "exceed_context_size", "max_new_tokens", "must have less than", "maximum context length",
    "cannot be greater than max_model_len",
)  # fmt: skip
"""How llama.cpp, TGI (twice) and vLLM (twice) say that a prompt does not fit, or that no answer of that length does."""
SIGN_OF_OVERLOAD = "Model is overloaded"
"""text-generation-inference's words for 429."""
SIGN_OF_A_BROKEN_BYTE = "does not match the expected"
"""How llama.cpp (b10434, b10566) ends an answer with a byte that is no UTF-8: "... the expected peg-native format"."""
BROKEN_OFF = ("abort", "error")
"""vLLM's finish reasons of an answer that the server gave up, whatever the model would have said."""
CONNECT_S = 5.0
"""Longest wait for a connection; below a call's whole time, so that a server that accepts nobody is told from one that
does not answer."""
LONGEST_MS = 1e9
"""A longer time than any call may take is no time that a server measured."""


class ForeignHost(RuntimeError):
    """A request was about to leave for a host that no operator declared."""


FAILURES = (
    InferenceTimeoutError, HfHubHTTPError, TextGenerationError, httpx2.HTTPError, ForeignHost, ValueError,
    AttributeError, TypeError, KeyError, IndexError,
)  # fmt: skip
"""What the client library raises, or lets through for an answer that is none."""


class PromptCut(ChatFailed):
    """The answer is to another prompt than the one that was sent."""


async def _only_declared(request: httpx2.Request) -> None:
    host = request.url.netloc.decode()
    if host not in _declared:
        raise ForeignHost(f"refused a request to {host!r}; declared model servers: {sorted(_declared)}")


async def _only_streams(response: httpx2.Response) -> None:
    """Read a refusal, which the client library only quotes; refuse an answer that is no stream."""
    if response.is_success and "event-stream" in response.headers.get("content-type", ""):
        return
    await response.aread()
    if response.is_success:
        raise ValueError(f"the server does not stream its answer: {response.text[:200]!r}")


def _client() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    # trust_env off: a proxy of the environment must not see prompts.
    return httpx2.AsyncClient(
        event_hooks={"request": [_only_declared, add_trace_headers], "response": [_only_streams]},
        limits=limits,
        trust_env=False,
    )


class OpenAICompatible:
    """One model on one server."""

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
        set_async_client_factory(_client)
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s / 2))
        self._client = AsyncInferenceClient(base_url=base_url, api_key=api_key or "none", timeout=timeout)  # type: ignore[arg-type]
        self._model = model
        self._key = api_key
        self._sampling = dict(sampling)

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one user message; with so many alternatives of each token, where the server gives them.

        Raises:
            PromptCut: the server has answered a part of the message.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        answer = _Answer()
        try:
            async with AsyncExitStack() as stack:
                client = await self._session(stack)
                chunks = await client.chat_completion(
                    [{"role": "user", "content": prompt}],
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
            if not _broke_at_a_byte(error):
                raise _failed(error, self._key) from error
            answer.finish_reason = BROKEN_BYTE
        return _whole(answer.reply(), prompt)

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def _session(self, stack: AsyncExitStack) -> AsyncInferenceClient:
        """The client for one call, on the same connections. The library keeps every stream open until its client is
        closed, so a call has a client of its own, whose streams `stack` closes."""
        await self._client._get_async_client()  # type: ignore[no-untyped-call]
        session = copy(self._client)
        session.exit_stack = stack
        return session


@dataclass
class _Answer:
    """What has arrived of an answer."""

    text: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str = ""
    usage: Any = None
    timings: Any = None
    """llama.cpp's; other servers have none."""

    def add(self, chunk: Any) -> None:
        """The next piece; the last ones have figures and no text."""
        for choice in chunk.choices[:1]:
            self.text.append(choice.delta.content or "")
            self.logprobs += getattr(choice.logprobs, "content", None) or ()
            self.finish_reason = choice.finish_reason or self.finish_reason
        self.usage = chunk.usage or self.usage
        self.timings = getattr(chunk, "timings", None) or self.timings

    def reply(self) -> ModelAnswer:
        """The answer.

        Raises:
            ChatFailed: the server has not said that it ended, or has given it up.
        """
        if not self.finish_reason:
            raise ChatFailed(FailureKind.CONNECTION, "the stream ended before the answer did")
        if self.finish_reason in BROKEN_OFF:
            raise ChatFailed(FailureKind.BACKEND_ERROR, f"the server gave the answer up ({self.finish_reason!r})")
        return ModelAnswer(
            text="".join(self.text),
            finish_reason=self.finish_reason,
            tokens=tokens(self.logprobs),
            prompt_tokens=self.usage.prompt_tokens if self.usage else None,
            completion_tokens=self.usage.completion_tokens if self.usage else None,
            prompt_ms=self._milliseconds("prompt_ms"),
            completion_ms=self._milliseconds("predicted_ms"),
        )

    def _milliseconds(self, name: str) -> float | None:
        figure = self.timings.get(name) if isinstance(self.timings, dict) else None
        return float(figure) if isinstance(figure, int | float) and 0 <= figure < LONGEST_MS else None


def _whole(reply: ModelAnswer, prompt: str) -> ModelAnswer:
    """No tokenizer makes fewer tokens than words: a server that counted fewer has cut the prompt in silence."""
    words = len(prompt.split())
    if reply.prompt_tokens is not None and reply.prompt_tokens < words:
        said = f"the prompt was cut: it has {words} words, the server saw {reply.prompt_tokens} tokens"
        raise PromptCut(FailureKind.CONTEXT_EXCEEDED, said)
    return reply


def _broke_at_a_byte(error: Exception) -> bool:
    """Whether a server ended its answer because of a byte that is no UTF-8: in the stream, or before the first text."""
    if isinstance(error, HfHubHTTPError):
        return error.response.is_server_error and SIGN_OF_A_BROKEN_BYTE in error.response.text
    return isinstance(error, TextGenerationError) and SIGN_OF_A_BROKEN_BYTE in str(error)


def _failed(error: Exception, key: str | None) -> ChatFailed:
    match error:
        case InferenceTimeoutError() if isinstance(error.__cause__, httpx2.ConnectTimeout):
            return Unreached(repr(error.__cause__))
        case InferenceTimeoutError() | httpx2.TimeoutException():
            return ChatFailed(FailureKind.TIMEOUT, str(error) or repr(error))
        case HfHubHTTPError():
            return _refused(error, key)
        case TextGenerationError():
            return _ended_with(str(error).replace(key, "***") if key else str(error))
        case httpx2.ConnectError():
            return Unreached(repr(error))
        case httpx2.TransportError():
            return ChatFailed(FailureKind.CONNECTION, repr(error))
    return ChatFailed(FailureKind.BACKEND_ERROR, repr(error))


def _ended_with(said: str) -> ChatFailed:
    """An error in the stream; text-generation-inference refuses there what does not fit, and everybody for now."""
    detail = f"the server ended its stream with {said[:500]}"
    if SIGN_OF_OVERLOAD in said:
        return Away(detail)
    return ChatFailed(FailureKind.CONTEXT_EXCEEDED if _exceeds_context(said) else FailureKind.BACKEND_ERROR, detail)


def _refused(error: HfHubHTTPError, key: str | None) -> ChatFailed:
    """A prompt that does not fit is a fact about the prompt, every other refusal one about the server.

    Some of these are an outage, as they would meet any prompt. A server that echoes the key must not bring it into the
    database.
    """
    body = (error.response.text.replace(key, "***") if key else error.response.text)[:500]
    if error.response.status_code in (400, 413, 422) and _exceeds_context(body):
        return ChatFailed(FailureKind.CONTEXT_EXCEEDED, body)
    said = f"HTTP {error.response.status_code}: {body}"
    return Away(said) if error.response.status_code in AWAY else ChatFailed(FailureKind.BACKEND_ERROR, said)


def _exceeds_context(body: str) -> bool:
    try:
        text = json.dumps(json.loads(body)).lower()
    except ValueError:
        text = body.lower()
    return any(sign in text for sign in SIGNS_OF_LENGTH)
