"""Replies to calls: documents, texts, scores, rules and failures."""

from enum import StrEnum
from typing import Any, Literal, TypeVar

import msgspec

from shared import canonical

Term = int | str
"""A variable by its number, or the name of an entity.

Variables 0 and 1 are the head's; further ones count from 2 in the order in which the body names them. The head of a
static rule is `relation(0, 1)`. A temporal rule leads from 0 to 1: its head is `relation(0, 1)` where it predicts
objects, and `relation(1, 0)`, an inverse relation, where it predicts subjects; with a constant, `relation(0, "c")`
predicts the object and `relation("c", 0)` the subject c, and `relation(1, "c")` predicts the subject that c is asked
for.
"""
Miner = Literal["amie", "tlogic", "temporal-simple", "anyburl"]
"""The miner that found a rule; it defines the meaning of the rule's figures. This release mines with the first two;
`temporal-simple` and `anyburl` are those of banks of earlier releases."""
TEMPORAL: frozenset[Miner] = frozenset({"tlogic", "temporal-simple"})
"""Miners whose bodies are ordered in time, and whose rules predict one end of their head."""


class Atom(msgspec.Struct, frozen=True, array_like=True):
    """States that a relation holds between two terms. An inverse relation is the relation with its terms exchanged."""

    relation: str
    """Name of the relation."""
    subject: Term
    """Subject: the number of a variable, or the name of an entity."""
    object: Term
    """Object: the number of a variable, or the name of an entity."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """States that `body` leads to `head`. Atoms of a temporal body are in the order of their times, all before the
    head's."""

    head: Atom
    """The atom that the rule predicts."""
    body: tuple[Atom, ...]
    """The atoms that lead to the head."""
    support: int
    """Number of times that body and head both hold, as distinct pairs (AMIE) or as bodies followed by the head
    (TLogic)."""
    body_size: int
    """Number of times that the body holds, counted in the same way."""
    confidence: float
    """Standard confidence: `support` / `body_size`, rounded by the miner."""
    head_coverage: float | None = None
    """`support` divided by the number of facts of the head's relation; null if the miner does not give it."""
    pca_confidence: float | None = None
    """PCA confidence: `support` / `pca_body_size` (Galárraga et al. 2013); null if the miner does not give it."""
    pca_body_size: int | None = None
    """Number of times that the body holds and `functional` has a fact of the head's relation; null if the miner does
    not give it."""
    functional: int | None = None
    """Variable on the head's functional side: 0 or 1; null if the miner does not give it."""
    kind: str = ""
    """Type of a rule of `temporal-simple`."""
    curve: tuple[float, ...] = ()
    """Coefficients of the confidence over time, of a rule of `temporal-simple`."""

    @property
    def certainty(self) -> float:
        """Return the figure by which rules are chosen: the PCA confidence if there is one, or else the standard
        confidence."""
        return self.confidence if self.pca_confidence is None else self.pca_confidence


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A worked solution or any other passage. Documents are content-addressed: equal content is the same document."""

    problem: str = ""
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Body of the document; for MATH, the worked solution."""

    @property
    def whole(self) -> str:
        """Return the text that is indexed and reranked: problem and text on separate lines; a plain passage has no
        problem."""
        return f"{self.problem}\n{self.text}" if self.problem else self.text

    @property
    def hash(self) -> str:
        """Return the SHA-256, in hex, over the normalised problem and text."""
        return canonical.digest([canonical.normalise(self.problem), canonical.normalise(self.text)]).hex()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A retrieved document, given by its hash."""

    document: str
    """Hash of the document."""
    rank: int
    """Rank, from 1."""
    score: float
    """Score of the list that the hit comes from (inner product, BM25, or fused); comparable within one list only."""


class CorpusRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and its data in the corpus."""

    external_id: str | None
    """Id in the upload; None if its lines have none, and the caller numbers them."""
    document: Document
    meta: dict[str, Any]
    """`meta` or `metadata` of the line, with `subject` and `level` as text where they are known."""


class FailureKind(StrEnum):
    """Why a call has no value. `timeout`, `connection`, `backend_error`, `unavailable`, `out_of_memory` and
    `miner_timeout` are infrastructure failures; all others are replies, which are kept for ever."""

    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    CONTEXT_EXCEEDED = "context_exceeded"
    POISONED = "poisoned"
    """The call lapsed three times: each time the process that ran it died."""
    GRADER_TIMEOUT = "grader_timeout"
    VERIFIER_TIMEOUT = "verifier_timeout"
    PROGRAM_ERROR = "program_error"
    """A program that a model wrote ended with an error, or without an answer."""
    PROGRAM_TIMEOUT = "program_timeout"
    PROGRAM_MEMORY = "program_memory"
    """It needed more memory than a program may use."""
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
"""Kinds that say that a limit in the settings is too low: an immediate retry would fail again."""
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
    """The documents found, best first."""
    duplicates: tuple[str, ...] = ()
    """Hashes of documents that were left out as near-duplicates of the question."""
    reason: str | msgspec.UnsetType = msgspec.UNSET
    """Why the search was impossible; missing if it succeeded."""
    cut: tuple[Hit, ...] | msgspec.UnsetType = msgspec.UNSET
    """Hits that `threshold` removed from the end of the list; missing if it removed none."""


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag="scored"):
    """Reply to `Rerank`: one score per document, in the order of the call."""

    scores: tuple[float, ...]
    """Scores of the documents, in the order of the call."""


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """Reply to `Embed`."""

    vector: bytes
    """Vector of length 1, as 32-bit floats in little-endian order."""


class Rated(msgspec.Struct, frozen=True, kw_only=True, tag="rated"):
    """Reply to `Judge`: a rating from 1 to 5."""

    rating: int
    """Rating from 1 to 5."""
    text: str
    """Complete reply of the model."""

    @property
    def quality(self) -> float:
        """Normalise the rating: (rating - 1) / 4, in [0, 1] (the MathRAG-Gate paper, section 3.2.2)."""
        return (self.rating - 1) / 4


class Relevance(msgspec.Struct, frozen=True, kw_only=True, tag="relevance", omit_defaults=True):
    """Reply to a `Judge` call that asks whether a document helps with a question, read by probabilities."""

    probability: float
    """Relevance, in [0, 1]."""
    text: str
    """Complete reply of the model."""
    labels: dict[str, float] = {}
    """Probabilities of the labels, such as `yes` and `no`, at the judgement's position in the reply. Empty if the
    server gave no log-probabilities; the label in the text then counts."""


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token that a model generated."""

    text: str
    """Text of the token."""
    logprob: float
    """Natural logarithm of the token's probability."""
    top: dict[str, float] = {}
    """Log-probabilities of the most likely tokens at this position, by token."""


class Generated(msgspec.Struct, frozen=True, kw_only=True, tag="generated", omit_defaults=True):
    """Reply to `Write` and `Generate`. A truncated text is kept."""

    text: str
    """The generated text."""
    truncated: bool = False
    """Whether the text was cut off before its end."""
    truncated_by: str = ""
    """Finish reason of a truncated text; empty for the token limit."""
    tokens: tuple[Token, ...] = ()
    """Tokens with log-probabilities; empty unless they were requested and the server returns them."""


class Graded(msgspec.Struct, frozen=True, kw_only=True, tag="graded"):
    """Reply to `Grade` by the grader `math`: the verdicts of Math-Verify and of the strict rules."""

    math_verify: bool | None
    """Verdict of `math-verify`; null if it reached none."""
    strict: bool
    """Verdict of the strict rules."""

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
    """Whether the answer is correct."""
    strict: bool | None = None
    """Whether the answer equals a gold answer character by character; null if the grader does not compare texts."""
    score: float | None = None
    """Score that decided `correct`: token F1, F1 of a set, or a rating; null if the grader gives only verdicts."""


class Verified(msgspec.Struct, frozen=True, kw_only=True, tag="verified"):
    """Reply to `Verify`: how many equations hold, do not hold, and could not be decided."""

    verified: int
    """Number of equations that hold."""
    refuted: int
    """Number of equations that do not hold."""
    unknown: int
    """Number of equations that could not be decided."""

    @property
    def quality(self) -> float | None:
        """Estimate the share of right equations: (verified + 1/2) / (verified + refuted + 1), in (0, 1).

        This is the posterior mean under Jeffreys' prior, Beta(1/2, 1/2). It is None if no equation was decided.
        """
        decided = self.verified + self.refuted
        return (self.verified + 0.5) / (decided + 1) if decided else None


class Executed(msgspec.Struct, frozen=True, kw_only=True, tag="executed"):
    """Reply to `Execute`: the program's value of `answer`, as LaTeX."""

    output: str
    """Value that the program assigned to `answer`, as LaTeX."""


class Estimated(msgspec.Struct, frozen=True, kw_only=True, tag="estimated"):
    """Reply to `Estimate`: the probability that the question is hard."""

    probability: float
    """Probability that the question is hard, in [0, 1]."""


class Mined(msgspec.Struct, frozen=True, kw_only=True, tag="mined"):
    """Reply to `Mine`: the rules in the miner's order."""

    rules: tuple[Rule, ...]
    """The rules, in the miner's order."""


class NumberedRule(msgspec.Struct, frozen=True):
    """A rule, with its number in its bank, from 0."""

    number: int
    """Number of the rule in its bank, from 0."""
    rule: Rule
    """The rule."""


class FoundRules(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """Reply to `FindRules`."""

    relation: str | None
    """Relation of the rules; null if no phrase of a relation occurs in the question, or if no relation was looked for.
    """
    rules: tuple[NumberedRule, ...] = ()
    """The rules, in the requested order."""
    phrases: dict[str, str] = {}
    """Phrases by relation: those of `relation`, or those of all relations with rules if no relation was looked for."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A reply without a value; it never becomes a score."""

    kind: FailureKind
    """Kind of the failure."""
    detail: str = ""
    """Description of the failure."""


Value = (
    Retrieved | Scored | Embedded | Rated | Relevance | Generated | Graded | Marked | Verified | Executed | Estimated
    | FoundRules | Mined
)  # fmt: skip
Reply = Value | Failure
V = TypeVar(
    "V", Retrieved, Scored, Embedded, Rated, Relevance, Generated, Graded, Marked, Verified, Executed, Estimated,
    FoundRules, Mined,
)  # fmt: skip


def require(reply: V | Failure) -> V:
    """Return `reply`, or raise CallFailed if it is a `Failure`; a pipeline uses it for replies that it cannot do
    without."""
    if isinstance(reply, Failure):
        raise CallFailed(reply)
    return reply
