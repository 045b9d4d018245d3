"""Parameters of jobs and experiments, with their defaults and bounds."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from shared.calls import RELEASE_0_1, Count, Decoding, Duplicates, GraderName, Share, StoredMining
from shared.shapes import METRIC_NAME


class RuleragParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule-guided retrieval and answering (seed document 002). The only number that the authors
    give is 10 documents for each rule."""

    most: Annotated[int, msgspec.Meta(ge=0, le=20)] = 5
    """Maximum number of rules for a question; 0 uses no rules."""
    confidence: Share = 0.0
    """Minimum certainty of a rule: its PCA confidence if it has one, or else its standard confidence."""
    support: Count = 20
    """Minimum support of a rule. Rules with less support often have a high confidence but rarely hold."""
    order: Literal["best", "worst", "random"] = "best"
    """Which rules are chosen. `best`: the most certain rules of the relation; `worst`: the least certain ones;
    `random`: any rules of the bank. Use the last two for ablations."""
    use: Literal["both", "retrieval", "generation"] = "both"
    """Use of the rules: in searches, in the prompt, or in both."""
    index: Literal["dense", "sparse", "both"] = "both"
    """Index to search; with `both`, the two lists of each search are fused."""
    ask: bool = True
    """Whether the judge model is asked for the relation if neither the item nor a phrase names it. Without a judge
    model it is set to false at submission."""
    query: Literal["joined", "rewritten"] = "joined"
    """Query for a rule: `joined`: question and rule together; `rewritten`: the judge model writes it."""
    cot: bool = False
    """Whether the generator is asked to name the rule and the document before it answers."""
    width: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    """Number of documents of a search from which the next atom of a rule is searched. With 0, a rule is searched by its
    query alone, as the authors do."""
    question: bool = True
    """Whether the question itself is also searched for; its documents then alternate with those of the rules. The
    authors search by rules alone, which can miss documents that a plain search finds
    (docs/reference/rule-reproduction.md)."""
    documents: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """Number of best documents that each rule contributes; `candidates` limits their total. With 0, rules take turns
    until `candidates` documents are reached."""
    phrases: str = ""
    """SHA-256 of the relation phrases of the corpus's graph. Submission sets it."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=128)
    """How the judge model samples when it names the relation or rewrites a query."""


# All parameters of a job, grouped by method; each default has its source.
#
# A pipeline declares which parameters it reads; a job that sets another one is refused.

MOST_CANDIDATES = 1000
"""Maximum length of the retriever's lists."""
Weight = Annotated[float, msgspec.Meta(ge=0, le=1000)]
Few = Annotated[int, msgspec.Meta(ge=1, le=20)]
MOST_REPEATS = 1000
"""Maximum number of repeats of a job, which count from 0 to 999."""


class DenseParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Search by vectors (seed document 003)."""

    threshold: float | None = None
    """Cosine similarity below which documents are removed from dense lists (docs/how-to/retrieval.md#least-similarity);
    by default nothing is removed. A threshold fits one embedder only (003: 0.7)."""


class FusionParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fusion of the dense and the sparse list. `rrf` with equal weights is plain reciprocal rank fusion (Cormack et al.
    2009)."""

    method: Literal["rrf", "weighted"] = "rrf"
    """`rrf`: reciprocal rank fusion; `weighted`: the weighted sum of normalised scores."""
    normaliser: Literal["min-max", "z-score", "sigmoid", "rank", "raw"] = "min-max"
    """How `weighted` makes the scores of two lists comparable; `raw` leaves the scores unchanged."""
    slope: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0
    """Slope of `sigmoid` for each standard deviation (003: 1). Smaller values are closer to `z-score`, larger ones to a
    step."""
    dense: Weight = 0.5
    """Weight of the dense list."""
    sparse: Weight = 0.5
    """Weight of the sparse list."""
    by_intent: bool = False
    """Whether the question's intent sets the weights; only in `enhanced` and `enhanced-crag`."""

    def __post_init__(self) -> None:
        """Raise ValueError if both weights are 0."""
        if not self.dense and not self.sparse:
            raise ValueError("`fusion.dense` and `fusion.sparse` are both 0: set at least one above 0")


class EnhanceParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query enhancement (seed document 001). Each part is optional and has a fallback."""

    synonyms: bool = True
    """Whether synonyms of the question's terms are also searched for."""
    correct: bool = True
    """Whether misspelt words of the question are corrected."""
    rewrite: bool = True
    """Whether the judge model rewrites the question."""
    shown: Annotated[int, msgspec.Meta(ge=0, le=20)] = 0
    """Number of documents, the best of the first searches, that the judge model sees when it rewrites the question
    (after Long et al. 2025, DIVER). With 0 it sees the question alone."""
    decompose: bool = True
    """Whether the judge model splits the question into sub-queries."""
    hyde: bool = False
    """Whether searches also use hypothetical documents; only in `enhanced` and `enhanced-crag`."""
    subqueries: Few = 3
    """Maximum number of sub-queries of a question."""
    terms: dict[str, tuple[str, ...]] = {}
    """Terms and their synonyms, in addition to the shipped dictionary."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=128)
    """How the judge model samples rewritten queries and sub-queries."""


RelevanceSource = Literal["auto", "reranker", "yes-no", "rating"]
"""Source of the relevance of a document to a question."""


class RerankParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reranking by relevance to the question, and the decisions that depend on it (seed documents 001 and 003)."""

    enabled: bool = True
    """Whether documents are reranked."""
    by: RelevanceSource = "auto"
    """Source of a document's relevance. `reranker`: the model of `retrieval.reranker`. `yes-no`: the judge model, by
    the probability of yes against no. `rating`: the judge model, by the mean of its ratings from 1 to 5, weighted by
    their probabilities (docs/how-to/retrieval.md#the-judge-model-as-reranker). `auto`: `reranker`; for the floor of
    `mathrag-gate` it is `rating` if no reranker is configured."""
    threshold: Share = 0.4
    """Probability below which documents are dropped (001: 0.4)."""
    refuse: bool = False
    """Whether a question is refused if no document reaches the threshold. If this is false, the best documents are
    kept."""
    tested: bool = False
    """Whether the judge model must pass a test before its floor is used: a job's first calls show whether it prefers a
    question's own documents to those of another question. By default it is set at submission together with the floor:
    to true if the judge model determines the relevance and answers are not mathematics."""
    floor: Share | None = None
    """Relevance below which `mathrag-gate` does not rate a document's quality and puts it last. With 0 the relevance is
    not determined. By default 0.5, set at submission (docs/explanation/pipelines.md#relevance-to-the-question)."""


class CompressParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Context compression (seed document 001)."""

    enabled: bool = True
    """Whether documents are compressed."""
    ratio: Share = 0.7
    """Share of the documents' sentences that is kept, measured in estimated tokens."""
    tokens: Annotated[int, msgspec.Meta(ge=16, le=1_000_000)] = 4000
    """Maximum length of the context, in estimated tokens."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two thresholds of an evaluator's score; null means that no score is high, or low, enough."""

    upper: float | None = None
    """Score at and above which a document is relevant."""
    lower: float | None = None
    """Score below which a document is irrelevant."""


class CragParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Corrective retrieval (Yan et al. 2024; seed document 001)."""

    evaluator: Literal["reranker", "judge", "similarity"] = "judge"
    """Scorer of a document's relevance."""
    upper: float | None = None
    """Score at and above which a document is relevant, and its list correct. By default the evaluator's own
    threshold."""
    lower: float | None = None
    """Score below which a document is irrelevant; a list of such documents only is incorrect. By default the
    evaluator's own threshold."""
    thresholds: Literal["fixed", "calibrated"] = "fixed"
    """`fixed`: use `upper` and `lower`; `calibrated`: use the thresholds that the lists of the job `calibrated_by` give
    for this evaluator (001: adaptive; docs/how-to/retrieval.md#calibration)."""
    calibrated_by: str = ""
    """Name or id of a completed `crag` job. It is read once, at submission."""
    judged_by: str = ""
    """Name or id of a `crag` job over the same dataset and corpus, whose judge labels the lists of `calibrated_by`. By
    default the dataset's gold documents label them."""
    calibrated: Limits | None = None
    """Calibrated values of `upper` and `lower`. Submission sets them, so that a job's thresholds never change."""
    similarity: Limits | None = None
    """Thresholds of similarity for the corpus's embedder. By default they are set at submission if they are known, as
    for the shipped embeddings. Otherwise set or calibrate them, because without them every list is ambiguous by
    similarity."""
    diversity: Share = 0.5
    """Diversity below which an ambiguous list is refined (001). Incorrect lists are always refined."""
    rounds: Annotated[int, msgspec.Meta(ge=0, le=5)] = 2
    """Maximum number of refinement rounds (001)."""
    strips: Literal["selection", "fixed", "excerption"] = "selection"
    """How documents are cut into strips (Yan et al. 2024)."""
    top: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """Number of strips kept from each corpus. 0: `context_size` whole documents with `strips=selection`, and 6 strips
    otherwise."""
    order: Literal["found", "original", "score"] = "found"
    """`found`: documents that the judge calls relevant keep the order of the search; `original`: those with the best
    scores are kept, in that order; `score`: they are kept and ordered by score, as the authors do. Strips keep their
    order with `found` and `original`. A reranker's probabilities always order the documents, and similarity never does.
    """
    fallback: str = ""
    """Name of the corpus that is searched if the lists of the first one are not good enough. By default no other corpus
    is searched."""


class CriticParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The critic loop (seed document 004)."""

    generate: Share = 0.6
    """Relevance at which a document counts as relevant."""
    rewrite: Share = 0.3
    """Relevance of a page below which its query is rewritten: the mean, or the figure that `aggregate` names."""
    attempts: Few = 3
    """Maximum number of rounds of search and rating."""
    min_documents: Few = 2
    """Number of relevant documents that suffice."""
    k: Few = 3
    """Number of documents in a page."""
    aggregate: Literal["count", "mean", "minimum", "maximum", "weighted"] = "count"
    """Additional condition for a page: with `count` only the number of relevant documents decides. Otherwise a figure
    of the page must also reach `generate`: its mean (as in the code of document 004), its lowest or highest relevance,
    or the mean weighted by 1 / rank."""
    reply: Literal["rating", "json"] = "rating"
    """Form of the critic's reply; `json`: a score in [0, 1] with its reason (004, section 2.1)."""
    rewrite_from: Few = 2
    """First attempt after which a query may be rewritten (code of document 004: 2)."""
    accumulate: bool = False
    """Whether the critic also sees the best `k` relevant documents of earlier rounds, and rates the additional value of
    a document (004, section 2.1: accumulated context)."""
    stop: bool = False
    """Whether the loop ends when a rewritten query finds no new document (004, section 7). Otherwise the query is
    rewritten again."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=100)
    """How the judge model samples when it rewrites queries, or replies as a critic in JSON."""


class HydeParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hypothetical documents (Gao et al. 2023)."""

    documents: Annotated[int, msgspec.Meta(ge=0, le=32)] = 8
    """Number of hypothetical documents for each question. With 0 the pipeline equals `dense`."""
    style: Literal["solution", "passage"] = "solution"
    """Kind of text: worked solutions, or passages."""
    decoding: Decoding = Decoding(temperature=0.7, max_tokens=512)
    """How the judge model samples hypothetical documents."""


class SelfRagParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reflection tokens (Asai et al. 2024)."""

    threshold: Share = 0.2
    """Probability of [Retrieval] above which documents are retrieved."""
    relevance: Weight = 1.0
    """Weight of relevance in the score of a passage."""
    support: Weight = 1.0
    """Weight of support in the score of a passage."""
    utility: Weight = 0.5
    """Weight of utility in the score of a passage."""
    sequence: bool = False
    """Whether the mean probability of the text also counts."""
    answer: Literal["best", "sum"] = "best"
    """`best`: the answer of the best path; `sum`: the answer with the largest sum of its paths' scores, as the authors
    do for closed sets."""
    alternatives: Few = 5
    """Number of log-probabilities requested for each token, each about 30 bytes of a reply. Five include all grades
    of utility; text-generation-inference returns no more than five by default."""


class JudgeCalibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calibrated value of each rating of one judge, from the labels of people who rated the same documents
    (docs/how-to/labels.md)."""

    hash: str
    """Identity of the calibrated judge: SHA-256 over its model and rubric, the tasks, the labels that count, and
    `ratings`."""
    ratings: Annotated[tuple[float, ...], msgspec.Meta(min_length=5, max_length=5)]
    """Calibrated values of the ratings 1 to 5, in ascending order."""

    def quality(self, rating: int) -> float:
        """Normalise a rating as `Rated.quality` does: (rating - 1) / 4."""
        return (self.ratings[rating - 1] - 1) / 4


class GateParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    """Minimum number of documents with both scores. With fewer, the judge scores, independently of the correlation."""
    on_unusable: str = "fail"
    """Action if more than half of the judge's replies have no rating: `fail`, or continue with `rules`."""
    repeats: Few = 1
    """Number of ratings of each calibration document. The first rating decides; the others measure the repeatability of
    the judge."""
    truth: Literal["none", "verifier"] = "none"
    """`verifier`: also check the equations of the calibration documents, and record the agreement of rules and judge
    with the result. The decision does not change."""
    labels: str = ""
    """Name of a label set whose calibrated values replace the judge's ratings (docs/how-to/labels.md#calibration)."""
    calibrated: JudgeCalibration | None = None
    """The calibrated ratings. Submission sets them, so that later labels do not change a job."""


class RouteParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Routing of easy questions to the rule path of `mathrag-gate`, independently of the gate's decision."""

    enabled: bool = False
    """Whether documents for easy questions are scored by rules (docs/how-to/retrieval.md#routing)."""
    threshold: Share = 0.5
    """Probability of being hard below which a question is easy."""


class GradingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Extraction and grading of answers, in the same way for every pipeline."""

    grader: GraderName = ""
    """Name of the grader (docs/how-to/graders.md); by default the dataset's, or `math` if it declares none."""
    threshold: Share = 0.5
    """Token F1 at which an answer is correct; `f1` only."""
    separators: Annotated[str, msgspec.Meta(max_length=20)] = ""
    """Characters that separate the members of a set; by default comma, semicolon and line end. `set` only."""
    rubric: Annotated[str, msgspec.Meta(max_length=8000)] = ""
    """Rubric by which the judge model rates replies to items that have no rubric; `@NAME` is a file of
    `plugins.rubrics`, whose text is stored with the job. `rubric` only."""
    rating: Annotated[int, msgspec.Meta(ge=2, le=5)] = 4
    """Rating of the judge model at which a reply is correct; `rubric` only."""
    decoding: Decoding = Decoding(temperature=0.1, max_tokens=128)
    """How the judge model samples its rating; `rubric` only."""


MetricName = Annotated[str, msgspec.Meta(pattern=f"^{METRIC_NAME}$")]
"""Name of a metric (`shared/rag/answer_metrics.py`), including plug-ins."""


class MetricsParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics for which the judge model labels answers and their documents."""

    names: Annotated[tuple[MetricName, ...], msgspec.Meta(max_length=20)] = ()
    """Metrics to measure, such as `faithfulness` and `answer_relevance`; by default none."""
    unit: Literal["sentences", "claims"] = "sentences"
    """Parts of a reply that are labelled: its sentences, or claims that the judge model lists in one more call."""
    most_units: Annotated[int, msgspec.Meta(ge=1, le=200)] = 40
    """Maximum number of sentences or claims of a reply. Longer replies are not measured and count as failed."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10
    """Maximum length of the judge model's reply, which is a label. Increase it for a model that reasons before it
    answers."""
    controls: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 40
    """Number of items, drawn with `seed`, whose metrics are also measured on swapped, copied and reversed material.
    This shows whether the judge model can judge (docs/how-to/metrics.md#controls). 0 measures none."""

    def __post_init__(self) -> None:
        """Raise ValueError if a metric is named twice."""
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(f"`metrics.names` has {twice[0]!r} twice: name each metric once")


class JudgeParams(Decoding, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the judge model rates. Temperature and tokens are from the MathRAG-Gate paper, section 4.1."""

    temperature: float = 0.1
    """Sampling temperature of the judge model."""
    max_tokens: int = 10
    """Maximum length of a rating's reply, in tokens."""
    per_repeat: bool = False
    """Whether the judge model samples its ratings, and texts for searches, separately for every repeat. This multiplies
    these calls by the number of repeats, and the spread over repeats then includes the judge's temperature. By default
    all repeats share one reply."""

    @property
    def decoding(self) -> Decoding:
        """Return how the judge model samples."""
        return Decoding(temperature=self.temperature, max_tokens=self.max_tokens)


class GenerateParams(Decoding, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the generator is prompted, and how it samples."""

    template: str = ""
    """Prompt for answers (docs/how-to/prompts.md): `NAME`, `NAME@2` for a version, or a shipped one. By default the
    shipped prompt that fits the grader."""

    @property
    def decoding(self) -> Decoding:
        """Return how the generator samples."""
        return Decoding(temperature=self.temperature, max_tokens=self.max_tokens)


class SelfConsistencyParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Majority vote over sampled answers (Wang et al. 2023)."""

    draws: Annotated[int, msgspec.Meta(ge=2, le=20)] = 5
    """Number of answers sampled from one prompt. The authors draw 40; accuracy gains most from the first 5 to 10."""
    temperature: Annotated[float, msgspec.Meta(gt=0, le=2)] = 0.7
    """Temperature of the draws, instead of `generate.temperature` (the authors: 0.5 to 0.7)."""
    weights: Literal["count", "probability"] = "count"
    """Weight of an answer's vote. `count`: 1. `probability`: the exponential of the mean log-probability of its tokens
    (the authors' normalised weighted sum), which the generator's server must return."""


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every parameter that a job may set (`--set gate.tau=0.3`), with the documented defaults."""

    candidates: int = 10
    """Number of documents requested from each index and kept after fusion."""
    context_size: int = 1
    """Maximum number of documents in the prompt. The prompt has fewer if they do not fit
    (docs/explanation/pipelines.md#documents-that-do-not-fit). The shipped models were trained with 1 document; the
    paper uses 5."""
    duplicates: Duplicates = "same-answer"
    """Near-duplicates of the question that searches leave out, because they would reveal its answer
    (docs/explanation/pipelines.md#retrieval)."""
    rrf_k: int = 60
    """Constant k of reciprocal rank fusion: each list adds weight / (k + rank). Larger values make ranks count more
    equally."""
    dense: DenseParams = DenseParams()
    fusion: FusionParams = FusionParams()
    enhance: EnhanceParams = EnhanceParams()
    rerank: RerankParams = RerankParams()
    compress: CompressParams = CompressParams()
    crag: CragParams = CragParams()
    critic: CriticParams = CriticParams()
    hyde: HydeParams = HydeParams()
    self_rag: SelfRagParams = SelfRagParams()
    self_consistency: SelfConsistencyParams = SelfConsistencyParams()
    rrf_weight: float = 0.1
    """Weight of the fused rank when `mathrag-gate` reranks."""
    quality_weight: float = 0.9
    """Weight of the reasoning quality when `mathrag-gate` reranks."""
    rated: Annotated[int, msgspec.Meta(ge=1, le=MOST_CANDIDATES)] | None = None
    """Number of documents, the first by the fused rank, whose quality `mathrag-gate` determines and which it reranks;
    the other documents follow. By default it is set at submission: to `context_size`, and to one more if answers
    are mathematics (docs/explanation/pipelines.md#relevance-to-the-question)."""
    gate: GateParams = GateParams()
    quality: Literal["gate", "rules", "judge", "verifier"] = "gate"
    """Scorer of the documents in `mathrag-gate`: the gate's choice, or a fixed scorer without a calibration."""
    route: RouteParams = RouteParams()
    generate: GenerateParams = GenerateParams(temperature=0.0, max_tokens=512)
    judge: JudgeParams = JudgeParams()
    grading: GradingParams = GradingParams()
    metrics: MetricsParams = MetricsParams()
    anchors: dict[str, str] = {}
    """Example documents in the judge's rubric: `anchors.negative` with the rating 1, `anchors.positive` with the rating
    5. By default those of the shipped rubric."""
    seed: int = 0
    """Seed that chooses the items of the calibration, the controls of metrics, and the rules of `rulerag.order=random`.
    It is not sent to models."""
    rules: str = ""
    """Name of a rule bank (`mathrag rules list`). Its content is pinned at submission."""
    rulerag: RuleragParams = RuleragParams()
    mining: StoredMining | None = None
    """The miner and its limits; only for jobs of `mathrag rules mine`."""


QUALITY_ALONE: dict[str, Any] = {"rated": 10, "rerank": {"floor": 0.0}}
"""Parameters with which `mathrag-gate` works as in the paper: it reorders all candidates by quality, and does not ask
for relevance."""
DECODINGS = (
    "generate",
    "judge",
    "enhance.decoding",
    "critic.decoding",
    "hyde.decoding",
    "grading.decoding",
    "rulerag.decoding",
)
HOTTEST = 2
"""Maximum temperature, as OpenAI-compatible servers accept it."""
THRESHOLDS = tuple(f"{group}.{name}" for group in ("crag", "crag.similarity") for name in ("upper", "lower"))
"""Thresholds of scores between 0 and 1, as every evaluator gives them; None is always allowed."""
RANGES: dict[str, tuple[int, int]] = {
    "candidates": (1, MOST_CANDIDATES), "rrf_k": (1, 1_000_000), "rrf_weight": (0, 1000), "quality_weight": (0, 1000),
    "seed": (-(1 << 63), (1 << 63) - 1), "dense.threshold": (-1, 1), "gate.tau": (-1, 1), "gate.items": (1, 10_000),
    "gate.top": (1, MOST_CANDIDATES), "gate.max_documents": (1, 100_000), "gate.min_pairs": (2, 100_000),
    **{f"{decoding}.temperature": (0, HOTTEST) for decoding in DECODINGS},
    **{f"{decoding}.max_tokens": (1, 1_000_000) for decoding in DECODINGS}, **dict.fromkeys(THRESHOLDS, (0, 1)),
}  # fmt: skip
"""Bounds of parameters, which are checked for new jobs only. A bound in a type would make stored jobs unreadable."""
REMOVED = frozenset({"verify"})
"""Groups of parameters of earlier releases, which stored jobs and configurations still have."""


def get_range(path: str, candidates: int) -> tuple[int, int] | None:
    """Return the lowest and the highest value of a parameter; None if only its type bounds it."""
    return (1, candidates) if path == "context_size" else RANGES.get(path)


def out_of_range(params: Params) -> Iterator[tuple[str, Any, str]]:
    """Yield (path, value, rule) of every parameter out of its range; NaN is out of every range."""
    for path, (low, high) in {**RANGES, "context_size": (1, params.candidates)}.items():
        value = _get_value(params, path)
        if value is not None and not low <= value <= high:
            yield path, value, f"between {low} and {high}"
    crag = params.crag
    for path, limits in (("crag", crag), ("crag.similarity", crag.similarity), ("crag.calibrated", crag.calibrated)):
        upper, lower = (limits.upper, limits.lower) if limits is not None else (None, None)
        if path == "crag.calibrated" and not all(math.isfinite(each or 0) for each in (upper, lower)):
            yield path, limits, "two finite numbers"
        if upper is not None and lower is not None and upper < lower:
            yield f"{path}.upper", upper, f"at least `{path}.lower` ({lower})"
    if params.gate.on_unusable not in ("fail", "rules"):
        yield "gate.on_unusable", params.gate.on_unusable, '"fail" or "rules"'


def _get_value(params: Params, path: str) -> Any:
    """Return the value of a parameter; None if its group is absent."""
    value: Any = params
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def decode_params(raw: bytes) -> Params:
    """Decode the parameters of a job's row.

    Jobs of release 0.1 have no `duplicates`, and keep that release's rule. Earlier jobs of `rulerag` searched by rules
    alone, and for those of `crag` a rating of 4 of 5 made a document relevant.

    Raises:
        ValueError: they are not JSON, or have other fields.
    """
    tree = msgspec.json.decode(raw)
    if isinstance(tree, dict):
        tree = {"duplicates": RELEASE_0_1, **drop_removed(tree)}
        rulerag, crag = tree.get("rulerag"), tree.get("crag")
        if isinstance(rulerag, dict) and "question" not in rulerag:
            tree["rulerag"] = {"question": False, **rulerag}
            if isinstance(crag, dict) and crag.get("evaluator") == "judge" and crag.get("upper") is None:
                tree["crag"] = {**crag, "upper": 0.75}
    return msgspec.convert(tree, Params)


def drop_removed(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored parameters without those that only earlier releases had."""
    return {name: value for name, value in tree.items() if name not in REMOVED}


def list_changes(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of each parameter that differs from the default of this release."""
    return _list_changes(msgspec.to_builtins(Params()), given, "")


def _list_changes(defaults: Any, given: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        default = defaults.get(name) if isinstance(defaults, dict) else None
        if isinstance(value, dict) and isinstance(default, dict) and default:
            yield from _list_changes(default, value, f"{prefix}{name}.")
        elif value != default:
            yield f"{prefix}{name}", value
