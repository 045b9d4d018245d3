"""The calls that a pipeline may yield; `replies` has their replies.

A call names *roles* ("judge", "dense"). The runtime binds these to the job's pinned models and templates and hashes the
result, so a pipeline never knows which model answers.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from shared.contracts import canonical
from shared.contracts.grading import Expected
from shared.contracts.mining import StoredMining
from shared.contracts.prompts import Message
from shared.contracts.replies import (
    Embedded,
    Estimated,
    FoundRules,
    Generated,
    Graded,
    Marked,
    Mined,
    Rated,
    Retrieved,
    Scored,
    Verified,
)


class Lane(StrEnum):
    """The queue of a call: each lane has its own workers."""

    JUDGE = "judge"
    """Claimed by judge workers: everything that is not generated."""
    GENERATE = "generate"
    """Claimed by generator workers."""


class Decoding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model samples its reply."""

    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    max_tokens: int = 512
    """Maximum length of a reply, in tokens."""

    def __post_init__(self) -> None:
        canonical.require_finite(self.temperature, "temperature")


MAX_QUESTION = 32_768
"""Maximum length of a question, in characters. Longer ones are refused at upload, so that no question fails the search
of a whole chunk."""


Duplicates = Literal["same-answer", "same-text", "off", "same-words"]
"""The near-duplicates of the question that a search leaves out: documents whose problem is the question
(`shared.rag.duplicates`).

`same-text`: documents whose problem is the same text but for spelling, blanks and formatting. `same-answer`: also those
with the same mathematics, almost the same words, and the gold answer, where that is known. `same-words`: those with
almost the same words, whatever their numbers and answers (the rule of release 0.1).
"""
RELEASE_0_1: Duplicates = "same-words"


class Retrieve(msgspec.Struct, frozen=True, kw_only=True, tag="retrieve"):
    """Search one index. The retriever leaves out near-duplicates of the question, and names them in the reply."""

    question: str
    index: str
    """The role that the job pins to an index build: "dense", "sparse" or "fallback"."""
    k: int
    skip: int = 0
    """Number of the best hits to skip, for the next page of the same search. Ranks continue from page to page."""
    hypothetical: tuple[str, ...] = ()
    """Texts whose vectors are averaged with the question's (HyDE), for dense indexes only. They are never hits."""
    duplicates: Duplicates = RELEASE_0_1
    """The runtime sets this and the next two fields for every pipeline, from the job's parameters."""
    item: str = ""
    """The question of the sample's item, if `question` is another text, such as a rewritten query."""
    gold: str = ""
    """The item's gold answer, with which `same-answer` compares a document's."""


class Rerank(msgspec.Struct, frozen=True, kw_only=True, tag="rerank"):
    """Score (question, document) pairs with a cross-encoder."""

    question: str
    documents: tuple[str, ...]


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag="embed"):
    """Embed a text as a document."""

    text: str


class Judge(msgspec.Struct, frozen=True, kw_only=True, tag="judge"):
    """Rate one document, or one reply, with a rubric; a rubric without the slot `question` is not shown the
    question."""

    rubric: str
    document: str = ""
    """Hash of the document; "": the rated text is in `slots`."""
    question: str | None = None
    slots: dict[str, str] = {}
    """Values of the rubric's other slots."""
    decoding: Decoding | None = None
    """How the judge samples; None: as the job's parameters say."""
    draw: int = 0
    """Distinguishes repeated ratings of the same document, which show how repeatable the judge is."""


class Write(msgspec.Struct, frozen=True, kw_only=True, tag="write"):
    """Let the *judge* model write a text for retrieval: a rewritten query, sub-queries, or a hypothetical document."""

    template: str
    decoding: Decoding
    slots: dict[str, str]
    """Values of the template's slots."""
    documents: tuple[str, ...] = ()
    """Document hashes for the slot `documents`, in prompt order."""
    draw: int = 0
    """Distinguishes texts that are sampled from the same prompt."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Write an answer from a template; `context` has the hashes of the documents, in prompt order."""

    template: str
    question: str
    context: tuple[str, ...] = ()
    passage: str = ""
    """A text that replaces the documents in the prompt: what compression or refinement kept of them."""
    slots: dict[str, str] = {}
    """Values of the template's other slots."""
    logprobs: int = 0
    """Number of alternatives of each token, with log-probabilities, that the reply should have."""
    temperature: float | None = None
    """Sampling temperature; None: the job's `generate.temperature`."""
    draw: int = 0
    """Distinguishes answers that are sampled from the same prompt: 0, 1, 2 ... A greedy call always has draw 0."""


class Converse(msgspec.Struct, frozen=True, kw_only=True, tag="converse"):
    """Let the generator answer a conversation as it is, without a template."""

    messages: tuple[Message, ...]
    """Messages of the conversation; the last one is the user's."""
    decoding: Decoding
    draw: int = 0
    """Distinguishes answers that are sampled from the same conversation; 0 for a greedy call."""


class Grade(msgspec.Struct, frozen=True, kw_only=True, tag="grade"):
    """Grade an extracted answer with the job's grader; `answer` is None if no answer was found."""

    answer: str | None
    gold: str
    expected: Expected = Expected()
    """Other gold answers, and the choices of a multiple-choice question."""
    peers: bool = False
    """Whether `gold` is another model's answer, to which this one is compared."""


class Verify(msgspec.Struct, frozen=True, kw_only=True, tag="verify"):
    """Check each equation in the text of one document by itself; the question is not shown."""

    document: str
    """Hash of the document."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True, tag="estimate"):
    """Estimate how hard a question is, from its text alone."""

    question: str


class RuleChoice(msgspec.Struct, frozen=True, kw_only=True):
    """How rules of a bank are chosen for a relation."""

    most: int
    """Maximum number of rules."""
    confidence: float = 0.0
    """Minimum certainty of a rule (`Rule.certainty`)."""
    support: int = 1
    """Minimum support of a rule."""
    order: Literal["best", "worst", "random"] = "best"
    """`best`: highest certainty first, then highest support, then the shorter body, then the lower number in the bank.
    `worst`: the reverse order. `random`: any rules of the bank, for whatever relation, drawn with `seed`."""
    seed: int = 0


class FindRules(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """Find rules of the job's bank for a relation."""

    relation: str = ""
    """Name of the relation in the graph. "": the reply names the relation whose phrase occurs in `question`, and its
    rules. Without a question either, the reply names every relation for which the bank has rules."""
    question: str = ""
    side: Literal["", "object", "subject"] = ""
    """The end that the question asks for, since a rule of a temporal miner predicts one end only; "": unknown."""
    phrases: str = ""
    """SHA-256, in hex, of the graph's phrases (`graphs.phrases_hash`); "": relations are named as in the graph."""
    choice: RuleChoice


class Mine(msgspec.Struct, frozen=True, kw_only=True, tag="mine"):
    """Mine the rules of the job's graph for one relation in the head."""

    relation: str
    mining: StoredMining


Call = Retrieve | Rerank | Embed | Judge | Write | Generate | Converse | Grade | Verify | Estimate | FindRules | Mine


class CallKind(NamedTuple):
    """The properties that all calls of one role have."""

    lane: Lane
    value: Any
    """Type of the reply when it is not a `Failure`."""


CALL_KINDS: Mapping[str, CallKind] = {
    "estimate": CallKind(Lane.JUDGE, Estimated),
    "retrieve": CallKind(Lane.JUDGE, Retrieved),
    "rerank": CallKind(Lane.JUDGE, Scored),
    "embed": CallKind(Lane.JUDGE, Embedded),
    "judge": CallKind(Lane.JUDGE, Rated),
    "verify": CallKind(Lane.JUDGE, Verified),
    "write": CallKind(Lane.JUDGE, Generated),
    "generate": CallKind(Lane.GENERATE, Generated),
    "grade": CallKind(Lane.JUDGE, Graded | Marked),
    "rules": CallKind(Lane.JUDGE, FoundRules),
    "mine": CallKind(Lane.JUDGE, Mined),
}
"""Every role, in the order of reports, which is roughly that in which a sample makes its calls."""


MOST_SLOTS = 32_767
"""Maximum number of calls that a pipeline may wait for at once, and of its waits: slots and positions are stored as
smallint."""

Yielded = Call | Sequence[Call]
"""What a pipeline yields: one call, or several that run in parallel. It receives one reply, or a list of replies in
order."""
