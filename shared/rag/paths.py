"""Recall over several paths: several wordings of one question, each searched for in both indexes, fused into one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from shared.contracts.calls import Retrieve
from shared.contracts.documents import Hit
from shared.contracts.params import Params
from shared.contracts.replies import CallFailed, Failure, Retrieved
from shared.contracts.samples import Candidate, Decision, Library, Trace
from shared.rag.distinct import distinct
from shared.rag.duplicates import repeats
from shared.rag.fusion import fuse
from shared.rag.provenance import by_document, listed, ranked, search, unsearched

ORIGINAL = "original"
"""The wording whose ranks are a candidate's dense and sparse ones."""


class Path(NamedTuple):
    """One search of many."""

    wording: str
    call: Retrieve
    weight: float

    @property
    def name(self) -> str:
        """As it stands in a candidate's `paths`."""
        return f"{self.wording} {self.call.index}"


class Gathered(NamedTuple):
    """What came back."""

    lists: dict[Path, Retrieved]
    decisions: tuple[Decision, ...]


def both(wording: str, query: str, weights: tuple[float, float], params: Params) -> list[Path]:
    """Searches for a query in both indexes; an index of weight 0 is not searched."""
    dense, sparse = search(query, "dense", params), search(query, "sparse", params)
    return [Path(wording, call, weight) for call, weight in zip((dense, sparse), weights, strict=True) if weight]


def by_hypotheses(question: str, texts: tuple[str, ...], weight: float, params: Params) -> list[Path]:
    """A search by hypothetical documents, which only vectors can make; none without texts."""
    call = msgspec.structs.replace(search(question, "dense", params), hypothetical=texts)
    return [Path("hypothetical", call, weight)] if texts and weight else []


def gather(paths: Sequence[Path], replies: Sequence[Retrieved | Failure]) -> Gathered:
    """The lists that there are: words alone where vectors failed, and the other way round (seed document 001).

    Raises:
        CallFailed: every search failed.
    """
    lists = {path: reply for path, reply in zip(paths, replies, strict=True) if isinstance(reply, Retrieved)}
    failed = {path: reply for path, reply in zip(paths, replies, strict=True) if isinstance(reply, Failure)}
    if failed and not lists:
        raise CallFailed(next(iter(failed.values())))
    left = {path.call.index for path in lists}
    alone = f"{left.pop()} alone" if len(left) == 1 and len({path.call.index for path in paths}) == 2 else "fewer paths"
    without = [_without(path, failure, alone) for path, failure in failed.items()]
    unasked = [decision for path, found in lists.items() for decision in unsearched(path.name, found)]
    return Gathered(lists, (*without, *unasked))


def merged(question: str, lists: Mapping[Path, Retrieved], library: Library, params: Params) -> Trace:
    """All lists fused by their paths' weights: the `params.candidates` best documents of different content.

    In jobs of release 0.1 near-duplicates of `question` are dropped here, too: their searches did not know it.
    """
    weights = [path.weight for path in lists]
    fused = dict(fuse([ranked(found) for found in lists.values()], weights, params.fusion, params.rrf_k))
    twins = [document for document in fused if repeats(question, library[document].problem, params)]
    others = [document for document in fused if document not in set(twins)]
    kept = distinct(others, library)
    hits = {path: by_document(found) for path, found in lists.items()}
    dropped = [document for document in others if document not in set(kept)]
    return Trace(
        candidates=tuple(
            _candidate(document, rank, fused[document], hits)
            for rank, document in enumerate(kept[: params.candidates], start=1)
        ),
        duplicates=tuple(dict.fromkeys([*(hash_ for found in lists.values() for hash_ in found.duplicates), *twins])),
        decisions=(Decision(stage="dedupe", action="dropped", detail={"documents": dropped}),) if dropped else (),
    )


def _without(path: Path, failure: Failure, action: str) -> Decision:
    detail: dict[str, str | float | bool | list[str] | None] = {"path": path.name, "said": failure.detail}
    return Decision(stage="retrieve", action=action, detail=detail, fallback=failure.kind.value)


def _candidate(document: str, rank: int, fused: float, hits: Mapping[Path, Mapping[str, Hit]]) -> Candidate:
    found = {path: of[document] for path, of in hits.items() if document in of}
    original = {path.call.index: hit for path, hit in found.items() if path.wording == ORIGINAL}
    candidate = listed(document, rank, fused, original.get("dense"), original.get("sparse"))
    return msgspec.structs.replace(candidate, paths={path.name: hit.rank for path, hit in found.items()}, score=fused)
