"""How well a job's searches found gold documents, and rules the relation."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from services.orchestrator.reports.tally import Accuracy, Grades
from shared.rag import guidance, metrics
from shared.samples import Decision, SampleRow
from shared.statistics import significance
from shared.statistics.significance import Difference, Mean
from shared.storage.samples import ABSENT, SampleWithOutcome

RANKED = ("nDCG@10", "Recall@5", "Recall@10", "Precision@10", "F1@10", "MAP", "MRR")
"""Measures of the ranked candidates; a list is never longer than the job requested."""
FUSED, FINAL, CONTEXT = "fused", "final", "context"


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the items with relevant documents; repeats of one item count once."""

    items: int
    """Number of items with relevant documents."""
    absent: int
    """Number of relevant documents that the corpus does not have; they count as not found."""
    fused: dict[str, Mean]
    """Measures of the candidates in the order of fusion, before any reranking; empty if nothing was fused."""
    final: dict[str, Mean]
    """Measures of the candidates in their final order; empty if no sample has candidates, for instance with imported
    answers."""
    reranking: dict[str, Difference | None]
    """Differences between the final order and the order of fusion."""
    context: Mean
    """Share of the relevant documents that were in the prompt."""


class Findings:
    """Measures the quality of the documents that samples found, if the dataset names the relevant ones.

    Samples come in dataset order.
    """

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, str], _Items] = defaultdict(_Items)
        self._absent = _Items()
        self._any_found = self._any_fused = False

    def add(self, batch: Sequence[SampleWithOutcome], gold: Mapping[int, Mapping[str, int]]) -> None:
        """Count these samples; `gold` has the relevant documents of their items with their grades."""
        judged = [(row.index, outcome) for row, outcome in batch if outcome is not None and row.index in gold]
        relevant = {str(place): gold[item] for place, (item, _) in enumerate(judged)}
        final, fused = {}, {}
        for place, (_, outcome) in enumerate(judged):
            candidates = sorted(outcome.trace.candidates, key=lambda each: each.rank)
            final[str(place)] = [each.document for each in candidates]
            scored = [(-each.fused, each.document) for each in candidates if each.fused is not None]
            fused[str(place)] = [document for _, document in sorted(scored)]
        self._any_found |= any(final.values())
        self._any_fused |= any(fused.values())
        moved = {place: fused[place] for place in fused if fused[place] != final[place]}
        after = metrics.measure_per_query(relevant, final, RANKED)
        # An empty list scores 0 without being measured.
        listed = {place: grades for place, grades in relevant.items() if moved.get(place)}
        before = {**after, **{place: dict.fromkeys(RANKED, 0.0) for place in moved}}
        before |= metrics.measure_per_query(listed, moved, RANKED)
        for order, found in ((FUSED, before), (FINAL, after)):
            for place, (item, _) in enumerate(judged):
                for name, value in found[str(place)].items():
                    self._values[order, name].add(item, value)
        for item, outcome in judged:
            recall = len(gold[item].keys() & set(outcome.context)) / len(gold[item])
            self._values[CONTEXT, ""].add(item, recall)
            self._absent.add(item, sum(document.startswith(ABSENT) for document in gold[item]))

    def figures(self) -> Retrieval | None:
        """Return the means; None if no item with relevant documents has been answered."""
        absent = self._absent.values()
        if not absent:
            return None
        tests = [
            significance.compare_paired(self._values[FINAL, name].values(), self._values[FUSED, name].values())
            for name in RANKED
            if self._any_fused
        ]
        return Retrieval(
            items=len(absent),
            absent=round(sum(absent)),
            fused=self._estimate_means(FUSED) if self._any_fused else {},
            final=self._estimate_means(FINAL) if self._any_found else {},
            reranking=dict(zip(RANKED, significance.correct_family(tests), strict=False)),
            context=significance.estimate_mean(self._values[CONTEXT, ""].values()),
        )

    def _estimate_means(self, order: str) -> dict[str, Mean]:
        return {name: significance.estimate_mean(self._values[order, name].values()) for name in RANKED}


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


MOST = 20
"""Number of rules in a report."""


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Contribution of one rule."""

    number: int
    """Number of the rule in its bank, from 0."""
    rule: str
    """The rule in words."""
    certainty: float
    """PCA confidence of the rule if it has one, or else its standard confidence."""
    samples: int
    """Number of samples that the rule guided."""
    documents: int
    """Number of candidates that the rule contributed to these samples, alone or with other rules."""
    accuracy: Accuracy
    """Accuracy on these samples."""


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """How rules guided the samples of a job."""

    bank: str
    """Name of the rule bank; empty if no bank was used."""
    relations: dict[str, int]
    """Number of samples by how their relation was found: named by the item, by a phrase, by the judge, or not at all.
    """
    unguided: int
    """Number of samples without a matching rule; their questions were searched without guidance."""
    with_rules: Accuracy
    """Accuracy on the samples that rules guided."""
    without_rules: Accuracy
    """Accuracy on the other samples."""
    used: int
    """Number of rules that guided at least one sample."""
    rules: list[RuleFigures]
    """The 20 rules that guided the most samples."""


class Guiding:
    """Measures how rules guided the questions of a job. Samples come in dataset order."""

    def __init__(self) -> None:
        self._bank = ""
        self._relations: Counter[str] = Counter()
        self._with, self._without = Grades(), Grades()
        self._rules: dict[int, _Rule] = {}
        self._unguided = 0

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples; those of pipelines without rules are left out."""
        for row, outcome in samples:
            decisions = () if outcome is None else outcome.trace.decisions
            rules = [each for each in decisions if each.stage == guidance.RULE_STAGE]
            for each in decisions:
                if each.stage == guidance.RELATION_STAGE:
                    self._bank = str(each.detail["bank"])
                    self._relations[each.action] += 1
                    self._unguided += not rules
                    (self._with if rules else self._without).add(row.index, row.correct)
            for each in rules:
                self._rules.setdefault(int(_read_figure(each, "number")), _Rule(each)).add(row, each)

    def figures(self) -> Guided | None:
        """Return the sums; None if no sample looked for rules."""
        if not self._relations:
            return None
        most = sorted(self._rules, key=lambda number: (-self._rules[number].samples, number))[:MOST]
        return Guided(
            bank=self._bank, relations=dict(sorted(self._relations.items())), unguided=self._unguided,
            with_rules=self._with.accuracy(), without_rules=self._without.accuracy(), used=len(self._rules),
            rules=[self._rules[number].figures(number) for number in most],
        )  # fmt: skip


class _Rule:
    """Counts what one rule contributed."""

    def __init__(self, decision: Decision) -> None:
        self._text = str(decision.detail["rule"])
        self._certainty = _read_figure(decision, "certainty")
        self._grades = Grades()
        self._documents = 0
        self.samples = 0

    def add(self, row: SampleRow, decision: Decision) -> None:
        """Count a sample that the rule guided."""
        documents = decision.detail.get("documents")
        self.samples += 1
        self._documents += len(documents) if isinstance(documents, list) else 0
        self._grades.add(row.index, row.correct)

    def figures(self, number: int) -> RuleFigures:
        return RuleFigures(
            number=number, rule=self._text, certainty=self._certainty, samples=self.samples,
            documents=self._documents, accuracy=self._grades.accuracy(),
        )  # fmt: skip


def _read_figure(decision: Decision, name: str) -> float:
    value = decision.detail[name]
    return value if isinstance(value, int | float) else 0.0
