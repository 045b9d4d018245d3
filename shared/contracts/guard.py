"""What workers and the guard say to each other: a chunk of model calls with an epoch, completions one by one."""

from datetime import datetime
from enum import StrEnum

import msgspec

from shared.contracts.calls import Decoding
from shared.contracts.replies import FailureKind, Token


class End(StrEnum):
    """How a call left the guard."""

    ANSWERED = "answered"
    """By the model, or with a typed failure."""
    LAPSED = "lapsed"
    """The model server died while it ran this call: the call is a suspect."""
    RELEASED = "released"
    """The guard aborted it to free the device: not charged."""
    WAITS = "waits"
    """The model server, `what`, answers nobody now, `detail` says how: not charged."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt for one model."""

    id: int
    model_id: int
    prompt: str
    decoding: Decoding
    seed: int
    logprobs: int = 0
    """So many alternatives of each token are wanted with their log-probabilities."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk; refused whole unless its epoch is the open one (None: models that need no lease)."""

    epoch: int | None
    calls: tuple[ModelCall, ...]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one call: a model's answer, as a driver returns it, or why there is none."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    """Where log-probabilities were asked for and the server gives them."""
    finish_reason: str = ""
    """The server's word, or one of those of `shared.models.chat`."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    """Time that the model server says it spent on the prompt, and on the completion; None where it does not say."""
    failure: FailureKind | None = None
    detail: str = ""
    what: str = ""
    """What is away, where the call waits for it."""
    end: End = End.ANSWERED


class Completion(ModelAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """The same with the guard's receipt. Only the guard stamps times of model calls."""

    id: int
    started_at: datetime
    ended_at: datetime
    device: str
    epoch: int | None
    concurrency: int
    """Calls that ran at once on this model server when this one started, itself included."""
