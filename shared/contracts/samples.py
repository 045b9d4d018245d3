"""What is asked and how it ends: items, samples, parameters, traces, outcomes."""

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from shared.contracts import canonical
from shared.contracts.calls import Yielded
from shared.contracts.documents import Document
from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery
from shared.contracts.params import Params
from shared.contracts.replies import Graded, Marked

Library = Mapping[str, Document]
"""Documents by hash: those that the sample's replies mention, loaded by the runtime before a replay."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a dataset. `ordinal` counts from 0 in dataset order."""

    ordinal: int
    question: str
    gold: str | None = None
    custom_id: str | None = None
    expected: Expected = Expected()
    """What a right answer is, beside `gold`."""
    query: FactQuery | None = None
    """What the question asks of a graph, where that is known."""

    @property
    def hash(self) -> str:
        """SHA-256 in hex over question and gold answer."""
        return canonical.digest([canonical.normalise(self.question), self.gold]).hex()


class Strategy(StrEnum):
    """Who scores reasoning quality for a whole job."""

    RULES = "rules"
    JUDGE = "judge"
    VERIFIER = "verifier"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far one vector of scores agrees with the verifier's; fields as in `GateDecision`."""

    pairs: int
    """Documents that have both scores."""
    rho: float | None
    low: float | None
    high: float | None
    spearman: float | None
    undefined: str | None
    """Why there is no rho."""


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What checking the calibration documents' equations says about who may score them. It decides nothing."""

    scores: tuple[float | None, ...]
    """The verifier's qualities, in the order of `GateDecision.documents`; None: nothing could be decided."""
    refuted: tuple[int | None, ...]
    """Refuted equations of each; None: the document could not be checked at all."""
    failures: int
    """Documents that could not be checked at all."""
    rules: Agreement
    judge: Agreement


class GateDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The confidence gate's decision and all it was computed from (recomputable bit for bit).

    `rho` is Pearson's correlation of rule and judge scores; None where undefined (a constant vector), which means
    judge. `low`/`high` bound it by Fisher's z at 95 %.
    """

    strategy: Strategy
    reason: str
    tau: float
    rho: float | None
    low: float | None
    high: float | None
    spearman: float | None
    documents: tuple[str, ...]
    """Hashes of the scored documents, in the order of the two score vectors."""
    rule_scores: tuple[float, ...]
    judge_scores: tuple[float, ...]
    asked: int
    """Judge calls made for the calibration, parsed or not."""
    unparsed: int
    truth: Truth | None = None
    """Only with `gate.truth`."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate document's way through retrieval, scoring and reranking; ranks count from 1."""

    document: str
    rank: int
    """Final rank."""
    dense_rank: int | None = None
    sparse_rank: int | None = None
    dense_score: float | None = None
    sparse_score: float | None = None
    fused: float | None = None
    quality: float | None = None
    """None: no quality is known (the judge's reply had no rating)."""
    features: dict[str, float] | None = None
    """What its quality was made of: rule features, or counts of equations."""
    failure: str | None = None
    relevance: float | None = None
    """How much it helps with the question, in [0, 1]: a reranker's probability, a judge's rating, or crag's figure of
    similarities, which is no probability. None where nobody was asked."""
    paths: dict[str, int] | None = None
    """Rank in every list that held it, where there are more than the two above."""
    score: float | None = None
    """What the final order was made by."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a method did for this sample, in the order in which it was done."""

    stage: str
    """Such as "rewrite", "crag", "critic", "compress"."""
    action: str
    """What was done, in the method's own word: "correct", "continue", "refuse" ..."""
    round: int = 0
    """From 1 in loops."""
    detail: dict[str, str | float | bool | list[str] | None] = {}
    """The figures and texts that it was decided by."""
    fallback: str | None = None
    """Why the plain way was taken instead: a failure's kind. Counted in reports."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """How a sample came to its context; stored once, recomputed by the audit."""

    candidates: tuple[Candidate, ...] = ()
    duplicates: tuple[str, ...] = ()
    """Near-duplicates of the question that retrieval dropped."""
    unscored: bool = False
    """Scoring was asked for and no candidate has a quality."""
    decisions: tuple[Decision, ...] = ()


class Extraction(StrEnum):
    """What became of the answer's `\\\\boxed{}`."""

    OK = "ok"
    MISSING = "missing"
    UNBALANCED = "unbalanced"
    REFUSED = "refused"
    """Nothing was generated, on purpose: see `Outcome.refusal`."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a sample ended."""

    answer: str | None
    extraction: Extraction
    truncated: bool = False
    truncated_by: str | msgspec.UnsetType = msgspec.UNSET
    """What ended a truncated text; unset: the token limit, so that outcomes without it keep their bytes."""
    context: tuple[str, ...] = ()
    refusal: str | None = None
    """Why the question was not answered although nothing failed: no document was relevant enough."""
    trace: Trace = Trace()
    verdict: Graded | Marked | None = None
    """Filled in by the runtime, which grades every pipeline's answer alike."""
    grading_failure: str | None = None
    answer_rank: int | msgspec.UnsetType | None = msgspec.UNSET
    """Rank, from 1, of the first candidate in whose text a gold answer occurs; None: in no candidate's. Unset: not
    measured (docs/graders.md), so that outcomes of before keep their bytes. Filled in by the runtime, too."""


class WrittenOutcome(Outcome, frozen=True, kw_only=True):
    """What a pipeline hands to the runtime, which finds the answer in the text as the job's grader does."""

    text: str
    """What the generator wrote."""

    def outcome(self, answer: str | None, extraction: Extraction) -> Outcome:
        """Without the text, and with the answer that was found in it."""
        fields = {name: getattr(self, name) for name in Outcome.__struct_fields__}
        return Outcome(**{**fields, "answer": answer, "extraction": extraction})


class Given(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What another system is said to have answered. Nothing is known of how it came about."""

    text: str | None = None
    """All that it wrote; the answer is looked for in it, unless `answer` is there."""
    answer: str | None = None
    seconds: float | None = None
    """That it took, by its own account."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One (item, repeat) of a job."""

    item: Item
    repeat: int = 0
    prepared: GateDecision | None = None
    given: Given | None = None
    """Only in a job of imported answers; None in its dry run."""

    @property
    def question(self) -> str:
        """The item's question."""
        return self.item.question


Steps = Generator[Yielded, Any, Outcome]
PrepareSteps = Generator[Yielded, Any, GateDecision]
Pipeline = Callable[[Sample, Params, Library], Steps]
Prepare = Callable[[Sequence[Item], Params, Library], PrepareSteps]
