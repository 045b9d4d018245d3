"""Decide whether retrieved documents are correct, ambiguous or incorrect (Yan et al. 2024; seed document 001).

A document's flag follows from its score and two thresholds, and the list's action from its best flag, as in the
authors' code (`process_flag`). Where the paper has one evaluator, a fine-tuned T5, here are three, each with thresholds
of its own; T5's (0.592 and -0.995 of a raw score) mean nothing for them.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Literal, NamedTuple

from shared.params import CragParams, Limits
from shared.replies import Failure, Retrieved
from shared.samples import Decision

Evaluator = Literal["reranker", "judge", "similarity"]
Score = float | Failure | None
"""None, a failure and NaN: nobody knows, which is not irrelevance."""


class ListAction(StrEnum):
    """The verdict on a list of documents."""

    CORRECT = "correct"
    """One document at least is relevant: what was found is refined."""
    AMBIGUOUS = "ambiguous"
    """Perhaps: both what was found and what another corpus has."""
    INCORRECT = "incorrect"
    """None is: what was found is left out."""


class Thresholds(NamedTuple):
    """From `upper` on a score means relevant, below `lower` irrelevant. None: no score reaches that verdict."""

    upper: float | None
    lower: float | None


UNKNOWN = Thresholds(None, None)
"""Whatever the scores are, the list is ambiguous."""
THRESHOLDS: Mapping[Evaluator, Thresholds] = {
    # The rubric's words: from 4 of 5 on it helps, and 1 of 5 is "not at all". Ratings are in steps of a quarter.
    "judge": Thresholds(0.75, 0.25),
    # Seed document 001, for a confidence in [0, 1], which a reranker's probability is.
    "reranker": Thresholds(0.8, 0.3),
    # Cosines of one embedder mean nothing for another: `crag.similarity` has those of the corpus's embedder.
    "similarity": UNKNOWN,
}
SHIPPED_VECTORS = Limits(upper=0.66, lower=0.54)
"""Of similarity by the shipped embeddings: calibrated on Cranfield and questions about something else
(docs/how-to/retrieval.md)."""


class CragEvaluation(NamedTuple):
    """The scores of documents by one evaluator."""

    evaluator: Evaluator
    thresholds: Thresholds
    scores: dict[str, Score]
    """Scores by document, in the order in which the documents were found."""
    fallback: str | None = None
    """Why another evaluator stands in: the failure's kind."""

    @property
    def action(self) -> ListAction:
        """Decide the verdict on the whole list."""
        return decide_action(list(self.scores.values()), self.thresholds)

    @property
    def confidence(self) -> float | None:
        """Return the best known score, or None."""
        return max((score for score in map(score_or_none, self.scores.values()) if score is not None), default=None)

    @property
    def unknown(self) -> int:
        """Return the documents without a score."""
        return sum(score_or_none(score) is None for score in self.scores.values())

    def list_useful(self) -> list[str]:
        """Return the documents that are not known to be irrelevant, in their order."""
        return [document for document, score in self.scores.items() if flag_score(score, self.thresholds) != 0]

    @property
    def orders(self) -> bool:
        """Return whether documents are sorted by these scores.

        For similarity they are not: the fused order, which also uses words, is better (measured on Cranfield).
        """
        return self.evaluator != "similarity"

    def rank_documents(self) -> list[str]:
        """Return all documents, the best first; ties keep their order."""
        return sorted(self.scores, key=lambda document: -self.place(document))

    def place(self, document: str) -> float:
        """Return the sort key of a document: its score, or less than every score if it is not known."""
        if not self.orders:
            return 0.0
        score = score_or_none(self.scores[document])
        return -math.inf if score is None else score


def choose_thresholds(evaluator: Evaluator, params: CragParams) -> Thresholds:
    """Return the job's thresholds, else the calibrated ones if the job wants them, else the evaluator's defaults."""
    own = get_default_thresholds(evaluator, params)
    if params.thresholds == "calibrated" and params.calibrated is not None:
        own = Thresholds(params.calibrated.upper, params.calibrated.lower)
    return Thresholds(
        own.upper if params.upper is None else params.upper, own.lower if params.lower is None else params.lower
    )


def get_default_thresholds(evaluator: Evaluator, params: CragParams) -> Thresholds:
    """Return the default thresholds of an evaluator; those of similarity depend on the embedder."""
    if evaluator == "similarity" and params.similarity is not None:
        return Thresholds(params.similarity.upper, params.similarity.lower)
    return THRESHOLDS[evaluator]


def score_or_none(score: Score) -> float | None:
    """Return the score, or None for a failure."""
    return None if score is None or isinstance(score, Failure) or math.isnan(score) else score


def flag_score(score: Score, limits: Thresholds) -> int | None:
    """Return 2 (relevant), 1 (perhaps), 0 (irrelevant) or None (not known); thresholds belong to the upper class."""
    value = score_or_none(score)
    if value is None:
        return None
    if limits.upper is not None and value >= limits.upper:
        return 2
    return 0 if limits.lower is not None and value < limits.lower else 1


def decide_action(scores: Sequence[Score], limits: Thresholds) -> ListAction:
    """Decide by the best flag; an empty list is incorrect.

    A list without a relevant document is ambiguous if some scores are not known, because a failure is not irrelevance.
    """
    flags = [flag_score(score, limits) for score in scores]
    if 2 in flags:
        return ListAction.CORRECT
    return ListAction.AMBIGUOUS if 1 in flags or None in flags else ListAction.INCORRECT


def needs_refinement(found: ListAction, diversity: float, params: CragParams) -> bool:
    """Return whether to search again: always if incorrect; if ambiguous, when the documents are too alike (001)."""
    return found is ListAction.INCORRECT or (found is ListAction.AMBIGUOUS and diversity < params.diversity)


def make_evaluation(
    evaluator: Evaluator, scores: Mapping[str, Score], dense: Sequence[Retrieved], params: CragParams
) -> CragEvaluation:
    """Make an evaluation with its thresholds; the scores of similarity come from the dense lists.

    Where every document's evaluation failed, similarity stands in, which asks nobody, with the default thresholds of
    the corpus's embedder (seed document 001: "evaluation failed: default thresholds").
    """
    if evaluator == "similarity":
        return CragEvaluation(evaluator, choose_thresholds(evaluator, params), score_by_similarity(list(scores), dense))
    failed = [score for score in scores.values() if isinstance(score, Failure)]
    if not failed or len(failed) < len(scores):
        return CragEvaluation(evaluator, choose_thresholds(evaluator, params), dict(scores))
    found = score_by_similarity(list(scores), dense)
    return CragEvaluation("similarity", get_default_thresholds("similarity", params), found, failed[0].kind.value)


def score_by_similarity(documents: Sequence[str], dense: Sequence[Retrieved]) -> dict[str, Score]:
    """Score by the distribution of the dense list's similarities (a well-defined version of seed document 001).

    score = cosine + (cosine - mean cosine of the list): how well a document matches the question, and how far it stands
    out from what else was found; clipped to [0, 1]. A document that is not in a dense list cannot match better than
    its last one, and counts as much. Without a dense hit nothing is known.
    """
    cosines = {hit.document: hit.score for found in reversed(dense) for hit in found.hits}
    if not cosines:
        return dict.fromkeys(documents)
    mean, last = fmean(cosines.values()), min(cosines.values())
    scores = {document: 2 * cosines.get(document, last) - mean for document in documents}
    return {document: min(1.0, max(0.0, score)) for document, score in scores.items()}


def merge_passages(internal: str, external: str) -> str:
    """Join two kinds of knowledge as the authors' code shows them to the generator; one alone stands by itself."""
    if internal and external:
        return f"Knowledge1: {internal} [sep] Knowledge2: {external}"
    return internal or external


def make_decision(evaluation: CragEvaluation, diversity: float, number: int) -> Decision:
    """Describe the evaluation of round `number` for the trace."""
    return Decision(
        stage="crag",
        action=evaluation.action.value,
        round=number,
        detail={
            "evaluator": evaluation.evaluator,
            "confidence": evaluation.confidence,
            "upper": evaluation.thresholds.upper,
            "lower": evaluation.thresholds.lower,
            "documents": float(len(evaluation.scores)),
            "unknown": float(evaluation.unknown),
            "diversity": diversity,
        },
        fallback=evaluation.fallback,
    )
