"""What comes back for a call: a value, or a typed failure."""

from enum import StrEnum
from typing import TypeVar

import msgspec

from shared.contracts.documents import Hit
from shared.contracts.rules import Rule


class FailureKind(StrEnum):
    """Why a call has no value. Content kinds are replies (kept for ever); the rest are infrastructure."""

    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    CONTEXT_EXCEEDED = "context_exceeded"
    POISONED = "poisoned"
    """Lapsed three times: whoever ran it died."""
    GRADER_TIMEOUT = "grader_timeout"
    VERIFIER_TIMEOUT = "verifier_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    """More than the operator gives each process that mines rules."""
    MINER_TIMEOUT = "miner_timeout"
    """Longer than the operator lets a relation be mined."""
    NOT_CONFIGURED = "not_configured"
    """The operator has set up nothing that could answer: the pipeline goes on without."""
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    BACKEND_ERROR = "backend_error"
    UNAVAILABLE = "unavailable"
    """A server that many calls share was away for longer than the operator lets calls wait for it."""


BOUNDS = frozenset({FailureKind.OUT_OF_MEMORY, FailureKind.MINER_TIMEOUT})
"""Kinds that say that a bound of the settings is too low: another try a moment later would end alike."""
INFRASTRUCTURE = BOUNDS | {
    FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.BACKEND_ERROR, FailureKind.UNAVAILABLE,
}  # fmt: skip
"""Kinds that say nothing about what was asked: a call that ended with one is free for the next asker. All but
`unavailable` and the bounds are tried again before that."""


class SampleFailed(Exception):
    """Raised in a pipeline to end its sample in words; any other exception is a defect and ends it with a traceback."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class CallFailed(SampleFailed):
    """Raised by `require()`: the sample ends with the call's failure."""

    def __init__(self, failure: "Failure") -> None:
        super().__init__(failure.kind.value, failure.detail)
        self.failure = failure


class Retrieved(msgspec.Struct, frozen=True, kw_only=True, tag="retrieved"):
    """Reply to `Retrieve`."""

    hits: tuple[Hit, ...]
    duplicates: tuple[str, ...] = ()
    """Hashes of documents that were left out as near-duplicates of the question."""
    reason: str | msgspec.UnsetType = msgspec.UNSET
    """Why nothing could be searched for; unset where it could."""


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag="scored"):
    """Reply to `Rerank`: one score a document, in the order asked."""

    scores: tuple[float, ...]


class Rated(msgspec.Struct, frozen=True, kw_only=True, tag="rated"):
    """Reply to `Judge`: the rating 1..5 and its normalised form (rating - 1) / 4."""

    rating: int
    text: str

    @property
    def quality(self) -> float:
        """(rating - 1) / 4, in [0, 1] (the MathRAG-Gate paper, section 3.2.2)."""
        return (self.rating - 1) / 4


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token that a model wrote."""

    text: str
    logprob: float
    """Natural logarithm of its probability."""
    top: dict[str, float] = {}
    """Log-probabilities of the likeliest tokens in its place."""


class Generated(msgspec.Struct, frozen=True, kw_only=True, tag="generated", omit_defaults=True):
    """Reply to `Write` and `Generate`. `truncated`: the model did not end the text, which is kept all the same."""

    text: str
    truncated: bool = False
    truncated_by: str = ""
    """What ended a truncated text, in a finish reason's word (`shared.models.chat`); "": the token limit."""
    tokens: tuple[Token, ...] = ()
    """Only where log-probabilities were asked for and the server gives them."""


class Graded(msgspec.Struct, frozen=True, kw_only=True, tag="graded"):
    """Reply to `Grade`: both verdicts. A grader that found no verdict says None."""

    math_verify: bool | None
    strict: bool

    @property
    def correct(self) -> bool | None:
        """Math-Verify's verdict."""
        return self.math_verify

    @property
    def score(self) -> None:
        """None: mathematics is right or wrong."""
        return None


class Marked(msgspec.Struct, frozen=True, kw_only=True, tag="marked", omit_defaults=True):
    """Reply to `Grade` by any grader but `math`."""

    correct: bool
    strict: bool | None = None
    """Whether the answer is a gold answer character by character; None where that says nothing about it."""
    score: float | None = None
    """What `correct` was decided by, where the grader has degrees: token F1, F1 of a set, or a rating."""


class Verified(msgspec.Struct, frozen=True, kw_only=True, tag="verified"):
    """Reply to `Verify`: how many equations hold, do not hold, and could not be decided."""

    verified: int
    refuted: int
    unknown: int

    @property
    def quality(self) -> float | None:
        """(verified + 1/2) / (verified + refuted + 1), in (0, 1): the mean of the share of right equations under
        Jeffreys' prior, Beta(1/2, 1/2). None where nothing was decided: unknown is not a score.
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
    """A rule with its number in its bank, from 0."""

    number: int
    rule: Rule


class FoundRules(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """Reply to `FindRules`."""

    relation: str | None
    """That the rules lead to; None: no phrase of a relation stands in the question, or none was asked for."""
    rules: tuple[NumberedRule, ...] = ()
    """In the order of the choice."""
    phrases: dict[str, str] = {}
    """The words for every relation of the rules, or where none was asked for, of all that rules lead to."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """What came back instead of a value; never turned into a score."""

    kind: FailureKind
    detail: str = ""


Value = Retrieved | Scored | Rated | Generated | Graded | Marked | Verified | Estimated | FoundRules | Mined


Reply = Value | Failure


V = TypeVar("V", Retrieved, Scored, Rated, Generated, Graded, Marked, Verified, Estimated, FoundRules, Mined)


def require(reply: V | Failure) -> V:
    """`reply` itself, or CallFailed if it is a `Failure`: how a pipeline says that it cannot go on without it."""
    if isinstance(reply, Failure):
        raise CallFailed(reply)
    return reply
