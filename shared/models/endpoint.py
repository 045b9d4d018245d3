"""A client of embedding and reranking servers for worker threads, with retries within one deadline."""

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from shared.bearer import authorization
from shared.contracts.replies import FailureKind
from shared.errors import Unavailable
from shared.models.chat import AWAY_STATUSES
from shared.models.ports import ModelFailed
from shared.trace_headers import trace_headers

MAX_ATTEMPTS = 4
PAUSE_S = 0.2
"""Pause before the second attempt, doubled before each further one."""
TRANSIENT = (500, *AWAY_STATUSES)
"""Statuses after which another attempt may succeed."""
SIGNS_OF_LENGTH = (
    "too large to process", "exceed_context_size", "must have less than", "maximum context length",
    "exceeds the context length", "exceeds maximum context",
)  # fmt: skip
"""Parts of the messages of llama.cpp (two, the first as a 500), text-embeddings-inference, vLLM and Ollama that a text
is too long."""

T = TypeVar("T")


class Endpoint:
    """One server; all attempts of a request share `timeout_s`."""

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        timeout_s: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._key = key
        self._timeout_s = timeout_s
        self._pause = pause
        self._now = now
        # trust_env off: a proxy of the environment must not see texts.
        self._client = httpx2.Client(trust_env=False, headers=authorization(key))

    def post(self, path: str, body: Any, kind: type[T]) -> T:
        """Post a body and return the answer.

        Raises:
            ModelFailed: there is no answer, or it cannot be read as `kind`.
        """
        return self._request("POST", path, kind, body)

    def get(self, path: str, kind: type[T]) -> T:
        """Get an answer; see `post`."""
        return self._request("GET", path, kind, None)

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def _request(self, method: str, path: str, kind: type[T], body: Any) -> T:
        deadline, pause_s = self._now() + self._timeout_s, PAUSE_S
        for left in reversed(range(MAX_ATTEMPTS)):
            response = self._try_request(method, path, body, deadline - self._now())
            if isinstance(response, httpx2.Response) and response.status_code == httpx2.codes.OK:
                return self._decode(path, response.content, kind)
            failed = self._make_refusal(path, response) if isinstance(response, httpx2.Response) else response
            if not (left and _may_pass(response, failed)) or self._now() + pause_s >= deadline:
                break
            self._pause(pause_s)
            pause_s *= 2
        raise failed

    def _try_request(self, method: str, path: str, body: Any, timeout_s: float) -> httpx2.Response | ModelFailed:
        try:
            return self._client.request(method, self.url + path, json=body, timeout=timeout_s, headers=trace_headers())
        except httpx2.ConnectTimeout as error:
            return self._make_away(path, repr(error))
        except httpx2.TimeoutException as error:
            problem = f"{self.url}{path} did not answer within {self._timeout_s:g} s ({type(error).__name__})"
            return ModelFailed(FailureKind.TIMEOUT, problem)
        except httpx2.HTTPError as error:
            return self._make_away(path, self._hide_key(repr(error)))

    def _make_refusal(self, path: str, response: httpx2.Response) -> ModelFailed:
        body = self._hide_key(response.text[:500])
        problem = f"HTTP {response.status_code}: {body}"
        if any(sign in body for sign in SIGNS_OF_LENGTH):
            return ModelFailed(FailureKind.CONTEXT_EXCEEDED, f"{self.url}{path}: {problem}")
        if response.status_code in AWAY_STATUSES:
            return self._make_away(path, problem)
        return ModelFailed(FailureKind.BACKEND_ERROR, f"{self.url}{path}: {problem}")

    def _make_away(self, path: str, problem: str) -> ModelFailed:
        """Return the failure of a server that refuses all requests now, with its host."""
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        return ModelFailed(FailureKind.UNAVAILABLE, f"{self.url}{path}: {problem}", f"the server at {host}")

    def _hide_key(self, text: str) -> str:
        """Hide the key, which a server may echo, from logs and the database."""
        return text.replace(self._key, "***") if self._key else text

    def _decode(self, path: str, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problem = f"{self.url}{path} sent an answer that cannot be read: {error}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem) from error


def read_key(variable: str | None) -> str:
    """Read a key from an environment variable; empty if none is named.

    Raises:
        Unavailable: the variable is not set.
    """
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise Unavailable(f"{variable} is not set", hint=f"export {variable}=..., or remove `api_key_env`")
    return os.environ[variable]


def _may_pass(response: httpx2.Response | ModelFailed, failed: ModelFailed) -> bool:
    """Tell whether another attempt may succeed: not for a text that is too long, nor after a timeout."""
    if isinstance(response, httpx2.Response):
        return response.status_code in TRANSIENT and failed.kind is not FailureKind.CONTEXT_EXCEEDED
    return failed.kind is FailureKind.UNAVAILABLE
