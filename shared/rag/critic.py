"""Run the critic's decisions (seed document 004): after each page of documents, generate, continue, or rewrite the
query.

Its mean is of one page, so that a single bad document blocks generation however many good ones there are; here enough
relevant documents suffice (`critic.aggregate=mean` brings the document's rule back). Decision 27 lists the differences.
"""

from collections.abc import Generator, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.calls import Judge, Write, Yielded
from shared.params import CriticParams
from shared.rag.prompts import Critique, localise, parse_critique
from shared.replies import Failure, Generated
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
    """There is nothing left to try; the documents may not be enough."""
    reason: str = ""
    """Why there is nothing left to try before the last attempt."""


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
    rewritten: bool = False
    """Whether the query was rewritten before this round."""

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
        if verdict.reason:
            detail["reason"] = verdict.reason
        fallback = failures[0] if failures and self.mean is None else None
        action = verdict.action.value
        return Decision(stage="critic", action=action, round=self.attempt, detail=detail, fallback=fallback)


def decide(round_: Round, params: CriticParams) -> RoundDecision:
    """Apply the decision table (004, section 3.2) in the order of its priorities.

    An empty page is rewritten at once, regardless of `params.rewrite_from`.
    One whose ratings all failed says nothing about the query, which is kept.
    """
    score = round_.score(params.aggregate)
    good = params.aggregate == "count" or (score is not None and score >= params.generate)
    if good and round_.relevant >= params.min_documents:
        return RoundDecision(CriticAction.GENERATE)
    if round_.attempt >= params.attempts:
        return RoundDecision(CriticAction.GENERATE, forced=True)
    if params.stop and round_.rewritten and not round_.page:
        return RoundDecision(CriticAction.GENERATE, forced=True, reason="the rewritten query found no new document")
    poor = score is not None and score < params.rewrite and round_.attempt >= params.rewrite_from
    return RoundDecision(CriticAction.REWRITE if poor or not round_.page else CriticAction.CONTINUE)


def rate_page(
    page: Sequence[Candidate], question: str, params: CriticParams, accepted: tuple[str, ...] = ()
) -> Generator[Yielded, Any, tuple[list[Candidate], list[str]]]:
    """Have the critic rate each document; return the page with its ratings, and their reasons.

    A rating counts as (rating - 1) / 4. A candidate whose rating failed has the failure instead. With `accepted`
    documents, named by their hashes, the critic rates what each document adds to them.
    """
    if not page:
        return [], []
    calls: list[Judge | Write]
    if params.reply == "rating":
        rubric = localise("relevance-added", question) if accepted else localise("relevance", question)
        calls = [Judge(rubric=rubric, document=each.document, documents=accepted, question=question) for each in page]
    else:
        template = localise("critic-added", question) if accepted else localise("critic", question)
        decoding, slots = params.decoding, {"question": question}
        calls = [
            Write(template=template, decoding=decoding, slots=slots, documents=(*accepted, each.document))
            for each in page
        ]
    rated, reasons = [], []
    for candidate, reply in zip(page, (yield calls), strict=True):
        found = parse_critique(reply.text, truncated=reply.truncated) if isinstance(reply, Generated) else reply
        if isinstance(found, Failure):
            rated.append(replace(candidate, failure=found.kind.value))
            reasons.append("")
        else:
            score, reason = found if isinstance(found, Critique) else (found.quality, "")
            rated.append(replace(candidate, relevance=score, score=score))
            reasons.append(reason)
    return rated, reasons


def filter_relevant(judged: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """Return the candidates whose relevance reaches the threshold."""
    return [each for each in judged if each.relevance is not None and each.relevance >= threshold]


def sort_by_relevance(judged: Sequence[Candidate]) -> list[Candidate]:
    """Sort by relevance, the most relevant first; ties keep their order, unrated candidates come last."""
    best_first = sorted(judged, key=lambda each: (each.relevance is None, -(each.relevance or 0.0)))
    return [replace(each, rank=rank) for rank, each in enumerate(best_first, start=1)]
