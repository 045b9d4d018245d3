"""How good the documents were that a job's samples found, where the dataset names the relevant ones."""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from shared.contracts.samples import Candidate, Outcome
from shared.rag import metrics
from shared.statistics import significance
from shared.statistics.significance import Difference, Mean
from shared.storage.gold import ABSENT
from shared.storage.samples import Traced

RANKED = ("nDCG@10", "Recall@10", "Precision@10", "F1@10", "MAP", "MRR")
"""Of the candidates, of which there are no more than the job asked for."""
FUSED, FINAL, CONTEXT = "fused", "final", "context"


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the items with relevant documents; repeats of one item count as one."""

    items: int
    absent: int
    """Relevant documents that the corpus does not hold; they count as not found."""
    fused: dict[str, Mean]
    """Candidates as fusion ordered them, before any reranking; empty where nothing was fused."""
    final: dict[str, Mean]
    """Candidates in their last order."""
    reranking: dict[str, Difference | None]
    """How far the last order is above the fused one."""
    context: Mean
    """Share of the relevant documents that stood in the prompt."""


class Findings:
    """Adds up what samples found; they come in dataset order."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, str], _Items] = defaultdict(_Items)
        self._absent = _Items()
        self._any_fused = False

    def add(self, batch: Sequence[Traced], gold: Mapping[int, Mapping[str, int]]) -> None:
        """Count these samples in; `gold` has the relevant documents of their items."""
        judged = [(row.index, outcome) for row, outcome in batch if outcome is not None and row.index in gold]
        relevant = {str(place): gold[item] for place, (item, _) in enumerate(judged)}
        final = {str(place): _final(outcome.trace.candidates) for place, (_, outcome) in enumerate(judged)}
        fused = {str(place): _fused(outcome.trace.candidates) for place, (_, outcome) in enumerate(judged)}
        self._any_fused |= any(fused.values())
        moved = {place: fused[place] for place in fused if fused[place] != final[place]}
        after = metrics.per_query(relevant, final, RANKED)
        before = after | _measured(relevant, moved)
        for order, found in ((FUSED, before), (FINAL, after)):
            for place, (item, _) in enumerate(judged):
                for name, value in found[str(place)].items():
                    self._values[order, name].add(item, value)
        for item, outcome in judged:
            self._values[CONTEXT, ""].add(item, _recall(outcome, gold[item]))
            self._absent.add(item, sum(document.startswith(ABSENT) for document in gold[item]))

    def figures(self) -> Retrieval | None:
        """The means; None where no item with relevant documents has been answered."""
        absent = self._absent.values()
        if not absent:
            return None
        tests = significance.together([self._reranking(name) for name in RANKED]) if self._any_fused else []
        return Retrieval(
            items=len(absent),
            absent=round(sum(absent)),
            fused=self._means(FUSED) if self._any_fused else {},
            final=self._means(FINAL),
            reranking=dict(zip(RANKED, tests, strict=False)),
            context=significance.mean(self._values[CONTEXT, ""].values()),
        )

    def _means(self, order: str) -> dict[str, Mean]:
        return {name: significance.mean(self._values[order, name].values()) for name in RANKED}

    def _reranking(self, name: str) -> Difference | None:
        return significance.paired(self._values[FINAL, name].values(), self._values[FUSED, name].values())


class _Items:
    """A value by item, 16 bytes each; those of its repeats are averaged."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._sums, self._counts = array("d"), array("q")

    def add(self, item: int, value: float) -> None:
        if item != self._last:
            self._last = item
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[-1] += value
        self._counts[-1] += 1

    def values(self) -> list[float]:
        return [total / count for total, count in zip(self._sums, self._counts, strict=True)]


def _measured(relevant: metrics.Judged, run: metrics.Run) -> dict[str, dict[str, float]]:
    """Of the lists of `run`; an empty one is worth 0 without being measured."""
    listed = {place: grades for place, grades in relevant.items() if run.get(place)}
    return {**{place: dict.fromkeys(RANKED, 0.0) for place in run}, **metrics.per_query(listed, run, RANKED)}


def _fused(candidates: Sequence[Candidate]) -> list[str]:
    scored = [(-each.fused, each.document) for each in candidates if each.fused is not None]
    return [document for _, document in sorted(scored)]


def _final(candidates: Sequence[Candidate]) -> list[str]:
    return [each.document for each in sorted(candidates, key=lambda each: each.rank)]


def _recall(outcome: Outcome, relevant: Mapping[str, int]) -> float:
    return len(relevant.keys() & set(outcome.context)) / len(relevant)
