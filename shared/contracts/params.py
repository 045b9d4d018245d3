"""Every parameter of a job, by method; the defaults are the documented ones, with their source.

A pipeline declares which of them it reads; a job that names another one is refused.
"""

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec

from shared.contracts.calls import RELEASE_0_1, Decoding, Duplicates
from shared.contracts.grading import GraderName
from shared.contracts.mining import Mining
from shared.contracts.rule_params import RuleragParams

MOST_CANDIDATES = 1000
"""The retriever answers no longer lists."""

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0, le=1000)]
Few = Annotated[int, msgspec.Meta(ge=1, le=20)]
MOST_REPEATS = 1000
"""Repeats of a job: from 0 to 999."""


class FusionParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How lists are fused. Equal weights and `rrf` are plain reciprocal rank fusion (Cormack et al. 2009)."""

    method: Literal["rrf", "weighted"] = "rrf"
    """`weighted`: the weighted sum of normalised scores."""
    normaliser: Literal["min-max", "z-score", "sigmoid", "rank"] = "min-max"
    """What makes scores of two lists comparable; `weighted` only."""
    dense: Weight = 0.5
    """Weight of the dense list."""
    sparse: Weight = 0.5
    """Weight of the sparse list."""
    by_intent: bool = False
    """Whether the weights follow the question's intent; `enhanced` only."""

    def __post_init__(self) -> None:
        """Raise ValueError where neither list would count."""
        if not self.dense and not self.sparse:
            raise ValueError("`fusion.dense` and `fusion.sparse` are both 0: one list has to count")


class EnhanceParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query enhancement (seed document 001): each part is optional, and has its fallback."""

    synonyms: bool = True
    """Whether synonyms of terms are searched for, too."""
    correct: bool = True
    """Whether misspelt words are corrected."""
    rewrite: bool = True
    """Whether the judge model rewrites the question."""
    decompose: bool = True
    """Whether the judge model divides the question into sub-queries."""
    hyde: bool = False
    """Whether hypothetical documents are a further path; `enhanced` and `enhanced-crag`."""
    subqueries: Few = 3
    """Most sub-queries of a question."""
    terms: dict[str, tuple[str, ...]] = {}
    """Entries beside those of the shipped dictionary: a term and its synonyms."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=128)
    """Of rewriting and decomposition."""


class RerankParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reranking by a cross-encoder, and what follows from its probabilities (seed documents 001 and 003)."""

    enabled: bool = True
    """Whether documents are reranked."""
    threshold: Share = 0.4
    """Documents below it are dropped (001: 0.4)."""
    refuse: bool = False
    """Whether a question is refused when nothing reaches the threshold; else the best documents stay."""
    floor: Share = 0.0
    """Relevance below which a document is not rated for quality in `mathrag-gate`; 0: all are, nobody is asked."""


class CompressParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Context compression (seed document 001)."""

    enabled: bool = True
    """Whether documents are compressed."""
    ratio: Share = 0.7
    """Share of the sentences' length that stays."""
    tokens: Annotated[int, msgspec.Meta(ge=16, le=1_000_000)] = 4000
    """Most tokens of the context, as they are estimated."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two thresholds of an evaluator's score; None: no score is known to be high, or low, enough."""

    upper: float | None = None
    """A score from here on is relevant."""
    lower: float | None = None
    """A score below it is irrelevant."""


class CragParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Corrective retrieval (Yan et al. 2024; seed document 001)."""

    evaluator: Literal["reranker", "judge", "similarity"] = "judge"
    """Who scores how relevant a document is."""
    upper: float | None = None
    """A score from here on is correct; by default the evaluator's own."""
    lower: float | None = None
    """A score below it is incorrect."""
    thresholds: Literal["fixed", "calibrated"] = "fixed"
    """`calibrated`: those that the lists of the job `calibrated_by` give for this evaluator, instead of its own (001:
    adaptive; docs/retrieval.md#calibration)."""
    calibrated_by: str = ""
    """Name or id of a completed `crag` job; used once, at submission."""
    judged_by: str = ""
    """Name or id of a `crag` job over the same dataset and corpus whose judge labels the lists of `calibrated_by`; by
    default the dataset's gold documents do."""
    calibrated: Limits | None = None
    """`upper` and `lower` as they were calibrated; filled in at submission, so that a job's thresholds never change."""
    similarity: Limits | None = None
    """Thresholds of similarity for the corpus's embedder. None: filled in at submission where they are known, which
    they are of the shipped vectors; else set them or calibrate, as every list is ambiguous by similarity."""
    diversity: Share = 0.5
    """An ambiguous list less diverse than this is refined, and every incorrect one (001)."""
    rounds: Annotated[int, msgspec.Meta(ge=0, le=5)] = 2
    """Most refinement rounds (001)."""
    strips: Literal["selection", "fixed", "excerption"] = "selection"
    """How documents are cut into strips."""
    top: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """Strips that stay of each corpus; 0: `context_size` whole documents, else 6."""
    order: Literal["original", "score"] = "original"
    """Order of the strips that stay."""
    fallback: str = ""
    """Name of the corpus that is searched when the first one fails; without one the question goes on without."""


class CriticParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The critic loop (seed document 004)."""

    generate: Share = 0.6
    """Relevance from which a document is relevant."""
    rewrite: Share = 0.3
    """Mean relevance of a page below which its query is rewritten."""
    attempts: Few = 3
    """Most rounds of search and rating."""
    min_documents: Few = 2
    """Relevant documents that are enough."""
    k: Few = 3
    """Documents of a page."""
    aggregate: Literal["count", "mean", "minimum", "maximum", "weighted"] = "count"
    """Whether relevant documents alone decide, or one figure of the page must reach `generate`, too: its mean (as in
    the document's code), its lowest or highest relevance, or the mean weighted by 1 / place in the page."""
    reply: Literal["rating", "json"] = "rating"
    """`json`: the critic writes a score in [0, 1] and its reason (the document, section 2.1)."""
    rewrite_from: Few = 2
    """The first attempt after which a query may be rewritten (the document's code: 2)."""
    decoding: Decoding = Decoding(temperature=0.0, max_tokens=100)
    """Of the rewriter, and of a critic that replies in JSON."""


class HydeParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hypothetical documents (Gao et al. 2023)."""

    documents: Annotated[int, msgspec.Meta(ge=0, le=32)] = 8
    """Hypothetical documents for each question; with 0 the pipeline is `dense`."""
    style: Literal["solution", "passage"] = "solution"
    """What is written: worked solutions, or passages."""
    decoding: Decoding = Decoding(temperature=0.7, max_tokens=512)
    """Of the hypothetical documents."""


class SelfRagParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reflection tokens (Asai et al. 2024)."""

    threshold: Share = 0.2
    """Retrieve when the probability of [Retrieval] is above it."""
    relevance: Weight = 1.0
    """Weight of relevance in the score of a passage."""
    support: Weight = 1.0
    """Weight of support in the score of a passage."""
    utility: Weight = 0.5
    """Weight of utility in the score of a passage."""
    sequence: bool = False
    """Whether the mean probability of the text counts, too."""
    answer: Literal["best", "sum"] = "best"
    """`best`: the answer of the best path; `sum`: the answer whose paths' scores have the largest sum, as the authors
    do for closed sets."""
    alternatives: Few = 5
    """Log-probabilities asked of each token; a reply grows by about 30 bytes for each. 5 are all grades of utility, and
    text-generation-inference gives no more unless it is told to."""


class JudgeCalibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each rating of one judge is worth to the people who rated the same documents (docs/labels.md)."""

    hash: str
    """SHA-256 over the judge's model and rubric, the tasks, the labels that count, and `ratings`: the identity of the
    calibrated judge."""
    ratings: Annotated[tuple[float, ...], msgspec.Meta(min_length=5, max_length=5)]
    """In the place of the ratings 1 to 5; never falling."""

    def quality(self, rating: int) -> float:
        """As `Rated.quality`: (rating - 1) / 4."""
        return (self.ratings[rating - 1] - 1) / 4


class GateParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calibration of the gate. tau: the MathRAG-Gate paper, section 3.3."""

    tau: float = 0.45
    """Rules stand in for the judge above this correlation."""
    items: int = 50
    """Items that are calibrated on."""
    top: int = 5
    """Documents that are taken of each item."""
    max_documents: int = 200
    """Most documents that are rated."""
    min_pairs: int = 30
    """With fewer scored documents the judge is taken, whatever the correlation."""
    on_unusable: str = "fail"
    """What happens when more than half of the judge's replies hold no rating: `fail`, or go on with `rules`."""
    repeats: Few = 1
    """How often each calibration document is rated. The first ratings decide; more say how repeatable the judge is."""
    truth: Literal["none", "verifier"] = "none"
    """`verifier`: the calibration documents' equations are checked, too, and the decision records how rules and judge
    agree with what was found. It decides nothing."""
    labels: str = ""
    """Name of a label set: the judge's ratings count for what people's labels say that they are worth
    (docs/labels.md#calibration)."""
    calibrated: JudgeCalibration | None = None
    """What they are worth; filled in at submission, so that labels that are given later change no job."""


class VerifyParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How equations are checked."""

    modulus: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """All equations are meant modulo it (10 in the shipped world); 0: ordinary arithmetic."""

    def __post_init__(self) -> None:
        """Raise ValueError for the modulus by which all numbers are equal."""
        if self.modulus == 1:
            raise ValueError("`verify.modulus` is 1: every equation would hold")


class RouteParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Easy questions go down the rule path of `mathrag-gate`, whatever the gate says."""

    enabled: bool = False
    """Whether questions that look easy are scored by rules (docs/routing.md)."""
    threshold: Share = 0.5
    """A question that is hard with less than this probability is easy."""


class GradingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers are found in replies and graded; every pipeline's alike."""

    grader: GraderName = ""
    """How answers are graded (docs/graders.md); by default as the dataset says, and `math` where it declares none."""
    threshold: Share = 0.5
    """The token F1 from which an answer is right; `f1` only."""
    separators: Annotated[str, msgspec.Meta(max_length=20)] = ""
    """Each of these characters separates the members of a set; by default comma, semicolon and line end. `set` only."""
    rubric: Annotated[str, msgspec.Meta(max_length=8000)] = ""
    """What the judge model rates replies by, where an item has no rubric of its own; `rubric` only."""
    rating: Annotated[int, msgspec.Meta(ge=2, le=5)] = 4
    """The judge model's rating from which a reply is right; `rubric` only."""
    decoding: Decoding = Decoding(temperature=0.1, max_tokens=128)
    """Of the judge model; `rubric` only."""


class JudgeParams(Decoding, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the judge model rates. Temperature and tokens: the MathRAG-Gate paper, section 4.1."""

    temperature: float = 0.1
    max_tokens: int = 10
    per_repeat: bool = False
    """Whether every repeat asks the judge model anew for what it samples: ratings, and texts that help a search. That
    is as many calls again for each repeat, and the spread over repeats then shows what the temperature varies. By
    default one reply serves all repeats."""

    @property
    def decoding(self) -> Decoding:
        """What the model is told."""
        return Decoding(temperature=self.temperature, max_tokens=self.max_tokens)


class SelfConsistencyParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Majority vote over sampled answers (Wang et al. 2023)."""

    draws: Annotated[int, msgspec.Meta(ge=2, le=20)] = 5
    """Answers that are sampled from one prompt. The authors draw 40; accuracy gains most from the first 5 to 10."""
    temperature: Annotated[float, msgspec.Meta(gt=0, le=2)] = 0.7
    """Of the draws, in the place of `generate.temperature` (the authors: 0.5 to 0.7)."""


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every parameter a job may set (`--set gate.tau=0.3`); the defaults are the documented ones."""

    candidates: int = 10
    """Documents asked of each index, and kept after fusion."""
    context_size: int = 1
    """Most documents in the prompt, fewer where they do not fit (docs/pipelines.md#documents-that-do-not-fit); 1 is
    what the shipped models were trained on, the paper uses 5."""
    duplicates: Duplicates = "same-answer"
    """Which near-duplicates of the question searches leave out, because they would give its answer away
    (docs/pipelines.md#retrieval)."""
    rrf_k: int = 60
    """Constant of reciprocal rank fusion."""
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
    """Weight of the fused rank where `mathrag-gate` reranks."""
    quality_weight: float = 0.9
    """Weight of the reasoning quality there."""
    gate: GateParams = GateParams()
    quality: Literal["gate", "rules", "judge", "verifier"] = "gate"
    """Who scores the documents of `mathrag-gate`: whom the gate chooses, or one of them without a calibration."""
    verify: VerifyParams = VerifyParams()
    route: RouteParams = RouteParams()
    generate: Decoding = Decoding(temperature=0.0, max_tokens=512)
    """How the generator samples answers."""
    judge: JudgeParams = JudgeParams()
    grading: GradingParams = GradingParams()
    anchors: dict[str, str] = {}
    """Replaces slots of the judge's rubric: `anchors.negative`, `anchors.positive`."""
    seed: int = 0
    """Chooses the calibration items; never sent to a model."""
    rules: str = ""
    """Name of a rule bank (`mathrag rules list`); its content is pinned at submission."""
    rulerag: RuleragParams = RuleragParams()
    mining: Mining | None = None
    """The miner and its limits, of a job that `mathrag rules mine` has made."""


DECODINGS = (
    "generate",
    "judge",
    "enhance.decoding",
    "critic.decoding",
    "hyde.decoding",
    "grading.decoding",
    "rulerag.decoding",
)
RANGES: dict[str, tuple[int, int]] = {
    "candidates": (1, MOST_CANDIDATES), "rrf_k": (1, 1_000_000), "rrf_weight": (0, 1000), "quality_weight": (0, 1000),
    "seed": (-(1 << 63), (1 << 63) - 1), "gate.tau": (-1, 1), "gate.items": (1, 10_000),
    "gate.top": (1, MOST_CANDIDATES), "gate.max_documents": (1, 100_000), "gate.min_pairs": (2, 100_000),
    **{f"{decoding}.temperature": (0, 100) for decoding in DECODINGS},
    **{f"{decoding}.max_tokens": (1, 1_000_000) for decoding in DECODINGS},
}  # fmt: skip
"""Only a new job has to keep them: no bound of today makes a job of before unreadable, as one of a type would."""


def out_of_range(params: Params) -> Iterator[tuple[str, Any, str]]:
    """(path, value, rule) of every parameter out of its range; NaN is out of every range."""
    for path, (low, high) in {**RANGES, "context_size": (0, params.candidates)}.items():
        if not low <= (value := attrgetter(path)(params)) <= high:
            yield path, value, f"between {low} and {high}"
    crag = params.crag
    for path, limits in (("crag", crag), ("crag.similarity", crag.similarity), ("crag.calibrated", crag.calibrated)):
        for name in ("upper", "lower"):
            if not math.isfinite(getattr(limits, name, None) or 0):
                yield f"{path}.{name}", getattr(limits, name), "a finite number"
    if params.gate.on_unusable not in ("fail", "rules"):
        yield "gate.on_unusable", params.gate.on_unusable, '"fail" or "rules"'


def stored_params(raw: bytes) -> Params:
    """The parameters of a job's row. Jobs of release 0.1 have no `duplicates`: they keep the rule of that release.

    Raises:
        ValueError: they are not JSON, or have other fields.
    """
    tree = msgspec.json.decode(raw)
    return msgspec.convert({"duplicates": RELEASE_0_1, **tree} if isinstance(tree, dict) else tree, Params)
