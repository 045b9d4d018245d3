"""Measures how far people agree with the judge or the grader, and with each other, by the labels of one set.

If the judge gave its labels for a metric, people's labels also correct the mean of this metric.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from statistics import fmean

import msgspec

from mathrag.intervals import Interval, bootstrap
from mathrag.messages import format_count
from shared.shapes import FEWEST, KINDS, Value, What, find_position
from shared.statistics.agreement import Coefficient, estimate_cohens_kappa, estimate_krippendorffs_alpha
from shared.storage.labels import CountedLabels, JudgeScore, LabelSet

MOST = 20
"""Number of disagreements that are listed."""
FEWEST_QUESTIONS = 30
"""Minimum number of labelled questions for which a mean is corrected."""
NOTHING = Coefficient(value=None)
WORDS: dict[What, tuple[str, str]] = {
    "documents": ("documents", "the judge's rating"),
    "relevance": ("documents", "the judge's rating"),
    "answers": ("answers", "the grader's verdict"),
    "support": ("sentences", "the judge's label"),
    "sufficient": ("questions", "the judge's label"),
    "addresses": ("replies", "the judge's label"),
}
"""Words for the labelled things, and for the source that labels are compared with."""

Votes = Mapping[str, Value | None]
"""Label of a task by labeller; None is an abstention."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of one labeller, or of the majority, with the judge or the grader."""

    labeller: str | None
    """Name of the labeller; null for the majority."""
    compared: int
    """Number of tasks with both a label and a rating or verdict."""
    abstained: int
    """Number of abstentions among the labels."""
    same: int
    """Number of compared tasks on which both agree."""
    kappa: Coefficient
    """Cohen's kappa, unweighted."""
    weighted_kappa: Coefficient
    """Cohen's kappa with quadratic weights."""
    confusion: tuple[tuple[int, ...], ...]
    """Number of tasks as `[label][rating or verdict]`, both in the order of the scale."""
    note: str | None
    """Why there is no kappa; null if there is one."""


class Alphas(msgspec.Struct, frozen=True, kw_only=True):
    """Krippendorff's alpha of several raters, by the distance between two ratings."""

    tasks: int
    """Number of tasks with two ratings or more."""
    nominal: Coefficient
    """Alpha if any two different ratings are equally far apart."""
    ordinal: Coefficient
    """Alpha by the ranks of the ratings."""
    interval: Coefficient
    """Alpha by the squared difference of the ratings."""
    note: str | None
    """Why there is no alpha; null if there is one."""


class LabelDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A task on which the majority disagrees with the judge or the grader."""

    number: int
    """Number of the task, from 1."""
    item: int | None
    """Index of the item in the dataset, from 0; null for a document of the gate's calibration."""
    repeat: int
    """Number of the repeat, from 0."""
    label: Value
    """Label of the majority."""
    system: Value
    """Verdict of the judge or the grader."""


class CorrectedMean(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a metric, corrected by human labels of some questions (ARES, Saad-Falcon et al. 2024)."""

    metric: str
    """Name of the metric."""
    judge: float | None
    """The judge's mean over all measured questions, each counted once; null if the job was purged."""
    questions: int
    """Number of measured questions."""
    labelled: int
    """Number of questions whose tasks all have a majority of human labels."""
    difference: float | None
    """Mean of human score minus judge score over the labelled questions; null without labelled questions."""
    corrected: Interval | None
    """The judge's mean plus `difference`, weighted by the share of scores that the judge's labels decided, with a 95 %
    bootstrap interval over questions. Null if there are too few labelled questions, or if the job was purged."""
    words: str
    """The correction in one sentence."""


class LabelAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement figures of a label set; all intervals use one seed."""

    set: str
    """Name of the label set."""
    what: What
    """What is labelled."""
    scale: tuple[Value, ...]
    """Values from worst to best."""
    blind: bool
    """Whether only blind labels count."""
    seed: int
    """Seed of the bootstrap resamples."""
    words: str
    """The agreement in one sentence."""
    tasks: int
    """Number of tasks in the set."""
    labelled: int
    """Number of tasks with a label or an abstention."""
    labels: int
    """Number of labels that count: each labeller's last label of each task."""
    abstentions: int
    """Number of abstentions among them."""
    ties: int
    """Number of tasks without a majority, because several values have the same number of labels."""
    majority: Held
    """Agreement of the majority with the judge or the grader."""
    labellers: tuple[Held, ...]
    """Agreement of each labeller with the judge or the grader."""
    people: Alphas
    """Agreement among the labellers."""
    with_system: Alphas
    """Agreement among the labellers together with the judge or the grader."""
    disagreements: tuple[LabelDisagreement, ...]
    """The first 20 tasks on which the majority disagrees with the judge or the grader, the largest difference first."""
    corrected: CorrectedMean | None
    """The corrected mean of the metric that the judge's labels belong to; null if they belong to none."""


def compute_agreement(
    of: LabelSet, counted: CountedLabels, scores: Mapping[int, JudgeScore] | None = None, *, blind: bool, seed: int
) -> LabelAgreement:
    """Compute the agreement figures of the labels that count; it takes up to a second.

    Args:
        of, counted: the set and its labels.
        scores: by item the judge's scores of the metric to correct; None if the job was purged, or without a metric.
        blind: whether only blind labels were counted.
        seed: seed of the bootstrap resamples.
    """
    votes = [vote for labels in counted.labels.values() for vote in labels.values()]
    # The most frequent label of each task, or None if several labels are tied, and whether they are.
    leading: dict[int, tuple[Value | None, bool]] = {}
    for number, labels in counted.labels.items():
        most = Counter(_list_given(labels)).most_common(2)
        tied = len(most) > 1 and most[0][1] == most[1][1]
        leading[number] = (most[0][0] if most and not tied else None), tied
    system = {task.number: task.value for task in counted.tasks}
    compare = partial(_compare, of.what, system, seed)
    majority = compare(None, {number: vote for number, (vote, tied) in leading.items() if not tied})
    by_labeller: defaultdict[str, dict[int, Value | None]] = defaultdict(dict)
    for number, labels in counted.labels.items():
        for labeller, vote in labels.items():
            by_labeller[labeller][number] = vote
    # Of each labelled task, the positions of its labels on the scale; and these with the system's rating.
    people = [[find_position(of.what, vote) for vote in _list_given(votes)] for votes in counted.labels.values()]
    both = [
        [*labels, find_position(of.what, system[number])] for number, labels in zip(counted.labels, people, strict=True)
    ]
    disagreements = [
        LabelDisagreement(number=task.number, item=task.item, repeat=task.repeat, label=label, system=task.value)
        for task in counted.tasks
        if (label := leading.get(task.number, (None, False))[0]) is not None and label != task.value
    ]
    disagreements.sort(key=lambda each: -abs(find_position(of.what, each.label) - find_position(of.what, each.system)))
    return LabelAgreement(
        set=of.name,
        what=of.what,
        scale=of.scale,
        blind=blind,
        seed=seed,
        words=_write_sentence(of.what, majority),
        tasks=of.tasks,
        labelled=len(counted.labels),
        labels=len(votes) - votes.count(None),
        abstentions=votes.count(None),
        ties=sum(tied for _, tied in leading.values()),
        majority=majority,
        labellers=tuple(compare(name, by_labeller[name]) for name in sorted(by_labeller)),
        people=_compute_alphas(of.what, people, "labels of two people", seed),
        with_system=_compute_alphas(of.what, both, f"a label and {WORDS[of.what][1]}", seed),
        disagreements=tuple(disagreements[:MOST]),
        corrected=_correct_mean(of, counted, {number: vote for number, (vote, _) in leading.items()}, scores, seed),
    )


def _correct_mean(
    of: LabelSet,
    counted: CountedLabels,
    majority: Mapping[int, Value | None],
    scores: Mapping[int, JudgeScore] | None,
    seed: int,
) -> CorrectedMean | None:
    kind = KINDS[of.what]
    if not kind.metric:
        return None
    tasks: defaultdict[int, list[tuple[Value | None, Value]]] = defaultdict(list)
    for task in counted.tasks:
        if task.item is not None:
            tasks[task.item].append((majority.get(task.number), task.value))
    # By item: people's score minus the judge's.
    differences = {
        item: fmean(
            kind.worth.get(vote, 0.0) - kind.worth.get(system, 0.0) for vote, system in pairs if vote is not None
        )
        for item, pairs in tasks.items()
        if all(vote is not None for vote, _ in pairs)
    }
    enough = scores is not None and len(differences) >= FEWEST_QUESTIONS
    found = CorrectedMean(
        metric=kind.metric,
        judge=fmean(score.value for score in scores.values()) if scores else None,
        questions=len(scores or ()),
        labelled=len(differences),
        difference=fmean(differences.values()) if differences else None,
        corrected=estimate_corrected_mean(scores, differences, seed) if scores and enough else None,
        words="",
    )
    return msgspec.structs.replace(found, words=_write_correction(found))


def estimate_corrected_mean(
    scores: Mapping[int, JudgeScore], differences: Mapping[int, float], seed: int
) -> Interval | None:
    """Estimate the mean of `scores` plus the mean of `differences`, with a 95 % bootstrap interval over questions, both
    clipped to [0, 1].

    Args:
        scores: the judge's scores by item.
        differences: people's scores minus the judge's, of the items that people have labelled.
        seed: seed of the resamples.
    """
    # A labelled question stands for as many as there are for each labelled one. So the mean over all questions is the
    # corrected mean, and resampling questions resamples both parts; labelled and other questions keep their numbers.
    judged = fmean(score.judged for score in scores.values())
    stands_for = Fraction(len(scores), len(differences)) * Fraction(judged)
    corrected = (Fraction(scores[item].value) + Fraction(each) * stands_for for item, each in differences.items())
    others = (Fraction(score.value) for item, score in scores.items() if item not in differences)
    found = bootstrap([Counter(corrected), Counter(others)], seed=seed)
    if found is None or found.value is None:
        return None
    value, low, high = (min(1.0, max(0.0, each)) for each in (found.value, found.low, found.high))
    return Interval(value=value, low=low, high=high)


def _write_correction(found: CorrectedMean) -> str:
    if found.judge is None:
        return f"The job was purged, so the mean of {found.metric} is not known and cannot be corrected"
    judge = f"The judge's mean of {found.metric} is {found.judge:.2f} over {found.questions} questions"
    labelled = format_count(found.labelled, "question is", "questions are")
    if found.corrected is None:
        return f"{judge}; {labelled} labelled completely, and a corrected mean needs {FEWEST_QUESTIONS}"
    value, low, high = found.corrected.value, found.corrected.low, found.corrected.high
    span = f"95 %: {low:.2f} to {high:.2f}"
    return f"{judge}; corrected by people's labels of {found.labelled} questions it is {value:.2f} ({span})"


def _write_sentence(what: What, majority: Held) -> str:
    things, _ = WORDS[what]
    if not majority.compared:
        return f"None of the {things} has been labelled yet."
    sentence = f"People and the {KINDS[what].judged_by} say the same of {majority.same} of {majority.compared} {things}"
    name, found = ("kappa", majority.kappa) if what == "answers" else ("weighted kappa", majority.weighted_kappa)
    if found.value is None:
        return f"{sentence}; {majority.note}."
    span = "" if found.low is None or found.high is None else f" (95 %: {found.low:.2f} to {found.high:.2f})"
    return f"{sentence}; {name} {found.value:.2f}{span}."


def _list_given(votes: Votes) -> list[Value]:
    return [vote for vote in votes.values() if vote is not None]


def _compare(
    what: What, system: Mapping[int, Value], seed: int, labeller: str | None, said: Mapping[int, Value | None]
) -> Held:
    pairs = [
        (find_position(what, vote), find_position(what, system[number]))
        for number, vote in said.items()
        if vote is not None
    ]
    counts, scale = Counter(pairs), range(len(KINDS[what].scale))
    note = _explain_undefined_kappa(what, pairs)
    kappa, weighted = (
        NOTHING if note else estimate_cohens_kappa(pairs, len(scale), level, seed) for level in ("nominal", "interval")
    )
    return Held(
        labeller=labeller,
        compared=len(pairs),
        abstained=len(said) - len(pairs),
        same=sum(one == other for one, other in pairs),
        kappa=kappa,
        weighted_kappa=weighted,
        confusion=tuple(tuple(counts[one, other] for other in scale) for one in scale),
        note=note,
    )


def _compute_alphas(what: What, raters: Sequence[Sequence[int]], rated: str, seed: int) -> Alphas:
    units = [unit for unit in raters if len(unit) > 1]
    scale, enough = len(KINDS[what].scale), len(units) >= FEWEST
    nominal, ordinal, interval = (
        estimate_krippendorffs_alpha(units, scale, level, seed) if enough else NOTHING
        for level in ("nominal", "ordinal", "interval")
    )
    note = None if enough else _explain_too_few(len(units), rated)
    if enough and interval.value is None:
        note = "all ratings are the same, so chance alone explains the agreement"
    return Alphas(tasks=len(units), nominal=nominal, ordinal=ordinal, interval=interval, note=note)


def _explain_undefined_kappa(what: What, pairs: Sequence[tuple[int, int]]) -> str | None:
    """Return the reason for a missing kappa: raters who give the same value to everything agree by chance alone."""
    if len(pairs) < FEWEST:
        return _explain_too_few(len(pairs), f"a label and {WORDS[what][1]}")
    labels, system = map(set, zip(*pairs, strict=True))
    if len(labels) > 1 and len(system) > 1:
        return None
    who = "the labels say" if len(labels) == 1 else f"the {KINDS[what].judged_by} says"
    return f"{who} the same of all of them, so kappa is undefined"


def _explain_too_few(tasks: int, rated: str) -> str:
    return f"{format_count(tasks, 'task has', 'tasks have')} {rated}: figures of agreement begin at {FEWEST}"
