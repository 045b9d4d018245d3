"""What the API answers with, as structs. Written by `make generate` from the OpenAPI document; do not edit.

Fields that this release does not know are ignored. Texts with a fixed set of values are `str`, as servers of later
releases may have more of them. `object` is JSON of any form.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items with Wilson's 95 % interval. An item counts once, however often it was answered: by the share of
    its graded answers that are correct."""

    value: float | None = None
    low: float
    high: float
    items: int
    correct: int
    graded: int


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far a vector of scores agrees with the verifier's; the fields are those of `GateDecision`."""

    pairs: int
    rho: float | None = None
    low: float | None = None
    high: float | None = None
    spearman: float | None = None
    undefined: str | None = None


class Alphas(msgspec.Struct, frozen=True, kw_only=True):
    """Krippendorff's alpha of several raters, by the distance between two ratings."""

    tasks: int
    nominal: Coefficient
    ordinal: Coefficient
    interval: Coefficient
    note: str | None = None


class AnswerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt for answers: a stored one, a shipped one, or a file of the folder `plugins.templates`."""

    name: str
    version: int
    hash: str
    text: str
    system: str = ""
    examples: tuple[Example, ...] = ()
    origin: str = "stored"
    created_by: str | None = None
    created_at: str | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a job; all cells that share the job show the same."""

    accuracy: Accuracy
    measured: Mean
    request_counts: RequestCounts
    failures: dict[str, int] = {}
    gate: Gate | None = None
    calls_made: dict[str, int] = {}
    calls_reused: dict[str, int] = {}
    model_loads: int
    seconds: float | None = None


class AnsweredSide(msgspec.Struct, frozen=True, kw_only=True):
    """One job's answer."""

    answer: str | None = None
    correct: bool
    truncated: bool


Atom = tuple[str, int | str, int | str]
"""States that a relation holds between two terms. An inverse relation is the relation with its terms exchanged."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a call, with the receipt of the process that ran it."""

    outcome: str
    reply: dict[str, object] | None = None
    worker: str | None = None
    device: str | None = None
    epoch: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    concurrency: int | None = None
    prompt_hash: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    trace_id: str | None = None
    stored_at: str
    reply_hash: str
    unreadable: str | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the job's rows satisfy the invariants."""

    clean: bool
    violations: tuple[Violation, ...] = ()
    source_changed: str | None = None


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of one evaluator, from one job."""

    id: str
    name: str
    evaluator: str
    skipped: int
    calibration: Calibration


class CalibratedThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold with its 95 % interval (percentile bootstrap over the observations)."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    met: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The calibrated thresholds and the data that they come from."""

    trust: float
    observations: int
    relevant: int
    upper: CalibratedThreshold
    lower: CalibratedThreshold


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate document, with its ranks (from 1) and scores in retrieval, scoring and reranking."""

    document: str
    rank: int
    dense_rank: int | None = None
    sparse_rank: int | None = None
    dense_score: float | None = None
    sparse_score: float | None = None
    fused: float | None = None
    quality: float | None = None
    features: dict[str, float] | None = None
    failure: str | None = None
    relevance: float | None = None
    paths: dict[str, int] | None = None
    score: float | None = None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the grid."""

    index: int
    dataset: str
    corpus: str | None = None
    variant: str
    pipeline: str
    point: dict[str, object] = {}
    seed: int
    job: str | None = None
    job_name: str | None = None
    state: str
    refused: str | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose text on disk differs from the imported one. Hashes are SHA-256 in hex."""

    file: str
    imported: str | None = None
    on_disk: str | None = None


class ChangedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A question that only one of the two jobs answered correctly."""

    index: int
    right_index: int
    repeat: int
    custom_id: str | None = None
    question: str
    gold: str | None = None
    subject: str | None = None
    level: str | None = None
    left: AnsweredSide
    right: AnsweredSide


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, or the job that will have it."""

    job: str
    url: str
    state: str
    reason: str | None = None
    pipeline: str
    price: Price
    cost: Cost | None = None
    answer: str | None = None
    extraction: str | None = None
    truncated: bool = False
    text: str | None = None
    refusal: str | None = None
    context: tuple[Shown, ...] = ()
    decisions: tuple[Decision, ...] = ()
    warnings: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one thing that a job needs."""

    name: str
    ok: bool
    detail: str = ""
    fix: str = ""


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """A coefficient of agreement and its 95 % percentile interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One system over all its datasets."""

    name: str
    jobs: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    pipeline: str
    items: int
    accuracy: Accuracy
    measured: Mean
    bootstrap: Interval | None = None
    repeats: Repeats
    endings: dict[str, int] = {}


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Systems, and pairs of them, which are corrected together as one family of tests (Holm)."""

    measure: str
    baseline: str | None = None
    finding: str
    jobs: tuple[Compared, ...] = ()
    pairs: tuple[Versus, ...] = ()
    measures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Comparisons(msgspec.Struct, frozen=True, kw_only=True):
    """Comparisons of an experiment. Each is a family of its own: p-values are corrected within it."""

    pooled: Comparison
    datasets: dict[str, Comparison] = {}


class CompressParams(msgspec.Struct, frozen=True, kw_only=True):
    """Context compression (seed document 001)."""

    enabled: bool = True
    ratio: float = 0.7
    tokens: int = 4000


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the configuration."""

    version: int = 0
    params: dict[str, object] = {}
    changed_by: str | None = None
    changed_at: str | None = None


class ConfigurationDifferences(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions of the configuration and the differences between them."""

    left: Configuration
    right: Configuration
    differences: tuple[ValueDifference, ...] = ()


class Contamination(msgspec.Struct, frozen=True, kw_only=True):
    """Items whose searches met a near-duplicate of the question. A job without searches has none."""

    items: int
    affected: int
    documents: int
    share: float
    among: Accuracy
    others: Accuracy


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a task as the labeller sees it; it never has the system's own verdict."""

    question: str = ""
    document: str = ""
    problem: str = ""
    text: str = ""
    golds: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    answer: str = ""
    documents: tuple[SourceDocument, ...] = ()
    sentence: str = ""
    before: str = ""


class ControlFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a score's controls over the items that are drawn for them; null: fewer than five were measured."""

    items: int
    swapped: float | None = None
    copied: float | None = None
    reversed: float | None = None


class ControlScore(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric says of material that was made wrong or right on purpose; null: it could not be measured."""

    swapped: float | None = None
    copied: float | None = None
    reversed: float | None = None


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus as users see it."""

    id: int
    name: str
    hash: str
    documents: int
    indexed: bool
    created_at: str
    graph: str | None = None


class CorpusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of a corpus in full."""

    hash: str
    problem: str
    text: str
    places: tuple[CorpusPlace, ...] = ()


class CorpusPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence of a document in a corpus."""

    index: int
    id: str
    meta: dict[str, object] = {}


class CorrectedMean(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a metric, corrected by people's labels of some questions (ARES, Saad-Falcon et al. 2024)."""

    metric: str
    judge: float | None = None
    questions: int
    labelled: int
    difference: float | None = None
    corrected: Interval | None = None
    words: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What answering the question really took."""

    loads: int
    calls_made: dict[str, int] = {}
    calls_reused: dict[str, int] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts questions; only `answers` counts something else."""

    available: int = 0
    answers: int = 0
    answered_by_graph: int = 0
    unnamed_answers: int = 0
    not_after_graph: int = 0
    with_leads: int = 0
    with_documents: int = 0
    left_out: LeftOut | None = None


class CragParams(msgspec.Struct, frozen=True, kw_only=True):
    """Corrective retrieval (Yan et al. 2024; seed document 001)."""

    evaluator: str = "judge"
    upper: float | None = None
    lower: float | None = None
    thresholds: str = "fixed"
    calibrated_by: str = ""
    judged_by: str = ""
    calibrated: Limits | None = None
    similarity: Limits | None = None
    diversity: float = 0.5
    rounds: int = 2
    strips: str = "selection"
    top: int = 0
    order: str = "found"
    fallback: str = ""


class CriticParams(msgspec.Struct, frozen=True, kw_only=True):
    """The critic loop (seed document 004)."""

    generate: float = 0.6
    rewrite: float = 0.3
    attempts: int = 3
    min_documents: int = 2
    k: int = 3
    aggregate: str = "count"
    reply: str = "rating"
    rewrite_from: int = 2
    accumulate: bool = False
    stop: bool = False
    decoding: Decoding | None = None


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as users see it."""

    id: int
    name: str
    hash: str
    items: int
    created_at: str
    grader: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One action of a method for this sample; a trace has them in order."""

    stage: str
    action: str
    round: int = 0
    detail: dict[str, object] = {}
    fallback: str | None = None


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """How a model samples its reply."""

    temperature: float = 0.0
    max_tokens: int = 512


class DeletedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The deleted graph, and the corpus that is left."""

    deleted: str
    corpus: str
    hint: str


class DenseParams(msgspec.Struct, frozen=True, kw_only=True):
    """Searches by vectors (seed document 003)."""

    threshold: float | None = None


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """A device, the models that it holds, and the reason."""

    state: str
    epoch: int | None = None
    models: tuple[ResidentModel, ...] = ()
    drain: Drain | None = None
    flips: tuple[Flip, ...] = ()
    device: str
    memory: Memory
    lease: Lease | None = None
    guard: GuardState


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of one prompt or of both; "gap" stands for equal lines that are left out."""

    side: str
    text: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of `left - right` over the same questions."""

    p: float
    adjusted: float
    separable: bool
    value: float
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    n: int


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, with both verdicts."""

    index: int
    repeat: int
    answer: str | None = None
    gold: str | None = None
    math_verify: bool
    strict: bool


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A worked solution or any other passage. Documents are content-addressed: equal content is the same document."""

    problem: str = ""
    text: str


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request to keep the device empty."""

    reason: str | None = None
    since: str


class DrawnDatasets(msgspec.Struct, frozen=True, kw_only=True):
    """The datasets of a draw."""

    drawn: Dataset
    rest: Dataset | None = None


class EnhanceParams(msgspec.Struct, frozen=True, kw_only=True):
    """Query enhancement (seed document 001). Each part is optional, and has a fallback."""

    synonyms: bool = True
    correct: bool = True
    rewrite: bool = True
    shown: int = 0
    decompose: bool = True
    hyde: bool = False
    subqueries: int = 3
    terms: dict[str, tuple[str, ...]] = {}
    decoding: Decoding | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment in a list."""

    id: str
    name: str
    state: str
    cells: int
    refused: int
    jobs: dict[str, int] = {}
    created_at: str
    ended_at: str | None = None


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation between numbers in the generated text, as the verifier reads it."""

    text: str
    holds: bool | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds with their source. In the API `source` is called `basis`, and `detail` is called `source`."""

    value: float
    basis: str
    source: str


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A worked example (few-shot): a question as the prompt's text shows it, and the answer that the model gave."""

    question: str
    answer: str
    context: str = ""


class ExperimentLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of what belongs to an experiment."""

    self_: str = msgspec.field(name="self")
    report: str
    jobs: str


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment would run and cost."""

    name: str
    cells: int
    refused: int
    jobs: int
    samples: int
    calls: dict[str, RoleCalls] = {}
    plan: PlanView
    notes: tuple[str, ...] = ()


class ExperimentReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an experiment."""

    id: str
    name: str
    state: str
    measure: str
    baseline: str | None = None
    request_counts: RequestCounts
    calls_made: dict[str, int] = {}
    model_loads: int
    rows: tuple[Row, ...] = ()
    comparisons: Comparisons | None = None
    recommendation: Recommendation | None = None
    measures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


ExtractedBy = str
"""The rule by which the answer was found in the reply (`shared/rag/grading.py`)."""


Extraction = str
"""Whether the reply's answer was found."""


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One residency: when and why it was opened, and how long its models took to load."""

    epoch: int
    models: tuple[str, ...] = ()
    cause: str
    state: str
    reason: str | None = None
    wanted_at: str
    opened_at: str | None = None
    closed_at: str | None = None
    load_s: float | None = None
    declared_mib: int = 0


class Fusion(msgspec.Struct, frozen=True, kw_only=True):
    """How ranked lists were fused."""

    rrf_k: int | None = None
    tie_break: str


class FusionParams(msgspec.Struct, frozen=True, kw_only=True):
    """How lists are fused. `rrf` with equal weights is plain reciprocal rank fusion (Cormack et al. 2009)."""

    method: str = "rrf"
    normaliser: str = "min-max"
    slope: float = 1.0
    dense: float = 0.5
    sparse: float = 0.5
    by_intent: bool = False


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's decision without its score vectors, which the report has."""

    strategy: str
    reason: str
    tau: float
    rho: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int
    asked: int
    unparsed: int


class GateDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of the confidence gate, and all data from which it can be recomputed bit for bit."""

    strategy: Strategy
    reason: str
    tau: float
    rho: float | None = None
    low: float | None = None
    high: float | None = None
    spearman: float | None = None
    documents: tuple[str, ...] = ()
    rule_scores: tuple[float, ...] = ()
    judge_scores: tuple[float, ...] = ()
    asked: int
    unparsed: int
    truth: Truth | None = None
    relevance: RelevanceTest | None = None


class GateParams(msgspec.Struct, frozen=True, kw_only=True):
    """Calibration of the confidence gate; `tau` is from the MathRAG-Gate paper, section 3.3."""

    tau: float = 0.45
    items: int = 50
    top: int = 5
    max_documents: int = 200
    min_pairs: int = 30
    on_unusable: str = "fail"
    repeats: int = 1
    truth: str = "none"
    labels: str = ""
    calibrated: JudgeCalibration | None = None


class GenerateParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the generator is prompted, and how it samples."""

    temperature: float = 0.0
    max_tokens: int = 512
    template: str = ""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that is being generated, or that was."""

    name: str
    state: str
    job: str
    candidates: int
    items: int = 0
    left_out: dict[str, int] = {}
    failed: int = 0
    spare: int = 0
    guessable: int = 0
    found_elsewhere: int = 0
    overlap: float | None = None


class GradingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How answers are found in replies and graded, in the same way for every pipeline."""

    grader: str = ""
    threshold: float = 0.5
    separators: str = ""
    rubric: str = ""
    rating: int = 4
    decoding: Decoding | None = None


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the device's guard as it reports it; if it does not answer, all fields but `reachable` and `detail` are
    null."""

    reachable: bool
    state: str | None = None
    epoch: int | None = None
    in_flight: int | None = None
    detail: str | None = None


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """How rules guided the samples of a job."""

    bank: str
    relations: dict[str, int] = {}
    unguided: int
    with_rules: Accuracy
    without_rules: Accuracy
    used: int
    rules: tuple[RuleFigures, ...] = ()


class HeadRules(msgspec.Struct, frozen=True, kw_only=True):
    """Number of rules that lead to a relation."""

    relation: str
    rules: int
    best: float


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of one labeller, or of the majority, with the judge or the grader."""

    labeller: str | None = None
    compared: int
    abstained: int
    same: int
    kappa: Coefficient
    weighted_kappa: Coefficient
    confusion: tuple[tuple[int, ...], ...] = ()
    note: str | None = None


class HydeParams(msgspec.Struct, frozen=True, kw_only=True):
    """Hypothetical documents (Gao et al. 2023)."""

    documents: int = 8
    style: str = "solution"
    decoding: Decoding | None = None


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that the corpus now uses; earlier ones stay on record for the jobs that used them."""

    index: int
    kind: str
    signature: str
    documents: int
    reused: bool
    seconds: float


class IndexDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An index build."""

    id: int
    kind: str
    state: str
    signature: str
    documents: int
    recipe: dict[str, object] = {}
    created_at: str
    used: bool


class Indexes(msgspec.Struct, frozen=True, kw_only=True):
    """The indexes of a corpus."""

    corpus: int = 0
    indexes: tuple[Index, ...] = ()


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and its confidence interval."""

    value: float | None = None
    low: float
    high: float


class ItemCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of items with this subject or level."""

    name: str
    items: int


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the dataset's items."""

    counted: int
    gold: int
    gold_documents: int
    nuggets: int = 0
    subjects: tuple[ItemCount, ...] = ()
    levels: tuple[ItemCount, ...] = ()


class ItemPreview(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a dataset."""

    index: int
    id: str | None = None
    question: str
    gold: str | None = None
    subject: str | None = None
    level: str | None = None
    gold_documents: dict[str, int] | None = None
    nuggets: tuple[str, ...] | None = None
    relation: str | None = None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the addresses of what belongs to it."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    limit: int | None = None
    repeats: int
    reuse: str
    rank: int
    metadata: dict[str, str] = {}
    id: str
    state: str
    request_counts: RequestCounts
    params: Params | None = None
    version: int
    created_at: str
    running_at: str | None = None
    ended_at: str | None = None
    reached: dict[str, str] = {}
    eta_seconds: int | None = None
    requeued_from: str | None = None
    reason: str | None = None
    chain: str | None = None
    gate: Gate | None = None
    eta_between: tuple[int, int] | None = None
    experiment: str | None = None
    submitted_by: str | None = None
    stages: dict[str, StageCount] | None = None
    unserved: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    unreadable: str | None = None
    stored_params: dict[str, object] | None = None
    links: Links
    accuracy: Accuracy | None = None
    warnings: tuple[str, ...] = ()


class JudgeCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """Calibrated value of each rating of one judge, from the labels of people who rated the same documents
    (docs/how-to/labels.md)."""

    hash: str
    ratings: tuple[float, ...] = ()


class JudgeParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the judge model rates. Temperature and tokens are from the MathRAG-Gate paper, section 4.1."""

    temperature: float = 0.1
    max_tokens: int = 10
    per_repeat: bool = False


class JudgedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence or document that the judge model labelled for a metric."""

    text: str
    label: int | None = None
    failure: str = ""
    disputed: bool = False


Kind = str
"""What a plug-in adds. Its entry point is in the group `mathrag.` with the plural, unless it is a file."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A stored label."""

    number: int
    labeller: str
    at: str
    blind: bool
    value: int | str | None = None
    abstained: bool
    note: str


class LabelAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement figures of a label set; all intervals use one seed."""

    set: str
    what: str
    scale: tuple[int | str, ...] = ()
    blind: bool
    seed: int
    words: str
    tasks: int
    labelled: int
    labels: int
    abstentions: int
    ties: int
    majority: Held
    labellers: tuple[Held, ...] = ()
    people: Alphas
    with_system: Alphas
    disagreements: tuple[LabelDisagreement, ...] = ()
    corrected: CorrectedMean | None = None


class LabelCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration as it is now: another label makes another one."""

    set: str
    hash: str
    judge: str
    judge_hash: str
    tasks: int
    ratings: tuple[RatingWorth, ...] = ()


class LabelDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A task on which the majority disagrees with the judge or the grader."""

    number: int
    item: int | None = None
    repeat: int
    label: int | str
    system: int | str


class LabelSet(msgspec.Struct, frozen=True, kw_only=True):
    """A label set as users see it."""

    id: int
    name: str
    what: str
    job: str
    job_name: str
    purged: bool
    seed: int
    size: int
    eligible: int
    tasks: int
    hash: str
    made_by: str
    created_at: str
    instructions: str
    scale: tuple[int | str, ...] = ()
    labellers: tuple[Labeller, ...] = ()


class LabelTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to label."""

    set: str
    number: int
    item: int | None = None
    repeat: int
    content: Content
    system: int | str | None = None
    label: Label | None = None


class Labeller(msgspec.Struct, frozen=True, kw_only=True):
    """A labeller's progress; the last label of each task counts."""

    labeller: str
    labels: int = 0
    abstained: int = 0
    same: int = 0


Lane = str
"""The queue of a call: each lane has its own workers."""


class LaneWork(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model in one lane."""

    lane: Lane
    model: str
    device: str | None = None
    queued: int = 0
    running: int = 0
    ended: int = 0
    window_s: float = 30.0


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and a document with the same problem."""

    index: int
    question: str
    id: str
    document: str
    problem: str
    exact: bool
    same_answer: bool | None = None


class Leaks(msgspec.Struct, frozen=True, kw_only=True):
    """Number of questions of a dataset whose own problem is in a corpus."""

    corpus: str
    dataset: str
    items: int
    documents: int
    passages: int
    exact: int
    near: int
    share: float
    pairs: int
    same_answer: int
    examples: tuple[Leak, ...] = ()


class LearnedFootprint(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that verified loads took on a device, in MiB."""

    device: str
    driver: str
    parallel: int
    least_mib: float
    most_mib: float
    loads: int
    measured_at: str
    digest: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease that Redis holds and that workers read."""

    epoch: int
    phase: str
    models: tuple[str, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Why there are fewer questions than the held-out facts have ends."""

    repeated: int = 0
    known: int = 0
    unknown_relation: int = 0
    unknown_entity: int = 0
    many_answers: int = 0
    answered: int = 0
    long: int = 0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Two thresholds of an evaluator's score; None: no score is high, or low, enough."""

    upper: float | None = None
    lower: float | None = None


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of what belongs to a job."""

    self_: str = msgspec.field(name="self")
    events: str
    samples: str
    results: str
    report: str
    provenance: str


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """Start times of the model's server in the newest 1,000 residencies, in seconds."""

    loads: int
    median_s: float | None = None
    longest_s: float | None = None


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over questions with its 95 % interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the device's models in MiB."""

    budget: int | None = None
    declared: int
    measured: float | None = None
    remark: str | None = None


class MetricFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One score over a job's answers."""

    mean: Mean
    measured: int
    not_applicable: dict[str, int] = {}
    failed: int
    failures: dict[str, int] = {}
    worst: float | None = None
    best: float | None = None
    labels: dict[str, int] = {}
    languages: dict[str, Mean] = {}
    auroc: float | None = None
    controls: ControlFigures | None = None


class MetricScore(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric says of one sample: a value in [0, 1], or why there is none."""

    value: float | None = None
    not_applicable: str = ""
    failures: dict[str, int] = {}
    low: float | None = None
    high: float | None = None
    parts: tuple[JudgedPart, ...] = ()


class MetricsParams(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics for which the judge model labels answers and their documents (docs/how-to/metrics.md)."""

    names: tuple[str, ...] = ()
    unit: str = "sentences"
    most_units: int = 40
    max_tokens: int = 10
    controls: int = 40


class ModelJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that names the model."""

    id: str
    name: str
    state: str
    pipeline: str
    created_at: str
    roles: tuple[str, ...] = ()


class ModelRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knows of a model."""

    versions: tuple[RegisteredModel, ...] = ()
    learned: tuple[LearnedFootprint, ...] = ()
    loads: Loads
    speed: Speed | None = None
    jobs: tuple[ModelJob, ...] = ()


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a job may name."""

    name: str
    driver: str
    default_for: tuple[str, ...] = ()
    context: int
    parallel: int
    footprint_mib: int
    registered: bool
    digest: str | None = None
    version: str | None = None
    warning: str | None = None
    device: str | None = None
    resident: tuple[str, ...] = ()


class NextFlip(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that wait for models which the device does not hold."""

    models: tuple[str, ...] = ()
    waiting: int
    left: int
    low_s: float | None = None
    high_s: float | None = None


class NextTask(msgspec.Struct, frozen=True, kw_only=True):
    """The next task that a labeller has not labelled."""

    task: LabelTask | None = None
    done: int
    tasks: int


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is doing at this moment."""

    devices: tuple[DeviceView, ...] = ()
    lanes: tuple[LaneWork, ...] = ()
    next_flips: dict[str, NextFlip] = {}


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way to hold the models."""

    name: str
    residencies: tuple[PlannedResidency, ...] = ()
    loads: int
    flips: int
    seconds: float
    basis: str
    refused: str | None = None


class Orphans(msgspec.Struct, frozen=True, kw_only=True):
    """Indexes with this installation's prefix that no row and no evaluation uses."""

    orphans: tuple[str, ...] = ()
    deleted: bool


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a sample ended."""

    answer: str | None = None
    extraction: Extraction
    extracted_by: ExtractedBy | None = None
    truncated: bool = False
    truncated_by: str | None = None
    context: tuple[str, ...] = ()
    refusal: str | None = None
    trace: Trace | None = None
    verdict: dict[str, object] | None = None
    grading_failure: str | None = None
    answer_rank: int | None = None
    metrics: dict[str, MetricScore] = {}
    controls: dict[str, ControlScore] = {}


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a job that the pipeline reads."""

    name: str
    kind: str
    default: object = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    meaning: str


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Every parameter that a job may set (`--set gate.tau=0.3`), with the documented defaults."""

    candidates: int = 10
    context_size: int = 1
    duplicates: str = "same-answer"
    rrf_k: int = 60
    dense: DenseParams | None = None
    fusion: FusionParams | None = None
    enhance: EnhanceParams | None = None
    rerank: RerankParams | None = None
    compress: CompressParams | None = None
    crag: CragParams | None = None
    critic: CriticParams | None = None
    hyde: HydeParams | None = None
    self_rag: SelfRagParams | None = None
    self_consistency: SelfConsistencyParams | None = None
    rrf_weight: float = 0.1
    quality_weight: float = 0.9
    rated: int | None = None
    gate: GateParams | None = None
    quality: str = "gate"
    route: RouteParams | None = None
    generate: GenerateParams | None = None
    judge: JudgeParams | None = None
    grading: GradingParams | None = None
    metrics: MetricsParams | None = None
    anchors: dict[str, str] = {}
    seed: int = 0
    rules: str = ""
    rulerag: RuleragParams | None = None
    mining: dict[str, object] | None = None


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answered a role."""

    name: str
    backend: str
    digest: str | None = None
    version: str


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a pipeline that do not depend on each other's replies and are answered together."""

    calls: dict[str, int] = {}


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that a job may name."""

    name: str
    summary: str
    calibrated: bool
    needs_corpus: bool
    roles: tuple[str, ...] = ()
    params: Params
    hash: str
    changed: tuple[Change, ...] = ()
    plugin: PluginPin | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the sample in its job's chain."""

    sequence: int
    hash: str
    previous: str


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest plan that fits, and the alternatives."""

    chosen: Option | None = None
    why: str
    others: tuple[Option, ...] = ()
    resident: dict[str, tuple[str, ...]] = {}
    calls: dict[str, int] | None = None
    shared_s: float | None = None


class PlannedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a residency."""

    model_id: int
    name: str
    parallel: int
    context: int
    predicted_mib: int
    basis: str
    calls: int
    call_s: Estimate
    load_s: Estimate


class PlannedResidency(msgspec.Struct, frozen=True, kw_only=True):
    """One residency of a plan."""

    device: str
    models: tuple[PlannedModel, ...] = ()
    retrieval_mib: int
    predicted_mib: int
    budget_mib: int
    resident: bool
    load_s: float
    service_s: float


class PluginPin(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in as a job stores it; another version or other code is another plug-in."""

    kind: str
    name: str
    distribution: str
    version: str
    hash: str


class PluginView(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in that is installed, or that a job needs."""

    kind: Kind
    name: str
    distribution: str
    version: str
    hash: str
    state: State
    detail: str
    fix: str
    jobs: tuple[str, ...] = ()


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a question costs at most, given what the devices hold now."""

    loads: int
    load_s: float | None = None
    loads_back: int
    calls: dict[str, int] = {}
    calls_before: int


class PromptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two prompts, and the lines that only one of them has."""

    left: AnswerPrompt
    right: AnswerPrompt
    difference: PromptDifference


class PromptDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two prompts, without their equal parts."""

    lines: tuple[DiffLine, ...] = ()
    cut: bool


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The complete provenance of one sample."""

    index: int
    repeat: int
    state: str
    custom_id: str | None = None
    question: str
    gold: str | None = None
    gold_documents: dict[str, int] | None = None
    subject: str | None = None
    level: str | None = None
    failure: str | None = None
    detail: str | None = None
    ended_at: str | None = None
    outcome: Outcome | None = None
    text: str | None = None
    equations: tuple[Equation, ...] = ()
    scored_by: Strategy | None = None
    relevant: dict[str, int] | None = None
    ending: str | None = None
    ending_reason: str | None = None
    record_hash: str | None = None
    item_hash: str
    gold_hash: str | None = None
    pipeline_hash: str
    decision_hash: str | None = None
    code: dict[str, object] = {}
    fusion: Fusion
    link: Place | None = None
    steps: tuple[Step, ...] = ()
    documents: dict[str, Document] = {}
    residencies: tuple[Residency, ...] = ()
    notes: tuple[SampleNote, ...] = ()


class RatingWorth(msgspec.Struct, frozen=True, kw_only=True):
    """One rating of the judge."""

    rating: int
    tasks: int
    mean: float | None = None
    worth: float


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The checks, and whether all of them pass."""

    ready: bool
    checks: tuple[Check, ...] = ()


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The variant to use after an experiment with a baseline: the best of those that are separably better than the
    baseline, or else the baseline."""

    variant: str
    pipeline: str
    params: dict[str, object] = {}
    separable: bool
    words: str


class RegisteredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a model as a guard registered it."""

    backend: str
    digest: str | None = None
    version: str
    device: str | None = None
    footprint_mib: int
    estimated: bool
    registered_at: str
    served: bool


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was not stored."""

    line: int
    message: str


class RelationSize(msgspec.Struct, frozen=True, kw_only=True):
    """Number of facts of a relation."""

    relation: str
    facts: int


class RelevanceTest(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the judge model finds a question's own documents more relevant than those of another question."""

    questions: int
    preferred: int
    low: float
    passed: bool
    reason: str


class Repeatability(msgspec.Struct, frozen=True, kw_only=True):
    """How consistently the judge rates the same document by the same rubric for the same question."""

    documents: int
    draws: int
    temperature: float
    same: Interval
    agreement: float | None = None
    difference: float | None = None
    kappa: float | None = None
    unrated: int
    table: tuple[tuple[int, ...], ...] = ()


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy or another measure by repeat, over the items that have a value in every repeat: else repeats would
    differ because they asked other items. Its standard deviation is not a confidence interval over items."""

    accuracies: tuple[float | None, ...] = ()
    items: int
    mean: float | None = None
    std: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report."""

    id: str
    name: str
    state: str
    reason: str | None = None
    seconds: float | None = None
    created_at: str
    ended_at: str | None = None
    request_counts: RequestCounts
    items: int
    grader: str
    accuracy: Accuracy
    score: Score | None = None
    bootstrap: Interval | None = None
    repeats: Repeats
    strict: Accuracy
    disagreements: int
    answer_at: dict[str, AnswerAt] = {}
    differing: tuple[Disagreement, ...] = ()
    endings: dict[str, int] = {}
    metrics: dict[str, MetricFigures] = {}
    sufficiency: dict[str, dict[str, int]] = {}
    contamination: Contamination | None = None
    extraction: dict[str, int] = {}
    extracted_by: dict[str, int] = {}
    theirs: TheirScores | None = None
    failures: dict[str, int] = {}
    grading_failures: dict[str, int] = {}
    truncated: int
    truncated_by: dict[str, int] = {}
    unscored: int
    duplicates_dropped: int
    refused: int
    decisions: dict[str, dict[str, int]] = {}
    fallbacks: dict[str, dict[str, int]] = {}
    guided: Guided | None = None
    retrieval: Retrieval | None = None
    parse_failures: int
    repeatability: Repeatability | None = None
    gate: GateDecision | None = None
    model_loads: int
    model_calls: int
    calls_made: dict[str, int] = {}
    calls_reused: dict[str, int] = {}
    calls_lapsed: int
    stages: dict[str, Stage] = {}
    cost: TokenCost | None = None
    residencies: tuple[Residency, ...] = ()
    by_level: dict[str, Accuracy] = {}
    by_subject: dict[str, Accuracy] = {}
    notes: tuple[str, ...] = ()
    settings: Settings


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Samples by state: completed, failed, cancelled and in_progress add up to `total`."""

    total: int
    completed: int
    failed: int
    cancelled: int
    in_progress: int
    unparsed: int


class RerankParams(msgspec.Struct, frozen=True, kw_only=True):
    """Reranking by relevance to the question, and what its probabilities decide (seed documents 001 and 003)."""

    enabled: bool = True
    by: str = "auto"
    threshold: float = 0.4
    refuse: bool = False
    tested: bool = False
    floor: float | None = None


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the device held while calls ran."""

    epoch: int
    device: str
    models: tuple[str, ...] = ()
    cause: str
    state: str
    opened_at: str | None = None
    closed_at: str | None = None
    memory_mib: dict[str, float | None] = {}


class ResidentModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the device holds."""

    name: str
    digest: str | None = None
    footprint_mib: int
    measured_mib: float | None = None


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the items with relevant documents; repeats of one item count once."""

    items: int
    absent: int
    fused: dict[str, Mean] = {}
    final: dict[str, Mean] = {}
    reranking: dict[str, Difference | None] = {}
    context: Mean


class RoleCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    most: int
    apart: int


class RouteParams(msgspec.Struct, frozen=True, kw_only=True):
    """Routing of easy questions to the rule path of `mathrag-gate`, whatever the gate decided."""

    enabled: bool = False
    threshold: float = 0.5


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """States that `body` leads to `head`. Atoms of a temporal body are in the order of their times, all before the
    head's."""

    head: Atom
    body: tuple[Atom, ...] = ()
    support: int
    body_size: int
    confidence: float
    head_coverage: float | None = None
    pca_confidence: float | None = None
    pca_body_size: int | None = None
    functional: int | None = None
    kind: str = ""
    curve: tuple[float, ...] = ()


class RuleBank(msgspec.Struct, frozen=True, kw_only=True):
    """A rule bank as users see it."""

    id: int
    name: str
    state: str
    hash: str | None = None
    graph: str | None = None
    graph_hash: str | None = None
    miner: str
    limits: dict[str, object] = {}
    relations: int | None = None
    rules: int
    job: str | None = None
    reason: str | None = None
    created_at: str
    sealed_at: str | None = None


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule contributed."""

    number: int
    rule: str
    certainty: float
    samples: int
    documents: int
    accuracy: Accuracy


class RuleragParams(msgspec.Struct, frozen=True, kw_only=True):
    """Rule-guided retrieval and answering (seed document 002). The authors give no numbers but 10 documents for each
    rule."""

    most: int = 5
    confidence: float = 0.0
    support: int = 20
    order: str = "best"
    use: str = "both"
    index: str = "both"
    ask: bool = True
    query: str = "joined"
    cot: bool = False
    width: int = 3
    question: bool = True
    documents: int = 0
    phrases: str = ""
    decoding: Decoding | None = None


class SampleLine(msgspec.Struct, frozen=True, kw_only=True):
    """One sample; `hash` is the SHA-256 over the 32 bytes of `previous`, followed by the text `record`."""

    line: str
    sequence: int
    hash: str
    previous: str
    record: str
    texts: dict[str, str] = {}


class SampleNote(msgspec.Struct, frozen=True, kw_only=True):
    """What one person thinks of a sample."""

    author: str
    thumb: str | None = None
    note: str
    at: str


class SampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a job: the question and how it ended."""

    index: int
    repeat: int
    custom_id: str | None = None
    question: str
    gold: str | None = None
    subject: str | None = None
    level: str | None = None
    state: str
    answer: str | None = None
    extraction: str | None = None
    truncated: bool
    correct: bool | None = None
    strict: bool | None = None
    grading_failure: str | None = None
    failure: str | None = None
    detail: str | None = None
    context: tuple[str, ...] = ()
    duplicates: int
    unscored: bool
    ended_at: str | None = None
    ending: str | None = None
    ending_reason: str | None = None
    truncated_by: str | None = None
    score: float | None = None
    thumbs_up: int = 0
    thumbs_down: int = 0
    notes: str | None = None
    metrics: dict[str, float | None] | None = None


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Mean over items; repeats of one item count once."""

    name: str
    mean: Mean


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The documents found, best first."""

    corpus: str
    mode: str
    fusion: SearchFusion | None = None
    hits: tuple[SearchHit, ...] = ()
    duplicates: tuple[str, ...] = ()
    action: str | None = None
    decisions: tuple[Decision, ...] = ()


class SearchFusion(msgspec.Struct, frozen=True, kw_only=True):
    """How the lists of a search were fused."""

    method: str
    rrf_k: int | None = None
    normaliser: str | None = None
    weights: dict[str, float] = {}


class SelfConsistencyParams(msgspec.Struct, frozen=True, kw_only=True):
    """Majority vote over sampled answers (Wang et al. 2023)."""

    draws: int = 5
    temperature: float = 0.7
    weights: str = "count"


class SelfRagParams(msgspec.Struct, frozen=True, kw_only=True):
    """Reflection tokens (Asai et al. 2024)."""

    threshold: float = 0.2
    relevance: float = 1.0
    support: float = 1.0
    utility: float = 0.5
    sequence: bool = False
    answer: str = "best"
    alternatives: int = 5


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The options that were sent to the model."""

    temperature: float
    max_tokens: int
    seed: int


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its value and default."""

    name: str
    value: object = None
    default: object = None
    changed: bool
    meaning: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the figures depend on."""

    pipeline: str
    pipeline_hash: str
    dataset: str
    corpus: str | None = None
    limit: int | None = None
    repeats: int
    reuse: str
    params: Params | None = None
    models: dict[str, PinnedModel] = {}
    drawn: tuple[str, ...] | None = None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A document as answers show it."""

    id: str | None = None
    hash: str
    problem: str
    text: str
    truncated: bool


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one question in two jobs."""

    left_name: str
    right_name: str
    left: Provenance
    right: Provenance
    prompts: PromptDifference | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The step that made the call first, and whose reply was reused."""

    job: str
    kind: str
    index: int
    repeat: int
    position: int


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of several documents of a task."""

    document: str
    problem: str
    text: str


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of the model's calls among the newest 20,000 calls of all models."""

    calls: int
    median_s: float
    p95_s: float
    read_tokens_s: float | None = None
    written_tokens_s: float | None = None
    since: str
    until: str


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    made: int
    reused: int
    executed: int
    seconds: float | None = None
    device_s: float | None = None
    started_at: str | None = None
    ended_at: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class StageCount(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role that the job has requested so far."""

    done: int
    total: int


State = str
"""Whether a plug-in can be used, and if not, why."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the sample waited for. Steps with the same position waited in parallel."""

    position: int
    slot: int
    created: bool
    source: Source | None = None
    role: str
    key: str
    model: str
    model_hash: str
    backend: str
    digest: str | None = None
    version: str
    options: dict[str, object] = {}
    request: object = None
    sent: Sent | None = None
    prompt: str | None = None
    queued_at: str
    queue_ms: float | None = None
    attempt: Attempt | None = None
    other_attempts: tuple[Attempt, ...] = ()


class StoredGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph as users see it."""

    id: int
    name: str
    hash: str
    facts: int
    entities: int
    relations: int
    time_unit: str | None = None
    first_time: str | None = None
    last_time: str | None = None
    largest: tuple[RelationSize, ...] = ()
    corpus: str
    created_at: str


Strategy = str
"""What scores the reasoning quality in a whole job."""


class TextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of the first 1,000 documents, in bytes of problem and text together."""

    sampled: int
    mean_bytes: float
    longest_bytes: int
    problems: int


class TheirScores(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of the evaluation that an import came with, beside those of this job."""

    right: int
    scored: int
    differing: int
    samples: tuple[int, ...] = ()


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost in US dollars at the currently configured prices; null if a model has no price or its server does not
    count tokens."""

    made: float | None = None
    all: float | None = None
    models: dict[str, float | None] = {}


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """How a sample got its context; it is stored once, and recomputed by the audit."""

    candidates: tuple[Candidate, ...] = ()
    duplicates: tuple[str, ...] = ()
    unscored: bool = False
    decisions: tuple[Decision, ...] = ()


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """How far rules and judge agree with the checked equations of the calibration documents. It does not change the
    decision."""

    scores: tuple[float | None, ...] = ()
    refuted: tuple[int | None, ...] = ()
    failures: int
    rules: Agreement
    judge: Agreement


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs between two trees, or that only one of them has."""

    name: str
    change: str
    left: object = None
    right: object = None


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """Two systems on their common items: `difference` is left minus right."""

    p: float
    adjusted: float
    separable: bool
    items: int
    gained: int
    lost: int
    difference: Interval | None = None
    corrected: Interval | None = None
    effect: float | None = None
    needed: int | None = None
    left: str
    right: str
    left_only: int
    right_only: int
    moved: dict[str, dict[str, int]] = {}
    words: str


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that violate an invariant."""

    invariant: str
    message: str
    rows: tuple[str, ...] = ()
    items: tuple[int, ...] = ()
    item_count: int = 0
    source_changed: bool = False


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A server, index or plug-in that is not available while calls or samples wait for it."""

    what: str
    said: str
    since: str
    next_try: str | None = None


class AnswerAt(Accuracy, frozen=True, kw_only=True):
    """How often an answer is in the first k candidates: mean over items, with Wilson's interval; `correct` of the
    `graded` samples have one."""

    bootstrap: Interval | None = None


class CorpusDetails(Corpus, frozen=True, kw_only=True):
    """A corpus with its indexes and text lengths."""

    indexes: tuple[IndexDetails, ...] = ()
    texts: TextSizes


class CorpusUpload(Corpus, frozen=True, kw_only=True):
    """The corpus, and which lines of the upload were left out of it."""

    skipped: int
    rejected: int
    rejected_lines: tuple[Rejected, ...] = ()


class DatasetDetails(Dataset, frozen=True, kw_only=True):
    """A dataset with the counts of its items."""

    counts: ItemCounts


class DatasetUpload(Dataset, frozen=True, kw_only=True):
    """The dataset, and which lines of the upload were left out of it."""

    skipped: int
    rejected: int
    rejected_lines: tuple[Rejected, ...] = ()
    alternatives: int
    warnings: tuple[str, ...] = ()


class DocumentPreview(Shown, frozen=True, kw_only=True):
    """A document of a corpus, with texts up to 4,000 characters."""

    index: int


class ExperimentView(Entry, frozen=True, kw_only=True):
    """An experiment with the addresses of what belongs to it."""

    baseline: str | None = None
    request_counts: RequestCounts
    eta_seconds: int | None = None
    grid: tuple[Cell, ...] = ()
    links: ExperimentLinks
    warnings: tuple[str, ...] = ()


class ExportedLabel(Label, frozen=True, kw_only=True):
    """A label with its task: a line of an export."""

    set: str
    what: str
    item: int | None = None
    repeat: int
    document: str | None = None
    answer: str | None = None
    sentence: str | None = None
    system: int | str
    counts: bool


class GraphUpload(StoredGraph, frozen=True, kw_only=True):
    """The graph, and counts of the upload."""

    repeated: int
    documents: int


class MinedBank(RuleBank, frozen=True, kw_only=True):
    """The bank, and the memory that mining it takes."""

    memory_mib: int


class ModelDetails(ModelView, frozen=True, kw_only=True):
    """A model, and the measurements of it."""

    server: str
    records: ModelRecords


class PilotView(Entry, frozen=True, kw_only=True):
    """A pilot: the experiment that it runs, and what it leaves aside."""

    baseline: str | None = None
    request_counts: RequestCounts
    eta_seconds: int | None = None
    grid: tuple[Cell, ...] = ()
    links: ExperimentLinks
    warnings: tuple[str, ...] = ()
    rest: str | None = None
    left_out: dict[str, str] = {}


class PipelineDetails(PipelineView, frozen=True, kw_only=True):
    """A pipeline, step by step, with the parameters that it reads."""

    about: str
    calibration: tuple[PipelineStep, ...] = ()
    steps: tuple[PipelineStep, ...] = ()
    parameters: tuple[ParameterView, ...] = ()


class QuestionUpload(Dataset, frozen=True, kw_only=True):
    """The dataset, and what it is made of."""

    counts: Counts


class ResultRow(SampleRow, frozen=True, kw_only=True):
    """An ended sample with its models' replies."""

    text: str | None = None
    prompt: str | None = None
    judged: tuple[str, ...] = ()
    ratings: tuple[int, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class Row(Cell, frozen=True, kw_only=True):
    """One cell, and the results of its job."""

    result: Answered | None = None


class RuleBankDetails(RuleBank, frozen=True, kw_only=True):
    """A bank with its head relations and jobs."""

    heads: tuple[HeadRules, ...] = ()
    followed_by: tuple[ModelJob, ...] = ()


class SearchHit(Shown, frozen=True, kw_only=True):
    """A document that was found."""

    rank: int
    score: float
    dense_rank: int | None = None
    dense_score: float | None = None
    sparse_rank: int | None = None
    sparse_score: float | None = None
    fused: float | None = None
    contributions: dict[str, float] | None = None
    relevance: float | None = None
    paths: dict[str, int] | None = None
    quality: float | None = None
    features: dict[str, float] | None = None


class JobOptions(TypedDict, total=False):
    """Optional numbers and texts of a job's request; the server's defaults replace those that are left out."""

    limit: int | None
    repeats: int
    reuse: Literal["all", "none"]
    rank: int
