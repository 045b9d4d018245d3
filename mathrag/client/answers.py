"""What the API answers with, as structs. Written by `make generate` from the OpenAPI document; do not edit.

Fields that this release does not know are ignored. Texts with a fixed set of values are `str`, as servers of later
releases may have more of them. `object` is JSON of any form.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items with Wilson's 95 % interval. Each item counts once, by the share of its graded answers that are
    correct."""

    value: float | None = None
    """Mean over items; null if nothing was graded. It equals `correct` / `graded` if all items have the same number
    of graded answers."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    items: int
    """Number of items with a graded answer."""
    correct: int
    """Number of correct answers, over all repeats."""
    graded: int
    """Number of graded answers, over all repeats."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of a vector of scores with the verifier's scores."""

    pairs: int
    """Number of documents that have both scores."""
    rho: float | None = None
    """Pearson's correlation; null if it is undefined."""
    low: float | None = None
    """Lower end of its 95 % interval (Fisher's z); null if it is undefined."""
    high: float | None = None
    """Upper end of its 95 % interval (Fisher's z); null if it is undefined."""
    spearman: float | None = None
    """Spearman's rank correlation; null if it is undefined."""
    undefined: str | None = None
    """Why `rho` is undefined; null if it is defined."""


class Alphas(msgspec.Struct, frozen=True, kw_only=True):
    """Krippendorff's alpha of several raters, by the distance between two ratings."""

    tasks: int
    """Number of tasks with two ratings or more."""
    nominal: Coefficient
    """Alpha if any two different ratings are equally far apart."""
    ordinal: Coefficient
    """Alpha by the ranks of the ratings."""
    interval: Coefficient
    """Alpha by the squared difference of the ratings."""
    note: str | None = None
    """Why there is no alpha; null if there is one."""


class AnswerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt for answers: a stored one, a shipped one, or a file of the folder `plugins.templates`."""

    name: str
    """Name of the prompt."""
    version: int
    """Number of the version, from 1."""
    hash: str
    """SHA-256 of the content, in hex; calls identify the prompt by it."""
    text: str
    """The user message, with the placeholders `{{question}}` and `{{context}}`."""
    system: str = ""
    """The system prompt; empty if there is none."""
    examples: tuple[Example, ...] = ()
    """Worked examples, in order."""
    origin: str = "stored"
    """Whether the prompt is stored, shipped, or a file of `plugins.templates`."""
    created_by: str | None = None
    """Name of the API key, or `local` without keys; null unless the prompt is stored."""
    created_at: str | None = None
    """Time at which the version was stored; null unless the prompt is stored."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a job. Cells that share a job have the same results."""

    accuracy: Accuracy
    """Accuracy by the job's grader."""
    measured: Mean
    """Mean of the requested measure; it has no value if nothing was measured."""
    request_counts: RequestCounts
    """Samples of the job by state."""
    failures: dict[str, int] = {}
    """Number of failed samples by kind."""
    gate: Gate | None = None
    """The gate's decision; null if the job has no gate or the gate has not decided."""
    calls_made: dict[str, int] = {}
    """Calls made by the job, by role. Jobs that ran together share calls, and the first job that needed a call made
    it."""
    calls_reused: dict[str, int] = {}
    """Calls by role whose replies another job had already computed."""
    model_loads: int
    """Number of loads of the models that answered calls made by the job, including those in which a shared server
    loaded a model again."""
    seconds: float | None = None
    """Seconds from submission to end; null while the job runs."""


class AnsweredSide(msgspec.Struct, frozen=True, kw_only=True):
    """One job's answer."""

    answer: str | None = None
    """Extracted answer; null if none was found."""
    correct: bool
    """Whether the answer is correct."""
    truncated: bool
    """Whether the text was cut off before its end."""


Atom = tuple[str, int | str, int | str]
"""States that a relation holds between two terms. An inverse relation is the relation with its terms exchanged."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a call, as reported by the process that ran it."""

    outcome: str
    """`value`, or the kind of the failure."""
    reply: dict[str, object] | None = None
    """The reply; null if this release cannot read it (see `unreadable`)."""
    worker: str | None = None
    """Name of the process that ran the call; null if it is unknown."""
    device: str | None = None
    """Device that held the model; null if no device was needed."""
    epoch: int | None = None
    """Number of the residency that answered; null if no device was needed."""
    started_at: str | None = None
    """Start of the attempt; null if it is unknown."""
    ended_at: str | None = None
    """End of the attempt; null if it is unknown."""
    concurrency: int | None = None
    """Number of calls that the model computed when this one began, including this call. The reply may depend on it
    (docs/how-to/operations.md, "The same answer"). Null if no model was called."""
    prompt_hash: str | None = None
    """SHA-256 of the prompt; null if no model was called."""
    prompt_tokens: int | None = None
    """Number of prompt tokens, as counted by the model server; null if it did not count."""
    cached_tokens: int | None = None
    """Number of prompt tokens that the model server took from its cache instead of computing them; null if it did
    not report it."""
    completion_tokens: int | None = None
    """Number of reply tokens, as counted by the model server; null if it did not count."""
    finish_reason: str | None = None
    """Why the model server ended the reply, such as `stop` or `length`; null if it did not say."""
    prompt_ms: float | None = None
    """Milliseconds for the prompt, as reported by the model server; null if it did not report them."""
    completion_ms: float | None = None
    """Milliseconds for the reply, as reported by the model server; null if it did not report them."""
    trace_id: str | None = None
    """Id of the trace that has the attempt; null without tracing."""
    stored_at: str
    """Time at which the attempt was stored."""
    reply_hash: str
    """SHA-256 of the reply as it is stored."""
    unreadable: str | None = None
    """Why the stored reply cannot be shown; missing if it can."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking the invariants of a job."""

    clean: bool
    """Whether no invariant is violated."""
    violations: tuple[Violation, ...] = ()
    """The violations, by invariant."""
    source_changed: str | None = None
    """Message that the job's pipeline has changed since the job ran; missing if it has not. The audit is still
    clean if a replay gives the same outcomes."""


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """Calibrated thresholds of an evaluator."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    evaluator: str
    """The evaluator that the thresholds are for."""
    skipped: int
    """Number of answered items with a label but without a confidence from the evaluator."""
    calibration: Calibration
    """The thresholds and the data that they come from."""


class CalibratedThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold with its 95 % interval (percentile bootstrap over the observations)."""

    value: float | None = None
    """The threshold; null if no threshold meets the criterion."""
    low: float | None = None
    """Lower end of the interval; null without one."""
    high: float | None = None
    """Upper end of the interval; null without one."""
    met: float
    """Share of the resamples in which a threshold meets the criterion; the interval covers only these."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The calibrated thresholds and the data that they come from."""

    trust: float
    """Share of relevant observations that the upper threshold must reach."""
    observations: int
    """Number of observations."""
    relevant: int
    """Number of relevant observations."""
    upper: CalibratedThreshold
    """The lowest score at and above which the share of relevant observations is at least `trust`."""
    lower: CalibratedThreshold
    """The highest score below which the share of relevant observations is at most 1 - `trust`."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
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
    """How much the document helps with the question, in [0, 1]: a reranker's probability, a judge's rating, or
    CRAG's value from similarities, which is not a probability. Null if it was not determined."""
    paths: dict[str, int] | None = None
    """Rank of the document by list, if there are more lists than the dense and the sparse one; null otherwise."""
    score: float | None = None
    """Score that determined the final order; null if the order is that of the search."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the grid."""

    index: int
    """Number of the cell, from 0."""
    dataset: str
    """Name of the dataset."""
    corpus: str | None = None
    """Name of the corpus; null if the cell has none."""
    variant: str
    """Name of the variant."""
    pipeline: str
    """Name of the pipeline."""
    point: dict[str, object] = {}
    """Values of the grid's parameters in this cell, by path."""
    seed: int
    """Value of the parameter `seed`."""
    job: str | None = None
    """Id of the job; null if the cell has none. Cells with equal requests share a job."""
    job_name: str | None = None
    """Name of the job; null if the cell has none."""
    state: str
    """State of the job, or `refused` (the cell got no job) or `purged` (the job was deleted)."""
    refused: str | None = None
    """Why the cell got no job; null if it got one."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose text on disk differs from the imported one. Hashes are SHA-256 in hex."""

    file: str
    """Path of the file."""
    imported: str | None = None
    """Hash of the imported file; null if the file is new."""
    on_disk: str | None = None
    """Hash of the file on disk; null if the file was deleted."""


class ChangedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A question that only one of the two jobs answered correctly."""

    index: int
    """Index of the item in the left job's dataset, from 0."""
    right_index: int
    """Index of the item in the right job's dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    custom_id: str | None = None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None = None
    """The expected answer; null if the item has none."""
    subject: str | None = None
    """Subject of the item; null if it has none."""
    level: str | None = None
    """Level of the item; null if it has none."""
    left: AnsweredSide
    """The left job's answer."""
    right: AnsweredSide
    """The right job's answer."""


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, or the job that computes it."""

    job: str
    """Id of the job that answers the question."""
    url: str
    """Address of the job; append `/samples/0` for the complete provenance."""
    state: str
    """State of the job; the fields after `price` are set once the job has ended."""
    reason: str | None = None
    """Why there is no answer; null if there is one or the job still runs."""
    pipeline: str
    """Name of the pipeline."""
    price: Price
    """Estimate of the cost before the job ran."""
    cost: Cost | None = None
    """Measured cost; null until the job has ended."""
    answer: str | None = None
    """Result that the text states in `\\boxed{}`."""
    extraction: str | None = None
    """How the answer was found in the text, such as `ok` or `missing`; null without a text."""
    truncated: bool = False
    """Whether the text was cut off before its end."""
    text: str | None = None
    """Complete text that the generator wrote."""
    refusal: str | None = None
    """Why the pipeline refused to answer: no document was relevant enough. Null if it did not refuse."""
    context: tuple[Shown, ...] = ()
    """Documents in the generator's prompt, in order."""
    decisions: tuple[Decision, ...] = ()
    """Decisions of the pipeline, in order; `fallback` says why a step was skipped."""
    warnings: tuple[str, ...] = ()
    """Warnings, for instance that a demonstration model cannot answer this kind of question."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check."""

    name: str
    """Name of the check."""
    ok: bool
    """Whether the check succeeded."""
    detail: str = ""
    """What was found; empty if there is nothing to add."""
    fix: str = ""
    """Advice that fixes the problem; empty if the check succeeded."""


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """A coefficient of agreement and its 95 % percentile interval."""

    value: float | None = None
    """The coefficient: 1 is perfect agreement, 0 agreement by chance. Null if all ratings are equal, or if nothing
    was rated twice."""
    low: float | None = None
    """Lower end of the interval; null if too few of the resamples have a value."""
    high: float | None = None
    """Upper end of the interval; null if too few of the resamples have a value."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One system over all its datasets."""

    name: str
    """Name of the system."""
    jobs: tuple[str, ...] = ()
    """Ids of the jobs, one for each dataset, in the order of `datasets`."""
    datasets: tuple[str, ...] = ()
    """Names of the datasets."""
    pipeline: str
    """Name of the pipeline."""
    items: int
    """Number of items that have a value of the measure, over all datasets."""
    accuracy: Accuracy
    """Accuracy over all datasets."""
    measured: Mean
    """Mean of the measure, with Wilson's interval over items for a yes-or-no measure and Student's for a score."""
    bootstrap: Interval | None = None
    """Mean of the measure over items, resampled within datasets; null if nothing was measured."""
    repeats: Repeats
    """Accuracy or measure by repeat."""
    endings: dict[str, int] = {}
    """Number of samples by ending (docs/explanation/statistics.md). Empty unless requested, because it reads every
    reply."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The compared systems and the pairs of them. The tests of all pairs are corrected together (Holm)."""

    measure: str
    """Measure that was compared: `accuracy`, `exact`, `score`, `answer@K`, or a score of a metric."""
    baseline: str | None = None
    """Name of the system on the right side of every pair; null if all pairs are compared."""
    finding: str
    """The result in one sentence, which ranks only systems that the tests tell apart."""
    jobs: tuple[Compared, ...] = ()
    """The compared systems."""
    pairs: tuple[Versus, ...] = ()
    """The pairs."""
    measures: tuple[str, ...] = ()
    """Measures that these jobs can be compared by, except `answer@K`."""
    notes: tuple[str, ...] = ()
    """Remarks on the figures."""


class Comparisons(msgspec.Struct, frozen=True, kw_only=True):
    """Comparisons of an experiment. P-values are corrected within each comparison."""

    pooled: Comparison
    """Comparison over all datasets, stratified by dataset."""
    datasets: dict[str, Comparison] = {}
    """Comparison on each dataset alone; empty if there is only one."""


class CompressParams(msgspec.Struct, frozen=True, kw_only=True):
    """Context compression (seed document 001)."""

    enabled: bool = True
    """Whether documents are compressed."""
    ratio: float = 0.7
    """Share of the documents' sentences that is kept, measured in estimated tokens."""
    tokens: int = 4000
    """Maximum length of the context, in estimated tokens."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the configuration."""

    version: int = 0
    """Number of the version; it grows by one with every change, and 0 is the shipped configuration."""
    params: dict[str, object] = {}
    """Default parameters, nested as in a job, for jobs, searches and chats that do not set them."""
    changed_by: str | None = None
    """Name of the API key that made the change, or `local` without keys; null for the shipped configuration."""
    changed_at: str | None = None
    """Time of the change; null for the shipped configuration."""


class ConfigurationDifferences(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions of the configuration and the differences between them."""

    left: Configuration
    """The left version."""
    right: Configuration
    """The right version."""
    differences: tuple[ValueDifference, ...] = ()
    """Differences by parameter name."""


class Contamination(msgspec.Struct, frozen=True, kw_only=True):
    """Items whose searches found a near-duplicate of the question. A job without searches has none."""

    items: int
    """Number of ended items."""
    affected: int
    """Number of items whose searches found a near-duplicate of the question."""
    documents: int
    """Number of near-duplicates that were dropped: the largest number of any sample of an item, summed over
    items."""
    share: float
    """Share of affected items: affected / items."""
    among: Accuracy
    """Accuracy on the affected items."""
    others: Accuracy
    """Accuracy on the other items, which no near-duplicate can have influenced."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a task as the labeller sees it, without the verdict of the judge or the grader."""

    question: str = ""
    """The question; empty for a document of the gate's calibration, which is rated without one."""
    document: str = ""
    """Hash of the document; empty for an answer."""
    problem: str = ""
    """Problem of the document; empty for a plain passage."""
    text: str = ""
    """Text of the document, or the passage that the prompt had instead of documents."""
    golds: tuple[str, ...] = ()
    """The accepted answers."""
    choices: tuple[str, ...] = ()
    """Choices of a multiple-choice question."""
    answer: str = ""
    """The answer; with `addresses`, the whole reply."""
    documents: tuple[SourceDocument, ...] = ()
    """Documents in the prompt, in order."""
    sentence: str = ""
    """Sentence or claim of a reply that is compared with the documents or the passage."""
    before: str = ""
    """The sentence before it, as the judge saw it."""


class ControlFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a score's controls over the items drawn for them; null if fewer than five were measured."""

    items: int
    """Number of items with a control; each figure is computed over those that could be measured."""
    swapped: float | None = None
    """Mean score with the question of another item, or with documents drawn from the corpus. It should be low."""
    copied: float | None = None
    """Share of documents that are rated as supporting their own sentence. It should be 1."""
    reversed: float | None = None
    """Share of labels that do not change when the documents are in reverse order. It should be 1."""


class ControlScore(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of material that was made wrong or right on purpose, which show whether the judge model can judge."""

    swapped: float | None = None
    """Score with the question of another item, or with documents drawn from the corpus; it should be low. Null if
    it could not be measured."""
    copied: float | None = None
    """Whether a document is rated as supporting its own sentence; it should be 1. Null if it could not be
    measured."""
    reversed: float | None = None
    """Share of labels that do not change when the documents are in reverse order; it should be 1. Null if it could
    not be measured."""


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus."""

    id: int
    """Number of the corpus in the database."""
    name: str
    """Name of the corpus."""
    hash: str
    """SHA-256 of the documents' hashes in order."""
    documents: int
    """Number of documents."""
    indexed: bool
    """Whether both indexes are built, so that jobs can use the corpus."""
    created_at: str
    """Time at which the corpus was stored."""
    graph: str | None = None
    """Graph whose facts are the documents; null if documents were uploaded."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class CorpusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A complete document of a corpus."""

    hash: str
    """Hash of the document."""
    problem: str
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Text of the document."""
    places: tuple[CorpusPlace, ...] = ()
    """The first 100 occurrences; a corpus may have the same content with several ids."""


class CorpusPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence of a document in a corpus."""

    index: int
    """Position in the corpus, from 0."""
    id: str
    """Id of the document from the upload."""
    meta: dict[str, object] = {}
    """Further fields of the document from the upload."""


class CorrectedMean(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a metric, corrected by human labels of some questions (ARES, Saad-Falcon et al. 2024)."""

    metric: str
    """Name of the metric."""
    judge: float | None = None
    """The judge's mean over all measured questions, each counted once; null if the job was purged."""
    questions: int
    """Number of measured questions."""
    labelled: int
    """Number of questions whose tasks all have a majority of human labels."""
    difference: float | None = None
    """Mean of human score minus judge score over the labelled questions; null without labelled questions."""
    corrected: Interval | None = None
    """The judge's mean plus `difference`, weighted by the share of scores that the judge's labels decided, with a
    95 % bootstrap interval over questions. Null if there are too few labelled questions, or if the job was
    purged."""
    words: str
    """The correction in one sentence."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Measured cost of answering the question."""

    loads: int
    """Number of model loads that were requested after the question arrived and that answered its calls."""
    calls_made: dict[str, int] = {}
    """Calls made for this question, by role."""
    calls_reused: dict[str, int] = {}
    """Calls by role whose replies an earlier question or job had already computed."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of questions; `answers` counts answers."""

    available: int = 0
    """Number of questions before `limit` is applied."""
    answers: int = 0
    """Number of answers of all questions together."""
    answered_by_graph: int = 0
    """Number of questions to which the graph itself gives a further answer, at the same time if facts have
    times."""
    unnamed_answers: int = 0
    """Number of questions whose answers are all missing from the graph's entities."""
    not_after_graph: int = 0
    """Number of questions whose time is not after the graph's last fact, so that the corpus contains later
    facts."""
    with_leads: int = 0
    """Number of questions with a rule that leads to an answer."""
    with_documents: int = 0
    """Number of questions with gold documents."""
    left_out: LeftOut | None = None
    """Number of facts and questions that were left out, by reason."""


class CragParams(msgspec.Struct, frozen=True, kw_only=True):
    """Corrective retrieval (Yan et al. 2024; seed document 001)."""

    evaluator: str = "judge"
    """Scorer of a document's relevance."""
    upper: float | None = None
    """Score at and above which a document is relevant, and its list correct. By default the evaluator's own
    threshold."""
    lower: float | None = None
    """Score below which a document is irrelevant; a list of such documents only is incorrect. By default the
    evaluator's own threshold."""
    thresholds: str = "fixed"
    """`fixed`: use `upper` and `lower`; `calibrated`: use the thresholds that the lists of the job `calibrated_by`
    give for this evaluator (001: adaptive; docs/how-to/retrieval.md#calibration)."""
    calibrated_by: str = ""
    """Name or id of a completed `crag` job. It is read once, at submission."""
    judged_by: str = ""
    """Name or id of a `crag` job over the same dataset and corpus, whose judge labels the lists of `calibrated_by`.
    By default the dataset's gold documents label them."""
    calibrated: Limits | None = None
    """Calibrated values of `upper` and `lower`. Submission sets them, so that a job's thresholds never change."""
    similarity: Limits | None = None
    """Thresholds of similarity for the corpus's embedder. By default they are set at submission if they are known,
    as for the shipped embeddings. Otherwise set or calibrate them, because without them every list is ambiguous by
    similarity."""
    diversity: float = 0.5
    """Diversity below which an ambiguous list is refined (001). Incorrect lists are always refined."""
    rounds: int = 2
    """Maximum number of refinement rounds (001)."""
    strips: str = "selection"
    """How documents are cut into strips (Yan et al. 2024)."""
    top: int = 0
    """Number of strips kept from each corpus. 0: `context_size` whole documents with `strips=selection`, and 6
    strips otherwise."""
    order: str = "found"
    """`found`: documents that the judge calls relevant keep the order of the search; `original`: those with the
    best scores are kept, in that order; `score`: they are kept and ordered by score, as the authors do. Strips keep
    their order with `found` and `original`. A reranker's probabilities always order the documents, and similarity
    never does."""
    fallback: str = ""
    """Name of the corpus that is searched if the lists of the first one are not good enough. By default no other
    corpus is searched."""


class CriticParams(msgspec.Struct, frozen=True, kw_only=True):
    """The critic loop (seed document 004)."""

    generate: float = 0.6
    """Relevance at which a document counts as relevant."""
    rewrite: float = 0.3
    """Relevance of a page below which its query is rewritten: the mean, or the figure that `aggregate` names."""
    attempts: int = 3
    """Maximum number of rounds of search and rating."""
    min_documents: int = 2
    """Number of relevant documents that suffice."""
    k: int = 3
    """Number of documents in a page."""
    aggregate: str = "count"
    """Additional condition for a page: with `count` only the number of relevant documents decides. Otherwise a
    figure of the page must also reach `generate`: its mean (as in the code of document 004), its lowest or highest
    relevance, or the mean weighted by 1 / rank."""
    reply: str = "rating"
    """Form of the critic's reply; `json`: a score in [0, 1] with its reason (004, section 2.1)."""
    rewrite_from: int = 2
    """First attempt after which a query may be rewritten (code of document 004: 2)."""
    accumulate: bool = False
    """Whether the critic also sees the best `k` relevant documents of earlier rounds, and rates the additional
    value of a document (004, section 2.1: accumulated context)."""
    stop: bool = False
    """Whether the loop ends when a rewritten query finds no new document (004, section 7). Otherwise the query is
    rewritten again."""
    decoding: Decoding | None = None
    """How the judge model samples when it rewrites queries, or replies as a critic in JSON."""


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset."""

    id: int
    """Number of the dataset in the database."""
    name: str
    """Name of the dataset."""
    hash: str
    """SHA-256 of the items with all their fields, in order."""
    items: int
    """Number of items."""
    created_at: str
    """Time at which the dataset was stored."""
    grader: str | None = None
    """Default grader of answers; null for mathematics."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One action of a method for this sample; a trace has them in order."""

    stage: str
    """Stage of the method, such as `rewrite`, `crag`, `critic` or `compress`."""
    action: str
    """The action in the method's terms, such as `correct`, `continue` or `refuse`."""
    round: int = 0
    """Number of the round in a loop, from 1; 0 outside a loop."""
    detail: dict[str, object] = {}
    """Numbers and texts on which the decision was based."""
    fallback: str | None = None
    """Kind of the failure that made the method use its fallback; null if it did not."""


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """How a model samples its reply."""

    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    max_tokens: int = 512
    """Maximum length of a reply, in tokens."""


class DeletedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The deleted graph, and its corpus, which still exists."""

    deleted: str
    """Name of the deleted graph."""
    corpus: str
    """Name of the graph's corpus, which still exists."""
    hint: str
    """Command that deletes the corpus."""


class DenseParams(msgspec.Struct, frozen=True, kw_only=True):
    """Search by vectors (seed document 003)."""

    threshold: float | None = None
    """Cosine similarity below which documents are removed from dense lists (docs/how-to/retrieval.md#least-
    similarity); by default nothing is removed. A threshold fits one embedder only (003: 0.7)."""


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """A device, the models that it holds, and the reason."""

    state: str
    """State of the newest residency; `unused` if there never was one."""
    epoch: int | None = None
    """Number of the newest residency; null if there never was one."""
    models: tuple[ResidentModel, ...] = ()
    """Resident models; empty unless the newest residency is open."""
    drain: Drain | None = None
    """The drain request; null if the device is not drained."""
    flips: tuple[Flip, ...] = ()
    """The newest residencies, newest first."""
    device: str
    """Id of the device, such as `gpu:0`."""
    memory: Memory
    """Memory of the device's models."""
    lease: Lease | None = None
    """Lease in Redis; null if Redis holds none or does not answer. Without a lease, no worker claims model
    calls."""
    guard: GuardState
    """State of the guard that loads the device's models."""


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of one prompt or of both; `gap` replaces equal lines that are left out."""

    side: str
    """Whether both prompts have the line or only one; `gap` replaces equal lines that are left out."""
    text: str
    """The line."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of `left - right` over the same questions."""

    p: float
    """Two-sided p-value."""
    adjusted: float
    """The p-value with Holm's correction for the tests made together with this one."""
    separable: bool
    """Whether the adjusted p-value is below 0.05. If not, these questions do not show a difference."""
    value: float
    """The mean difference."""
    low: float | None = None
    """Lower end of Student's 95 % interval; null if all differences are equal."""
    high: float | None = None
    """Upper end of Student's 95 % interval; null if all differences are equal."""
    effect: float | None = None
    """Cohen's d of the differences: mean / standard deviation; null if all differences are equal."""
    n: int
    """Number of questions."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, with both verdicts."""

    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    answer: str | None = None
    """Extracted answer; null if none was found."""
    gold: str | None = None
    """Expected answer."""
    math_verify: bool
    """Verdict of the job's grader."""
    strict: bool
    """Verdict of the strict rules."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A worked solution or any other passage. Documents are content-addressed: equal content is the same document."""

    problem: str = ""
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Body of the document; for MATH, the worked solution."""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request to keep the device empty."""

    reason: str | None = None
    """Reason that the operator gave; null if none was given."""
    since: str
    """Time of the request."""


class DrawnDatasets(msgspec.Struct, frozen=True, kw_only=True):
    """The dataset of the drawn items, and that of the other items."""

    drawn: Dataset
    """The dataset of the drawn items."""
    rest: Dataset | None = None
    """The dataset of the other items; null if the request gave no name for it."""


class EnhanceParams(msgspec.Struct, frozen=True, kw_only=True):
    """Query enhancement (seed document 001). Each part is optional and has a fallback."""

    synonyms: bool = True
    """Whether synonyms of the question's terms are also searched for."""
    correct: bool = True
    """Whether misspelt words of the question are corrected."""
    rewrite: bool = True
    """Whether the judge model rewrites the question."""
    shown: int = 0
    """Number of documents, the best of the first searches, that the judge model sees when it rewrites the question
    (after Long et al. 2025, DIVER). With 0 it sees the question alone."""
    decompose: bool = True
    """Whether the judge model splits the question into sub-queries."""
    hyde: bool = False
    """Whether searches also use hypothetical documents; only in `enhanced` and `enhanced-crag`."""
    subqueries: int = 3
    """Maximum number of sub-queries of a question."""
    terms: dict[str, tuple[str, ...]] = {}
    """Terms and their synonyms, in addition to the shipped dictionary."""
    decoding: Decoding | None = None
    """How the judge model samples rewritten queries and sub-queries."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment in a list."""

    id: str
    """Id of the experiment."""
    name: str
    """Name of the experiment."""
    state: str
    """running, cancelling, completed, failed, cancelled or purged: the worst state of its jobs."""
    cells: int
    """Number of cells."""
    refused: int
    """Number of cells that got no job."""
    jobs: dict[str, int] = {}
    """Number of jobs by state."""
    created_at: str
    """Time of submission."""
    ended_at: str | None = None
    """End of the last job; null while a job runs."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation between numbers in the generated text, as the verifier reads it."""

    text: str
    """The equation."""
    holds: bool | None = None
    """Whether the equation holds; null if that cannot be decided."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated seconds, with the source of the estimate."""

    value: float
    """Estimated seconds."""
    basis: str
    """Source of the estimate."""
    source: str
    """How the value was obtained, such as "its last loads here" or "4466 MiB at 500 MiB/s"."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A worked example (few-shot): a question as it appears in the prompt, and the model's answer."""

    question: str
    """Question of the example."""
    answer: str
    """Answer that the model is shown."""
    context: str = ""
    """Text that replaces `{{context}}` in this example."""


class ExperimentLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of the resources of an experiment."""

    self_: str = msgspec.field(name="self")
    """Address of the experiment."""
    report: str
    """Address of the experiment's report."""
    jobs: str
    """Address of the list of the experiment's jobs."""


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Size, calls and time of an experiment."""

    name: str
    """Name of the experiment."""
    cells: int
    """Number of cells: combinations of dataset, variant, grid point and seed."""
    refused: int
    """Number of cells that would be refused; `notes` says why."""
    jobs: int
    """Number of distinct jobs; cells with equal requests share one."""
    samples: int
    """Number of samples of all jobs."""
    calls: dict[str, RoleCalls] = {}
    """Upper bound of the calls, by role."""
    plan: PlanView
    """Loads and seconds for that many calls, and where the figures come from."""
    notes: tuple[str, ...] = ()
    """Remarks on the plan, such as why cells are refused."""


class ExperimentReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an experiment."""

    id: str
    """Id of the experiment."""
    name: str
    """Name of the experiment."""
    state: str
    """State of the experiment."""
    measure: str
    """Measure by which the cells are compared: `accuracy`, `exact`, `score`, `answer@K`, or a score of a metric."""
    baseline: str | None = None
    """Variant with which the others are compared; null if all pairs are compared."""
    request_counts: RequestCounts
    """Samples of all jobs by state."""
    calls_made: dict[str, int] = {}
    """Calls made by all jobs, by role."""
    model_loads: int
    """Number of model loads of all jobs."""
    rows: tuple[Row, ...] = ()
    """Every cell, in the order of the request."""
    comparisons: Comparisons | None = None
    """Comparisons of the systems; null if there are fewer than two systems, or too many."""
    recommendation: Recommendation | None = None
    """The variant to use; null until all jobs are completed, without a baseline, with several grid points or seeds,
    and if nothing was measured."""
    measures: tuple[str, ...] = ()
    """Measures that the cells can be compared by."""
    notes: tuple[str, ...] = ()
    """Remarks on the figures, such as missing cells."""


ExtractedBy = str
"""The rule by which the answer was found in the reply (`shared/rag/grading.py`)."""


Extraction = str
"""Whether the reply's answer was found."""


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One residency: its models, its cause and its times."""

    epoch: int
    """Number of the residency; it grows with every change of the resident models."""
    models: tuple[str, ...] = ()
    """Names of the models."""
    cause: str
    """Why the scheduler loaded these models, such as `first` or `drained`."""
    state: str
    """State of the residency."""
    reason: str | None = None
    """Why the residency was quarantined, or closed without a decision of the scheduler; null otherwise."""
    wanted_at: str
    """Time at which the scheduler decided to load the models."""
    opened_at: str | None = None
    """Time from which the models answered calls; null if they never did."""
    closed_at: str | None = None
    """Time at which the residency ended; null if it has not."""
    load_s: float | None = None
    """Time that the starts of the model servers took together, in seconds; null if none was started."""
    declared_mib: int = 0
    """Sum of the models' declared footprints in MiB."""


class Fusion(msgspec.Struct, frozen=True, kw_only=True):
    """How ranked lists were fused."""

    rrf_k: int | None = None
    """Constant of reciprocal rank fusion; null if this release cannot read the job's parameters."""
    tie_break: str
    """How documents with equal scores are ordered."""


class FusionParams(msgspec.Struct, frozen=True, kw_only=True):
    """Fusion of the dense and the sparse list. `rrf` with equal weights is plain reciprocal rank fusion (Cormack et al.
    2009)."""

    method: str = "rrf"
    """`rrf`: reciprocal rank fusion; `weighted`: the weighted sum of normalised scores."""
    normaliser: str = "min-max"
    """How `weighted` makes the scores of two lists comparable; `raw` leaves the scores unchanged."""
    slope: float = 1.0
    """Slope of `sigmoid` for each standard deviation (003: 1). Smaller values are closer to `z-score`, larger ones
    to a step."""
    dense: float = 0.5
    """Weight of the dense list."""
    sparse: float = 0.5
    """Weight of the sparse list."""
    by_intent: bool = False
    """Whether the question's intent sets the weights; only in `enhanced` and `enhanced-crag`."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's decision without its score vectors, which the report has."""

    strategy: str
    """Scorer of the job's documents."""
    reason: str
    """Why this strategy was chosen."""
    tau: float
    """Threshold of the correlation above which rules replace the judge."""
    rho: float | None = None
    """Pearson's correlation of rule and judge scores; null if it is undefined."""
    low: float | None = None
    """Lower end of the 95 % interval of `rho`; null if it is undefined."""
    high: float | None = None
    """Upper end of the 95 % interval of `rho`; null if it is undefined."""
    pairs: int
    """Number of documents with both scores."""
    asked: int
    """Number of judge calls for the calibration."""
    unparsed: int
    """Number of judge replies that could not be parsed."""


class GateDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of the confidence gate, and all data from which it can be recomputed bit for bit."""

    strategy: Strategy
    """Scorer of the job's documents."""
    reason: str
    """Why this strategy was chosen."""
    tau: float
    """Threshold of the correlation above which rules replace the judge."""
    rho: float | None = None
    """Pearson's correlation of rule and judge scores; null if it is undefined."""
    low: float | None = None
    """Lower end of the 95 % interval of `rho`; null if it is undefined."""
    high: float | None = None
    """Upper end of the 95 % interval of `rho`; null if it is undefined."""
    spearman: float | None = None
    """Spearman's rank correlation of rule and judge scores; null if it is undefined."""
    documents: tuple[str, ...] = ()
    """Hashes of the scored documents, in the order of the two score vectors."""
    rule_scores: tuple[float, ...] = ()
    """Scores by the rules, in the order of `documents`."""
    judge_scores: tuple[float, ...] = ()
    """Scores by the judge, in the order of `documents`."""
    asked: int
    """Number of judge calls for the calibration, including those whose replies could not be parsed."""
    unparsed: int
    """Number of judge replies that could not be parsed."""
    truth: Truth | None = None
    """Agreement with checked equations; null without `gate.truth`."""
    relevance: RelevanceTest | None = None
    """Test of the judge model's relevance; null without `rerank.tested`."""


class GateParams(msgspec.Struct, frozen=True, kw_only=True):
    """Calibration of the confidence gate; `tau` is from the MathRAG-Gate paper, section 3.3."""

    tau: float = 0.45
    """Correlation between rule scores and judge scores above which rules replace the judge."""
    items: int = 50
    """Number of items in the calibration."""
    top: int = 5
    """Number of documents taken from each item."""
    max_documents: int = 200
    """Maximum number of documents that are rated."""
    min_pairs: int = 30
    """Minimum number of documents with both scores. With fewer, the judge scores, independently of the
    correlation."""
    on_unusable: str = "fail"
    """Action if more than half of the judge's replies have no rating: `fail`, or continue with `rules`."""
    repeats: int = 1
    """Number of ratings of each calibration document. The first rating decides; the others measure the
    repeatability of the judge."""
    truth: str = "none"
    """`verifier`: also check the equations of the calibration documents, and record the agreement of rules and
    judge with the result. The decision does not change."""
    labels: str = ""
    """Name of a label set whose calibrated values replace the judge's ratings (docs/how-
    to/labels.md#calibration)."""
    calibrated: JudgeCalibration | None = None
    """The calibrated ratings. Submission sets them, so that later labels do not change a job."""


class GenerateParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the generator is prompted, and how it samples."""

    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    max_tokens: int = 512
    """Maximum length of a reply, in tokens."""
    template: str = ""
    """Prompt for answers (docs/how-to/prompts.md): `NAME`, `NAME@2` for a version, or a shipped one. By default the
    shipped prompt that fits the grader."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The generation of a dataset."""

    name: str
    """Name of the dataset."""
    state: str
    """`writing` while the job runs; `ready` once the dataset is stored."""
    job: str
    """Id of the job that writes the questions."""
    candidates: int
    """Maximum number of questions that the job writes."""
    items: int = 0
    """Number of questions in the dataset; 0 while they are being written."""
    left_out: dict[str, int] = {}
    """Number of candidates that failed a check, by check."""
    failed: int = 0
    """Number of candidates whose passages were too long for the judge model, or with a failed call."""
    spare: int = 0
    """Number of candidates that passed every check but were not needed."""
    guessable: int = 0
    """Number of items that the judge model answers without any document; their `subject` says so."""
    found_elsewhere: int = 0
    """Number of items whose answer also occurs in a document that is not named as relevant, so that recall is
    understated."""
    overlap: float | None = None
    """Mean share of a question's terms that occur in its quotations; values near 1 favour search by words. Null
    without questions."""


class GradingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Extraction and grading of answers, in the same way for every pipeline."""

    grader: str = ""
    """Name of the grader (docs/how-to/graders.md); by default the dataset's, or `math` if it declares none."""
    threshold: float = 0.5
    """Token F1 at which an answer is correct; `f1` only."""
    separators: str = ""
    """Characters that separate the members of a set; by default comma, semicolon and line end. `set` only."""
    rubric: str = ""
    """Rubric by which the judge model rates replies to items that have no rubric; `@NAME` is a file of
    `plugins.rubrics`, whose text is stored with the job. `rubric` only."""
    rating: int = 4
    """Rating of the judge model at which a reply is correct; `rubric` only."""
    decoding: Decoding | None = None
    """How the judge model samples its rating; `rubric` only."""


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the device's guard as it reports it; if it does not answer, all fields but `reachable` and `detail` are
    null."""

    reachable: bool
    """Whether the guard answered."""
    state: str | None = None
    """Step of the current flip; `open` means that calls are admitted."""
    epoch: int | None = None
    """Number of the residency that the guard serves."""
    in_flight: int | None = None
    """Number of running model calls."""
    detail: str | None = None
    """Why the guard's state is unknown; null if it is known."""


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """How rules guided the samples of a job."""

    bank: str
    """Name of the rule bank; empty if no bank was used."""
    relations: dict[str, int] = {}
    """Number of samples by how their relation was found: named by the item, by a phrase, by the judge, or not at
    all."""
    unguided: int
    """Number of samples without a matching rule; their questions were searched without guidance."""
    with_rules: Accuracy
    """Accuracy on the samples that rules guided."""
    without_rules: Accuracy
    """Accuracy on the other samples."""
    used: int
    """Number of rules that guided at least one sample."""
    rules: tuple[RuleFigures, ...] = ()
    """The 20 rules that guided the most samples."""


class HeadRules(msgspec.Struct, frozen=True, kw_only=True):
    """Number of rules that lead to a relation."""

    relation: str
    """Name of the relation."""
    rules: int
    """Number of rules."""
    best: float
    """Certainty of the most certain rule: its PCA confidence if it has one, or else its standard confidence."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of one labeller, or of the majority, with the judge or the grader."""

    labeller: str | None = None
    """Name of the labeller; null for the majority."""
    compared: int
    """Number of tasks with both a label and a rating or verdict."""
    abstained: int
    """Number of abstentions among the labels."""
    same: int
    """Number of compared tasks on which both agree."""
    kappa: Coefficient
    """Cohen's kappa, unweighted."""
    weighted_kappa: Coefficient
    """Cohen's kappa with quadratic weights."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """Number of tasks as `[label][rating or verdict]`, both in the order of the scale."""
    note: str | None = None
    """Why there is no kappa; null if there is one."""


class HydeParams(msgspec.Struct, frozen=True, kw_only=True):
    """Hypothetical documents (Gao et al. 2023)."""

    documents: int = 8
    """Number of hypothetical documents for each question. With 0 the pipeline equals `dense`."""
    style: str = "solution"
    """Kind of text: worked solutions, or passages."""
    decoding: Decoding | None = None
    """How the judge model samples hypothetical documents."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that the corpus uses now. Earlier indexes are kept for the jobs that used them."""

    index: int
    """Number of the index in the database."""
    kind: str
    """Kind of the index: dense or sparse."""
    signature: str
    """Digest of everything that determines the index with the current settings."""
    documents: int
    """Number of documents in the index."""
    reused: bool
    """Whether an existing, undamaged index was used."""
    seconds: float
    """Seconds that the request spent on the index."""


class IndexDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An index build."""

    id: int
    """Number of the index in the database."""
    kind: str
    """Kind of the index: dense or sparse."""
    state: str
    """State of the build."""
    signature: str
    """SHA-256 of the recipe."""
    documents: int
    """Number of documents in the index."""
    recipe: dict[str, object] = {}
    """Everything that determines the index: back end with options, embedder or tokenizer, and the corpus's hash."""
    created_at: str
    """Time at which the build began."""
    used: bool
    """Whether searches use this index. Other indexes were built with earlier settings."""


class IndexProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The build of an index that runs or waits now."""

    kind: str
    """Kind of the index: dense or sparse."""
    documents: int | None = None
    """Number of documents indexed so far; null if the build waits for other builds."""


class Indexes(msgspec.Struct, frozen=True, kw_only=True):
    """The indexes of a corpus."""

    corpus: int = 0
    """Number of the corpus in the database."""
    indexes: tuple[Index, ...] = ()
    """The indexes that the corpus uses now."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and its confidence interval."""

    value: float | None = None
    """The estimate; null if nothing was observed."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


class ItemCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of items with this subject or level."""

    name: str
    """Subject or level."""
    items: int
    """Number of items."""


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the dataset's items."""

    counted: int
    """Number of counted items: the first 100,000 at most."""
    gold: int
    """Number of items with an expected answer."""
    gold_documents: int
    """Number of items that name relevant documents."""
    nuggets: int = 0
    """Number of items with nuggets, the statements that a complete answer contains."""
    subjects: tuple[ItemCount, ...] = ()
    """Number of items by subject, for the 50 most frequent subjects."""
    levels: tuple[ItemCount, ...] = ()
    """Number of items by level, for the first 50 levels."""


class ItemPreview(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a dataset."""

    index: int
    """Position in the dataset, from 0; `mathrag sample show JOB INDEX` shows a job's answer to it."""
    id: str | None = None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None = None
    """The expected answer; null if the item has none."""
    subject: str | None = None
    """Subject of the item; null if it has none."""
    level: str | None = None
    """Level of the item; null if it has none."""
    gold_documents: dict[str, int] | None = None
    """Grades of the relevant documents by id; null if the item names none."""
    nuggets: tuple[str, ...] | None = None
    """Statements that a complete answer contains; null if the item has none."""
    relation: str | None = None
    """Relation of a graph that the question is about; null if the item names none."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with links to its resources."""

    name: str
    """Name of the job; it must be unique."""
    dataset: str
    """Name of the dataset."""
    pipeline: str
    """Name of the pipeline."""
    corpus: str | None = None
    """Name of the corpus; null if the job has none."""
    limit: int | None = None
    """Number of items to use, from the start of the dataset; by default all."""
    repeats: int
    """Number of answers to each item."""
    reuse: str
    """`all`: replies of other jobs are reused; `none`: every reply is computed again."""
    rank: int
    """Priority: calls with a smaller rank are claimed first."""
    metadata: dict[str, str] = {}
    """Your own data about the job; the service does not read it."""
    id: str
    """Id of the job."""
    state: str
    """State of the job."""
    request_counts: RequestCounts
    """Samples by state."""
    params: Params | None = None
    """Parameters; null if this release cannot read them (see `unreadable`)."""
    version: int
    """Number that grows with every change of state, name, rank or metadata."""
    created_at: str
    """Time of submission."""
    running_at: str | None = None
    """Time at which the job first entered the state `running`; null before."""
    ended_at: str | None = None
    """Time of the end; null while the job runs."""
    reached: dict[str, str] = {}
    """Time at which the job first entered each state."""
    eta_seconds: int | None = None
    """Estimated seconds until the end, from the pace of the ended samples; null without an estimate and in
    lists."""
    requeued_from: str | None = None
    """Id of the job that this one repeats; null if it repeats none."""
    reason: str | None = None
    """Why the job failed, or why it could not be ended so far; null otherwise."""
    chain: str | None = None
    """Hash of the last record, which covers the provenance of all samples; null until the job has ended."""
    gate: Gate | None = None
    """Decision of the confidence gate; null without one."""
    archived: bool = False
    """Whether its calls are archived, at least in part (`mathrag job archive`)."""
    eta_between: tuple[int, int] | None = None
    """95 % interval of `eta_seconds`; missing if that is null."""
    experiment: str | None = None
    """Name of the job's experiment; missing if it belongs to none."""
    submitted_by: str | None = None
    """Name of the key that submitted the job; missing if no key was required."""
    project: str | None = None
    """Project that it belongs to; missing if everybody sees it."""
    stages: dict[str, StageCount] | None = None
    """Calls by role; missing in lists."""
    unserved: tuple[str, ...] = ()
    """Models that the job's calls wait for because no guard serves them as they were at submission: their files,
    arguments, versions or servers have changed, or they are still being identified. Missing in lists."""
    waiting: tuple[Waiting, ...] = ()
    """Outages that the job's calls wait for; the waits do not count as failed attempts."""
    unreadable: str | None = None
    """Which part of the job this release cannot read, and why; missing if it can read all."""
    stored_params: dict[str, object] | None = None
    """The stored parameters if `params` is null; missing otherwise."""
    links: Links
    """Addresses of related resources."""
    accuracy: Accuracy | None = None
    """Accuracy as in the job's report; missing until the job has ended."""
    warnings: tuple[str, ...] = ()
    """Warnings about the submission; only in its response."""


class JudgeCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """Calibrated value of each rating of one judge, from the labels of people who rated the same documents
    (docs/how-to/labels.md)."""

    hash: str
    """Identity of the calibrated judge: SHA-256 over its model and rubric, the tasks, the labels that count, and
    `ratings`."""
    ratings: tuple[float, ...] = ()
    """Calibrated values of the ratings 1 to 5, in ascending order."""


class JudgeParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the judge model rates. Temperature and tokens are from the MathRAG-Gate paper, section 4.1."""

    temperature: float = 0.1
    """Sampling temperature of the judge model."""
    max_tokens: int = 10
    """Maximum length of a rating's reply, in tokens."""
    per_repeat: bool = False
    """Whether the judge model samples its ratings, and texts for searches, separately for every repeat. This
    multiplies these calls by the number of repeats, and the spread over repeats then includes the judge's
    temperature. By default all repeats share one reply."""


class JudgedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence or document that the judge model labelled for a metric."""

    text: str
    """The sentence, or the hash of the document."""
    label: int | None = None
    """The judge's label, from 1; null if it gave none."""
    failure: str = ""
    """Kind of the failure that left the part without a label; empty if there was none."""
    disputed: bool = False
    """Whether one document supports the sentence and another one contradicts it; only determined if each document
    was judged separately."""


Kind = str
"""The kind of a plug-in. Its entry point is in the group `mathrag.` with the plural, unless it is a file."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A stored label."""

    number: int
    """Number of the task, from 1."""
    labeller: str
    """Name of the labeller's API key, or `local` without keys."""
    at: str
    """Time at which the label was given."""
    blind: bool
    """Whether the labeller did not see the verdict of the judge or the grader."""
    value: int | str | None = None
    """The value; null for an abstention."""
    abstained: bool
    """Whether the labeller could not decide."""
    note: str
    """Free text about the label."""


class LabelAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement figures of a label set; all intervals use one seed."""

    set: str
    """Name of the label set."""
    what: str
    """What is labelled."""
    scale: tuple[int | str, ...] = ()
    """Values from worst to best."""
    blind: bool
    """Whether only blind labels count."""
    seed: int
    """Seed of the bootstrap resamples."""
    words: str
    """The agreement in one sentence."""
    tasks: int
    """Number of tasks in the set."""
    labelled: int
    """Number of tasks with a label or an abstention."""
    labels: int
    """Number of labels that count: each labeller's last label of each task."""
    abstentions: int
    """Number of abstentions among them."""
    ties: int
    """Number of tasks without a majority, because several values have the same number of labels."""
    majority: Held
    """Agreement of the majority with the judge or the grader."""
    labellers: tuple[Held, ...] = ()
    """Agreement of each labeller with the judge or the grader."""
    people: Alphas
    """Agreement among the labellers."""
    with_system: Alphas
    """Agreement among the labellers together with the judge or the grader."""
    disagreements: tuple[LabelDisagreement, ...] = ()
    """The first 20 tasks on which the majority disagrees with the judge or the grader, the largest difference
    first."""
    corrected: CorrectedMean | None = None
    """The corrected mean of the metric that the judge's labels belong to; null if they belong to none."""


class LabelCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """The current calibration of the judge's ratings by people's labels."""

    set: str
    """Name of the label set."""
    hash: str
    """Identity of the calibrated judge; a job with `gate.labels` has it in `gate.calibrated.hash`. It changes with
    every further label."""
    judge: str
    """Name of the judge model."""
    judge_hash: str
    """Hash that identifies the version of the judge model."""
    tasks: int
    """Number of tasks with blind labels."""
    ratings: tuple[RatingWorth, ...] = ()
    """Calibrated value of every rating."""


class LabelDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A task on which the majority disagrees with the judge or the grader."""

    number: int
    """Number of the task, from 1."""
    item: int | None = None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    """Number of the repeat, from 0."""
    label: int | str
    """Label of the majority."""
    system: int | str
    """Verdict of the judge or the grader."""


class LabelSet(msgspec.Struct, frozen=True, kw_only=True):
    """A label set."""

    id: int
    """Number of the label set in the database."""
    name: str
    """Name of the label set."""
    what: str
    """What is labelled."""
    job: str
    """Id of the job from which the tasks were drawn."""
    job_name: str
    """Name of that job."""
    purged: bool
    """Whether the job was purged; the tasks keep their content."""
    seed: int
    """Seed of the draw."""
    size: int
    """Requested number of tasks."""
    eligible: int
    """Number of distinct documents, answers or sentences to draw from."""
    tasks: int
    """Number of tasks."""
    hash: str
    """SHA-256 of all tasks in order."""
    made_by: str
    """Name of the API key that created the set, or `local` without keys."""
    created_at: str
    """Time at which the set was created."""
    instructions: str
    """Instructions for labellers."""
    scale: tuple[int | str, ...] = ()
    """Values from worst to best."""
    labellers: tuple[Labeller, ...] = ()
    """Progress of each labeller."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class LabelTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to label."""

    set: str
    """Name of the label set."""
    number: int
    """Number of the task, from 1."""
    item: int | None = None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    """Number of the repeat, from 0."""
    content: Content
    """What to label."""
    system: int | str | None = None
    """Verdict of the judge or the grader; null in blind labelling."""
    label: Label | None = None
    """This labeller's last label of the task; null if there is none."""


class Labeller(msgspec.Struct, frozen=True, kw_only=True):
    """A labeller's progress; the last label of each task counts."""

    labeller: str
    """Name of the labeller's API key, or `local` without keys."""
    labels: int = 0
    """Number of tasks with a label or an abstention."""
    abstained: int = 0
    """Number of abstentions."""
    same: int = 0
    """Number of labels that agree with the judge or the grader."""


Lane = str
"""The queue of a call: each lane has its own workers."""


class LaneWork(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model in one lane."""

    lane: Lane
    """Queue of the calls."""
    model: str
    """Name of the model."""
    device: str | None = None
    """Device on which the model must be resident; null if it needs none."""
    queued: int = 0
    """Number of pending and claimed calls, counted up to 20,000."""
    running: int = 0
    """Number of calls that a worker has claimed."""
    ended: int = 0
    """Number of calls that ended in the last `window_s` seconds."""
    window_s: float = 30.0
    """Length of the window of `ended` in seconds."""


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and a document with the same problem."""

    index: int
    """Index of the item in the dataset, from 0."""
    question: str
    """The question."""
    id: str
    """Id of the document as it was uploaded."""
    document: str
    """Hash of the document."""
    problem: str
    """Problem of the document."""
    exact: bool
    """Whether the texts are equal except for spelling variants, blanks and formatting. If false, they have the same
    numbers, operators, relations and variables, and their shingles of three words have a Jaccard index of at least
    0.8."""
    same_answer: bool | None = None
    """Whether the document has the item's gold answer; null if the item has none."""


class Leaks(msgspec.Struct, frozen=True, kw_only=True):
    """Questions of a dataset whose own problem is in a corpus."""

    corpus: str
    """Name of the corpus."""
    dataset: str
    """Name of the dataset."""
    items: int
    """Number of items in the dataset."""
    documents: int
    """Number of documents in the corpus."""
    passages: int
    """Number of documents without a problem. They are not compared, because it is unknown which question they
    answer."""
    exact: int
    """Number of items with a document whose problem is the same text."""
    near: int
    """Number of further items with a document whose problem is a near-duplicate."""
    share: float
    """Share of affected items: (exact + near) / items."""
    pairs: int
    """Number of matching pairs of an item and a document."""
    same_answer: int
    """Number of pairs whose document has the item's gold answer. With `duplicates: same-answer`, searches leave out
    these documents and exact matches."""
    examples: tuple[Leak, ...] = ()
    """The first pairs, in the order of items and documents."""


class LearnedFootprint(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that verified loads took on a device, in MiB."""

    device: str
    """Id of the device."""
    driver: str
    """Version of the device's driver."""
    parallel: int
    """Number of parallel slots."""
    least_mib: float
    """Smallest measured memory in MiB."""
    most_mib: float
    """Largest measured memory in MiB."""
    loads: int
    """Number of measured loads."""
    measured_at: str
    """Time of the last measurement."""
    digest: str | None = None
    """Digest of the model's files; null if the server has none."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease that Redis holds and that workers read."""

    epoch: int
    """Number of the residency; it grows with every change of the resident models."""
    phase: str
    """Phase of the residency."""
    models: tuple[str, ...] = ()
    """Names of the models that the lease covers."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of facts and questions that were left out, by reason."""

    repeated: int = 0
    """Number of facts that the upload repeats."""
    known: int = 0
    """Number of facts that the graph has, with the same time if facts have times."""
    unknown_relation: int = 0
    """Number of facts with a relation that the graph does not have."""
    unknown_entity: int = 0
    """Number of questions about an entity that the graph does not have."""
    many_answers: int = 0
    """Number of questions with more than 1,000 answers."""
    answered: int = 0
    """Number of questions that a fact of the graph answers; they are left out only with `unanswered`."""
    long: int = 0
    """Number of questions with more characters than an item may have."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Two thresholds of an evaluator's score; null means that no score is high, or low, enough."""

    upper: float | None = None
    """Score at and above which a document is relevant."""
    lower: float | None = None
    """Score below which a document is irrelevant."""


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of the resources of a job."""

    self_: str = msgspec.field(name="self")
    """Address of the job."""
    events: str
    """Address of the job's event stream."""
    samples: str
    """Address of the job's samples."""
    results: str
    """Address of the job's results."""
    report: str
    """Address of the job's report."""
    provenance: str
    """Address of the job's provenance."""


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """How long the model's server took to start, in the newest 1,000 residencies."""

    loads: int
    """Number of starts."""
    median_s: float | None = None
    """Median duration of a start in seconds; null without starts."""
    longest_s: float | None = None
    """Longest duration of a start in seconds; null without starts."""


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over questions with its 95 % interval."""

    value: float | None = None
    """The mean; null without questions."""
    low: float | None = None
    """Lower end of the interval; null for fewer than two questions, or if all values are equal."""
    high: float | None = None
    """Upper end of the interval; null for fewer than two questions, or if all values are equal."""
    n: int
    """Number of questions."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the device's models in MiB."""

    budget: int | None = None
    """Budget of the device; null if it is configured in another orchestrator."""
    declared: int
    """Sum of the declared footprints of the resident models; it is compared with the budget."""
    measured: float | None = None
    """Memory of the models' processes, measured when the residency was opened; null if nothing was measured."""
    remark: str | None = None
    """Models on a CPU that use more memory than declared; missing if there are none."""


class MetricFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One score over a job's answers."""

    mean: Mean
    """Mean over items, each counted once, with Student's 95 % interval."""
    measured: int
    """Number of answers with a value."""
    not_applicable: dict[str, int] = {}
    """Number of answers to which the metric does not apply, by reason."""
    failed: int
    """Number of answers without a value because labels are missing."""
    failures: dict[str, int] = {}
    """Number of these answers by the kind of failure; an answer with several kinds counts for each."""
    worst: float | None = None
    """Lower bound of the mean: the missing labels are counted as bad as possible. Null if nothing failed."""
    best: float | None = None
    """Upper bound of the mean: the missing labels are counted as good as possible. Null if nothing failed."""
    labels: dict[str, int] = {}
    """Number of the judge model's labels, by label."""
    languages: dict[str, Mean] = {}
    """The mean by language of the question: Chinese (`zh`) or any other (`en`); empty unless both occur."""
    auroc: float | None = None
    """Probability that a correct answer has a higher score than a wrong one, where ties count half; null unless
    there are both."""
    controls: ControlFigures | None = None
    """Controls that test the judge model; null without controls (`metrics.controls`)."""


class MetricScore(msgspec.Struct, frozen=True, kw_only=True):
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


class MetricsParams(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics for which the judge model labels answers and their documents."""

    names: tuple[str, ...] = ()
    """Metrics to measure, such as `faithfulness` and `answer_relevance`; by default none."""
    unit: str = "sentences"
    """Parts of a reply that are labelled: its sentences, or claims that the judge model lists in one more call."""
    most_units: int = 40
    """Maximum number of sentences or claims of a reply. Longer replies are not measured and count as failed."""
    max_tokens: int = 10
    """Maximum length of the judge model's reply, which is a label. Increase it for a model that reasons before it
    answers."""
    controls: int = 40
    """Number of items, drawn with `seed`, whose metrics are also measured on swapped, copied and reversed material.
    This shows whether the judge model can judge (docs/how-to/metrics.md#controls). 0 measures none."""


class ModelJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that names the model."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    state: str
    """State of the job."""
    pipeline: str
    """Pipeline of the job."""
    created_at: str
    """Time of submission."""
    roles: tuple[str, ...] = ()
    """Roles for which the job names the model."""


class ModelRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Registered versions, measurements and jobs of a model."""

    versions: tuple[RegisteredModel, ...] = ()
    """Registered versions: the served version first, then the newest ones."""
    learned: tuple[LearnedFootprint, ...] = ()
    """Measured footprints, latest first."""
    loads: Loads
    """How long the model's server took to start."""
    speed: Speed | None = None
    """Speed of the model's calls; null if none of the newest calls were made to this model."""
    jobs: tuple[ModelJob, ...] = ()
    """The newest jobs that name the model, including those whose pipelines do not use it."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a job may name."""

    name: str
    """Name of the model."""
    driver: str
    """Driver that runs the model, such as `process` or `ollama`."""
    default_for: tuple[str, ...] = ()
    """Roles that this model has unless a job names another model."""
    context: int
    """Context length in tokens."""
    parallel: int
    """Number of calls that the model computes at the same time."""
    footprint_mib: int
    """Declared memory in MiB, which counts against the device's budget."""
    registered: bool
    """Whether the guard has registered the model."""
    digest: str | None = None
    """Digest of the model's files; null if the model is not registered or has none."""
    version: str | None = None
    """Version of the model's server at registration; null if the model is not registered or the server reports
    none."""
    warning: str | None = None
    """Known flaw of this server version; null if there is none."""
    device: str | None = None
    """Device on which the guard loads the model; null if the model is not registered or needs no device."""
    resident: tuple[str, ...] = ()
    """Devices that hold the model now."""


class NextFlip(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that wait for models that the device does not hold."""

    models: tuple[str, ...] = ()
    """Models that calls wait for, the longest queue first."""
    waiting: int
    """Number of calls for these models."""
    left: int
    """Number of calls for the resident models, which are answered first and may lead to more calls."""
    low_s: float | None = None
    """Lower bound in seconds of the time until these calls are answered, by the 95 % interval of their pace in the
    last 30 s; null if too few calls have ended."""
    high_s: float | None = None
    """Upper bound in seconds of the same time; null if too few calls have ended."""


class NextTask(msgspec.Struct, frozen=True, kw_only=True):
    """The next task that a labeller has not labelled."""

    task: LabelTask | None = None
    """The task; null if everything is labelled."""
    done: int
    """Number of tasks that this labeller has labelled or abstained from."""
    tasks: int
    """Number of tasks in the set."""


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The current activity of the service."""

    devices: tuple[DeviceView, ...] = ()
    """Every device that is configured or has held a model, by name."""
    lanes: tuple[LaneWork, ...] = ()
    """Models with calls that are queued in a lane, or that ended in the last 30 s."""
    next_flips: dict[str, NextFlip] = {}
    """The next change of models by device; a device is missing if no call waits for a model that it does not
    hold."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One plan: which models the devices hold, and in which order."""

    name: str
    """Name of the plan."""
    residencies: tuple[PlannedResidency, ...] = ()
    """The residencies in order of loading; those of different devices load at the same time."""
    loads: int
    """Number of model loads."""
    flips: int
    """Number of residencies that replace another one."""
    seconds: float
    """Seconds of all loads and calls; with several devices, those of the slowest."""
    basis: str
    """Source of the times: measured, assumed, or mixed."""
    refused: str | None = None
    """Why the option is impossible; null if it is possible."""


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """Indexes with this installation's prefix that no corpus and no evaluation uses."""

    orphans: tuple[str, ...] = ()
    """Names of the indexes on the server, in order."""
    deleted: bool
    """Whether the indexes have been deleted."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The final result that the pipeline returned for a sample."""

    answer: str | None = None
    """Extracted answer; null if none was found."""
    extraction: Extraction
    """Whether the answer was found in the text."""
    extracted_by: ExtractedBy | None = None
    """The rule that found the answer. Missing if there is no answer, or if it was in a box."""
    truncated: bool = False
    """Whether the text was cut off before its end."""
    truncated_by: str | None = None
    """Finish reason of a truncated text. Missing if it was the token limit."""
    context: tuple[str, ...] = ()
    """Hashes of the documents in the prompt, in order."""
    refusal: str | None = None
    """Why the pipeline refused to answer: no document was relevant enough. Null if it did not refuse."""
    trace: Trace | None = None
    """How the sample got its context."""
    verdict: dict[str, object] | None = None
    """Verdict of the grader; null if there is none."""
    grading_failure: str | None = None
    """Kind of the failure that left the answer without a verdict; null if there was none."""
    answer_rank: int | None = None
    """Rank, from 1, of the first candidate whose text has a gold answer; null if no candidate has one. Missing if
    it was not measured (docs/how-to/graders.md)."""
    metrics: dict[str, MetricScore] = {}
    """Scores of the job's metrics (docs/how-to/metrics.md); missing if the job has none."""
    controls: dict[str, ControlScore] = {}
    """Controls of these scores, for the samples that `metrics.controls` drew; missing for the others."""


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a job that the pipeline reads."""

    name: str
    """Name of the parameter, with levels joined by dots."""
    kind: str
    """Kind of the value."""
    default: object = None
    """Shipped default; null if the parameter is not set."""
    choices: tuple[str, ...] = ()
    """Allowed values; empty if any value of the kind is allowed."""
    minimum: float | None = None
    """Least allowed value; null if there is none."""
    maximum: float | None = None
    """Greatest allowed value; null if there is none."""
    meaning: str
    """Description of the parameter."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Every parameter that a job may set (`--set gate.tau=0.3`), with the documented defaults."""

    candidates: int = 10
    """Number of documents requested from each index and kept after fusion."""
    context_size: int = 1
    """Maximum number of documents in the prompt. The prompt has fewer if they do not fit
    (docs/explanation/pipelines.md#documents-that-do-not-fit). The shipped models were trained with 1 document; the
    paper uses 5."""
    duplicates: str = "same-answer"
    """Near-duplicates of the question that searches leave out, because they would reveal its answer
    (docs/explanation/pipelines.md#retrieval)."""
    rrf_k: int = 60
    """Constant k of reciprocal rank fusion: each list adds weight / (k + rank). Larger values make ranks count more
    equally."""
    dense: DenseParams | None = None
    """Search by vectors (seed document 003)."""
    fusion: FusionParams | None = None
    """Fusion of the dense and the sparse list. `rrf` with equal weights is plain reciprocal rank fusion (Cormack et
    al. 2009)."""
    enhance: EnhanceParams | None = None
    """Query enhancement (seed document 001). Each part is optional and has a fallback."""
    rerank: RerankParams | None = None
    """Reranking by relevance to the question, and the decisions that depend on it (seed documents 001 and 003)."""
    compress: CompressParams | None = None
    """Context compression (seed document 001)."""
    crag: CragParams | None = None
    """Corrective retrieval (Yan et al. 2024; seed document 001)."""
    critic: CriticParams | None = None
    """The critic loop (seed document 004)."""
    hyde: HydeParams | None = None
    """Hypothetical documents (Gao et al. 2023)."""
    self_rag: SelfRagParams | None = None
    """Reflection tokens (Asai et al. 2024)."""
    self_consistency: SelfConsistencyParams | None = None
    """Majority vote over sampled answers (Wang et al. 2023)."""
    rrf_weight: float = 0.1
    """Weight of the fused rank when `mathrag-gate` reranks."""
    quality_weight: float = 0.9
    """Weight of the reasoning quality when `mathrag-gate` reranks."""
    rated: int | None = None
    """Number of documents, the first by the fused rank, whose quality `mathrag-gate` determines and which it
    reranks; the other documents follow. By default it is set at submission: to `context_size`, and to one more if
    answers are mathematics (docs/explanation/pipelines.md#relevance-to-the-question)."""
    gate: GateParams | None = None
    """Calibration of the confidence gate; `tau` is from the MathRAG-Gate paper, section 3.3."""
    quality: str = "gate"
    """Scorer of the documents in `mathrag-gate`: the gate's choice, or a fixed scorer without a calibration."""
    route: RouteParams | None = None
    """Routing of easy questions to the rule path of `mathrag-gate`, independently of the gate's decision."""
    generate: GenerateParams | None = None
    """How the generator is prompted, and how it samples."""
    judge: JudgeParams | None = None
    """How the judge model rates. Temperature and tokens are from the MathRAG-Gate paper, section 4.1."""
    grading: GradingParams | None = None
    """Extraction and grading of answers, in the same way for every pipeline."""
    metrics: MetricsParams | None = None
    """Metrics for which the judge model labels answers and their documents."""
    anchors: dict[str, str] = {}
    """Example documents in the judge's rubric: `anchors.negative` with the rating 1, `anchors.positive` with the
    rating 5. By default those of the shipped rubric."""
    seed: int = 0
    """Seed that chooses the items of the calibration, the controls of metrics, and the rules of
    `rulerag.order=random`. It is not sent to models."""
    rules: str = ""
    """Name of a rule bank (`mathrag rules list`). Its content is pinned at submission."""
    rulerag: RuleragParams | None = None
    """Rule-guided retrieval and answering (seed document 002). The only number that the authors give is 10
    documents for each rule."""
    mining: dict[str, object] | None = None
    """The miner and its limits; only for jobs of `mathrag rules mine`."""


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answered a role."""

    name: str
    """Name of the model."""
    backend: str
    """Program that serves the model, such as `llama.cpp` or `ollama`."""
    digest: str | None = None
    """Digest of the model's files; null if the server has none."""
    version: str
    """Version of the model's server; empty if the server reports none."""


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a pipeline that do not depend on each other's replies and are answered together."""

    calls: dict[str, int] = {}
    """Number of calls by role."""


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that a job may name."""

    name: str
    """Name of the pipeline."""
    summary: str
    """Description in one sentence."""
    calibrated: bool
    """Whether a calibration runs before the samples."""
    needs_corpus: bool
    """Whether a job must name a corpus."""
    roles: tuple[str, ...] = ()
    """Roles of the calls that the pipeline makes; a job may name models for `judge` and `generate`."""
    params: Params
    """Parameters that a job may set, with their defaults. The pipeline ignores parameters that it does not read."""
    hash: str
    """Hash of the pipeline's name and version; for a plug-in, of its files at the time of the import."""
    changed: tuple[Change, ...] = ()
    """Source files that were edited after the import; a restart of the service activates them."""
    plugin: PluginPin | None = None
    """Plug-in that provides the pipeline; null if it is shipped."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the sample in its job's chain."""

    sequence: int
    """Number of the sample in the chain, from 0."""
    hash: str
    """Hash of this link: the SHA-256 over `previous` and the record."""
    previous: str
    """Hash of the previous link."""


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest plan that fits, and the alternatives."""

    chosen: Option | None = None
    """The cheapest plan; null if no plan fits (`why` says what would help) or if no model has work."""
    why: str
    """Why this plan is the cheapest, or why no plan fits."""
    others: tuple[Option, ...] = ()
    """The best plan of every other kind; a refused plan has the reason."""
    resident: dict[str, tuple[str, ...]] = {}
    """Models that each device holds now."""
    calls: dict[str, int] | None = None
    """Upper bound of the calls by role, if every document is rated once; null for a submitted job."""
    shared_s: float | None = None
    """Seconds of the cheapest plan if calls are shared as in `calls`; `chosen` assumes that every sample makes its
    own calls. Null for a submitted job."""


class PlannedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a residency."""

    model_id: int
    """Number of the model in the database."""
    name: str
    """Name of the model."""
    parallel: int
    """Number of slots."""
    context: int
    """Context length of a slot in tokens."""
    predicted_mib: int
    """Predicted memory in MiB."""
    basis: str
    """Source of the memory figure: learned, declared, estimated or unknown."""
    calls: int
    """Number of calls that the model answers."""
    call_s: Estimate
    """Seconds of a call."""
    load_s: Estimate
    """Seconds of a load."""


class PlannedResidency(msgspec.Struct, frozen=True, kw_only=True):
    """One residency of a plan."""

    device: str
    """Id of the device."""
    models: tuple[PlannedModel, ...] = ()
    """Models that the device holds at the same time."""
    retrieval_mib: int
    """Memory of searches on the same device; 0 if they run on the CPU."""
    predicted_mib: int
    """Predicted memory of models and searches in MiB."""
    budget_mib: int
    """Memory budget of the device in MiB."""
    resident: bool
    """Whether the device holds the models already, so that nothing is loaded and the memory is known to suffice."""
    load_s: float
    """Seconds of loading."""
    service_s: float
    """Seconds of the calls that the residency answers. If the same models are loaded several times, only the first
    residency counts them."""


class PluginPin(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in as stored with a job. Another version or other code is another plug-in."""

    kind: str
    """What the plug-in adds."""
    name: str
    """Name of the plug-in."""
    distribution: str
    """Python distribution that provides the plug-in."""
    version: str
    """Version of the distribution."""
    hash: str
    """SHA-256 over the distribution's own files, in hex."""


class PluginView(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in that is installed, or that a job needs."""

    kind: Kind
    """What the plug-in adds."""
    name: str
    """Name of the plug-in."""
    distribution: str
    """Python distribution that provides the plug-in."""
    version: str
    """Version of the distribution."""
    hash: str
    """SHA-256 in hex over the distribution's own files; empty if they cannot be read."""
    state: State
    """Whether the plug-in can be used, and if not, why."""
    detail: str
    """Why the plug-in cannot be used; empty if it is ready."""
    fix: str
    """How to make the plug-in usable; empty if it is ready."""
    jobs: tuple[str, ...] = ()
    """Jobs that wait for the plug-in."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bound of the cost of a question, given the models that the devices hold now."""

    loads: int
    """Number of models that must be loaded if the devices get no other work."""
    load_s: float | None = None
    """Sum of the seconds of these models' last loads; null if one of them was never loaded on its device."""
    loads_back: int
    """Number of resident models with work that are unloaded for this question and loaded again afterwards, unless
    their work ends within `device.online_patience_s`."""
    calls: dict[str, int] = {}
    """Upper bound of the calls by role; calls whose replies are already stored are not made again."""
    calls_before: int
    """Number of model calls in the queue when the question arrives; those of the resident models run first."""


class PromptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two prompts, and the lines that only one of them has."""

    left: AnswerPrompt
    """The left prompt."""
    right: AnswerPrompt
    """The right prompt."""
    difference: PromptDifference
    """The lines that differ."""


class PromptDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two prompts, without their equal parts."""

    lines: tuple[DiffLine, ...] = ()
    """Lines of the difference; empty if the compared parts are equal."""
    cut: bool
    """Whether only the first 20,000 characters, or 400 lines, of each were compared."""


class PromptTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens of the calls that this job made to one model."""

    sent: int | None = None
    """Number of prompt tokens sent, as counted by the model server; null if it counts none."""
    computed: int | None = None
    """Number of these that the model server computed, because they were not in its cache; null if it does not
    report for each call how many it took from its cache."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The complete provenance of one sample."""

    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    state: str
    """State of the sample."""
    custom_id: str | None = None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None = None
    """The expected answer; null if the item has none."""
    gold_documents: dict[str, int] | None = None
    """Grades of the item's relevant documents, by their ids in the upload; null if it names none."""
    subject: str | None = None
    """Subject of the item; null if it has none."""
    level: str | None = None
    """Level of the item; null if it has none."""
    failure: str | None = None
    """Kind of the failure; null if the sample did not fail."""
    detail: str | None = None
    """Description of the failure; null if the sample did not fail."""
    ended_at: str | None = None
    """Time at which the sample ended; null if it has not."""
    outcome: Outcome | None = None
    """Answer, context and verdict; null if the sample has none."""
    text: str | None = None
    """The generator's complete text; if there are several, the last one with the sample's answer."""
    equations: tuple[Equation, ...] = ()
    """The first 500 equations of `text`, with the verifier's result."""
    scored_by: Strategy | None = None
    """Scorer of the documents' quality; null if it was not scored."""
    relevant: dict[str, int] | None = None
    """Grades of the relevant documents, by their hashes in the job's corpus; null if the dataset names none."""
    ending: str | None = None
    """`correct`, or the kind of error (docs/explanation/statistics.md); null if the sample was cancelled or has not
    ended."""
    ending_reason: str | None = None
    """The rule that decided `ending`, with the facts that it used; null without an ending."""
    record_hash: str | None = None
    """SHA-256 over every key and reply from which the outcome was made."""
    item_hash: str
    """SHA-256 over question and expected answer."""
    gold_hash: str | None = None
    """SHA-256 of the expected answer; null if the item has none."""
    pipeline_hash: str
    """Hash of the pipeline's name and version; for a plug-in, of its files."""
    decision_hash: str | None = None
    """Hash of the gate's decision that the sample used; null if it used none."""
    code: dict[str, object] = {}
    """Commit, version, schema and configuration that accepted the job, and signatures and file hashes of its
    indexes."""
    fusion: Fusion
    """How ranked lists were fused."""
    link: Place | None = None
    """Position in the job's chain; null until the job is finalised."""
    steps: tuple[Step, ...] = ()
    """Calls that the sample waited for, by position."""
    documents: dict[str, Document] = {}
    """Documents of the context, by hash."""
    residencies: tuple[Residency, ...] = ()
    """Models that the devices held while the calls ran."""
    notes: tuple[SampleNote, ...] = ()
    """Thumbs and notes that people gave the sample."""


class RatingWorth(msgspec.Struct, frozen=True, kw_only=True):
    """One rating of the judge."""

    rating: int
    """Rating of the judge, from 1 to 5."""
    tasks: int
    """Number of tasks that the judge gave this rating and people labelled blindly."""
    mean: float | None = None
    """Mean of people's labels of these tasks; null if there are none."""
    worth: float
    """Calibrated value: the mean, adjusted so that it never falls as the rating grows."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The checks, and whether all of them pass."""

    ready: bool
    """Whether every check passes."""
    checks: tuple[Check, ...] = ()
    """The checks, in the order in which they ran."""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The variant to use after an experiment with a baseline: the best of those that are separably better than the
    baseline, or else the baseline."""

    variant: str
    """Name of the variant."""
    pipeline: str
    """Pipeline of the variant."""
    params: dict[str, object] = {}
    """Parameters of the variant, including those of the experiment."""
    separable: bool
    """Whether the variant is separably better than the baseline; false for the baseline itself."""
    words: str
    """The recommendation in one sentence."""


class RegisteredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a model as a guard registered it."""

    backend: str
    """Program that serves the model, such as `llama.cpp` or `ollama`."""
    digest: str | None = None
    """Digest of the model's files; null if the server has none."""
    version: str
    """Version of the model's server; empty if the server reports none."""
    device: str | None = None
    """Device on which the guard loads the model; null if it needs none."""
    footprint_mib: int
    """Memory in MiB that counts against the budget."""
    estimated: bool
    """Whether `footprint_mib` was estimated from the model's metadata instead of declared."""
    registered_at: str
    """Time of the registration."""
    served: bool
    """Whether a guard serves it now."""


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was not stored."""

    line: int
    """Number of the line, from 1; in Parquet, of the row."""
    message: str
    """Why the line was rejected."""


class RelationSize(msgspec.Struct, frozen=True, kw_only=True):
    """Number of facts of a relation."""

    relation: str
    """Name of the relation."""
    facts: int
    """Number of facts."""


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


class Repeatability(msgspec.Struct, frozen=True, kw_only=True):
    """How consistently the judge rates the same document by the same rubric for the same question."""

    documents: int
    """Number of documents that were rated at least twice."""
    draws: int
    """Largest number of ratings of one document."""
    temperature: float
    """Sampling temperature of the judge model."""
    same: Interval
    """Share of documents whose ratings are all equal, with Wilson's 95 % interval."""
    agreement: float | None = None
    """Share of a document's pairs of ratings that are equal, as a mean over documents; null if no document was
    rated twice."""
    difference: float | None = None
    """Mean absolute difference of a pair of ratings, in steps of the scale from 1 to 5, as a mean over documents;
    null if no document was rated twice."""
    kappa: float | None = None
    """Cohen's kappa with quadratic weights over all pairs; null if all ratings are equal."""
    unrated: int
    """Number of documents with a reply without a rating; no other figure counts them."""
    table: tuple[tuple[int, ...], ...] = ()
    """Number of pairs by rating (from 1) as `[earlier draw][later draw]`."""


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy or another measure by repeat, over the items that have a value in every repeat, so that all repeats
    cover the same items. The standard deviation is not a confidence interval over items."""

    accuracies: tuple[float | None, ...] = ()
    """Share of correct answers, or mean of the measure, by repeat; null for a repeat without a value, and for all
    repeats if no item has a value in every repeat."""
    items: int
    """Number of items that have a value in every repeat."""
    mean: float | None = None
    """Mean over the repeats that have a value."""
    std: float | None = None
    """Sample standard deviation (ddof 1) over these repeats; null for fewer than two."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    state: str
    """State of the job."""
    reason: str | None = None
    """Why the job failed; null if it did not."""
    seconds: float | None = None
    """Seconds from submission to end; null while the job runs."""
    created_at: str
    """Time of submission."""
    ended_at: str | None = None
    """Time of the end; null while the job runs."""
    request_counts: RequestCounts
    """Samples by state."""
    items: int
    """Number of items with a completed or failed sample."""
    grader: str
    """Grader that decided whether an answer is correct. All accuracies use it."""
    accuracy: Accuracy
    """Accuracy by the job's grader."""
    score: Score | None = None
    """Mean score of the grader; null if it gives only verdicts."""
    bootstrap: Interval | None = None
    """Mean over items with its 95 % percentile interval, resampled by item; null if nothing was graded."""
    repeats: Repeats
    """Accuracy by repeat."""
    strict: Accuracy
    """Accuracy by Hendrycks' rules; for graders other than the mathematical one, the share of exact matches."""
    disagreements: int
    """Number of samples on which the two graders disagree."""
    answer_at: dict[str, AnswerAt] = {}
    """Share by measure, such as `answer@5` (an answer occurs in the first 5 candidates); empty if not measured."""
    differing: tuple[Disagreement, ...] = ()
    """The first samples on which the two graders disagree."""
    endings: dict[str, int] = {}
    """Number of completed and failed samples by ending (docs/explanation/statistics.md)."""
    metrics: dict[str, MetricFigures] = {}
    """Scores of the job's metrics (docs/how-to/metrics.md); empty if it has none."""
    sufficiency: dict[str, dict[str, int]] = {}
    """Number of answers by whether the documents were `sufficient` or `insufficient`, and within it by ending:
    `correct`, `wrong`, `declined` or `ungraded`. Empty without the metric `context_sufficiency`."""
    contamination: Contamination | None = None
    """Near-duplicates of questions in the corpus; null if no search found one."""
    extraction: dict[str, int] = {}
    """Number of completed samples by whether their answer was found."""
    extracted_by: dict[str, int] = {}
    """Number of answers by the rule that found them in the reply (docs/how-to/graders.md)."""
    theirs: TheirScores | None = None
    """Verdicts of the evaluation that an import came from; null if it had none."""
    failures: dict[str, int] = {}
    """Number of failed samples by kind."""
    grading_failures: dict[str, int] = {}
    """Number of answers that could not be graded, by the kind of failure."""
    truncated: int
    """Number of answers that were cut off."""
    truncated_by: dict[str, int] = {}
    """Number of truncated answers by cause: the token limit (`length`), or the model server."""
    unscored: int
    """Number of samples for which scoring was requested and no candidate has a score."""
    duplicates_dropped: int
    """Number of near-duplicates of questions that searches left out, over all samples."""
    refused: int
    """Number of questions that the pipeline refused to answer because no document was relevant enough."""
    decisions: dict[str, dict[str, int]] = {}
    """Number of decisions of the method, by stage and action. An action counts each time it was taken."""
    fallbacks: dict[str, dict[str, int]] = {}
    """Number of fallbacks, by stage and the kind of failure that caused them."""
    guided: Guided | None = None
    """How rules guided the questions (docs/how-to/knowledge-graphs.md#rulerag); null if no sample looked for
    rules."""
    retrieval: Retrieval | None = None
    """Quality of retrieval; null if the dataset names no relevant documents or nothing was searched."""
    parse_failures: int
    """Number of judge replies without a rating or label, among all calls of the job."""
    repeatability: Repeatability | None = None
    """Repeatability of ratings; null if no document was rated twice (`gate.repeats`, or repeats with
    `judge.per_repeat` or `reuse: none`)."""
    gate: GateDecision | None = None
    """Decision of the confidence gate; null if the job has none."""
    model_loads: int
    """Number of loads of the models that answered calls made by this job: one for each epoch, and those in which a
    shared server loaded a model again."""
    model_calls: int
    """Number of executed judge, rerank, write and generate calls made by this job."""
    calls_made: dict[str, int] = {}
    """Calls made by this job, by role."""
    calls_reused: dict[str, int] = {}
    """Calls by role whose replies another job had already computed."""
    calls_lapsed: int
    """Number of calls made by this job whose worker, guard or model server was lost at least once. They may have
    run twice, and a lapsed call runs again alone (docs/how-to/operations.md, "The same answer")."""
    stages: dict[str, Stage] = {}
    """Calls and times by role."""
    prompt_tokens: dict[str, PromptTokens] = {}
    """Prompt tokens of this job's own calls by model: sent, and computed because the server did not have them in
    its cache. Calls that failed or were repeated are not counted."""
    cost: TokenCost | None = None
    """Cost of the model calls; null if no model has answered."""
    residencies: tuple[Residency, ...] = ()
    """Models that the devices held while the calls ran."""
    by_level: dict[str, Accuracy] = {}
    """Accuracy by level of the items."""
    by_subject: dict[str, Accuracy] = {}
    """Accuracy by subject of the items."""
    notes: tuple[str, ...] = ()
    """Remarks on the figures."""
    settings: Settings
    """Settings that the figures depend on."""


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Samples by state: completed, failed, cancelled and in_progress add up to `total`."""

    total: int
    """Number of samples."""
    completed: int
    """Number of completed samples."""
    failed: int
    """Number of failed samples."""
    cancelled: int
    """Number of cancelled samples."""
    in_progress: int
    """Number of samples that have not ended."""
    unparsed: int
    """Number of failed samples with a model reply that could not be parsed."""


class RerankParams(msgspec.Struct, frozen=True, kw_only=True):
    """Reranking by relevance to the question, and the decisions that depend on it (seed documents 001 and 003)."""

    enabled: bool = True
    """Whether documents are reranked."""
    by: str = "auto"
    """Source of a document's relevance. `reranker`: the model of `retrieval.reranker`. `yes-no`: the judge model,
    by the probability of yes against no. `rating`: the judge model, by the mean of its ratings from 1 to 5,
    weighted by their probabilities (docs/how-to/retrieval.md#the-judge-model-as-reranker). `auto`: `reranker`; for
    the floor of `mathrag-gate` it is `rating` if no reranker is configured."""
    threshold: float = 0.4
    """Probability below which documents are dropped (001: 0.4)."""
    refuse: bool = False
    """Whether a question is refused if no document reaches the threshold. If this is false, the best documents are
    kept."""
    tested: bool = False
    """Whether the judge model must pass a test before its floor is used: a job's first calls show whether it
    prefers a question's own documents to those of another question. By default it is set at submission together
    with the floor: to true if the judge model determines the relevance and answers are not mathematics."""
    floor: float | None = None
    """Relevance below which `mathrag-gate` does not rate a document's quality and puts it last. With 0 the
    relevance is not determined. By default 0.5, set at submission (docs/explanation/pipelines.md#relevance-to-the-
    question)."""


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the device held while calls ran."""

    epoch: int
    """Number of the residency; it grows with every change of the resident models."""
    device: str
    """Id of the device."""
    models: tuple[str, ...] = ()
    """Names of the models that the device held."""
    cause: str
    """Why the scheduler loaded these models, such as `first` or `drained`."""
    state: str
    """State of the residency."""
    opened_at: str | None = None
    """Time from which the models answered calls; null if they never did."""
    closed_at: str | None = None
    """Time at which the residency ended; null if it has not."""
    memory_mib: dict[str, float | None] = {}
    """Memory of each model in MiB, measured when the residency was opened; null for a model that was not
    measured."""


class ResidentModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the device holds."""

    name: str
    """Name of the model."""
    digest: str | None = None
    """Digest of the model's files; null if the server has none."""
    footprint_mib: int
    """Declared memory in MiB, which counts against the budget."""
    measured_mib: float | None = None
    """Memory in MiB, measured when the residency was opened; null if it was not measured."""


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the items with relevant documents; repeats of one item count once."""

    items: int
    """Number of items with relevant documents."""
    absent: int
    """Number of relevant documents that the corpus does not have; they count as not found."""
    fused: dict[str, Mean] = {}
    """Measures of the candidates in the order of fusion, before any reranking; empty if nothing was fused."""
    final: dict[str, Mean] = {}
    """Measures of the candidates in their final order; empty if no sample has candidates, for instance with
    imported answers."""
    reranking: dict[str, Difference | None] = {}
    """Differences between the final order and the order of fusion."""
    context: Mean
    """Share of the relevant documents that were in the prompt."""


class RoleCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    most: int
    """Upper bound for all jobs together; calls that are known to be shared count once."""
    apart: int
    """Upper bound if the jobs shared no calls."""


class RouteParams(msgspec.Struct, frozen=True, kw_only=True):
    """Routing of easy questions to the rule path of `mathrag-gate`, independently of the gate's decision."""

    enabled: bool = False
    """Whether documents for easy questions are scored by rules (docs/how-to/retrieval.md#routing)."""
    threshold: float = 0.5
    """Probability of being hard below which a question is easy."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """States that `body` leads to `head`. Atoms of a temporal body are in the order of their times, all before the
    head's."""

    head: Atom
    """The atom that the rule predicts."""
    body: tuple[Atom, ...] = ()
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
    """Number of times that the body holds and `functional` has a fact of the head's relation; null if the miner
    does not give it."""
    functional: int | None = None
    """Variable on the head's functional side: 0 or 1; null if the miner does not give it."""
    kind: str = ""
    """Type of a rule of `temporal-simple`."""
    curve: tuple[float, ...] = ()
    """Coefficients of the confidence over time, of a rule of `temporal-simple`."""


class RuleBank(msgspec.Struct, frozen=True, kw_only=True):
    """A rule bank."""

    id: int
    """Number of the rule bank in the database."""
    name: str
    """Name of the rule bank."""
    state: str
    """State of the bank; only a `ready` bank can be used."""
    hash: str | None = None
    """SHA-256 of graph, miner, limits and all rules in order; null until the bank is ready."""
    graph: str | None = None
    """Graph that the bank was mined from; null for an imported bank."""
    graph_hash: str | None = None
    """Hash of this graph; null for an imported bank without one."""
    miner: str
    """The miner."""
    limits: dict[str, object] = {}
    """Limits of the miner, including defaults; empty for an imported bank."""
    relations: int | None = None
    """Number of mined head relations; null for an imported bank."""
    rules: int
    """Number of rules."""
    job: str | None = None
    """Id of the mining job; null for an imported bank."""
    reason: str | None = None
    """Why the bank has no rules, and how to continue; null if there is no problem."""
    created_at: str
    """Time of the request."""
    sealed_at: str | None = None
    """Time at which the bank became ready; null before."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Contribution of one rule."""

    number: int
    """Number of the rule in its bank, from 0."""
    rule: str
    """The rule in words."""
    certainty: float
    """PCA confidence of the rule if it has one, or else its standard confidence."""
    samples: int
    """Number of samples that the rule guided."""
    documents: int
    """Number of candidates that the rule contributed to these samples, alone or with other rules."""
    accuracy: Accuracy
    """Accuracy on these samples."""


class RuleragParams(msgspec.Struct, frozen=True, kw_only=True):
    """Rule-guided retrieval and answering (seed document 002). The only number that the authors
    give is 10 documents for each rule."""

    most: int = 5
    """Maximum number of rules for a question; 0 uses no rules."""
    confidence: float = 0.0
    """Minimum certainty of a rule: its PCA confidence if it has one, or else its standard confidence."""
    support: int = 20
    """Minimum support of a rule. Rules with less support often have a high confidence but rarely hold."""
    order: str = "best"
    """Which rules are chosen. `best`: the most certain rules of the relation; `worst`: the least certain ones;
    `random`: any rules of the bank. Use the last two for ablations."""
    use: str = "both"
    """Use of the rules: in searches, in the prompt, or in both."""
    index: str = "both"
    """Index to search; with `both`, the two lists of each search are fused."""
    ask: bool = True
    """Whether the judge model is asked for the relation if neither the item nor a phrase names it. Without a judge
    model it is set to false at submission."""
    query: str = "joined"
    """Query for a rule: `joined`: question and rule together; `rewritten`: the judge model writes it."""
    cot: bool = False
    """Whether the generator is asked to name the rule and the document before it answers."""
    width: int = 3
    """Number of documents of a search from which the next atom of a rule is searched. With 0, a rule is searched by
    its query alone, as the authors do."""
    question: bool = True
    """Whether the question itself is also searched for; its documents then alternate with those of the rules. The
    authors search by rules alone, which can miss documents that a plain search finds (docs/reference/rule-
    reproduction.md)."""
    documents: int = 0
    """Number of best documents that each rule contributes; `candidates` limits their total. With 0, rules take
    turns until `candidates` documents are reached."""
    phrases: str = ""
    """SHA-256 of the relation phrases of the corpus's graph. Submission sets it."""
    decoding: Decoding | None = None
    """How the judge model samples when it names the relation or rewrites a query."""


class SampleLine(msgspec.Struct, frozen=True, kw_only=True):
    """One sample; `hash` is the SHA-256 over the 32 bytes of `previous`, followed by the text `record`."""

    line: str
    """Tells which kind of object this is."""
    sequence: int
    """Number of the sample in the chain, from 0."""
    hash: str
    """SHA-256 over the 32 bytes of `previous` and the text `record`, in hex."""
    previous: str
    """Hash of the previous line, in hex."""
    record: str
    """The record as canonical JSON."""
    texts: dict[str, str] = {}
    """Texts by the SHA-256 of their bytes, in hex: those whose hashes are in the record."""


class SampleNote(msgspec.Struct, frozen=True, kw_only=True):
    """One person's thumb and note on a sample."""

    author: str
    """Name of the API key, or `local` without keys."""
    thumb: str | None = None
    """`up` or `down`; null for a note alone."""
    note: str
    """Text of the note; it may be empty if there is a thumb."""
    at: str
    """Time of the last change."""


class SampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a job: the question and how it ended."""

    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    custom_id: str | None = None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None = None
    """The expected answer; null if the item has none."""
    subject: str | None = None
    """Subject of the item; null if it has none."""
    level: str | None = None
    """Level of the item; null if it has none."""
    state: str
    """State of the sample."""
    answer: str | None = None
    """Extracted answer; null if there is none."""
    extraction: str | None = None
    """Whether the answer was found in the text; null if the sample did not complete."""
    truncated: bool
    """Whether the text was cut off before its end."""
    correct: bool | None = None
    """Verdict of the job's grader; null without a gold answer or a verdict."""
    strict: bool | None = None
    """Verdict of the strict rules; with a grader other than `math`, whether the answer equals a gold answer
    character by character. Null without a verdict."""
    grading_failure: str | None = None
    """Kind of the failure that left the answer without a verdict; null if there was none."""
    failure: str | None = None
    """Kind of the failure; null if the sample did not fail."""
    detail: str | None = None
    """Description of the failure; null if the sample did not fail."""
    context: tuple[str, ...] = ()
    """Hashes of the documents in the prompt, in order."""
    duplicates: int
    """Number of near-duplicates of the question that retrieval left out."""
    unscored: bool
    """Whether scoring was requested and no candidate has a quality."""
    ended_at: str | None = None
    """Time at which the sample ended; null if it has not."""
    ending: str | None = None
    """`correct`, or the kind of error (docs/explanation/statistics.md); null if the sample was cancelled or has not
    ended."""
    ending_reason: str | None = None
    """The rule that decided `ending`, with the facts that it used; null without an ending."""
    truncated_by: str | None = None
    """Cause of the truncation: `length`, `repetition`, `broken_byte`, `cut` or `content_filter`; null if the text
    is complete."""
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
    """Scores of the job's metrics by name. A score is null if it does not apply or could not be measured. Null if
    the job has no metrics."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items; repeats of one item count once."""

    name: str
    """Name of the score, such as "token F1"."""
    mean: Mean
    """Mean over items."""


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The documents found, best first."""

    corpus: str
    """Name of the searched corpus."""
    mode: str
    """How the corpus was searched."""
    fusion: SearchFusion | None = None
    """How the lists were fused; null if only one list was used."""
    hits: tuple[SearchHit, ...] = ()
    """The documents, best first."""
    duplicates: tuple[str, ...] = ()
    """Hashes of near-duplicates of the question that the search left out (`params.duplicates`)."""
    action: str | None = None
    """CRAG's verdict on the list: `correct`, `ambiguous` or `incorrect`; null if it was not requested."""
    decisions: tuple[Decision, ...] = ()
    """Decisions of the search, in order; `fallback` says why a step was skipped."""


class SearchFusion(msgspec.Struct, frozen=True, kw_only=True):
    """How the lists of a search were fused."""

    method: str
    """`rrf`: reciprocal rank fusion; `weighted`: the weighted sum of normalised scores."""
    rrf_k: int | None = None
    """Constant of `rrf`: a list adds weight / (rrf_k + rank). Null with `weighted`."""
    normaliser: str | None = None
    """Normaliser of `weighted`, which makes the scores of the lists comparable. Null with `rrf`."""
    weights: dict[str, float] = {}
    """Weights of the dense and the sparse list."""


class SelfConsistencyParams(msgspec.Struct, frozen=True, kw_only=True):
    """Majority vote over sampled answers (Wang et al. 2023)."""

    draws: int = 5
    """Number of answers sampled from one prompt. The authors draw 40; accuracy gains most from the first 5 to
    10."""
    temperature: float = 0.7
    """Temperature of the draws, instead of `generate.temperature` (the authors: 0.5 to 0.7)."""
    weights: str = "count"
    """Weight of an answer's vote. `count`: 1. `probability`: the exponential of the mean log-probability of its
    tokens (the authors' normalised weighted sum), which the generator's server must return."""


class SelfRagParams(msgspec.Struct, frozen=True, kw_only=True):
    """Reflection tokens (Asai et al. 2024)."""

    threshold: float = 0.2
    """Probability of [Retrieval] above which documents are retrieved."""
    relevance: float = 1.0
    """Weight of relevance in the score of a passage."""
    support: float = 1.0
    """Weight of support in the score of a passage."""
    utility: float = 0.5
    """Weight of utility in the score of a passage."""
    sequence: bool = False
    """Whether the mean probability of the text also counts."""
    answer: str = "best"
    """`best`: the answer of the best path; `sum`: the answer with the largest sum of its paths' scores, as the
    authors do for closed sets."""
    alternatives: int = 5
    """Number of log-probabilities requested for each token, each about 30 bytes of a reply. Five include all grades
    of utility; text-generation-inference returns no more than five by default."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The options that were sent to the model."""

    temperature: float
    """Sampling temperature."""
    max_tokens: int
    """Maximum length of the reply in tokens."""
    seed: int
    """Random seed, derived from the identity of the call."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its value and default."""

    name: str
    """Key in mathrag.yaml, with levels joined by dots."""
    value: object = None
    """Value in effect; `***` replaces a secret, and of a command only the program is shown because its arguments
    may hold one."""
    default: object = None
    """Default value; null if there is none."""
    changed: bool
    """Whether the value differs from the default."""
    meaning: str
    """Description of the setting."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the figures depend on."""

    pipeline: str
    """Name of the pipeline."""
    pipeline_hash: str
    """Hash of the pipeline's name and version; for a plug-in, of its files."""
    dataset: str
    """Name of the dataset."""
    corpus: str | None = None
    """Name of the corpus; null if the job has none."""
    limit: int | None = None
    """Number of items used, from the start of the dataset; null for all."""
    repeats: int
    """Number of answers to each item."""
    reuse: str
    """`all`: replies of other jobs were reused; `none`: every reply was computed again."""
    params: Params | None = None
    """Parameters; null if this release cannot read them (a note says why)."""
    models: dict[str, PinnedModel] = {}
    """Models by role."""
    drawn: tuple[str, ...] | None = None
    """Roles whose calls every repeat makes again; for the other roles one reply serves all repeats. Null if it
    cannot be determined."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """An API key's share of the service, and what it used."""

    key: str
    """Name of the key."""
    weight: int
    """A key of weight 3 gets three times as many samples as one of weight 1 while both wait."""
    project: str | None = None
    """The key's project; null for none."""
    live_samples: int
    """Samples of its jobs that have not ended, as `samples_per_key` counts them."""
    ended_samples: int
    """Samples that completed or failed in the last 24 hours."""
    gpu_s: float
    """GPU time of the last 24 hours in seconds, as `gpu_s_per_key` counts it."""
    storage_mib: float
    """Size of its uploads in MiB, as `storage_mib_per_key` counts it."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The keys' shares, and the limits of every key."""

    samples_per_key: int
    """`limits.samples_per_key`; 0: no limit."""
    gpu_s_per_key: float
    """`limits.gpu_s_per_key`; 0: no limit."""
    storage_mib_per_key: int
    """`limits.storage_mib_per_key`; 0: no limit."""
    keys: tuple[Share, ...] = ()
    """The valid keys by name."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A document with texts that may be cut."""

    id: str | None = None
    """Id of the document in the corpus; null if the corpus does not have the document."""
    hash: str
    """Hash of the content, which identifies the document in jobs and provenance."""
    problem: str
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Text of the document."""
    truncated: bool
    """Whether problem or text were cut."""


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one question in two jobs."""

    left_name: str
    """Name of the left job."""
    right_name: str
    """Name of the right job."""
    left: Provenance
    """The left job's sample."""
    right: Provenance
    """The right job's sample."""
    prompts: PromptDifference | None = None
    """Differences between the prompts of the answers; null if a sample has no prompt, or if its template belongs to
    another release."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The step that made the call first, and whose reply was reused."""

    job: str
    """Id of the job."""
    kind: str
    """`item`, or `prepare` for a job's calibration."""
    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    position: int
    """Position of the step in its sample."""


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of several documents of a task."""

    document: str
    """Hash of the document."""
    problem: str
    """Problem of the document; empty for a plain passage."""
    text: str
    """Text of the document."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of the model's calls among the newest 20,000 calls of all models."""

    calls: int
    """Number of calls."""
    median_s: float
    """Median of the seconds from the start of a call to its reply."""
    p95_s: float
    """95th percentile of these seconds."""
    read_tokens_s: float | None = None
    """Prompt tokens computed per second in one slot, as measured by the model's server; null if it reports none."""
    written_tokens_s: float | None = None
    """Reply tokens per second in one slot, as measured by the model's server; null if it reports none."""
    since: str
    """Start of the first of these calls."""
    until: str
    """End of the last of these calls."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    made: int
    """Number of calls that this job put into the queue."""
    reused: int
    """Number of calls that another job had made before."""
    executed: int
    """Number of calls made that have a reply."""
    seconds: float | None = None
    """Seconds from the first start to the last end of the calls made; null if none was executed."""
    device_s: float | None = None
    """Estimated device time in seconds of all calls, made and reused: the duration of each call divided by the
    number of calls that its model computed when it began, including this call. It is the stage's cost without
    reuse. Null if no call has its times."""
    started_at: str | None = None
    """Start of the first call made; null if none was executed."""
    ended_at: str | None = None
    """End of the last call made; null if none was executed."""
    prompt_tokens: int | None = None
    """Prompt tokens of the calls made, as counted by the model server; null if no model was called or the server
    counts none."""
    completion_tokens: int | None = None
    """Reply tokens of the calls made, as counted by the model server; null if no model was called or the server
    counts none."""


class StageCount(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role that the job has requested so far."""

    done: int
    """Number of calls that have a reply or failed for good."""
    total: int
    """Number of calls requested so far."""


State = str
"""Whether a plug-in can be used, and if not, why."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the sample waited for. Steps with the same position waited in parallel."""

    position: int
    """Position in the sample, from 0. Steps with the same position waited in parallel."""
    slot: int
    """Number of the step among those with the same position, from 0."""
    created: bool
    """Whether this step made the call. If false, an earlier sample or job had made it, and its reply was reused."""
    source: Source | None = None
    """The step that made the call first; null if this step made it, or if that job was purged."""
    role: str
    """Role of the call, such as `judge` or `generate`."""
    key: str
    """Identity of the call: the SHA-256 of `request`."""
    model: str
    """Name of the model."""
    model_hash: str
    """Hash that identifies the model's version."""
    backend: str
    """Program that served the model, such as `llama.cpp` or `ollama`."""
    digest: str | None = None
    """Digest of the model's files; null if the server has none."""
    version: str
    """Version of the model's server; empty if the server reports none."""
    options: dict[str, object] = {}
    """Options of the model."""
    request: object = None
    """The request whose canonical bytes were hashed; it names the template and long texts by their hashes."""
    sent: Sent | None = None
    """Sampling options that were sent to the model; null if the call samples nothing."""
    prompt: str | None = None
    """The prompt; null unless prompts are requested, and if its template belongs to another release."""
    queued_at: str
    """Time at which the call was first queued, by any sample."""
    queue_ms: float | None = None
    """Milliseconds from `queued_at` to the start of the accepted attempt, including earlier attempts; null without
    an accepted attempt."""
    attempt: Attempt | None = None
    """The attempt whose reply counts; null without one."""
    other_attempts: tuple[Attempt, ...] = ()
    """Attempts that lapsed or failed with an infrastructure failure."""


class StoredGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph."""

    id: int
    """Number of the graph in the database."""
    name: str
    """Name of the graph."""
    hash: str
    """SHA-256 of the facts in order, one tab-separated line each: subject, relation, object and time."""
    facts: int
    """Number of distinct facts."""
    entities: int
    """Number of entities."""
    relations: int
    """Number of relations."""
    time_unit: str | None = None
    """Unit of times: days or the file's own steps; null if facts have no times."""
    first_time: str | None = None
    """Time of the earliest fact; null if facts have no times."""
    last_time: str | None = None
    """Time of the latest fact; null if facts have no times."""
    largest: tuple[RelationSize, ...] = ()
    """The five relations with the most facts."""
    corpus: str
    """Corpus whose documents are the facts."""
    created_at: str
    """Time at which the graph was stored."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


Strategy = str
"""Scorer of the reasoning quality in a job."""


class TextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of the first 1,000 documents, in bytes of problem and text together."""

    sampled: int
    """Number of measured documents."""
    mean_bytes: float
    """Mean length in bytes."""
    longest_bytes: int
    """Largest length in bytes."""
    problems: int
    """Number of measured documents with a problem; the others are plain passages."""


class TheirScores(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of the evaluation that an import came from, compared with those of this job."""

    right: int
    """Number of answers that the other evaluation calls right."""
    scored: int
    """Number of answers with a verdict of both evaluations; scores between 0 and 1 are not verdicts."""
    differing: int
    """Number of answers on which the two evaluations differ."""
    samples: tuple[int, ...] = ()
    """Indexes of the first items on which the two evaluations differ, each listed once."""


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost in US dollars at the currently configured prices; null if a model has no price or its server does not
    count tokens."""

    made: float | None = None
    """Cost of the calls that this job made."""
    all: float | None = None
    """Cost of the calls made and reused: the job's cost without reuse."""
    models: dict[str, float | None] = {}
    """Cost of the calls made and reused, by model name."""


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


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of rules and judge with the checked equations of the calibration documents. It does not change the
    decision."""

    scores: tuple[float | None, ...] = ()
    """The verifier's scores, in the order of `GateDecision.documents`; null for a document without a decided
    equation."""
    refuted: tuple[int | None, ...] = ()
    """Number of refuted equations of each document; null for a document that could not be checked."""
    failures: int
    """Number of documents that could not be checked."""
    rules: Agreement
    """Agreement of the rules with the verifier."""
    judge: Agreement
    """Agreement of the judge with the verifier."""


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs between two versions or sides, or that only one of them has."""

    name: str
    """Path of the value, such as `gate.tau`."""
    change: str
    """Change from the left side to the right side."""
    left: object = None
    """Value on the left; null if it was added."""
    right: object = None
    """Value on the right; null if it was removed."""


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """Two systems on their common items: `difference` is left minus right."""

    p: float
    """Two-sided p-value."""
    adjusted: float
    """The p-value with Holm's correction for the tests made together with this one."""
    separable: bool
    """Whether the adjusted p-value is below 0.05. If not, these questions do not show a difference."""
    items: int
    """Number of items that both systems have a value for."""
    gained: int
    """Number of items that the left system has right more often, or with a higher score."""
    lost: int
    """Number of items that the right system has right more often, or with a higher score."""
    difference: Interval | None = None
    """Difference of the means over these items, left minus right, with a 95 % bootstrap interval over items,
    resampled within datasets and not corrected for other comparisons; null without common items."""
    corrected: Interval | None = None
    """The same with Bonferroni's correction (Dunn 1961): with m comparisons, each has an interval of 1 - 0.05 / m,
    so that all hold at once in 95 % of cases. Holm's test is more powerful: a difference may be separable although
    its corrected interval includes 0. Null without common items, or with more than 49 comparisons."""
    effect: float | None = None
    """Cohen's h (1988, section 6.2): 0.2 is small, 0.5 medium, 0.8 large. For a score, Cohen's d of the
    differences: mean / standard deviation; null if all differences are equal."""
    needed: int | None = None
    """Number of items that would show this difference with a probability of 80 %; null without a difference."""
    left: str
    """Name of the left system."""
    right: str
    """Name of the right system."""
    left_only: int
    """Items for which only the left system has a value; no figure of the pair counts them. An item that a dataset
    lists twice is one item of a pair."""
    right_only: int
    """Items for which only the right system has a value."""
    moved: dict[str, dict[str, int]] = {}
    """Number of common samples by their ending on the left, and within it by their ending on the right; empty
    unless requested."""
    words: str
    """The comparison in one sentence."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that violate an invariant."""

    invariant: str
    """Number of the invariant, such as "I1"."""
    message: str
    """Description of the error in the rows."""
    rows: tuple[str, ...] = ()
    """Table and id of each row, such as "attempts 17"."""
    items: tuple[int, ...] = ()
    """The first five items of the dataset that the rows belong to, from 0, as in `mathrag sample show JOB
    INDEX`."""
    item_count: int = 0
    """Number of all items that the rows belong to."""
    source_changed: bool = False
    """Whether the job ran another version of its pipeline, so that its rows cannot be verified here."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A server, index or plug-in that is not available while calls or samples wait for it."""

    what: str
    """Name of the server, index or plug-in."""
    said: str
    """Error of the last attempt to reach it."""
    since: str
    """Start of the outage."""
    next_try: str | None = None
    """Time of the next attempt; a past time means that it is under way or about to begin. Null for a plug-in, which
    is tried again when the service starts."""


class AnswerAt(Accuracy, frozen=True, kw_only=True):
    """Share of samples with an answer in the first k candidates, as a mean over items with Wilson's interval: `graded`
    samples were examined, and `correct` of them have such a candidate."""

    bootstrap: Interval | None = None
    """Mean over items with its 95 % percentile interval."""


class CorpusDetails(Corpus, frozen=True, kw_only=True):
    """A corpus with its indexes and text lengths."""

    indexes: tuple[IndexDetails, ...] = ()
    """Indexes, those in use first."""
    texts: TextSizes
    """Lengths of the documents."""
    builds: tuple[IndexProgress, ...] | None = None
    """Builds of indexes that run or wait now; null if the retriever does not answer."""


class CorpusUpload(Corpus, frozen=True, kw_only=True):
    """The corpus, and the lines of the upload that were left out."""

    skipped: int
    """Lines without text that were left out; counted only with `skip_empty`."""
    rejected: int
    """Lines that could not be used; counted only with `on_error=skip`."""
    rejected_lines: tuple[Rejected, ...] = ()
    """The first rejected lines, with the reason."""


class DatasetDetails(Dataset, frozen=True, kw_only=True):
    """A dataset with the counts of its items."""

    counts: ItemCounts
    """Counts of the dataset's items."""


class DatasetUpload(Dataset, frozen=True, kw_only=True):
    """The dataset, and the lines of the upload that were left out."""

    skipped: int
    """Lines without a question that were left out; counted only with `skip_empty`."""
    rejected: int
    """Lines that could not be used; counted only with `on_error=skip`."""
    rejected_lines: tuple[Rejected, ...] = ()
    """The first rejected lines, with the reason."""
    alternatives: int
    """Items with several different expected answers; any of them counts as correct."""
    warnings: tuple[str, ...] = ()
    """Problems of the items, such as missing expected answers, a grader that does not suit them, or unread fields
    with a similar name to a known one."""


class DocumentPreview(Shown, frozen=True, kw_only=True):
    """A document of a corpus, with texts up to 4,000 characters."""

    index: int
    """Position in the corpus, from 0."""


class ExperimentView(Entry, frozen=True, kw_only=True):
    """An experiment with links to its resources."""

    baseline: str | None = None
    """Variant with which the others are compared; null if all pairs are compared."""
    request_counts: RequestCounts
    """Samples of all jobs by state."""
    eta_seconds: int | None = None
    """Estimated seconds until the last job ends, from the pace of the ended samples; null without an estimate."""
    grid: tuple[Cell, ...] = ()
    """All cells, in the order of the request."""
    links: ExperimentLinks
    """Addresses of related resources."""
    warnings: tuple[str, ...] = ()
    """Warnings about the submission; only in its response."""


class ExportedLabel(Label, frozen=True, kw_only=True):
    """A label with its task, as one line of an export."""

    set: str
    """Name of the label set."""
    what: str
    """What is labelled."""
    item: int | None = None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    """Number of the repeat, from 0."""
    document: str | None = None
    """Hash of the labelled document; null if no document is labelled."""
    answer: str | None = None
    """The labelled answer or reply; null if none is labelled."""
    sentence: str | None = None
    """The labelled sentence of a reply; null if none is labelled."""
    system: int | str
    """Verdict of the judge or the grader."""
    counts: bool
    """Whether it is the labeller's last label of the task, which counts."""


class GraphUpload(StoredGraph, frozen=True, kw_only=True):
    """The graph, and counts of the upload."""

    repeated: int
    """Number of facts that were left out because they were repeated in the upload."""
    documents: int
    """Number of documents in the corpus."""


class MinedBank(RuleBank, frozen=True, kw_only=True):
    """The rule bank, and the memory that its mining needs."""

    memory_mib: int
    """Upper bound of the memory of all processes of a judge worker, in MiB."""


class ModelDetails(ModelView, frozen=True, kw_only=True):
    """A model with its measurements."""

    server: str
    """Program that serves the model, if its driver is `process`."""
    records: ModelRecords
    """Registered versions, measurements and jobs of the model."""


class PilotView(Entry, frozen=True, kw_only=True):
    """The experiment of a pilot, and the questions and candidates that it leaves out."""

    baseline: str | None = None
    """Variant with which the others are compared; null if all pairs are compared."""
    request_counts: RequestCounts
    """Samples of all jobs by state."""
    eta_seconds: int | None = None
    """Estimated seconds until the last job ends, from the pace of the ended samples; null without an estimate."""
    grid: tuple[Cell, ...] = ()
    """All cells, in the order of the request."""
    links: ExperimentLinks
    """Addresses of related resources."""
    warnings: tuple[str, ...] = ()
    """Warnings about the submission; only in its response."""
    rest: str | None = None
    """Dataset of the questions that were not drawn, for a measurement of the chosen pipeline; null if all questions
    are used."""
    left_out: dict[str, str] = {}
    """Default candidates that are not tried, by name, with the reason."""


class PipelineDetails(PipelineView, frozen=True, kw_only=True):
    """A pipeline, step by step, with the parameters that it reads."""

    about: str
    """Origin of the method, and differences of this implementation."""
    calibration: tuple[PipelineStep, ...] = ()
    """Steps for one item of the calibration, which runs before the samples; empty without a calibration."""
    steps: tuple[PipelineStep, ...] = ()
    """Steps for one question, computed with the shipped parameters and placeholder replies."""
    parameters: tuple[ParameterView, ...] = ()
    """Parameters that the pipeline reads."""


class QuestionUpload(Dataset, frozen=True, kw_only=True):
    """The dataset, and the number of its questions."""

    counts: Counts
    """Number of questions, and why others were left out."""


class ResultRow(SampleRow, frozen=True, kw_only=True):
    """An ended sample with its models' replies."""

    text: str | None = None
    """The generator's text; if there are several, the last one with the sample's answer."""
    prompt: str | None = None
    """The prompt of this text; null unless prompts are requested."""
    judged: tuple[str, ...] = ()
    """Hashes of the rated documents, in the order of `ratings`; empty if the judge rated something else."""
    ratings: tuple[int, ...] = ()
    """The judge's ratings from 1 to 5; replies without a rating are in neither list."""
    prompt_tokens: int = 0
    """Prompt tokens of all model calls of the sample, including calls that another job had made."""
    completion_tokens: int = 0
    """Reply tokens of all model calls of the sample, including calls that another job had made."""
    seconds: float = 0.0
    """Sum of the durations of these calls in seconds; concurrent calls each count in full."""


class Row(Cell, frozen=True, kw_only=True):
    """One cell, and the results of its job."""

    result: Answered | None = None
    """Results; null if the cell has no job, or its job was purged."""


class RuleBankDetails(RuleBank, frozen=True, kw_only=True):
    """A bank with its head relations and jobs."""

    heads: tuple[HeadRules, ...] = ()
    """The 500 relations with the most rules."""
    followed_by: tuple[ModelJob, ...] = ()
    """The newest jobs that use the bank's content."""


class SearchHit(Shown, frozen=True, kw_only=True):
    """A document that was found."""

    rank: int
    """Rank, from 1."""
    score: float
    """Score that determines the order; larger is better. Compare scores only within one response."""
    dense_rank: int | None = None
    """Rank in the dense list, from 1; null if the list does not have the document."""
    dense_score: float | None = None
    """Score in the dense list; null if the list does not have the document."""
    sparse_rank: int | None = None
    """Rank in the sparse list, from 1; null if the list does not have the document."""
    sparse_score: float | None = None
    """Score in the sparse list; null if the list does not have the document."""
    fused: float | None = None
    """Score after fusion; null if only one list was used."""
    contributions: dict[str, float] | None = None
    """Share of each list in `fused` with `rrf`; null if scores were added (`weighted`) or only one list was
    used."""
    relevance: float | None = None
    """The reranker's probability that the document helps with the question; null if the reranker was not used or
    failed."""
    paths: dict[str, int] | None = None
    """Rank of the document by list, if the question was enhanced; null otherwise."""
    quality: float | None = None
    """Score of the document's reasoning by rules, in [0, 1]; null if it was not requested."""
    features: dict[str, float] | None = None
    """Features from which `quality` was computed; null if it was not requested."""


class JobOptions(TypedDict, total=False):
    """Optional numbers and texts of a job's request; the server's defaults replace those that are left out."""

    limit: int | None
    repeats: int
    reuse: Literal["all", "none"]
    rank: int
