"""Measures how rules guided the questions of a job. Pure: rows in, figures out."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from services.orchestrator.reports.tally import Accuracy, Grades
from shared.rag import guidance
from shared.samples import Decision, SampleRow
from shared.storage.samples import SampleWithOutcome

MOST = 20
"""Number of rules in a report."""


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule contributed."""

    number: int
    """Number in its bank, from 0."""
    rule: str
    certainty: float
    samples: int
    """Samples that it guided."""
    documents: int
    """Candidates that it contributed to them, alone or with other rules."""
    accuracy: Accuracy
    """Accuracy on these samples."""


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """How rules guided the samples of a job."""

    bank: str
    """Name of the rule bank; "" if no bank was used."""
    relations: dict[str, int]
    """Samples by how their relation was found: named by the item, by a phrase, by the judge, or not at all."""
    unguided: int
    """Samples without a matching rule; their question was searched without guidance."""
    with_rules: Accuracy
    without_rules: Accuracy
    used: int
    """Number of rules that guided a sample."""
    rules: list[RuleFigures]
    """The 20 rules that guided most samples."""


class Guiding:
    """Collects samples, which come in dataset order."""

    def __init__(self) -> None:
        self._bank = ""
        self._relations: Counter[str] = Counter()
        self._with, self._without = Grades(), Grades()
        self._rules: dict[int, _Rule] = {}
        self._unguided = 0

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples; those of pipelines without rules are left out."""
        for row, outcome in samples:
            if outcome is not None:
                self._add(row, outcome.trace.decisions)

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

    def _add(self, row: SampleRow, decisions: Iterable[Decision]) -> None:
        rules = [each for each in decisions if each.stage == guidance.RULE_STAGE]
        for each in decisions:
            if each.stage == guidance.RELATION_STAGE:
                self._bank = str(each.detail["bank"])
                self._relations[each.action] += 1
                self._unguided += not rules
                (self._with if rules else self._without).add(row.index, row.correct)
        for each in rules:
            self._rules.setdefault(int(_read_figure(each, "number")), _Rule(each)).add(row, each)


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
