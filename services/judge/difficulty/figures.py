"""Measure a classifier on problems to which it was not fitted, with 95 % confidence intervals."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, rankdata

from services.judge.difficulty.problems import MathProblem
from shared.statistics.intervals import Interval, wilson

RESAMPLES = 2000
SEED = 0
CUT = 0.5
"""Probability from which a problem is called hard; the default of `route.threshold`."""
BINS = 10

Vector = NDArray[np.float64]


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Compares predicted with observed difficulty over problems of about the same probability."""

    n: int
    probability: float
    """Their mean probability of being hard."""
    hard: Interval
    """The share that is hard."""


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Problems of one level or subject."""

    n: int
    called_hard: Interval
    accuracy: Interval
    auc: Interval | None
    """None if the problems are all hard, or all easy."""


class ThresholdFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a threshold of `route`."""

    threshold: float
    easy: Interval
    """Share of the problems that take the rule path."""
    hard_among_easy: Interval
    """Share of hard problems among them."""


class ClassifierFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one classifier on one set of problems."""

    n: int
    hard: float
    """Share of hard problems, which is the accuracy of calling all of them hard."""
    accuracy: Interval
    auc: Interval
    brier: float
    """Mean squared error of the probability."""
    calibration_error: float
    """Mean distance of probability and share over the bins of `calibration`, weighted by their sizes."""
    calibration: list[Bin]
    levels: dict[str, GroupFigures]
    subjects: dict[str, GroupFigures]
    cuts: list[ThresholdFigures]


class RivalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of another kind of classifier that was fitted to, and measured on, the same problems."""

    accuracy: Interval
    auc: Interval
    advantage: Interval
    """By how much the shipped classifier's area is larger."""


class RecordedProbability(msgspec.Struct, frozen=True, kw_only=True):
    """A problem and its probability by scikit-learn."""

    question: str
    probability: float


class PartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures on problems to which nothing was fitted."""

    shipped: ClassifierFigures
    rivals: dict[str, RivalFigures]


class ClassifierEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """All figures that are measured when the classifier is fitted."""

    fitted: int
    """Number of problems to which it was fitted."""
    strengths: dict[str, float]
    """Inverse strength of the penalty that cross-validation chose, by kind of classifier."""
    parts: dict[str, PartFigures]
    recorded: list[RecordedProbability]


def measure_figures(problems: Sequence[MathProblem], probabilities: Vector) -> ClassifierFigures:
    hard = np.array([problem.hard for problem in problems], dtype=np.float64)
    bins = measure_calibration(hard, probabilities)
    gaps = [each.n * abs(each.probability - (each.hard.value or 0)) for each in bins]
    return ClassifierFigures(
        n=len(problems),
        hard=float(hard.mean()),
        accuracy=measure_accuracy(hard, probabilities),
        auc=measure_area(hard, probabilities),
        brier=float(((probabilities - hard) ** 2).mean()),
        calibration_error=sum(gaps) / len(problems),
        calibration=bins,
        levels=_measure_groups(hard, probabilities, [f"Level {problem.level}" for problem in problems]),
        subjects=_measure_groups(hard, probabilities, [problem.subject for problem in problems]),
        cuts=[_measure_cut(hard, probabilities, threshold / BINS) for threshold in range(1, BINS)],
    )


def measure_rival(problems: Sequence[MathProblem], shipped: Vector, others: Vector) -> RivalFigures:
    """Measure another classifier (`others`) and compare it with the shipped one."""
    hard = np.array([problem.hard for problem in problems], dtype=np.float64)
    return RivalFigures(
        accuracy=measure_accuracy(hard, others),
        auc=measure_area(hard, others),
        advantage=measure_advantage(hard, shipped, others),
    )


def measure_accuracy(hard: Vector, probabilities: Vector) -> Interval:
    """Measure the share of problems that are classified correctly at `CUT`."""
    return wilson(int(((probabilities >= CUT) == (hard > 0)).sum()), len(hard))


def measure_area(hard: Vector, probabilities: Vector) -> Interval:
    """Measure the area under the ROC curve, with a bootstrap over problems."""
    return _estimate_interval((hard, probabilities), compute_auc)


def measure_advantage(hard: Vector, probabilities: Vector, others: Vector) -> Interval:
    """Measure by how much the first area is larger than that of `others`, with a paired bootstrap over problems."""
    return _estimate_interval(
        (hard, probabilities, others),
        lambda y, left, right, axis: compute_auc(y, left, axis=axis) - compute_auc(y, right, axis=axis),
    )


def compute_auc(hard: Vector, probabilities: Vector, axis: int = -1) -> Any:
    """Compute how often a hard problem gets a higher probability than an easy one (Mann-Whitney, ties count half)."""
    positive = hard.sum(axis=axis)
    ranks = (rankdata(probabilities, axis=axis) * hard).sum(axis=axis)
    return (ranks - positive * (positive + 1) / 2) / (positive * (hard.shape[axis] - positive))


def measure_calibration(hard: Vector, probabilities: Vector) -> list[Bin]:
    """Sort problems into bins of equal width by probability, without empty bins."""
    places = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    members = [places == place for place in range(BINS) if (places == place).any()]
    return [
        Bin(
            n=int(inside.sum()),
            probability=float(probabilities[inside].mean()),
            hard=wilson(int(hard[inside].sum()), int(inside.sum())),
        )
        for inside in members
    ]


def _estimate_interval(data: tuple[Vector, ...], statistic: Callable[..., Any]) -> Interval:
    found = bootstrap(
        data, statistic, n_resamples=RESAMPLES, paired=True, vectorized=True, method="percentile",
        batch=200, rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Interval(value=float(statistic(*data, axis=-1)), low=float(found.low), high=float(found.high))


def _measure_groups(hard: Vector, probabilities: Vector, names: Sequence[str]) -> dict[str, GroupFigures]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    return {name: _measure_group(hard[places[name]], probabilities[places[name]]) for name in sorted(places)}


def _measure_group(hard: Vector, probabilities: Vector) -> GroupFigures:
    return GroupFigures(
        n=len(hard),
        called_hard=wilson(int((probabilities >= CUT).sum()), len(hard)),
        accuracy=measure_accuracy(hard, probabilities),
        auc=measure_area(hard, probabilities) if 0 < hard.sum() < len(hard) else None,
    )


def _measure_cut(hard: Vector, probabilities: Vector, threshold: float) -> ThresholdFigures:
    easy = probabilities < threshold
    count = int(easy.sum())
    return ThresholdFigures(
        threshold=threshold,
        easy=wilson(count, len(hard)),
        hard_among_easy=wilson(int(hard[easy].sum()), count),
    )
