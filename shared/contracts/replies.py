"""The replies to calls: a value, or a typed failure."""

from enum import StrEnum
from typing import TypeVar

import msgspec

from shared.contracts.documents import Hit
from shared.contracts.rules import Rule


class FailureKind(StrEnum):
    """Why a call has no value. Content kinds are replies and kept for ever; all others are infrastructure failures."""

    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    CONTEXT_EXCEEDED = "context_exceeded"
    POISONED = "poisoned"
    """The call lapsed three times: each time the process that ran it died."""
    GRADER_TIMEOUT = "grader_timeout"
    VERIFIER_TIMEOUT = "verifier_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    """Mining needed more memory than each mining process may use."""
    MINER_TIMEOUT = "miner_timeout"
    """Mining a relation took longer than allowed."""
    NOT_CONFIGURED = "not_configured"
    """Nothing is configured that could answer; the pipeline continues without it."""
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    BACKEND_ERROR = "backend_error"
    UNAVAILABLE = "unavailable"
    """A server that many calls share was away for longer than calls may wait for it, or refuses our key."""


BOUNDS = frozenset({FailureKind.OUT_OF_MEMORY, FailureKind.MINER_TIMEOUT})
"""Kinds that say that a limit in the settings is too low: an immediate retry would fail alike."""
INFRASTRUCTURE = BOUNDS | {
    FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.BACKEND_ERROR, FailureKind.UNAVAILABLE,
}  # fmt: skip
"""Kinds that do not depend on the request: the next sample that makes the call runs it again. All but `unavailable` and
those of `BOUNDS` are retried before that."""


class SampleFailed(Exception):
    """Ends a pipeline's sample with a message; any other exception is a defect, and ends it with a traceback."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class CallFailed(SampleFailed):
    """Ends the sample with the failure of a call; raised by `require()`."""

    def __init__(self, failure: "Failure") -> None:
        super().__init__(failure.kind.value, failure.detail)
        self.failure = failure


class Retrieved(msgspec.Struct, frozen=True, kw_only=True, tag="retrieved"):
    """Reply to `Retrieve`."""

    hits: tuple[Hit, ...]
    duplicates: tuple[str, ...] = ()
    """Hashes of documents that were left out as near-duplicates of the question."""
    reason: str | msgspec.UnsetType = msgspec.UNSET
    """Why the search was impossible; unset if it was made."""


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag="scored"):
    """Reply to `Rerank`: one score per document, in the order of the call."""

    scores: tuple[float, ...]


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """Reply to `Embed`."""

    vector: bytes
    """Vector of length 1, as 32-bit floats in little-endian order."""


class Rated(msgspec.Struct, frozen=True, kw_only=True, tag="rated"):
    """Reply to `Judge`: a rating from 1 to 5."""

    rating: int
    text: str

    @property
    def quality(self) -> float:
        """Normalise the rating: (rating - 1) / 4, in [0, 1] (the MathRAG-Gate paper, section 3.2.2)."""
        return (self.rating - 1) / 4


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token that a model generated."""

    text: str
    logprob: float
    """Natural logarithm of the token's probability."""
    top: dict[str, float] = {}
    """Log-probabilities of the most likely tokens in this position."""


class Generated(msgspec.Struct, frozen=True, kw_only=True, tag="generated", omit_defaults=True):
    """Reply to `Write` and `Generate`. If `truncated`, the model did not end the text, which is kept all the same."""

    text: str
    truncated: bool = False
    truncated_by: str = ""
    """What ended a truncated text, as a finish reason (`shared.models.chat`); "": the token limit."""
    tokens: tuple[Token, ...] = ()
    """Tokens with log-probabilities, if these were asked for and the server returns them."""


class Graded(msgspec.Struct, frozen=True, kw_only=True, tag="graded"):
    """Reply to `Grade`: both verdicts; None from a grader that reached none."""

    math_verify: bool | None
    strict: bool

    @property
    def correct(self) -> bool | None:
        """Return Math-Verify's verdict."""
        return self.math_verify

    @property
    def score(self) -> None:
        """Return None, since mathematics is either right or wrong."""
        return None


class Marked(msgspec.Struct, frozen=True, kw_only=True, tag="marked", omit_defaults=True):
    """Reply to `Grade` by any grader but `math`."""

    correct: bool
    strict: bool | None = None
    """Whether the answer equals a gold answer character by character; None if the grader does not compare texts."""
    score: float | None = None
    """The degree by which `correct` was decided, if the grader has degrees: token F1, F1 of a set, or a rating."""


class Verified(msgspec.Struct, frozen=True, kw_only=True, tag="verified"):
    """Reply to `Verify`: how many equations hold, do not hold, and could not be decided."""

    verified: int
    refuted: int
    unknown: int

    @property
    def quality(self) -> float | None:
        """Estimate the share of right equations: (verified + 1/2) / (verified + refuted + 1), in (0, 1).

        This is the posterior mean under Jeffreys' prior, Beta(1/2, 1/2). It is None if no equation was decided.
        """
        decided = self.verified + self.refuted
        return (self.verified + 0.5) / (decided + 1) if decided else None


class Estimated(msgspec.Struct, frozen=True, kw_only=True, tag="estimated"):
    """Reply to `Estimate`: the probability that the question is hard."""

    probability: float


class Mined(msgspec.Struct, frozen=True, kw_only=True, tag="mined"):
    """Reply to `Mine`: the rules in the miner's order."""

    rules: tuple[Rule, ...]


class NumberedRule(msgspec.Struct, frozen=True):
    """A rule, with its number in its bank, from 0."""

    number: int
    rule: Rule


class FoundRules(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """Reply to `FindRules`."""

    relation: str | None
    """Relation of the rules; None if no phrase of a relation occurs in the question, or none was asked for."""
    rules: tuple[NumberedRule, ...] = ()
    """Rules in the order of the choice."""
    phrases: dict[str, str] = {}
    """The words for the relation of the rules; if none was asked for, for all relations that have rules."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A reply without a value; it never becomes a score."""

    kind: FailureKind
    detail: str = ""


Value = Retrieved | Scored | Embedded | Rated | Generated | Graded | Marked | Verified | Estimated | FoundRules | Mined


Reply = Value | Failure


V = TypeVar("V", Retrieved, Scored, Embedded, Rated, Generated, Graded, Marked, Verified, Estimated, FoundRules, Mined)


def require(reply: V | Failure) -> V:
    """Return `reply`, or raise CallFailed if it is a `Failure`; a pipeline uses it for replies that it cannot do
    without."""
    if isinstance(reply, Failure):
        raise CallFailed(reply)
    return reply
