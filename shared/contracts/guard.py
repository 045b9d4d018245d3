"""Messages between workers and the guard: a chunk of model calls with an epoch, answered by single completions."""

from datetime import datetime
from enum import StrEnum

import msgspec

from shared.contracts.calls import Decoding
from shared.contracts.prompts import Prompt
from shared.contracts.replies import FailureKind, Token


class End(StrEnum):
    """How a call left the guard."""

    ANSWERED = "answered"
    """The model answered it, or it has a typed failure."""
    LAPSED = "lapsed"
    """The model server died while it ran this call, which may be the cause."""
    RELEASED = "released"
    """The guard aborted the call to free the device; it does not count as an attempt."""
    WAITS = "waits"
    """The model server `what` does not answer now, as `detail` says; it does not count as an attempt."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt for one model."""

    id: int
    model_id: int
    prompt: Prompt
    decoding: Decoding
    seed: int
    logprobs: int = 0
    """Number of alternatives of each token whose log-probabilities are wanted."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of calls; it is refused as a whole unless its epoch is the open one (None: for models that need no
    lease)."""

    epoch: int | None
    calls: tuple[ModelCall, ...]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one call: a model's answer as a driver returns it, or why there is none."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    """Tokens with log-probabilities, if these were asked for and the server returns them."""
    finish_reason: str = ""
    """Finish reason of the server, or one of those in `shared.models.chat`."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    """Time that the server reports for the prompt, and for the completion; None if it reports none."""
    failure: FailureKind | None = None
    detail: str = ""
    what: str = ""
    """Name of what the call waits for."""
    end: End = End.ANSWERED


class Completion(ModelAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """A model's answer with the guard's receipt. Only the guard sets the times of model calls."""

    id: int
    started_at: datetime
    ended_at: datetime
    device: str
    epoch: int | None
    concurrency: int
    """Calls that this model server was running when this one started, itself included."""
