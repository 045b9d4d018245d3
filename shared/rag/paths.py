"""Recall over several paths: search several wordings of one question in both indexes and fuse the lists."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from shared.calls import Retrieve
from shared.params import Params
from shared.rag.distinct import drop_duplicates
from shared.rag.duplicates import repeats_question
from shared.rag.fusion import fuse
from shared.rag.provenance import index_by_document, make_candidate, make_search, note_unsearched, to_ranked_list
from shared.replies import CallFailed, Failure, Hit, Retrieved
from shared.samples import Candidate, Decision, Library, Trace

ORIGINAL = "original"
"""The wording whose ranks are a candidate's dense and sparse ones."""


class RecallPath(NamedTuple):
    """One of several searches."""

    wording: str
    call: Retrieve
    weight: float

    @property
    def name(self) -> str:
        """Return the name used in a candidate's `paths`."""
        return f"{self.wording} {self.call.index}"


class GatheredLists(NamedTuple):
    """The lists that came back, and what was left out."""

    lists: dict[RecallPath, Retrieved]
    decisions: tuple[Decision, ...]


def search_both(wording: str, query: str, weights: tuple[float, float], params: Params) -> list[RecallPath]:
    """Make searches for a query in both indexes; an index of weight 0 is not searched."""
    dense, sparse = make_search(query, "dense", params), make_search(query, "sparse", params)
    return [RecallPath(wording, call, weight) for call, weight in zip((dense, sparse), weights, strict=True) if weight]


def search_by_hypotheses(question: str, texts: tuple[str, ...], weight: float, params: Params) -> list[RecallPath]:
    """Make a search by hypothetical documents, in vectors only; none without texts."""
    call = msgspec.structs.replace(make_search(question, "dense", params), hypothetical=texts)
    return [RecallPath("hypothetical", call, weight)] if texts and weight else []


def gather(paths: Sequence[RecallPath], replies: Sequence[Retrieved | Failure]) -> GatheredLists:
    """Return the lists that arrived: if vectors failed, words alone, and the reverse (seed document 001).

    Raises:
        CallFailed: every search failed.
    """
    lists = {path: reply for path, reply in zip(paths, replies, strict=True) if isinstance(reply, Retrieved)}
    failed = {path: reply for path, reply in zip(paths, replies, strict=True) if isinstance(reply, Failure)}
    if failed and not lists:
        raise CallFailed(next(iter(failed.values())))
    left = {path.call.index for path in lists}
    alone = f"{left.pop()} alone" if len(left) == 1 and len({path.call.index for path in paths}) == 2 else "fewer paths"
    without = [_decide_without(path, failure, alone) for path, failure in failed.items()]
    unasked = [decision for path, found in lists.items() for decision in note_unsearched(path.name, found)]
    return GatheredLists(lists, (*without, *unasked))


def merge_paths(question: str, lists: Mapping[RecallPath, Retrieved], library: Library, params: Params) -> Trace:
    """Fuse all lists by their paths' weights into the `params.candidates` best documents of different content.

    In jobs of release 0.1 near-duplicates of `question` are dropped here, too: their searches did not know it.
    """
    weights = [path.weight for path in lists]
    fused = dict(fuse([to_ranked_list(found) for found in lists.values()], weights, params.fusion, params.rrf_k))
    twins = [document for document in fused if repeats_question(question, library[document].problem, params)]
    others = [document for document in fused if document not in set(twins)]
    kept = drop_duplicates(others, library)
    hits = {path: index_by_document(found) for path, found in lists.items()}
    dropped = [document for document in others if document not in set(kept)]
    return Trace(
        candidates=tuple(
            _candidate(document, rank, fused[document], hits)
            for rank, document in enumerate(kept[: params.candidates], start=1)
        ),
        duplicates=tuple(dict.fromkeys([*(hash_ for found in lists.values() for hash_ in found.duplicates), *twins])),
        decisions=(Decision(stage="dedupe", action="dropped", detail={"documents": dropped}),) if dropped else (),
    )


def _decide_without(path: RecallPath, failure: Failure, action: str) -> Decision:
    detail: dict[str, str | float | bool | list[str] | None] = {"path": path.name, "said": failure.detail}
    return Decision(stage="retrieve", action=action, detail=detail, fallback=failure.kind.value)


def _candidate(document: str, rank: int, fused: float, hits: Mapping[RecallPath, Mapping[str, Hit]]) -> Candidate:
    found = {path: of[document] for path, of in hits.items() if document in of}
    original = {path.call.index: hit for path, hit in found.items() if path.wording == ORIGINAL}
    candidate = make_candidate(document, rank, fused, original.get("dense"), original.get("sparse"))
    return msgspec.structs.replace(candidate, paths={path.name: hit.rank for path, hit in found.items()}, score=fused)
