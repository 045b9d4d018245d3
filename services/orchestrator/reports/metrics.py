"""Report the metrics of a job: means, failed measurements, and controls."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mathrag.messages import format_count
from shared.calls import MATHEMATICAL
from shared.pipelines.binding import Pin
from shared.rag.answer_metrics import list_scores
from shared.rag.prompts import Language, detect_language
from shared.samples import ControlScore, MetricScore, SampleRow
from shared.statistics.agreement import compute_auroc_of
from shared.statistics.significance import Mean, estimate_mean
from shared.storage.samples import SampleWithOutcome

FEWEST_LABELS = 20
"""Number of labels from which a report warns if nearly all of them are the same."""
ONE_LABEL = 0.95
"""Share of labels that are the same from which a report warns."""
MANY_FAILURES = 0.05
"""Share of failed samples from which a report warns."""
APART = 0.1
"""Difference between a score and its swapped control below which a report warns."""
FEWEST_CONTROLS = 5
"""Number of measured controls from which a mean says something."""
COPIED = 0.9
"""Share of copied controls below which a report warns."""


class ControlFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Means of a score's controls over the items drawn for them; null if fewer than five were measured."""

    items: int
    """Number of items with a control; each figure is computed over those that could be measured."""
    swapped: float | None
    """Mean score with the question of another item, or with documents drawn from the corpus. It should be low."""
    copied: float | None
    """Share of documents that are rated as supporting their own sentence. It should be 1."""
    reversed: float | None
    """Share of labels that do not change when the documents are in reverse order. It should be 1."""


class MetricFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One score over a job's answers."""

    mean: Mean
    """Mean over items, each counted once, with Student's 95 % interval."""
    measured: int
    """Number of answers with a value."""
    not_applicable: dict[str, int]
    """Number of answers to which the metric does not apply, by reason."""
    failed: int
    """Number of answers without a value because labels are missing."""
    failures: dict[str, int]
    """Number of these answers by the kind of failure; an answer with several kinds counts for each."""
    worst: float | None
    """Lower bound of the mean: the missing labels are counted as bad as possible. Null if nothing failed."""
    best: float | None
    """Upper bound of the mean: the missing labels are counted as good as possible. Null if nothing failed."""
    labels: dict[str, int]
    """Number of the judge model's labels, by label."""
    languages: dict[Language, Mean]
    """The mean by language of the question: Chinese (`zh`) or any other (`en`); empty unless both occur."""
    auroc: float | None
    """Probability that a correct answer has a higher score than a wrong one, where ties count half; null unless there
    are both."""
    controls: ControlFigures | None
    """Controls that test the judge model; null without controls (`metrics.controls`)."""


class Metrics:
    """Counts the scores of samples, which come in dataset order."""

    def __init__(self) -> None:
        self._scores: dict[str, _Tally] = {}
        self._sufficiency: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, samples: Iterable[SampleWithOutcome]) -> None:
        """Count these samples; those without metrics are left out."""
        for row, outcome in samples:
            if outcome is None or outcome.metrics is msgspec.UNSET:
                continue
            for name, score in outcome.metrics.items():
                self._scores.setdefault(name, _Tally()).add(row, score)
            for name, control in (outcome.controls or {}).items():
                self._scores[name].controls.append(control)
            self._count_sufficiency(row, outcome.metrics, declined=outcome.refusal is not None)

    def _count_sufficiency(self, row: SampleRow, scores: Mapping[str, MetricScore], *, declined: bool) -> None:
        sufficiency = scores.get("context_sufficiency")
        if sufficiency is None or sufficiency.value is None:
            return
        said = scores.get("declined")
        declined = declined or (said is not None and said.value == 1)
        ended = "declined" if declined else {True: "correct", False: "wrong", None: "ungraded"}[row.correct]
        self._sufficiency["sufficient" if sufficiency.value else "insufficient"][ended] += 1

    def figures(self) -> dict[str, MetricFigures]:
        """Return the figures of each score, in the order in which metrics are listed."""
        listed = {name: place for place, name in enumerate(list_scores())}
        names = sorted(self._scores, key=lambda name: listed.get(name, len(listed)))
        return {name: self._scores[name].figures() for name in names}

    def sufficiency(self) -> dict[str, dict[str, int]]:
        """Return the answers by whether the documents were sufficient, and by how they ended."""
        return {name: dict(sorted(counts.items())) for name, counts in sorted(self._sufficiency.items())}


class _Tally:
    """The values of one score."""

    def __init__(self) -> None:
        self.controls: list[ControlScore] = []
        self._values: dict[int, list[tuple[float | None, float, float]]] = {}
        self._languages: dict[int, Language] = {}
        self._reasons: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._labels: Counter[int] = Counter()
        self._measured = self._failed = 0
        self._by_verdict: dict[bool, list[float]] = {True: [], False: []}

    def add(self, row: SampleRow, score: MetricScore) -> None:
        self._labels.update(part.label for part in score.parts if part.label is not None)
        if score.not_applicable:
            self._reasons[score.not_applicable] += 1
            return
        low, high = (score.value, score.value) if score.value is not None else (score.low or 0.0, score.high or 0.0)
        self._values.setdefault(row.index, []).append((score.value, low, high))
        self._languages.setdefault(row.index, detect_language(row.question))
        if score.value is None:
            self._failed += 1
            self._failures.update(score.failures.keys())
            return
        self._measured += 1
        if row.correct is not None:
            self._by_verdict[row.correct].append(score.value)

    def figures(self) -> MetricFigures:
        known = {at: [value for value, _, _ in each if value is not None] for at, each in self._values.items()}
        means = {at: sum(values) / len(values) for at, values in known.items() if values}
        languages = sorted({self._languages[at] for at in means})
        worst, best = (
            sum(sum(repeat[at] or 0.0 for repeat in repeats) / len(repeats) for repeats in self._values.values())
            / len(self._values)
            if self._failed
            else None
            for at in (1, 2)
        )
        return MetricFigures(
            mean=estimate_mean(list(means.values())),
            measured=self._measured,
            not_applicable=dict(sorted(self._reasons.items())),
            failed=self._failed,
            failures=dict(sorted(self._failures.items())),
            worst=worst,
            best=best,
            labels={str(label): count for label, count in sorted(self._labels.items())},
            languages={
                each: estimate_mean([mean for at, mean in means.items() if self._languages[at] == each])
                for each in languages
                if len(languages) > 1
            },
            auroc=_compute_auroc(self._by_verdict[True], self._by_verdict[False]),
            controls=_average_controls(self.controls),
        )


def _average_controls(controls: list[ControlScore]) -> ControlFigures | None:
    if not controls:
        return None
    means = {}
    for way in ("swapped", "copied", "reversed"):
        known = [value for value in (getattr(each, way) for each in controls) if value is not None]
        # A mean over fewer says nothing.
        means[way] = sum(known) / len(known) if len(known) >= FEWEST_CONTROLS else None
    return ControlFigures(items=len(controls), **means)


def _compute_auroc(right: list[float], wrong: list[float]) -> float | None:
    """Compute how often a right answer scores higher than a wrong one; None if all are right or all are wrong."""
    return float(compute_auroc_of(right, wrong)) if right and wrong else None


def list_metric_warnings(found: Mapping[str, MetricFigures], grader: str, pins: Mapping[str, Pin]) -> list[str]:
    """Return warnings about the metrics."""
    notes = []
    for name, each in found.items():
        answers = each.measured + each.failed
        if each.failed > MANY_FAILURES * answers:
            failed = format_count(each.failed, "answer", "answers")
            notes.append(f"{name}: {failed} of {answers} could not be measured; see worst and best")
        notes += _list_judge_warnings(name, each)
    judge, generator = pins.get("judge"), pins.get("generate")
    if found and judge is not None and generator is not None and judge.hash == generator.hash:
        notes.append("the judge model of the metrics is the generator: models prefer their own texts")
    if "faithfulness" in found and grader in MATHEMATICAL:
        notes.append("faithfulness means little in mathematics: a worked problem does not say another one's answer")
    return notes


def _list_judge_warnings(name: str, found: MetricFigures) -> Iterator[str]:
    """Warn if the judge model gives itself away: by its controls, or else by always giving the same label."""
    controls, mean = found.controls, found.mean.value
    if controls is not None and controls.copied is not None and controls.copied < COPIED:
        share = f"{100 * controls.copied:.0f} %"
        yield f"{name}: the judge model finds only {share} of documents to say what their own sentence says"
    if controls is not None and controls.swapped is not None and mean is not None:
        if mean - controls.swapped < APART:
            yield (
                f"{name}: the score is {mean:.2f}, and {controls.swapped:.2f} with material of other items: the judge"
                " model does not tell them apart, so the score means nothing"
            )
        return
    given = sum(found.labels.values())
    label, count = max(found.labels.items(), key=lambda pair: pair[1], default=("", 0))
    if given >= FEWEST_LABELS and count >= ONE_LABEL * given:
        yield f"{name}: {count} of {given} labels are {label}: the judge model may not tell answers apart"
