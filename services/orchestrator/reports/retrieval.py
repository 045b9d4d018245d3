"""Measures the quality of the documents that a job's samples found, if the dataset names the relevant ones."""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from shared.rag import metrics
from shared.samples import Candidate, Outcome
from shared.statistics import significance
from shared.statistics.significance import Difference, Mean
from shared.storage.samples import ABSENT, SampleWithOutcome

RANKED = ("nDCG@10", "Recall@10", "Precision@10", "F1@10", "MAP", "MRR")
"""Measures of the ranked candidates; a list is never longer than the job requested."""
FUSED, FINAL, CONTEXT = "fused", "final", "context"


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the items with relevant documents; repeats of one item count once."""

    items: int
    absent: int
    """Relevant documents that the corpus lacks; they count as not found."""
    fused: dict[str, Mean]
    """Measures of the candidates in the order of fusion, before any reranking; empty if nothing was fused."""
    final: dict[str, Mean]
    """Measures of the candidates in their final order."""
    reranking: dict[str, Difference | None]
    """Differences of the final order to the fused one."""
    context: Mean
    """Share of the relevant documents that were in the prompt."""


class Findings:
    """Collects what samples found; they come in dataset order."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, str], _Items] = defaultdict(_Items)
        self._absent = _Items()
        self._any_fused = False

    def add(self, batch: Sequence[SampleWithOutcome], gold: Mapping[int, Mapping[str, int]]) -> None:
        """Count these samples; `gold` has the relevant documents of their items with their grades."""
        judged = [(row.index, outcome) for row, outcome in batch if outcome is not None and row.index in gold]
        relevant = {str(place): gold[item] for place, (item, _) in enumerate(judged)}
        final = {str(place): _order_final(outcome.trace.candidates) for place, (_, outcome) in enumerate(judged)}
        fused = {str(place): _order_fused(outcome.trace.candidates) for place, (_, outcome) in enumerate(judged)}
        self._any_fused |= any(fused.values())
        moved = {place: fused[place] for place in fused if fused[place] != final[place]}
        after = metrics.measure_per_query(relevant, final, RANKED)
        before = after | _measure(relevant, moved)
        for order, found in ((FUSED, before), (FINAL, after)):
            for place, (item, _) in enumerate(judged):
                for name, value in found[str(place)].items():
                    self._values[order, name].add(item, value)
        for item, outcome in judged:
            self._values[CONTEXT, ""].add(item, _compute_recall(outcome, gold[item]))
            self._absent.add(item, sum(document.startswith(ABSENT) for document in gold[item]))

    def figures(self) -> Retrieval | None:
        """Return the means; None if no item with relevant documents has been answered."""
        absent = self._absent.values()
        if not absent:
            return None
        tests = significance.correct_family([self._compare_orders(name) for name in RANKED]) if self._any_fused else []
        return Retrieval(
            items=len(absent),
            absent=round(sum(absent)),
            fused=self._estimate_means(FUSED) if self._any_fused else {},
            final=self._estimate_means(FINAL),
            reranking=dict(zip(RANKED, tests, strict=False)),
            context=significance.estimate_mean(self._values[CONTEXT, ""].values()),
        )

    def _estimate_means(self, order: str) -> dict[str, Mean]:
        return {name: significance.estimate_mean(self._values[order, name].values()) for name in RANKED}

    def _compare_orders(self, name: str) -> Difference | None:
        return significance.compare_paired(self._values[FINAL, name].values(), self._values[FUSED, name].values())


class _Items:
    """Values by item, averaged over its repeats, in 16 bytes each."""

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


def _measure(relevant: metrics.Judged, run: metrics.Run) -> dict[str, dict[str, float]]:
    """Return the measures of the lists in `run`; an empty list scores 0 without being measured."""
    listed = {place: grades for place, grades in relevant.items() if run.get(place)}
    return {**{place: dict.fromkeys(RANKED, 0.0) for place in run}, **metrics.measure_per_query(listed, run, RANKED)}


def _order_fused(candidates: Sequence[Candidate]) -> list[str]:
    scored = [(-each.fused, each.document) for each in candidates if each.fused is not None]
    return [document for _, document in sorted(scored)]


def _order_final(candidates: Sequence[Candidate]) -> list[str]:
    return [each.document for each in sorted(candidates, key=lambda each: each.rank)]


def _compute_recall(outcome: Outcome, relevant: Mapping[str, int]) -> float:
    return len(relevant.keys() & set(outcome.context)) / len(relevant)
