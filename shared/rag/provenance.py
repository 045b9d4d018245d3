"""Make traces and outcomes from replies: they show how a sample came to its context and its answer."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from shared.calls import Generate, Retrieve
from shared.params import Params
from shared.rag.extraction import extract_mathematics
from shared.rag.fusion import Ranked, fuse
from shared.rag.language import localised
from shared.rag.rerank import RerankedCandidate
from shared.replies import Generated, Hit, Retrieved
from shared.samples import Candidate, Decision, Outcome, Trace, WrittenOutcome

Index = Literal["dense", "sparse"]


class DocumentScoring(NamedTuple):
    """The result of scoring one document."""

    quality: float | None = None
    features: dict[str, float] | None = None
    failure: str | None = None


class FoundLists(NamedTuple):
    """The lists that both indexes returned for one question."""

    dense: Retrieved
    sparse: Retrieved

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Return the near-duplicates of the question that either index dropped, each once."""
        return tuple(dict.fromkeys(self.dense.duplicates + self.sparse.duplicates))

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return which index could not be searched, and why."""
        return note_unsearched("dense", self.dense) + note_unsearched("sparse", self.sparse)

    def fuse(self, params: Params) -> list[tuple[str, float]]:
        """Return the `params.candidates` best documents with their fused scores, best first."""
        weights = (params.fusion.dense, params.fusion.sparse)
        return fuse([to_ranked_list(found) for found in self], weights, params.fusion, params.rrf_k)[
            : params.candidates
        ]


def make_searches(question: str, params: Params) -> tuple[Retrieve, Retrieve]:
    """Make the dense and the sparse search for one question; all pipelines make the same, to share the replies."""
    return make_search(question, "dense", params), make_search(question, "sparse", params)


def make_search(question: str, index: Index, params: Params) -> Retrieve:
    """Make one search for the `params.candidates` best documents of one index."""
    return Retrieve(question=question, index=index, k=params.candidates)


def to_ranked_list(found: Retrieved) -> Ranked:
    """Return documents and scores in list order, for fusion."""
    return [(hit.document, hit.score) for hit in found.hits]


def make_single_trace(found: Retrieved, index: Index, params: Params) -> Trace:
    """Make the trace of one index's list, unchanged."""
    kept = list(index_by_document(found).values())[: params.candidates]
    candidates = (_from_hit(hit, index, rank) for rank, hit in enumerate(kept, start=1))
    return Trace(candidates=tuple(candidates), duplicates=found.duplicates, decisions=note_unsearched(index, found))


def note_unsearched(name: str, found: Retrieved, number: int = 0) -> tuple[Decision, ...]:
    """Note that the search `name` was not made, and why; empty if it was. A failed search gives no reply."""
    if found.reason is msgspec.UNSET:
        return ()
    action, detail = f"without {name}", {"said": found.reason}
    return (Decision(stage="retrieve", action=action, round=number, detail={**detail}, fallback="no_vector"),)


def index_by_document(found: Retrieved) -> dict[str, Hit]:
    """Return the first hit of every document, in list order."""
    hits: dict[str, Hit] = {}
    for hit in found.hits:
        hits.setdefault(hit.document, hit)
    return hits


def make_candidate(document: str, rank: int, fused: float, dense: Hit | None, sparse: Hit | None) -> Candidate:
    """Make a candidate with its places in both lists, as far as it is in them."""
    return Candidate(
        document=document,
        rank=rank,
        dense_rank=dense.rank if dense else None,
        sparse_rank=sparse.rank if sparse else None,
        dense_score=dense.score if dense else None,
        sparse_score=sparse.score if sparse else None,
        fused=fused,
    )


def make_fused_trace(found: FoundLists, params: Params) -> Trace:
    """Make the trace of both lists in fused order; a candidate's score is its fused score."""
    entries = [
        RerankedCandidate(document=document, rank=rank, fused=fused, quality=None, score=fused)
        for rank, (document, fused) in enumerate(found.fuse(params), start=1)
    ]
    return Trace(
        candidates=_candidates(entries, found, {}), duplicates=found.duplicates, decisions=found.decisions
    )  # fmt: skip


def make_scored_trace(
    entries: Sequence[RerankedCandidate], found: FoundLists, scorings: Mapping[str, DocumentScoring]
) -> Trace:
    """Make the trace of reranked candidates; it is `unscored` if there are some and none has a quality."""
    unscored = bool(entries) and all(entry.quality is None for entry in entries)
    return Trace(
        candidates=_candidates(entries, found, scorings), duplicates=found.duplicates, unscored=unscored,
        decisions=found.decisions,
    )  # fmt: skip


def choose_context(trace: Trace, params: Params) -> tuple[str, ...]:
    """Return the best `params.context_size` documents of a trace, best first."""
    return tuple(candidate.document for candidate in trace.candidates[: params.context_size])


def make_generation(question: str, context: tuple[str, ...] = (), passage: str = "") -> Generate:
    """Make the generator's call in the question's language; `passage` replaces the documents."""
    return Generate(template=localised("cot", question), question=question, context=context, passage=passage)


def make_outcome(generated: Generated, context: tuple[str, ...] = (), trace: Trace | None = None) -> Outcome:
    """Make the outcome of a generated answer; a truncated text may still hold one.

    Its answer is that of `math`; the runtime looks for it again in the text where the job has another grader.
    """
    found = extract_mathematics(generated.text)
    return WrittenOutcome(
        answer=found.answer, extraction=found.extraction, truncated=generated.truncated,
        truncated_by=generated.truncated_by or msgspec.UNSET, context=context, trace=trace or Trace(),
        text=generated.text,
    )  # fmt: skip


def _candidates(
    entries: Sequence[RerankedCandidate], found: FoundLists, scorings: Mapping[str, DocumentScoring]
) -> tuple[Candidate, ...]:
    dense, sparse = index_by_document(found.dense), index_by_document(found.sparse)
    return tuple(
        _candidate(
            entry,
            dense.get(entry.document),
            sparse.get(entry.document),
            scorings.get(entry.document, DocumentScoring()),
        )
        for entry in entries
    )


def _candidate(entry: RerankedCandidate, dense: Hit | None, sparse: Hit | None, scoring: DocumentScoring) -> Candidate:
    return msgspec.structs.replace(
        make_candidate(entry.document, entry.rank, entry.fused, dense, sparse),
        quality=entry.quality, features=scoring.features, failure=scoring.failure, score=entry.score,
    )  # fmt: skip


def _from_hit(hit: Hit, index: Index, rank: int) -> Candidate:
    if index == "dense":
        return Candidate(document=hit.document, rank=rank, dense_rank=hit.rank, dense_score=hit.score, score=hit.score)
    return Candidate(document=hit.document, rank=rank, sparse_rank=hit.rank, sparse_score=hit.score, score=hit.score)
