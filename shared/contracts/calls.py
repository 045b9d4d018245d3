"""The calls a pipeline may yield; what comes back stands in `replies`.

A call as yielded names *roles* ("judge", "dense"); the runtime binds it to the job's pinned models and templates
and hashes the result, so a pipeline never knows which model answers.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from shared.contracts import canonical
from shared.contracts.grading import Expected
from shared.contracts.mining import Mining
from shared.contracts.replies import (
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
    slots: dict[str, str] = {}
    """Values of the template's further slots."""
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


class RuleChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules of a bank are taken for a relation."""

    most: int
    """Most rules."""
    confidence: float = 0.0
    """Lowest certainty of a rule (`Rule.certainty`)."""
    support: int = 1
    """Lowest support."""
    order: Literal["best", "worst", "random"] = "best"
    """Best: the highest certainty first, then the highest support, then the shorter body, then the lower number in the
    bank. Worst: the other way round. Random: any rules of the bank, whatever they lead to, drawn by `seed`."""
    seed: int = 0


class FindRules(msgspec.Struct, frozen=True, kw_only=True, tag="rules"):
    """Find rules of the job's bank that lead to a relation."""

    relation: str = ""
    """As the graph calls it. "": the reply names the relation whose phrase stands in `question`, and its rules; without
    a question either, it names all relations that rules of the bank lead to."""
    question: str = ""
    side: Literal["", "object", "subject"] = ""
    """The end that is asked for: a rule of a temporal miner predicts one of them; "": not known."""
    phrases: str = ""
    """SHA-256 in hex of the graph's phrases (`graphs.phrases_hash`); "": relations are called by their names."""
    choice: RuleChoice


class Mine(msgspec.Struct, frozen=True, kw_only=True, tag="mine"):
    """Mine the rules of the job's graph whose head is of one relation."""

    relation: str
    mining: Mining


Call = Retrieve | Rerank | Judge | Write | Generate | Grade | Verify | Estimate | FindRules | Mine


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
    "rules": CallKind(Lane.JUDGE, FoundRules),
    "mine": CallKind(Lane.JUDGE, Mined),
}
"""Every role, in the order in which reports name them: about that in which a sample makes its calls."""


MOST_SLOTS = 32_767
"""Calls that a pipeline may wait for at once, and how often it may wait: slots and positions are stored as smallint."""

Yielded = Call | Sequence[Call]
"""What a pipeline yields: one call, or several that wait in parallel. It is sent one reply, or a list in order."""
