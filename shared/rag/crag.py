"""Corrective retrieval (Yan et al. 2024; seed document 001): is what was found correct, ambiguous or incorrect?

A document's flag follows from its score and two thresholds, and the list's action from its best flag, as in the
authors' code (`process_flag`). Where the paper has one evaluator, a fine-tuned T5, here are three, each with thresholds
of its own; T5's (0.592 and -0.995 of a raw score) mean nothing for them.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Literal, NamedTuple

from shared.contracts.params import CragParams, Limits
from shared.contracts.replies import Failure, Retrieved
from shared.contracts.samples import Decision

Evaluator = Literal["reranker", "judge", "similarity"]
Score = float | Failure | None
"""None, a failure and NaN: nobody knows, which is not irrelevance."""


class Action(StrEnum):
    """What a list of documents is."""

    CORRECT = "correct"
    """One document at least is relevant: what was found is refined."""
    AMBIGUOUS = "ambiguous"
    """Perhaps: both what was found and what another corpus has."""
    INCORRECT = "incorrect"
    """None is: what was found is left out."""


class Thresholds(NamedTuple):
    """A score from `upper` on is relevant; one below `lower` is not. None: no score is known to be."""

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
(docs/retrieval.md)."""


class Evaluation(NamedTuple):
    """What an evaluator says of documents."""

    evaluator: Evaluator
    thresholds: Thresholds
    scores: dict[str, Score]
    """By document, in the order in which they were found."""
    fallback: str | None = None
    """Why another evaluator stands in: the failure's kind."""

    @property
    def action(self) -> Action:
        """Of the whole list."""
        return action(list(self.scores.values()), self.thresholds)

    @property
    def confidence(self) -> float | None:
        """The best known score; None where none is known."""
        return max((score for score in map(known, self.scores.values()) if score is not None), default=None)

    @property
    def unknown(self) -> int:
        """Documents of which nobody knows anything."""
        return sum(known(score) is None for score in self.scores.values())

    def useful(self) -> list[str]:
        """Documents that are not known to be irrelevant, in their order."""
        return [document for document, score in self.scores.items() if flag(score, self.thresholds) != 0]

    @property
    def orders(self) -> bool:
        """Whether documents are ordered by their scores.

        Not by similarity's: the fused order, which knows the words, too, is better (measured on Cranfield).
        """
        return self.evaluator != "similarity"

    def ranked(self) -> list[str]:
        """All documents, the best first; equal ones in their order."""
        return sorted(self.scores, key=lambda document: -self.place(document))

    def place(self, document: str) -> float:
        """What the document is ordered by: its score, below every other where it is not known."""
        if not self.orders:
            return 0.0
        score = known(self.scores[document])
        return -math.inf if score is None else score


def thresholds(evaluator: Evaluator, params: CragParams) -> Thresholds:
    """The job's, else the calibrated ones where it wants those, else the evaluator's own."""
    own = own_thresholds(evaluator, params)
    if params.thresholds == "calibrated" and params.calibrated is not None:
        own = Thresholds(params.calibrated.upper, params.calibrated.lower)
    return Thresholds(
        own.upper if params.upper is None else params.upper, own.lower if params.lower is None else params.lower
    )


def own_thresholds(evaluator: Evaluator, params: CragParams) -> Thresholds:
    """The defaults of an evaluator; those of similarity belong to the embedder."""
    if evaluator == "similarity" and params.similarity is not None:
        return Thresholds(params.similarity.upper, params.similarity.lower)
    return THRESHOLDS[evaluator]


def known(score: Score) -> float | None:
    """The score, if there is one."""
    return None if score is None or isinstance(score, Failure) or math.isnan(score) else score


def flag(score: Score, limits: Thresholds) -> int | None:
    """2: relevant; 1: perhaps; 0: irrelevant; both thresholds belong to what is above them. None: not known."""
    value = known(score)
    if value is None:
        return None
    if limits.upper is not None and value >= limits.upper:
        return 2
    return 0 if limits.lower is not None and value < limits.lower else 1


def action(scores: Sequence[Score], limits: Thresholds) -> Action:
    """By the best flag; an empty list is incorrect.

    A list without a relevant document, of which not all is known, is ambiguous: a failure is not irrelevance.
    """
    flags = [flag(score, limits) for score in scores]
    if 2 in flags:
        return Action.CORRECT
    return Action.AMBIGUOUS if 1 in flags or None in flags else Action.INCORRECT


def needs_refinement(found: Action, diversity: float, params: CragParams) -> bool:
    """Whether to search again: an incorrect list always, an ambiguous one that says the same again and again (001)."""
    return found is Action.INCORRECT or (found is Action.AMBIGUOUS and diversity < params.diversity)


def evaluated(
    evaluator: Evaluator, scores: Mapping[str, Score], dense: Sequence[Retrieved], params: CragParams
) -> Evaluation:
    """The documents' scores with the thresholds that they are judged by; similarity's come from the dense lists.

    Where every document's evaluation failed, similarity stands in, which asks nobody, with the default thresholds of
    the corpus's embedder (seed document 001: "evaluation failed: default thresholds").
    """
    if evaluator == "similarity":
        return Evaluation(evaluator, thresholds(evaluator, params), similarity(list(scores), dense))
    failed = [score for score in scores.values() if isinstance(score, Failure)]
    if not failed or len(failed) < len(scores):
        return Evaluation(evaluator, thresholds(evaluator, params), dict(scores))
    found = similarity(list(scores), dense)
    return Evaluation("similarity", own_thresholds("similarity", params), found, failed[0].kind.value)


def similarity(documents: Sequence[str], dense: Sequence[Retrieved]) -> dict[str, Score]:
    """Scores by the distribution of the dense list's similarities (seed document 001), made well-defined.

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


def merged(internal: str, external: str) -> str:
    """Two kinds of knowledge as the authors' code gives them to the generator; one alone stands by itself."""
    if internal and external:
        return f"Knowledge1: {internal} [sep] Knowledge2: {external}"
    return internal or external


def judged(evaluation: Evaluation, diversity: float, number: int) -> Decision:
    """What an evaluation came to, in round `number`."""
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
