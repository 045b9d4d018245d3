"""Chat with an OpenAI-compatible or text-generation-inference server through `huggingface_hub`'s client.

Only `chat_completion` is used: with a base URL, the client's `text_generation` has been seen to send prompts to a
public model instead (huggingface_hub#2804). Besides, every request of the process is held against the hosts that were
declared.
"""

import json
from typing import Any
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import AsyncInferenceClient, set_async_client_factory
from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError

from shared.contracts.calls import Decoding, FailureKind
from shared.models.chat import AWAY, Away, ChatFailed, ChatReply, Unreached
from shared.models.logprobs import tokens
from shared.telemetry import traces

_declared: set[str] = set()


SIGNS_OF_LENGTH = ("exceed_context_size", "max_new_tokens", "must have less than", "maximum context length")
"""How llama.cpp, TGI (twice) and vLLM say that a prompt does not fit."""
CONNECT_S = 5.0
"""Longest wait for a connection; below a call's whole time, so that a server that accepts nobody is told from one that
does not answer."""
LONGEST_MS = 1e9
"""A longer time than any call may take is no time that a server measured."""


class ForeignHost(RuntimeError):
    """A request was about to leave for a host that no operator declared."""


UNREADABLE = (ForeignHost, ValueError, AttributeError, TypeError, KeyError, httpx2.HTTPError)
"""What the client library lets through for an answer that is none."""


class PromptCut(ChatFailed):
    """The answer is to another prompt than the one that was sent."""


async def _only_declared(request: httpx2.Request) -> None:
    host = request.url.netloc.decode()
    if host not in _declared:
        raise ForeignHost(f"refused a request to {host!r}; declared model servers: {sorted(_declared)}")


def _client() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    # trust_env off: a proxy of the environment must not see prompts.
    hooks = [_only_declared, *traces.hooks()["request"]]
    return httpx2.AsyncClient(event_hooks={"request": hooks}, limits=limits, trust_env=False)


class OpenAICompatible:
    """One model on one server."""

    def __init__(self, base_url: str, *, model: str, api_key: str | None = None, timeout_s: float = 120.0) -> None:
        _declared.add(urlsplit(base_url).netloc)
        set_async_client_factory(_client)
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s / 2))
        self._client = AsyncInferenceClient(base_url=base_url, api_key=api_key or "none", timeout=timeout)  # type: ignore[arg-type]
        self._model = model
        self._key = api_key

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ChatReply:
        """Answer one user message; with so many alternatives of each token, where the server gives them.

        Raises:
            PromptCut: the server has answered a part of the message.
            ChatFailed: context exceeded, timeout, lost connection, or an error of the server.
        """
        try:
            reply = await self._client.chat_completion(
                [{"role": "user", "content": prompt}],
                model=self._model,
                temperature=decoding.temperature,
                max_tokens=decoding.max_tokens,
                seed=seed,
                logprobs=True if logprobs else None,
                top_logprobs=logprobs or None,
            )
        except InferenceTimeoutError as error:
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                raise Unreached(repr(error.__cause__)) from error
            raise ChatFailed(FailureKind.TIMEOUT, str(error)) from error
        except HfHubHTTPError as error:
            raise _refused(error, self._key) from error
        except httpx2.ConnectError as error:
            raise Unreached(repr(error)) from error
        except httpx2.TransportError as error:
            raise ChatFailed(FailureKind.CONNECTION, repr(error)) from error
        except UNREADABLE as error:
            raise ChatFailed(FailureKind.BACKEND_ERROR, repr(error)) from error
        return _whole(_reply(reply), prompt)

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()  # type: ignore[no-untyped-call]


def _reply(reply: Any) -> ChatReply:
    try:
        choice, usage = reply.choices[0], reply.usage
        choice.message.content  # noqa: B018 - a choice without a message is no reply
    except (AttributeError, IndexError, TypeError) as error:
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"the reply holds no message: {error}") from error
    return ChatReply(
        text=choice.message.content or "",
        finish_reason=choice.finish_reason or "",
        tokens=tokens(getattr(choice.logprobs, "content", None)),
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        prompt_ms=_milliseconds(reply, "prompt_ms"),
        completion_ms=_milliseconds(reply, "predicted_ms"),
    )


def _whole(reply: ChatReply, prompt: str) -> ChatReply:
    """No tokenizer makes fewer tokens than words: a server that counted fewer has cut the prompt in silence."""
    words = len(prompt.split())
    if reply.prompt_tokens is not None and reply.prompt_tokens < words:
        said = f"the prompt was cut: it has {words} words, the server saw {reply.prompt_tokens} tokens"
        raise PromptCut(FailureKind.CONTEXT_EXCEEDED, said)
    return reply


def _milliseconds(reply: Any, name: str) -> float | None:
    """A figure of llama.cpp's `timings`; other servers have none."""
    timings = getattr(reply, "timings", None)
    figure = timings.get(name) if isinstance(timings, dict) else None
    return float(figure) if isinstance(figure, int | float) and 0 <= figure < LONGEST_MS else None


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
