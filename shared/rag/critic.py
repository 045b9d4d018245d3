"""The critic loop (seed document 004): after each page of documents, generate, go on, or rewrite the query.

Its mean is of one page, so that a single bad document blocks generation however many good ones there are; here enough
relevant documents suffice (`critic.aggregate=mean` brings the document's rule back). Decision 48 lists the differences.
"""

from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from shared.contracts.calls import Judge, Write
from shared.contracts.params import CriticParams
from shared.contracts.replies import Failure, Generated, Rated
from shared.contracts.samples import Candidate, Decision
from shared.rag.language import localised
from shared.rag.parsing import Critique, parse_critique


class Action(StrEnum):
    """What is done next; where two could be, the first of these."""

    GENERATE = "generate"
    REWRITE = "rewrite"
    CONTINUE = "continue"


class Verdict(NamedTuple):
    """What follows from one round."""

    action: Action
    forced: bool = False
    """There is no attempt left; the documents may not be enough."""


class Round(NamedTuple):
    """One attempt: a page of documents as the critic rated them."""

    attempt: int
    """From 1."""
    query: str
    page: Sequence[Candidate]
    relevant: int
    """Relevant documents of all rounds up to this one."""

    reasons: Sequence[str] = ()
    """Of the ratings, in the page's order; none where the critic gives no reasons."""

    @property
    def mean(self) -> float | None:
        """Mean relevance of those that were rated; None where nobody knows: a failed rating is no low one."""
        return self.score("mean")

    def score(self, aggregate: str) -> float | None:
        """The page's relevance as one figure, of those that were rated; of "count" it is the mean."""
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

    def decision(self, verdict: Verdict, params: CriticParams) -> Decision:
        """For the trace: each document's relevance, or the failure that it has instead."""
        failures = [candidate.failure for candidate in self.page if candidate.failure]
        detail: dict[str, str | float | bool | list[str] | None] = {
            "query": self.query,
            "mean": self.mean,
            "relevant": self.relevant,
            "forced": verdict.forced,
            "documents": [candidate.document for candidate in self.page],
            "ratings": [candidate.failure or str(candidate.relevance) for candidate in self.page],
        }
        if params.aggregate not in ("count", "mean"):
            detail[params.aggregate] = self.score(params.aggregate)
        if params.reply == "json":
            detail["reasons"] = list(self.reasons)
        return Decision(
            stage="critic",
            action=verdict.action.value,
            round=self.attempt,
            detail=detail,
            fallback=failures[0] if failures and self.mean is None else None,
        )


def decide(round_: Round, params: CriticParams) -> Verdict:
    """The decision table (004, section 3.2), in the order of its priorities.

    A page without any document is rewritten at once, whatever `params.rewrite_from`: there is nothing to go on with.
    One whose ratings all failed says nothing about the query, which is kept.
    """
    score = round_.score(params.aggregate)
    good = params.aggregate == "count" or (score is not None and score >= params.generate)
    if good and round_.relevant >= params.min_documents:
        return Verdict(Action.GENERATE)
    if round_.attempt >= params.attempts:
        return Verdict(Action.GENERATE, forced=True)
    poor = score is not None and score < params.rewrite and round_.attempt >= params.rewrite_from
    return Verdict(Action.REWRITE if poor or not round_.page else Action.CONTINUE)


def critique(document: str, question: str, params: CriticParams) -> Judge | Write:
    """What asks the critic about one document."""
    if params.reply == "rating":
        return Judge(rubric=localised("relevance", question), document=document, question=question)
    template, slots = localised("critic", question), {"question": question}
    return Write(template=template, decoding=params.decoding, slots=slots, documents=(document,))


def criticised(reply: Rated | Generated | Failure) -> Critique | Failure:
    """The critic's reply, whichever way it was asked; a rating counts as (rating - 1) / 4."""
    match reply:
        case Rated():
            return Critique(reply.quality)
        case Generated():
            return parse_critique(reply.text, truncated=reply.truncated)
        case _:
            return reply


def rated(candidate: Candidate, found: Critique | Failure) -> Candidate:
    """The candidate with the critic's score as its relevance; or with the failure in its place."""
    if isinstance(found, Failure):
        return replace(candidate, failure=found.kind.value)
    return replace(candidate, relevance=found.score, score=found.score)


def relevant(judged: Sequence[Candidate], threshold: float) -> list[Candidate]:
    """Those whose relevance reaches the threshold."""
    return [each for each in judged if each.relevance is not None and each.relevance >= threshold]


def ordered(judged: Sequence[Candidate]) -> list[Candidate]:
    """The most relevant first, as they were found where they are alike; those without a rating last."""
    best_first = sorted(judged, key=lambda each: (each.relevance is None, -(each.relevance or 0.0)))
    return [replace(each, rank=rank) for rank, each in enumerate(best_first, start=1)]


def enough(judged: Sequence[Candidate], params: CriticParams) -> list[Candidate]:
    """What is generated from, best first: the relevant documents; where there is none, whatever was found."""
    best_first = ordered(judged)
    return relevant(best_first, params.generate) or best_first


def hints(judged: Sequence[Candidate], params: CriticParams) -> list[Candidate]:
    """What the rewriter is shown: the best documents that are not irrelevant, a page of them at most."""
    return relevant(ordered(judged), params.rewrite)[: params.k]
