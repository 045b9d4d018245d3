"""Run the critic's decisions (seed document 004): after each page of documents, generate, go on, or rewrite the query.

Its mean is of one page, so that a single bad document blocks generation however many good ones there are; here enough
relevant documents suffice (`critic.aggregate=mean` brings the document's rule back). Decision 27 lists the differences.
"""

from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from shared.calls import Judge, Write
from shared.params import CriticParams
from shared.rag.prompts import Critique, localised, parse_critique
from shared.replies import Failure, Generated, Rated
from shared.samples import Candidate, Decision


class CriticAction(StrEnum):
    """The next step; if several are possible, the first of these."""

    GENERATE = "generate"
    REWRITE = "rewrite"
    CONTINUE = "continue"


class RoundDecision(NamedTuple):
    """The decision after one round."""

    action: CriticAction
    forced: bool = False
    """There is no attempt left; the documents may not be enough."""


class Round(NamedTuple):
    """One round: a page of documents with the critic's ratings."""

    attempt: int
    """Its number, from 1."""
    query: str
    page: Sequence[Candidate]
    relevant: int
    """Relevant documents of all rounds up to this one."""

    reasons: Sequence[str] = ()
    """Reasons of the ratings, in the page's order; empty if the critic gives none."""

    @property
    def mean(self) -> float | None:
        """Return the mean relevance of the rated documents, or None; a failed rating is not a low one."""
        return self.score("mean")

    def score(self, aggregate: str) -> float | None:
        """Return the page's relevance as one figure over the rated documents; for "count" it is the mean."""
        known = [(place, each.relevance) for place, each in enumerate(self.page, 1) if each.relevance is not None]
        scores = [relevance for _, relevance in known]
        if not scores:
            return None
        match aggregate:
            case "minimum":
                return min(scores)
            case "maximum":
                return max(scores)
            case "weighted":
                return fmean(scores, [1 / place for place, _ in known])
            case _:
                return fmean(scores)

    def decision(self, verdict: RoundDecision, params: CriticParams) -> Decision:
        """Describe the round for the trace: each document's relevance, or its failure."""
        failures = [candidate.failure for candidate in self.page if candidate.failure]
        detail: dict[str, str | float | bool | list[str] | None] = {
            "query": self.query, "mean": self.mean, "relevant": self.relevant, "forced": verdict.forced,
            "documents": [candidate.document for candidate in self.page],
            "ratings": [candidate.failure or str(candidate.relevance) for candidate in self.page],
        }  # fmt: skip
        if params.aggregate not in ("count", "mean"):
            detail[params.aggregate] = self.score(params.aggregate)
        if params.reply == "json":
            detail["reasons"] = list(self.reasons)
        fallback = failures[0] if failures and self.mean is None else None
        action = verdict.action.value
        return Decision(stage="critic", action=action, round=self.attempt, detail=detail, fallback=fallback)


def decide(round_: Round, params: CriticParams) -> RoundDecision:
    """Apply the decision table (004, section 3.2) in the order of its priorities.

    A page without any document is rewritten at once, whatever `params.rewrite_from`: there is nothing to go on with.
    One whose ratings all failed says nothing about the query, which is kept.
    """
    score = round_.score(params.aggregate)
    good = params.aggregate == "count" or (score is not None and score >= params.generate)
    if good and round_.relevant >= params.min_documents:
        return RoundDecision(CriticAction.GENERATE)
    if round_.attempt >= params.attempts:
        return RoundDecision(CriticAction.GENERATE, forced=True)
    poor = score is not None and score < params.rewrite and round_.attempt >= params.rewrite_from
    return RoundDecision(CriticAction.REWRITE if poor or not round_.page else CriticAction.CONTINUE)


def ask_critic(document: str, question: str, params: CriticParams) -> Judge | Write:
    """Make the call that asks the critic about one document."""
    if params.reply == "rating":
        return Judge(rubric=localised("relevance", question), document=document, question=question)
    template, slots = localised("critic", question), {"question": question}
    return Write(template=template, decoding=params.decoding, slots=slots, documents=(document,))


def read_critique(reply: Rated | Generated | Failure) -> Critique | Failure:
    """Return the critic's reply in either form of the question; a rating counts as (rating - 1) / 4."""
    match reply:
        case Rated():
            return Critique(reply.quality)
        case Generated():
            return parse_critique(reply.text, truncated=reply.truncated)
        case _:
            return reply


def add_rating(candidate: Candidate, found: Critique | Failure) -> Candidate:
    """Return the candidate with the critic's score as its relevance, or with the failure."""
    if isinstance(found, Failure):
        return replace(candidate, failure=found.kind.value)
    return replace(candidate, relevance=found.score, score=found.score)


def filter_relevant(judged: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """Return the candidates whose relevance reaches the threshold."""
    return [each for each in judged if each.relevance is not None and each.relevance >= threshold]


def sort_by_relevance(judged: Sequence[Candidate]) -> list[Candidate]:
    """Sort by relevance, the most relevant first; ties keep their order, unrated candidates come last."""
    best_first = sorted(judged, key=lambda each: (each.relevance is None, -(each.relevance or 0.0)))
    return [replace(each, rank=rank) for rank, each in enumerate(best_first, start=1)]


def choose_documents(judged: Sequence[Candidate], params: CriticParams) -> list[Candidate]:
    """Return the documents to generate from, best first: the relevant ones, or all if there are none."""
    best_first = sort_by_relevance(judged)
    return filter_relevant(best_first, params.generate) or best_first


def choose_hints(judged: Sequence[Candidate], params: CriticParams) -> list[Candidate]:
    """Return what the rewriter is shown: at most one page of the best documents that are not irrelevant."""
    return filter_relevant(sort_by_relevance(judged), params.rewrite)[: params.k]
