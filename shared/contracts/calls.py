"""The calls a pipeline may yield, and what comes back: a `Reply` or a `Failure`.

A call as yielded names *roles* ("judge", "dense"); the runtime binds it to the job's pinned models and templates
and hashes the result, so a pipeline never knows which model answers.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from shared.contracts import canonical
from shared.contracts.documents import Hit
from shared.contracts.grading import Expected


class Lane(StrEnum):
    """Who claims a call."""

    JUDGE = "judge"
    """The judge worker: all that is not generated."""
    GENERATE = "generate"
    """The generator worker."""


class Decoding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model samples."""

    temperature: float = 0.0
    """0 is greedy."""
    max_tokens: int = 512
    """Most tokens of a reply."""

    def __post_init__(self) -> None:
        canonical.finite(self.temperature, "temperature")


MAX_QUESTION = 32_768
"""Characters of a question: refused at upload, so that no search of a whole chunk fails over one of them."""


Duplicates = Literal["same-answer", "same-text", "off", "same-words"]
"""Which documents a search leaves out because they have the question for their problem (`shared.rag.duplicates`).

`same-text`: those whose problem is the same text but for spelling, blanks and formatting. `same-answer`: also those
with the same mathematics and almost the same words that have the gold answer, where it is known. `same-words`: those
with almost the same words, whatever their numbers and answers: the rule of release 0.1.
"""
RELEASE_0_1: Duplicates = "same-words"


class Retrieve(msgspec.Struct, frozen=True, kw_only=True, tag="retrieve"):
    """Search one index. The retriever leaves out documents that have the question for their problem, and names them."""

    question: str
    index: str
    """"dense", "sparse" or "fallback": the role that the job pins to an index build."""
    k: int
    skip: int = 0
    """So many of the best hits are left out: the next page of the same search. Ranks go on counting."""
    hypothetical: tuple[str, ...] = ()
    """Texts whose vectors are averaged with the question's (HyDE); dense indexes only. They are never hits."""
    duplicates: Duplicates = RELEASE_0_1
    """The runtime fills in this and the next two for every pipeline, as the job's parameters say."""
    item: str = ""
    """The question of the sample's item, where `question` is another text, such as a rewritten one."""
    gold: str = ""
    """The item's gold answer, which `same-answer` compares with a document's."""


class Rerank(msgspec.Struct, frozen=True, kw_only=True, tag="rerank"):
    """Score (question, document) pairs with a cross-encoder."""

    question: str
    documents: tuple[str, ...]


class Judge(msgspec.Struct, frozen=True, kw_only=True, tag="judge"):
    """Rate one document, or one reply, with a rubric; a rubric without a `question` slot never sees the question."""

    rubric: str
    document: str = ""
    """The document's hash; "": what is rated stands in `slots`."""
    question: str | None = None
    slots: dict[str, str] = {}
    """Values of the rubric's further slots."""
    decoding: Decoding | None = None
    """None: the job's for its judge."""
    draw: int = 0
    """Tells apart ratings of the same document that are asked for again, to see whether they repeat."""


class Write(msgspec.Struct, frozen=True, kw_only=True, tag="write"):
    """Have the *judge* model write what helps retrieval: a rewritten query, sub-queries, a hypothetical document."""

    template: str
    decoding: Decoding
    slots: dict[str, str]
    """Values of the template's slots."""
    documents: tuple[str, ...] = ()
    """Document hashes for the slot `documents`, in prompt order."""
    draw: int = 0
    """Tells apart texts that are sampled from the same prompt."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Write an answer from a template; `context` holds document hashes in prompt order."""

    template: str
    question: str
    context: tuple[str, ...] = ()
    passage: str = ""
    """A text that stands in the prompt in the documents' place: what compression or refinement left of them."""
    logprobs: int = 0
    """So many alternatives of each token, with their log-probabilities, are wanted in the reply."""
    temperature: float | None = None
    """None: the job's `generate.temperature`."""
    draw: int = 0
    """Tells apart answers that are sampled from the same prompt: 0, 1, 2 ... A greedy call has no draw but 0."""


class Grade(msgspec.Struct, frozen=True, kw_only=True, tag="grade"):
    """Compare an extracted answer with the gold one, as the job's grader does; `answer` is None when none was found."""

    answer: str | None
    gold: str
    expected: Expected = Expected()
    """Further gold answers, and the choices of a multiple-choice question."""
    peers: bool = False
    """Whether `gold` is another answer of a model, with which this one is compared."""


class Verify(msgspec.Struct, frozen=True, kw_only=True, tag="verify"):
    """Check the equations of one document's text, each by itself; the question is not seen."""

    document: str
    """The document's hash."""
    modulus: int = 0
    """All equations are meant modulo it; 0: ordinary arithmetic."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True, tag="estimate"):
    """Estimate from its text alone how hard a question is."""

    question: str


Call = Retrieve | Rerank | Judge | Write | Generate | Grade | Verify | Estimate


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
    NOT_CONFIGURED = "not_configured"
    """The operator has set up nothing that could answer: the pipeline goes on without."""
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    BACKEND_ERROR = "backend_error"
    UNAVAILABLE = "unavailable"
    """A server that many calls share was away for longer than the operator lets calls wait for it."""


INFRASTRUCTURE = frozenset(
    {FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.BACKEND_ERROR, FailureKind.UNAVAILABLE}
)
"""Kinds that say nothing about what was asked: a call that ended with one is free for the next asker. All but the last
are tried again before that."""


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


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """What came back instead of a value; never turned into a score."""

    kind: FailureKind
    detail: str = ""


class CallKind(NamedTuple):
    """What holds for every call of one role."""

    lane: Lane
    value: Any
    """The type of what comes back instead of a `Failure`."""


CALL_KINDS: Mapping[str, CallKind] = {
    "estimate": CallKind(Lane.JUDGE, Estimated),
    "retrieve": CallKind(Lane.JUDGE, Retrieved),
    "rerank": CallKind(Lane.JUDGE, Scored),
    "judge": CallKind(Lane.JUDGE, Rated),
    "verify": CallKind(Lane.JUDGE, Verified),
    "write": CallKind(Lane.JUDGE, Generated),
    "generate": CallKind(Lane.GENERATE, Generated),
    "grade": CallKind(Lane.JUDGE, Graded | Marked),
}
"""Every role, in the order in which reports name them: about that in which a sample makes its calls."""


Value = Retrieved | Scored | Rated | Generated | Graded | Marked | Verified | Estimated
Reply = Value | Failure


V = TypeVar("V", Retrieved, Scored, Rated, Generated, Graded, Marked, Verified, Estimated)


def require(reply: V | Failure) -> V:
    """`reply` itself, or CallFailed if it is a `Failure`: how a pipeline says that it cannot go on without it."""
    if isinstance(reply, Failure):
        raise CallFailed(reply)
    return reply


MOST_SLOTS = 32_767
"""Calls that a pipeline may wait for at once, and how often it may wait: slots and positions are stored as smallint."""

Yielded = Call | Sequence[Call]
"""What a pipeline yields: one call, or several that wait in parallel. It is sent one reply, or a list in order."""
