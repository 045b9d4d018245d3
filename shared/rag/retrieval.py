"""Search calls of pipelines: pages, wordings, distinct documents and recall."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.calls import Retrieve, Write, Yielded
from shared.params import Params
from shared.rag.duplicates import repeats_question
from shared.rag.fusion import fuse
from shared.rag.provenance import (
    index_by_document,
    make_candidate,
    make_search,
    make_searches,
    note_search,
    to_ranked_list,
)
from shared.rag.rewriting import (
    EnhancedQuestion,
    decompose,
    draft_hypotheses,
    enhance,
    normalise_characters,
    read_hypotheses,
    read_rewrite,
    read_subqueries,
    rewrite,
)
from shared.replies import CallFailed, Document, Failure, Generated, Hit, Retrieved
from shared.samples import Candidate, Decision, Library, Trace

# Drop documents with the same content under different hashes: they differ in case, blanks or character forms only.


def drop_duplicates(documents: Sequence[str], library: Library) -> tuple[str, ...]:
    """Return the first document (hash) of every content, in order.

    By the whole text: seed document 003 compares `hash(text[:100])`, which takes two solutions with the same beginning
    for one, and is another number in every process.
    """
    first: dict[bytes, str] = {}
    for document in documents:
        first.setdefault(hash_content(library[document]), document)
    return tuple(first.values())


@lru_cache(maxsize=16384)
def hash_content(document: Document) -> bytes:
    """Return the SHA-256 over problem and text with normalised characters, case and blanks."""
    parts = (document.problem, document.text)
    return hashlib.sha256("\0".join(normalise_characters(part).strip().casefold() for part in parts).encode()).digest()


# Recall over several paths: search several wordings of one question in both indexes and fuse the lists.

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
    """The returned lists, and the documents that were left out."""

    lists: dict[RecallPath, Retrieved]
    decisions: tuple[Decision, ...]


def search_both(wording: str, query: str, weights: tuple[float, float], params: Params) -> list[RecallPath]:
    """Make searches for a query in both indexes; an index of weight 0 is not searched."""
    calls = make_searches(query, params)
    return [RecallPath(wording, call, weight) for call, weight in zip(calls, weights, strict=True) if weight]


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
    decisions = [
        Decision(
            stage="retrieve", action=alone, detail={"path": path.name, "said": failure.detail},
            fallback=failure.kind.value,
        )
        for path, failure in failed.items()
    ]  # fmt: skip
    for path, found in lists.items():
        decisions += note_search(path.name, found)
    return GatheredLists(lists, tuple(decisions))


def merge_paths(question: str, lists: Mapping[RecallPath, Retrieved], library: Library, params: Params) -> Trace:
    """Fuse all lists by their paths' weights into the `params.candidates` best documents of different content.

    In jobs of release 0.1 near-duplicates of `question` are dropped here as well: their searches did not know it.
    """
    weights = [path.weight for path in lists]
    fused = dict(fuse([to_ranked_list(found) for found in lists.values()], weights, params.fusion, params.rrf_k))
    twins = [document for document in fused if repeats_question(question, library[document].problem, params)]
    others = [document for document in fused if document not in set(twins)]
    kept = drop_duplicates(others, library)
    hits = {path: index_by_document(found) for path, found in lists.items()}
    candidates = []
    for rank, document in enumerate(kept[: params.candidates], start=1):
        found_by = {path: of[document] for path, of in hits.items() if document in of}
        original = {path.call.index: hit for path, hit in found_by.items() if path.wording == ORIGINAL}
        candidate = make_candidate(document, rank, fused[document], original.get("dense"), original.get("sparse"))
        paths = {path.name: hit.rank for path, hit in found_by.items()}
        candidates.append(replace(candidate, paths=paths, score=fused[document]))
    dropped = [document for document in others if document not in set(kept)]
    return Trace(
        candidates=tuple(candidates),
        duplicates=tuple(dict.fromkeys([*(hash_ for found in lists.values() for hash_ in found.duplicates), *twins])),
        decisions=(Decision(stage="dedupe", action="dropped", detail={"documents": dropped}),) if dropped else (),
    )


Lists = dict[str, dict[str, Hit]]
"""Hits by index and document, in list order."""


class QueryPages:
    """Both indexes' lists by query, as far as they have been read; a page has `critic.k` documents of each index."""

    def __init__(self, question: str, params: Params, library: Library) -> None:
        self._question = question
        self._params = params
        self._library = library
        self._size = params.critic.k
        self._weights = {"dense": params.fusion.dense, "sparse": params.fusion.sparse}
        self._read: dict[str, int] = defaultdict(int)
        self._lists: dict[str, Lists] = defaultdict(lambda: {index: {} for index in self._weights})
        self.duplicates: dict[str, None] = {}
        """Near-duplicates of the question, which searches for it and for other queries have left out."""

    def make_searches(self, query: str) -> list[RecallPath]:
        """Make the searches for the next page of `query`; a new query starts with the first."""
        wording = ORIGINAL if query == self._question else "rewritten"
        skip = self._size * self._read[query]
        return [
            RecallPath(wording, Retrieve(question=query, index=index, k=self._size, skip=skip), weight)
            for index, weight in self._weights.items()
        ]

    def add(self, query: str, found: Mapping[RecallPath, Retrieved]) -> None:
        """Add a page of the indexes that answered."""
        self._read[query] += 1
        for path, page in found.items():
            hits = self._lists[query][path.call.index]
            for hit in page.hits:
                hits.setdefault(hit.document, hit)
            self.duplicates |= dict.fromkeys(page.duplicates)
            for hit in page.hits:
                if repeats_question(self._question, self._library[hit.document].problem, self._params):
                    self.duplicates[hit.document] = None

    def list_unseen(self, query: str, seen: Collection[str]) -> list[Candidate]:
        """Return at most a page of the best documents of a query, fused over its pages, without those in `seen`."""
        lists = self._lists[query]
        ranked = [[(hit.document, hit.score) for hit in hits.values()] for hits in lists.values()]
        fused = fuse(ranked, list(self._weights.values()), self._params.fusion, self._params.rrf_k)
        new = [entry for entry in fused if entry[0] not in seen and entry[0] not in self.duplicates]
        dense, sparse = lists["dense"], lists["sparse"]
        return [make_candidate(each, 0, score, dense.get(each), sparse.get(each)) for each, score in new[: self._size]]


# Search with several wordings of a question: its own, those of the rules, and those that the judge model writes.


class RecallResult(NamedTuple):
    """The lists of all searches, and their fusion."""

    lists: Mapping[RecallPath, Retrieved]
    """The found lists, by their search."""
    trace: Trace
    """The fused list, and the decisions."""
    vague: bool
    """The question says too little to tell a good document by."""


def recall(question: str, params: Params, library: Library) -> Generator[Yielded, Any, RecallResult]:
    """Enhance the question, have it reworded, search for every wording, and fuse the lists.

    Raises:
        CallFailed: every search failed.
    """
    ready = enhance(question, params.enhance, params.fusion)
    paths = make_first_searches(question, ready, params)
    first = [path.call for path in paths]
    if params.enhance.rewrite and params.enhance.shown:
        found = yield first
        shown = _list_shown(question, dict(zip(paths, found, strict=True)), library, params)
        replies = [*found, *(yield _make_rewordings(ready.question, shown, params))]
    else:
        replies = yield [*first, *_make_rewordings(ready.question, (), params)]
    further, decisions = _make_later_searches(question, ready, replies[len(paths) :], params)
    more = (yield [path.call for path in further]) if further else []
    gathered = gather(paths + further, [*replies[: len(paths)], *more])
    trace = merge_paths(question, gathered.lists, library, params)
    done = (*ready.decisions, *decisions, *gathered.decisions, *trace.decisions)
    return RecallResult(gathered.lists, replace(trace, decisions=done), ready.vague is not None)


def _list_shown(
    question: str, replies: Mapping[RecallPath, Retrieved | Failure], library: Library, params: Params
) -> tuple[str, ...]:
    """Return the best `enhance.shown` documents of the searches that did not fail."""
    lists = {path: reply for path, reply in replies.items() if isinstance(reply, Retrieved)}
    best = merge_paths(question, lists, library, params).candidates if lists else ()
    return tuple(each.document for each in best[: params.enhance.shown])


def _make_rewordings(question: str, shown: tuple[str, ...], params: Params) -> list[Write]:
    """Make the calls for all texts of the model, none of which needs another's reply."""
    return [
        *([rewrite(question, params.enhance, shown)] if params.enhance.rewrite else []),
        *([decompose(question, params.enhance)] if params.enhance.decompose else []),
        *(draft_hypotheses(question, params.hyde) if params.enhance.hyde else []),
    ]


def make_first_searches(question: str, ready: EnhancedQuestion, params: Params) -> list[RecallPath]:
    """Make the searches for the original question and, if it was widened by rules, for the widened one."""
    weights = (ready.dense, ready.sparse)
    paths = search_both(ORIGINAL, question, weights, params)
    if normalise_characters(ready.widened) != normalise_characters(question).strip():
        paths += search_both("widened", ready.widened, weights, params)
    return paths


def _make_later_searches(
    question: str, ready: EnhancedQuestion, replies: Sequence[Generated | Failure], params: Params
) -> tuple[list[RecallPath], list[Decision]]:
    """Make the searches for the model's texts; the sub-queries together weigh as much as one wording."""
    left, enhance = iter(replies), params.enhance
    one = [read_rewrite(ready.question, reply) for reply in islice(left, int(enhance.rewrite))]
    several = [read_subqueries(ready.question, reply, enhance) for reply in islice(left, int(enhance.decompose))]
    hypotheses = read_hypotheses(ready.question, tuple(left))
    decisions = [written.decision for written in one + several]
    if hypotheses.texts or hypotheses.failures:
        decisions.append(hypotheses.decision())
    rewritten = [query for written in one for query in written.queries]
    subqueries = [query for written in several for query in written.queries]
    paths = [
        path for query in rewritten for path in search_both("rewritten", query, (ready.dense, ready.sparse), params)
    ]
    share = 1 / max(1, len(subqueries))
    for number, query in enumerate(subqueries, start=1):
        if query not in rewritten:
            paths += search_both(f"sub-query {number}", query, (ready.dense * share, ready.sparse * share), params)
    if hypotheses.texts and ready.dense:
        # Hypothetical documents are searched with in vectors only.
        call = replace(make_search(question, "dense", params), hypothetical=hypotheses.texts)
        paths.append(RecallPath("hypothetical", call, ready.dense))
    return paths, decisions
