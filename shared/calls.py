"""Calls that pipelines yield, and the requests that they become once models and texts are pinned."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from shared import canonical, replies


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


Prompt = str | tuple[Message, ...]
"""A text is equivalent to a single message of the user."""


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    """Convert the prompt to messages, as model servers take it."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": each.role, "content": each.content} for each in prompt]


def text_of(prompt: Prompt) -> str:
    """Format the prompt as text: each message of a conversation under its role."""
    return prompt if isinstance(prompt, str) else "\n\n".join(f"[{each.role}]\n{each.content}" for each in prompt)


GraderName = Annotated[str, msgspec.Meta(pattern="^([a-z][a-z0-9-]{0,40})?$")]
"""Name of a grader (`shared/rag/grading.py`), including plug-ins; "": the dataset's grader, or `math` if it declares
none."""
MATHEMATICAL = ("math", "math-dataset", "last-number")
"""Graders that compare answers as mathematics, and also give the strict verdict."""


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data of an item about right answers, in addition to its gold answer."""

    golds: tuple[str, ...] = ()
    """Other gold answers: an answer that matches any of them is right."""
    choices: tuple[str, ...] = ()
    """Texts of the choices A, B, C ... of a multiple-choice question."""
    rubric: str = ""
    """What a right answer of this item needs, as an instruction to the judge model."""
    nuggets: tuple[str, ...] = ()
    """Short statements, each of which a complete answer contains; metrics read them, graders do not."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules by which one answer is graded; part of a grade call's request unless they are those of `MATH`."""

    grader: str = "math"
    golds: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    threshold: float | None = None
    """Token F1 from which an answer is right; for `f1` only."""
    separators: str = ""
    """Characters, each of which separates the members of a set; for `set` only."""


MATH = Rules()
"""The rules of a single gold answer that is graded as mathematics."""

# The limits of each rule miner; the defaults are those of the miner's authors.

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Draws = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
"""Random draws that are held in memory together."""


class Amie(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="amie"):
    """Mines closed connected rules of a static graph (AMIE3, Lajus et al. 2020). Times are ignored."""

    min_support: Count = 2
    """Minimum number of positive examples of a rule."""
    min_head_coverage: Share = 0.01
    """Minimum share of the head relation's facts that a rule must explain."""
    min_pca_confidence: Share = 0.1
    """Minimum PCA confidence."""
    max_atoms: Annotated[int, msgspec.Meta(ge=2, le=3)] = 3
    """Maximum number of atoms, including the head."""
    min_head_facts: Count = 100
    """Minimum number of facts of a head's relation (AMIE's `-minis`)."""
    constants: bool = False
    """Whether an atom of a body may have an entity in place of a variable. Its other term is then a variable of the
    head; for each of these variables, the 200 such atoms with the most support are tried."""


class TLogic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="tlogic"):
    """Mines cyclic rules of a temporal graph from random walks back in time (TLogic, Liu et al. 2022)."""

    walks: Draws = 200
    """Number of walks for each relation and length."""
    max_length: Annotated[int, msgspec.Meta(ge=1, le=3)] = 3
    """Maximum number of atoms of a body."""
    transition: Literal["exponential", "uniform"] = "exponential"
    """How a walk chooses its next edge: recent edges with a higher probability, or all edges with the same."""
    samples: Draws = 500
    """Number of sampled bodies from which a rule's confidence is estimated."""
    exact: bool = False
    """Whether all bodies are counted instead of a sample."""
    min_confidence: Share = 0.0
    """Minimum confidence; rules of confidence 0 are never kept."""
    min_head_facts: Count = 1
    """Minimum number of facts of a head's relation."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    """Seed of the walks and samples; the same seed gives the same bank."""


class TemporalSimple(msgspec.Struct, frozen=True, kw_only=True, tag_field="miner", tag="temporal-simple"):
    """The limits of a miner of earlier releases; stored jobs and rule banks still use it."""

    window: int = 50
    """Limit of the earlier miner, which this release does not run."""
    min_support: int = 1
    """Limit of the earlier miner, which this release does not run."""
    min_entities: int = 3
    """Limit of the earlier miner, which this release does not run."""
    unseen_negatives: int = 30
    """Limit of the earlier miner, which this release does not run."""
    min_head_facts: int = 1
    """Limit of the earlier miner, which this release does not run."""


Mining = Amie | TLogic
"""The miner, and its limits."""
StoredMining = Mining | TemporalSimple
"""The same in a stored job, call or bank, which may be of an earlier release."""

# The calls that a pipeline may yield; `replies` has their replies.
#
# A call names *roles* ("judge", "dense"). The runtime binds these to the job's pinned models and templates and hashes
# the result, so a pipeline never knows which model answers.


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
almost the same words, regardless of their numbers and answers (the rule of release 0.1).
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
    """The runtime sets this and the next three fields for every pipeline, from the job's parameters."""
    item: str = ""
    """The question of the sample's item, if `question` is another text, such as a rewritten query."""
    gold: str = ""
    """The item's gold answer, with which `same-answer` compares a document's."""
    threshold: float | None = None
    """Cosine below which hits are cut, for dense indexes only; the reply names them."""


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
    """Hash of the document; "": the rated text is in `slots`, or there are `documents`."""
    documents: tuple[str, ...] = ()
    """Hashes of several documents for the rubric's slot `documents`, in prompt order."""
    question: str | None = None
    slots: dict[str, str] = {}
    """Values of the rubric's other slots."""
    decoding: Decoding | None = None
    """How the judge samples; None: as the job's parameters say."""
    draw: int = 0
    """Distinguishes repeated ratings of the same document, which show how repeatable the judge is."""
    logprobs: int = 0
    """Number of alternatives of each token by whose probabilities the reply is read; 0: its text alone counts."""


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
    """Let the generator answer a conversation without a template."""

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


class Execute(msgspec.Struct, frozen=True, kw_only=True, tag="execute"):
    """Run a program that a model wrote (`shared/mathtext/programs.py`)."""

    program: str


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


Call = (
    Retrieve | Rerank | Embed | Judge | Write | Generate | Converse | Grade | Verify | Execute | Estimate | FindRules
    | Mine
)  # fmt: skip


class CallKind(NamedTuple):
    """The properties that all calls of one role have."""

    lane: Lane
    value: Any
    """Type of the reply when it is not a `Failure`."""


CALL_KINDS: Mapping[str, CallKind] = {
    "estimate": CallKind(Lane.JUDGE, replies.Estimated),
    "retrieve": CallKind(Lane.JUDGE, replies.Retrieved),
    "rerank": CallKind(Lane.JUDGE, replies.Scored),
    "embed": CallKind(Lane.JUDGE, replies.Embedded),
    "judge": CallKind(Lane.JUDGE, replies.Rated | replies.Relevance),
    "verify": CallKind(Lane.JUDGE, replies.Verified),
    "write": CallKind(Lane.JUDGE, replies.Generated),
    "generate": CallKind(Lane.GENERATE, replies.Generated),
    "execute": CallKind(Lane.JUDGE, replies.Executed),
    "grade": CallKind(Lane.JUDGE, replies.Graded | replies.Marked),
    "rules": CallKind(Lane.JUDGE, replies.FoundRules),
    "mine": CallKind(Lane.JUDGE, replies.Mined),
}
"""Every role, in the order of reports, which is roughly that in which a sample makes its calls."""
MOST_SLOTS = 32_767
"""Maximum number of calls that a pipeline may wait for at once, and of its waits: slots and positions are stored as
smallint."""
Yielded = Call | Sequence[Call]
"""The type that a pipeline yields: one call, or several that run in parallel. It receives one reply, or a list of
replies in order."""

# The form of a call that is hashed, stored and executed.
#
# A request has everything that determines the reply and nothing else: texts by hash, no database ids, no job.


class DocumentRef(msgspec.Struct, frozen=True):
    """A document in a request: its hash, which the executing worker replaces by the text."""

    doc: str


SlotValue = str | DocumentRef | list[DocumentRef]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a call. `draw` and `nonce` distinguish calls that must be computed more than once."""

    role: str
    model: str
    """Hash, in hex, of the model's row: backend, digest, version, options."""
    template: str = ""
    """`id@hash` of the prompt template."""
    values: dict[str, SlotValue | None] = {}
    messages: tuple[Message, ...] = ()
    """A conversation, instead of a template and its values."""
    decoding: Decoding | None = None
    k: int = 0
    skip: int = 0
    hypothetical: tuple[str, ...] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: str = ""
    gold: str = ""
    threshold: float | None = None
    logprobs: int = 0
    rules: Rules | None = None
    """How an answer is graded; None: by the rules of `MATH`."""
    mining: StoredMining | None = None
    """The miner, and its limits."""
    choice: RuleChoice | None = None
    """How rules of a bank are chosen."""
    side: Literal["", "object", "subject"] = ""
    phrases: str = ""
    draw: int = 0
    nonce: str = ""

    @property
    def key(self) -> bytes:
        """Return the call's identity: the SHA-256 over the canonical bytes."""
        return canonical.digest(self)


def seed_of(key: bytes) -> int:
    """Return the sampling seed for the model: the first 31 bits of the key, the same in every job."""
    return int.from_bytes(key[:4]) >> 1


# Messages between workers and the guard: a chunk of model calls with an epoch, answered by single completions.


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
    choices: tuple[str, ...] = ()
    """The only texts that the server may let the model reply with; (): any text."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of calls; it is refused as a whole unless its epoch is the open one (None: for models that need no
    lease)."""

    epoch: int | None
    calls: tuple[ModelCall, ...]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one call: a model's answer as a driver returns it, or the reason why it is missing."""

    text: str = ""
    tokens: tuple[replies.Token, ...] = ()
    """Tokens with log-probabilities, if these were asked for and the server returns them."""
    finish_reason: str = ""
    """Finish reason of the server, or one of those in `shared.models.chat`."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens that the server took from its cache instead of computing them; None if it does not report it."""
    completion_tokens: int | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    """Time that the server reports for the prompt, and for the completion; None if it reports none."""
    failure: replies.FailureKind | None = None
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
