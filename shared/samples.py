"""Items, samples, traces and outcomes of a job, and the type of a pipeline."""

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from shared import canonical
from shared.calls import Decoding, Expected, Message, Yielded
from shared.params import Params
from shared.replies import Document, Graded, Marked

TimeUnit = Literal["day", "step"]
"""Unit of a graph's times: days (of the proleptic Gregorian calendar, from 1), or the steps of the uploaded file."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """States that a relation holds between two entities, at a time if the graph has times."""

    subject: str
    relation: str
    object: str
    time: str | None = None
    """A date (YYYY-MM-DD) or a whole number."""


class Phrase(msgspec.Struct, frozen=True, kw_only=True):
    """The words for a relation in sentences."""

    relation: str
    phrase: str
    inverse: str | None = None
    """The words for the relation with subject and object exchanged; None: derived from `phrase`."""


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that leads from the graph to an answer of a question, and the facts that it follows to get there."""

    rule: int
    """Number of the rule in the bank, from 0."""
    documents: tuple[str, ...]
    """External ids of the facts in the graph's corpus, in the order of the graph."""


class FactQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a graph: the other end of the facts that one entity has of one relation.

    A question that was not made from a graph may name only its relation.
    """

    relation: str
    entity: str = ""
    """Entity that the question names; "": unknown."""
    side: Literal["object", "subject"] = "object"
    """The end that the question asks for."""
    time: str | None = None
    """Time of the facts that the question asks for; only earlier facts are known."""
    bank: str = ""
    """Hash, in hex, of the rule bank that numbers the rules in `leads`; "": none."""
    leads: tuple[Lead, ...] = ()


Library = Mapping[str, Document]
"""Documents by hash: those in the sample's replies, which the runtime loads before a replay."""


def hash_item(question: str, gold: str | None) -> bytes:
    """Return the SHA-256 over the normalised question and the gold answer."""
    return canonical.digest([canonical.normalise(question), gold])


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a dataset. `ordinal` is its position there, from 0."""

    ordinal: int
    question: str
    gold: str | None = None
    custom_id: str | None = None
    expected: Expected = Expected()
    """What a right answer is, in addition to `gold`."""
    query: FactQuery | None = None
    """What the question asks of a graph, if that is known."""

    @property
    def hash(self) -> str:
        """Return the SHA-256, in hex, over question and gold answer."""
        return hash_item(self.question, self.gold).hex()


class Strategy(StrEnum):
    """Scorer of the reasoning quality in a job."""

    RULES = "rules"
    JUDGE = "judge"
    VERIFIER = "verifier"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of a vector of scores with the verifier's scores."""

    pairs: int
    """Number of documents that have both scores."""
    rho: float | None
    """Pearson's correlation; null if it is undefined."""
    low: float | None
    """Lower end of its 95 % interval (Fisher's z); null if it is undefined."""
    high: float | None
    """Upper end of its 95 % interval (Fisher's z); null if it is undefined."""
    spearman: float | None
    """Spearman's rank correlation; null if it is undefined."""
    undefined: str | None
    """Why `rho` is undefined; null if it is defined."""


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of rules and judge with the checked equations of the calibration documents. It does not change the
    decision."""

    scores: tuple[float | None, ...]
    """The verifier's scores, in the order of `GateDecision.documents`; null for a document without a decided equation.
    """
    refuted: tuple[int | None, ...]
    """Number of refuted equations of each document; null for a document that could not be checked."""
    failures: int
    """Number of documents that could not be checked."""
    rules: Agreement
    """Agreement of the rules with the verifier."""
    judge: Agreement
    """Agreement of the judge with the verifier."""


class RelevanceTest(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the judge model finds a question's own documents more relevant than those of another question."""

    questions: int
    """Number of questions for which the preference could be determined."""
    preferred: int
    """Number of questions whose own documents the judge model preferred."""
    low: float
    """Lower end of Wilson's 95 % interval of `preferred` / `questions`."""
    passed: bool
    """Whether the judge model's relevance is used, because `low` is high enough."""
    reason: str
    """Why the test was passed or failed."""


class GateDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decision of the confidence gate, and all data from which it can be recomputed bit for bit.

    `rho` is Pearson's correlation of rule and judge scores, between `low` and `high` at 95 % (Fisher's z). It is null
    if undefined (a constant vector); the judge is then chosen.
    """

    strategy: Strategy
    """Scorer of the job's documents."""
    reason: str
    """Why this strategy was chosen."""
    tau: float
    """Threshold of the correlation above which rules replace the judge."""
    rho: float | None
    """Pearson's correlation of rule and judge scores; null if it is undefined."""
    low: float | None
    """Lower end of the 95 % interval of `rho`; null if it is undefined."""
    high: float | None
    """Upper end of the 95 % interval of `rho`; null if it is undefined."""
    spearman: float | None
    """Spearman's rank correlation of rule and judge scores; null if it is undefined."""
    documents: tuple[str, ...]
    """Hashes of the scored documents, in the order of the two score vectors."""
    rule_scores: tuple[float, ...]
    """Scores by the rules, in the order of `documents`."""
    judge_scores: tuple[float, ...]
    """Scores by the judge, in the order of `documents`."""
    asked: int
    """Number of judge calls for the calibration, including those whose replies could not be parsed."""
    unparsed: int
    """Number of judge replies that could not be parsed."""
    truth: Truth | None = None
    """Agreement with checked equations; null without `gate.truth`."""
    relevance: RelevanceTest | None = None
    """Test of the judge model's relevance; null without `rerank.tested`."""


# Cannot be part of a cycle: without the garbage collector, outcomes are read in two thirds of the time.
class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A candidate document with its ranks and scores in retrieval, scoring and reranking."""

    document: str
    """Hash of the document."""
    rank: int
    """Rank in the final order, from 1."""
    dense_rank: int | None = None
    """Rank in the dense list, from 1; null if the list does not have the document."""
    sparse_rank: int | None = None
    """Rank in the sparse list, from 1; null if the list does not have the document."""
    dense_score: float | None = None
    """Score in the dense list; null if the list does not have the document."""
    sparse_score: float | None = None
    """Score in the sparse list; null if the list does not have the document."""
    fused: float | None = None
    """Score after fusion; null if nothing was fused."""
    quality: float | None = None
    """Reasoning quality; null if it was not scored or the judge's reply had no rating."""
    features: dict[str, float] | None = None
    """Rule features, or counts of equations, that the quality was computed from; null if it was not scored."""
    failure: str | None = None
    """Kind of the failure that left the document without a quality; null if there was none."""
    relevance: float | None = None
    """How much the document helps with the question, in [0, 1]: a reranker's probability, a judge's rating, or CRAG's
    value from similarities, which is not a probability. Null if it was not determined."""
    paths: dict[str, int] | None = None
    """Rank of the document by list, if there are more lists than the dense and the sparse one; null otherwise."""
    score: float | None = None
    """Score that determined the final order; null if the order is that of the search."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of a method for this sample; a trace has them in order."""

    stage: str
    """Stage of the method, such as `rewrite`, `crag`, `critic` or `compress`."""
    action: str
    """The action in the method's terms, such as `correct`, `continue` or `refuse`."""
    round: int = 0
    """Number of the round in a loop, from 1; 0 outside a loop."""
    detail: dict[str, str | float | bool | list[str] | None] = {}
    """Numbers and texts on which the decision was based."""
    fallback: str | None = None
    """Kind of the failure that made the method use its fallback; null if it did not."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """How a sample got its context. It is stored once, and the audit recomputes it."""

    candidates: tuple[Candidate, ...] = ()
    """Candidate documents in their final order."""
    duplicates: tuple[str, ...] = ()
    """Hashes of near-duplicates of the question that retrieval left out."""
    unscored: bool = False
    """Whether scoring was requested and no candidate has a quality."""
    decisions: tuple[Decision, ...] = ()
    """Decisions of the method, in order."""


class Extraction(StrEnum):
    """Whether the reply's answer was found."""

    OK = "ok"
    MISSING = "missing"
    UNBALANCED = "unbalanced"
    """The only `\\boxed{}` never closes."""
    EMPTY = "empty"
    """The reply has no text."""
    ONLY_REASONING = "only_reasoning"
    """The reply ends in its reasoning, so that it holds no answer."""
    REFUSED = "refused"
    """Nothing was generated, on purpose; `Outcome.refusal` says why."""


class ExtractedBy(StrEnum):
    """The rule by which the answer was found in the reply (`shared/rag/grading.py`)."""

    BOXED = "boxed"
    MARKED = "marked"
    STATED = "stated"
    LAST_NUMBER = "last_number"
    WHOLE = "whole"
    GIVEN = "given"
    """It was imported as an answer, and not looked for."""


class JudgedPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sentence or document that the judge model labelled for a metric."""

    text: str
    """The sentence, or the hash of the document."""
    label: int | None = None
    """The judge's label, from 1; null if it gave none."""
    failure: str = ""
    """Kind of the failure that left the part without a label; empty if there was none."""
    disputed: bool = False
    """Whether one document supports the sentence and another one contradicts it; only determined if each document was
    judged separately."""


class MetricScore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Value of a metric for one sample, or why there is none."""

    value: float | None = None
    """Value in [0, 1]; null if the metric does not apply, or if it depends on a failed call."""
    not_applicable: str = ""
    """Why the metric does not apply to this sample; empty if it applies."""
    failures: dict[str, int] = {}
    """Number of missing labels by the kind of failure."""
    low: float | None = None
    """The lowest value that the missing labels allow; null without failures."""
    high: float | None = None
    """The highest value that the missing labels allow; null without failures."""
    parts: tuple[JudgedPart, ...] = ()
    """The labelled sentences or documents, in order."""

    def __post_init__(self) -> None:
        """Raise ValueError unless there is a value in [0, 1], a reason why it is missing, or failures with bounds."""
        if self.value is not None and not 0 <= self.value <= 1:
            raise ValueError(f"the value of a metric must be from 0 to 1, not {self.value}")
        if self.value is not None or self.not_applicable:
            if self.failures or (self.value is not None and self.not_applicable):
                raise ValueError("a metric must have a value, or a reason why it does not apply, or missing labels")
        elif not self.failures:
            raise ValueError("a metric without a value must say why it does not apply, or which labels are missing")
        elif self.low is None or self.high is None or not 0 <= self.low <= self.high <= 1:
            raise ValueError(f"the bounds of a metric must be from 0 to 1, not {self.low} and {self.high}")


class ControlScore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of material that was made wrong or right on purpose, which show whether the judge model can judge."""

    swapped: float | None = None
    """Score with the question of another item, or with documents drawn from the corpus; it should be low. Null if it
    could not be measured."""
    copied: float | None = None
    """Whether a document is rated as supporting its own sentence; it should be 1. Null if it could not be measured."""
    reversed: float | None = None
    """Share of labels that do not change when the documents are in reverse order; it should be 1. Null if it could not
    be measured."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The final result that the pipeline returned for a sample."""

    answer: str | None
    """Extracted answer; null if none was found."""
    extraction: Extraction
    """Whether the answer was found in the text."""
    extracted_by: ExtractedBy | msgspec.UnsetType = msgspec.UNSET
    """The rule that found the answer. Missing if there is no answer, or if it was in a box."""
    truncated: bool = False
    """Whether the text was cut off before its end."""
    truncated_by: str | msgspec.UnsetType = msgspec.UNSET
    """Finish reason of a truncated text. Missing if it was the token limit."""
    context: tuple[str, ...] = ()
    """Hashes of the documents in the prompt, in order."""
    refusal: str | None = None
    """Why the pipeline refused to answer: no document was relevant enough. Null if it did not refuse."""
    trace: Trace = Trace()
    """How the sample got its context."""
    verdict: Graded | Marked | None = None
    """Verdict of the grader; null if there is none."""
    grading_failure: str | None = None
    """Kind of the failure that left the answer without a verdict; null if there was none."""
    answer_rank: int | msgspec.UnsetType | None = msgspec.UNSET
    """Rank, from 1, of the first candidate whose text has a gold answer; null if no candidate has one. Missing if it
    was not measured (docs/how-to/graders.md)."""
    metrics: dict[str, MetricScore] | msgspec.UnsetType = msgspec.UNSET
    """Scores of the job's metrics (docs/how-to/metrics.md); missing if the job has none."""
    controls: dict[str, ControlScore] | msgspec.UnsetType = msgspec.UNSET
    """Controls of these scores, for the samples that `metrics.controls` drew; missing for the others."""


class WrittenOutcome(Outcome, frozen=True, kw_only=True):
    """The return value of a pipeline. The runtime extracts the answer from the text for the job's grader."""

    text: str
    """The generator's text."""

    def outcome(self, answer: str | None, extraction: Extraction, rule: ExtractedBy | None) -> Outcome:
        """Return the outcome without the text, with the answer that was found in it."""
        fields = {name: getattr(self, name) for name in Outcome.__struct_fields__}
        found = {
            "answer": answer,
            "extraction": extraction,
            "extracted_by": msgspec.UNSET if rule in (None, ExtractedBy.BOXED) else rule,
        }
        return Outcome(**{**fields, **found})


class Given(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer that the job did not make: of another system, as imported, or of an ended job, as measured later."""

    text: str | None = None
    """The complete text; the answer is extracted from it unless `answer` or `outcome` is set."""
    answer: str | None = None
    contexts: tuple[str, ...] | None = None
    """Hashes of the documents in its prompt, in order; None if nothing was searched, or if the file does not say."""
    passage: str = ""
    """The text that its prompt had in place of the documents; always "" for an import."""
    outcome: Outcome | None = None
    """How the sample of the ended job ended, without context, trace, verdict and metrics; None for an import."""
    score: float | None = None
    """The score that the system's own evaluation gave: 1 for right, 0 for wrong."""
    seconds: float | None = None
    """Time that the system reports, in seconds."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def reply(self) -> str:
        """Return all that was written, or the answer alone if that is all there is."""
        return self.text or self.answer or ""


class Conversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation for the generator without a template, and how to sample."""

    messages: tuple[Message, ...]
    decoding: Decoding
    draw: int = 0
    """Distinguishes sampled answers, as in `Converse`."""


class Texts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Texts to embed, and the format of their vectors."""

    texts: tuple[str, ...]
    encoding: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    """Required length of the vectors; null: any."""


class Passages(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Passages of a corpus from which the judge model writes one question."""

    documents: tuple[str, ...]
    """Their hashes: one, or two that the question needs together."""
    style: str = ""
    """How to word the question, as the user says it; "": as the model likes."""


Stored = Given | Conversation | Texts | Passages
"""Data that may be stored for a sample when its job is submitted."""


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """Material of other items, by which a sample's metrics are controlled (`metrics.controls`)."""

    question: str
    """The question of another item."""
    documents: tuple[str, ...]
    """Hashes of documents that were drawn from the corpus; empty if the job has none."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat of an item in a job."""

    item: Item
    repeat: int = 0
    prepared: GateDecision | None = None
    given: Stored | None = None
    """Set only in jobs whose pipeline works on what was given to it (`advance.GIVEN`); None in most dry runs."""
    control: Control | None = None
    """Set for the samples that are drawn as controls of the metrics."""

    @property
    def question(self) -> str:
        """Return the item's question."""
        return self.item.question


Steps = Generator[Yielded, Any, Outcome]
PrepareSteps = Generator[Yielded, Any, GateDecision]
Pipeline = Callable[[Sample, Params, Library], Steps]
Prepare = Callable[[Sequence[Item], Params, Library], PrepareSteps]


Thumb = Literal["up", "down"]


class SampleNote(msgspec.Struct, frozen=True, kw_only=True):
    """One person's thumb and note on a sample."""

    author: str
    """Name of the API key, or `local` without keys."""
    thumb: Thumb | None
    """`up` or `down`; null for a note alone."""
    note: str
    """Text of the note; it may be empty if there is a thumb."""
    at: datetime
    """Time of the last change."""


class SampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a job: the question and how it ended."""

    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    custom_id: str | None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None
    """The expected answer; null if the item has none."""
    subject: str | None
    """Subject of the item; null if it has none."""
    level: str | None
    """Level of the item; null if it has none."""
    state: str
    """State of the sample."""
    answer: str | None
    """Extracted answer; null if there is none."""
    extraction: str | None
    """Whether the answer was found in the text; null if the sample did not complete."""
    truncated: bool
    """Whether the text was cut off before its end."""
    correct: bool | None
    """Verdict of the job's grader; null without a gold answer or a verdict."""
    strict: bool | None
    """Verdict of the strict rules; with a grader other than `math`, whether the answer equals a gold answer character
    by character. Null without a verdict."""
    grading_failure: str | None
    """Kind of the failure that left the answer without a verdict; null if there was none."""
    failure: str | None
    """Kind of the failure; null if the sample did not fail."""
    detail: str | None
    """Description of the failure; null if the sample did not fail."""
    context: tuple[str, ...]
    """Hashes of the documents in the prompt, in order."""
    duplicates: int
    """Number of near-duplicates of the question that retrieval left out."""
    unscored: bool
    """Whether scoring was requested and no candidate has a quality."""
    ended_at: datetime | None
    """Time at which the sample ended; null if it has not."""
    ending: str | None = None
    """`correct`, or the kind of error (docs/explanation/statistics.md); null if the sample was cancelled or has not
    ended."""
    ending_reason: str | None = None
    """The rule that decided `ending`, with the facts that it used; null without an ending."""
    truncated_by: str | None = None
    """Cause of the truncation: `length`, `repetition`, `broken_byte`, `cut` or `content_filter`; null if the text is
    complete."""
    score: float | None = None
    """Score that decided `correct`: token F1, F1 of a set, or a rating from 1 to 5; null if the grader gives only
    verdicts."""
    thumbs_up: int = 0
    """Number of people who gave the sample a thumb up."""
    thumbs_down: int = 0
    """Number of people who gave the sample a thumb down."""
    notes: str | None = None
    """People's notes, joined, such as `ana: the gold answer is wrong`; null if there are none."""
    metrics: dict[str, float | None] | None = None
    """Scores of the job's metrics by name. A score is null if it does not apply or could not be measured. Null if the
    job has no metrics."""


class DatasetItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question. Fields with their default value are not hashed, so that datasets from before a field keep their
    hash."""

    question: str
    gold: str | None
    """Expected answer; None if the dataset has none."""
    gold_documents: dict[str, int] | None
    """Maps external ids of corpus documents to grades (1 where ungraded); None if they are unknown."""
    subject: str | None
    level: str | None
    custom_id: str | None
    alternatives: int = 0
    """Number of other expected answers of an item from before these were stored; the item is graded against `gold`
    alone."""
    expected: Expected | None = None
    """Other gold answers, choices, a rubric, nuggets; None if there are none."""
    query: FactQuery | None = None
    """What the question asks of a graph; None if unknown."""
