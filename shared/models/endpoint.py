"""A server of embeddings or reranking, asked by worker threads: one deadline, few repetitions, failures in words."""

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
from shared.models.chat import AWAY
from shared.models.ports import ModelFailed
from shared.trace_headers import trace_headers

TRIES = 4
PAUSE_S = 0.2
"""Before the second try; twice as long before each further one."""
PASSING = (500, *AWAY)
"""Statuses that another try may change."""
SIGNS_OF_LENGTH = (
    "too large to process", "exceed_context_size", "must have less than", "maximum context length",
    "exceeds the context length", "exceeds maximum context",
)  # fmt: skip
"""How llama.cpp (twice; the first as a 500), text-embeddings-inference, vLLM and Ollama say that a text is too long."""

T = TypeVar("T")


class Endpoint:
    """One server; all repetitions of a request share `timeout_s`."""

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
        """The answer to a request.

        Raises:
            ModelFailed: there is none, or it is none of `kind`.
        """
        return self._ask("POST", path, kind, body)

    def get(self, path: str, kind: type[T]) -> T:
        """The same without a body."""
        return self._ask("GET", path, kind, None)

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def _ask(self, method: str, path: str, kind: type[T], body: Any) -> T:
        deadline, pause_s = self._now() + self._timeout_s, PAUSE_S
        for left in reversed(range(TRIES)):
            response = self._answer(method, path, body, deadline - self._now())
            if isinstance(response, httpx2.Response) and response.status_code == httpx2.codes.OK:
                return self._decoded(path, response.content, kind)
            failed = self._refusal(path, response) if isinstance(response, httpx2.Response) else response
            if not (left and _passes(response, failed)) or self._now() + pause_s >= deadline:
                break
            self._pause(pause_s)
            pause_s *= 2
        raise failed

    def _answer(self, method: str, path: str, body: Any, timeout_s: float) -> httpx2.Response | ModelFailed:
        try:
            return self._client.request(method, self.url + path, json=body, timeout=timeout_s, headers=trace_headers())
        except httpx2.ConnectTimeout as error:
            return self._away(path, repr(error))
        except httpx2.TimeoutException as error:
            said = f"{self.url}{path} did not answer within {self._timeout_s:g} s ({type(error).__name__})"
            return ModelFailed(FailureKind.TIMEOUT, said)
        except httpx2.HTTPError as error:
            return self._away(path, self._said(repr(error)))

    def _refusal(self, path: str, response: httpx2.Response) -> ModelFailed:
        body = self._said(response.text[:500])
        said = f"HTTP {response.status_code}: {body}"
        if any(sign in body for sign in SIGNS_OF_LENGTH):
            return ModelFailed(FailureKind.CONTEXT_EXCEEDED, f"{self.url}{path}: {said}")
        if response.status_code in AWAY:
            return self._away(path, said)
        return ModelFailed(FailureKind.BACKEND_ERROR, f"{self.url}{path}: {said}")

    def _away(self, path: str, said: str) -> ModelFailed:
        """It answers nobody now: no failure of this request."""
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        return ModelFailed(FailureKind.UNAVAILABLE, f"{self.url}{path}: {said}", f"the server at {host}")

    def _said(self, words: str) -> str:
        """A server that echoes the key must not bring it into a log or the database."""
        return words.replace(self._key, "***") if self._key else words

    def _decoded(self, path: str, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            said = f"{self.url}{path} answers what cannot be read: {error}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, said) from error


def key_of(variable: str | None) -> str:
    """The key in an environment variable; empty where none is named.

    Raises:
        Unavailable: it is not set.
    """
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise Unavailable(f"{variable} is not set here", hint=f"export {variable}=..., or take `api_key_env` away")
    return os.environ[variable]


def _passes(response: httpx2.Response | ModelFailed, failed: ModelFailed) -> bool:
    """A text that is too long stays so, and after a timeout no time is left."""
    if isinstance(response, httpx2.Response):
        return response.status_code in PASSING and failed.kind is not FailureKind.CONTEXT_EXCEEDED
    return failed.kind is FailureKind.UNAVAILABLE
