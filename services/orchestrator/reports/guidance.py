"""What rules did for the questions of a job. Pure: rows in, figures out."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from services.orchestrator.reports.tally import Accuracy, Grades
from shared.contracts.samples import Decision
from shared.rag import guidance, rule_lists
from shared.storage.samples import SampleRow, Traced

MOST = 20
"""Rules that a report lists."""


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule did."""

    number: int
    """In its bank, from 0."""
    rule: str
    certainty: float
    samples: int
    """That it guided."""
    documents: int
    """Candidates that it brought them, alone or with other rules."""
    accuracy: Accuracy
    """Of these samples."""


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """How rules guided the samples of a job."""

    bank: str
    """Name of the rule bank; "": none was followed."""
    relations: dict[str, int]
    """Samples by how their relation was found: named by the item, by a phrase, by the judge, or none."""
    unguided: int
    """Samples without a rule: they were searched for plainly."""
    with_rules: Accuracy
    without_rules: Accuracy
    used: int
    """Rules that guided any sample."""
    rules: list[RuleFigures]
    """The 20 that guided most samples."""


class Guiding:
    """Adds samples up, which come in dataset order."""

    def __init__(self) -> None:
        self._bank = ""
        self._relations: Counter[str] = Counter()
        self._with, self._without = Grades(), Grades()
        self._rules: dict[int, _Rule] = {}
        self._unguided = 0

    def add(self, samples: Iterable[Traced]) -> None:
        """Count these samples in; those of pipelines without rules are left out."""
        for row, outcome in samples:
            if outcome is not None:
                self._add(row, outcome.trace.decisions)

    def figures(self) -> Guided | None:
        """The sums; None where no sample looked for rules."""
        if not self._relations:
            return None
        most = sorted(self._rules, key=lambda number: (-self._rules[number].samples, number))[:MOST]
        return Guided(
            bank=self._bank, relations=dict(sorted(self._relations.items())), unguided=self._unguided,
            with_rules=self._with.accuracy(), without_rules=self._without.accuracy(), used=len(self._rules),
            rules=[self._rules[number].figures(number) for number in most],
        )  # fmt: skip

    def _add(self, row: SampleRow, decisions: Iterable[Decision]) -> None:
        rules = [each for each in decisions if each.stage == rule_lists.STAGE]
        for each in decisions:
            if each.stage == guidance.STAGE:
                self._bank = str(each.detail["bank"])
                self._relations[each.action] += 1
                self._unguided += not rules
                (self._with if rules else self._without).add(row.index, row.correct)
        for each in rules:
            self._rules.setdefault(int(_figure(each, "number")), _Rule(each)).add(row, each)


class _Rule:
    """Counts what one rule did."""

    def __init__(self, decision: Decision) -> None:
        self._text = str(decision.detail["rule"])
        self._certainty = _figure(decision, "certainty")
        self._grades = Grades()
        self._documents = 0
        self.samples = 0

    def add(self, row: SampleRow, decision: Decision) -> None:
        """Count a sample in that it guided."""
        documents = decision.detail.get("documents")
        self.samples += 1
        self._documents += len(documents) if isinstance(documents, list) else 0
        self._grades.add(row.index, row.correct)

    def figures(self, number: int) -> RuleFigures:
        """The sums."""
        return RuleFigures(
            number=number, rule=self._text, certainty=self._certainty, samples=self.samples,
            documents=self._documents, accuracy=self._grades.accuracy(),
        )  # fmt: skip


def _figure(decision: Decision, name: str) -> float:
    value = decision.detail[name]
    return value if isinstance(value, int | float) else 0.0
