"""How a sample came to its context and its answer: from replies to traces and outcomes."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from shared.contracts.calls import Generate, Retrieve
from shared.contracts.documents import Hit
from shared.contracts.params import Params
from shared.contracts.replies import Generated, Retrieved
from shared.contracts.samples import Candidate, Decision, Outcome, Trace, WrittenOutcome
from shared.mathtext.answers import extract
from shared.rag.fusion import Ranked, fuse
from shared.rag.language import localised
from shared.rag.rerank import Reranked

Index = Literal["dense", "sparse"]


class Scoring(NamedTuple):
    """What scoring found out about one document."""

    quality: float | None = None
    features: dict[str, float] | None = None
    failure: str | None = None


class Found(NamedTuple):
    """What both indexes returned for one question."""

    dense: Retrieved
    sparse: Retrieved

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Near-duplicates of the question that either index dropped, each once."""
        return tuple(dict.fromkeys(self.dense.duplicates + self.sparse.duplicates))

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Which of both indexes could not be searched, and why."""
        return unsearched("dense", self.dense) + unsearched("sparse", self.sparse)

    def fused(self, params: Params) -> list[tuple[str, float]]:
        """The `params.candidates` best documents and their fused scores, best first."""
        weights = (params.fusion.dense, params.fusion.sparse)
        return fuse([ranked(found) for found in self], weights, params.fusion, params.rrf_k)[: params.candidates]


def searches(question: str, params: Params) -> tuple[Retrieve, Retrieve]:
    """The dense and the sparse search for one question; every pipeline asks alike, so that they share the replies."""
    return search(question, "dense", params), search(question, "sparse", params)


def search(question: str, index: Index, params: Params) -> Retrieve:
    """One search for the `params.candidates` best documents of one index."""
    return Retrieve(question=question, index=index, k=params.candidates)


def ranked(found: Retrieved) -> Ranked:
    """Documents and their scores in list order, as fusion takes them."""
    return [(hit.document, hit.score) for hit in found.hits]


def single_trace(found: Retrieved, index: Index, params: Params) -> Trace:
    """The trace of one index's list, taken as it is."""
    kept = list(by_document(found).values())[: params.candidates]
    candidates = (_from_hit(hit, index, rank) for rank, hit in enumerate(kept, start=1))
    return Trace(candidates=tuple(candidates), duplicates=found.duplicates, decisions=unsearched(index, found))


def unsearched(name: str, found: Retrieved, number: int = 0) -> tuple[Decision, ...]:
    """That the search `name` looked for nothing, and why; empty where it was made. A search that failed is no reply."""
    if found.reason is msgspec.UNSET:
        return ()
    action, detail = f"without {name}", {"said": found.reason}
    return (Decision(stage="retrieve", action=action, round=number, detail={**detail}, fallback="no_vector"),)


def by_document(found: Retrieved) -> dict[str, Hit]:
    """The first hit of every document, in list order."""
    hits: dict[str, Hit] = {}
    for hit in found.hits:
        hits.setdefault(hit.document, hit)
    return hits


def listed(document: str, rank: int, fused: float, dense: Hit | None, sparse: Hit | None) -> Candidate:
    """A candidate with its place in both lists, as far as it is in them."""
    return Candidate(
        document=document,
        rank=rank,
        dense_rank=dense.rank if dense else None,
        sparse_rank=sparse.rank if sparse else None,
        dense_score=dense.score if dense else None,
        sparse_score=sparse.score if sparse else None,
        fused=fused,
    )


def fused_trace(found: Found, params: Params) -> Trace:
    """The trace of both lists in fused order; a candidate's score is its fused score."""
    entries = [
        Reranked(document=document, rank=rank, fused=fused, quality=None, score=fused)
        for rank, (document, fused) in enumerate(found.fused(params), start=1)
    ]
    return Trace(
        candidates=_candidates(entries, found, {}), duplicates=found.duplicates, decisions=found.decisions
    )  # fmt: skip


def scored_trace(entries: Sequence[Reranked], found: Found, scorings: Mapping[str, Scoring]) -> Trace:
    """The trace of reranked candidates; `unscored` if there are some and none has a quality."""
    unscored = bool(entries) and all(entry.quality is None for entry in entries)
    return Trace(
        candidates=_candidates(entries, found, scorings), duplicates=found.duplicates, unscored=unscored,
        decisions=found.decisions,
    )  # fmt: skip


def context(trace: Trace, params: Params) -> tuple[str, ...]:
    """The best `params.context_size` documents of a trace, best first."""
    return tuple(candidate.document for candidate in trace.candidates[: params.context_size])


def generation(question: str, context: tuple[str, ...] = (), passage: str = "") -> Generate:
    """The generator's call, in the question's language; `passage` stands in the documents' place."""
    return Generate(template=localised("cot", question), question=question, context=context, passage=passage)


def answered(generated: Generated, context: tuple[str, ...] = (), trace: Trace | None = None) -> Outcome:
    """The outcome of a generated answer; a truncated text may still hold one.

    Its answer is that of `math`; the runtime looks for it again in the text where the job has another grader.
    """
    answer, extraction = extract(generated.text)
    return WrittenOutcome(
        answer=answer, extraction=extraction, truncated=generated.truncated,
        truncated_by=generated.truncated_by or msgspec.UNSET, context=context, trace=trace or Trace(),
        text=generated.text,
    )  # fmt: skip


def _candidates(entries: Sequence[Reranked], found: Found, scorings: Mapping[str, Scoring]) -> tuple[Candidate, ...]:
    dense, sparse = by_document(found.dense), by_document(found.sparse)
    return tuple(
        _candidate(
            entry, dense.get(entry.document), sparse.get(entry.document), scorings.get(entry.document, Scoring())
        )
        for entry in entries
    )


def _candidate(entry: Reranked, dense: Hit | None, sparse: Hit | None, scoring: Scoring) -> Candidate:
    return msgspec.structs.replace(
        listed(entry.document, entry.rank, entry.fused, dense, sparse),
        quality=entry.quality, features=scoring.features, failure=scoring.failure, score=entry.score,
    )  # fmt: skip


def _from_hit(hit: Hit, index: Index, rank: int) -> Candidate:
    if index == "dense":
        return Candidate(document=hit.document, rank=rank, dense_rank=hit.rank, dense_score=hit.score, score=hit.score)
    return Candidate(document=hit.document, rank=rank, sparse_rank=hit.rank, sparse_score=hit.score, score=hit.score)
