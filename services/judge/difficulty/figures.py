"""What the classifier is worth on problems that it was not fitted to; every figure with its interval (95 %)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, rankdata

from services.judge.difficulty.problems import Problem
from shared.statistics.intervals import Interval, wilson

RESAMPLES = 2000
SEED = 0
CUT = 0.5
"""Probability from which a problem is called hard; the default of `route.threshold`."""
BINS = 10

Vector = NDArray[np.float64]


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Problems of about the same probability."""

    n: int
    probability: float
    """Their mean probability of being hard."""
    hard: Interval
    """The share that is."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Problems of one level or subject."""

    n: int
    called_hard: Interval
    accuracy: Interval
    auc: Interval | None
    """None: the problems are all hard, or all easy."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What a threshold of `route` would do."""

    threshold: float
    easy: Interval
    """Share of the problems that take the rule path."""
    hard_among_easy: Interval
    """Share of those that are hard all the same."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one classifier on one set of problems."""

    n: int
    hard: float
    """Share of hard problems: what calling all of them hard would get right."""
    accuracy: Interval
    auc: Interval
    brier: float
    """Mean squared error of the probability."""
    calibration_error: float
    """Mean distance of probability and share in `calibration`, by their sizes."""
    calibration: list[Bin]
    levels: dict[str, Group]
    subjects: dict[str, Group]
    cuts: list[Cut]


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    """Another kind of classifier, fitted to the same problems and measured on the same."""

    accuracy: Interval
    auc: Interval
    advantage: Interval
    """How much larger the shipped classifier's area is."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A problem and its probability as the training library gives it."""

    question: str
    probability: float


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Problems that nothing was fitted to."""

    shipped: Figures
    rivals: dict[str, Rival]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is measured when the classifier is fitted."""

    fitted: int
    """Problems that it was fitted to."""
    strengths: dict[str, float]
    """By kind, the inverse strength of the penalty that cross-validation chose."""
    parts: dict[str, Part]
    recorded: list[Recorded]


def figures(problems: Sequence[Problem], probabilities: Vector) -> Figures:
    """All of them."""
    hard = np.array([problem.hard for problem in problems], dtype=np.float64)
    bins = calibration(hard, probabilities)
    gaps = [each.n * abs(each.probability - (each.hard.value or 0)) for each in bins]
    return Figures(
        n=len(problems),
        hard=float(hard.mean()),
        accuracy=accuracy(hard, probabilities),
        auc=area(hard, probabilities),
        brier=float(((probabilities - hard) ** 2).mean()),
        calibration_error=sum(gaps) / len(problems),
        calibration=bins,
        levels=_groups(hard, probabilities, [f"Level {problem.level}" for problem in problems]),
        subjects=_groups(hard, probabilities, [problem.subject for problem in problems]),
        cuts=[_cut(hard, probabilities, threshold / BINS) for threshold in range(1, BINS)],
    )


def rival(problems: Sequence[Problem], shipped: Vector, others: Vector) -> Rival:
    """The others' figures beside the shipped one's."""
    hard = np.array([problem.hard for problem in problems], dtype=np.float64)
    return Rival(accuracy=accuracy(hard, others), auc=area(hard, others), advantage=advantage(hard, shipped, others))


def accuracy(hard: Vector, probabilities: Vector) -> Interval:
    """Share of the problems that are called what they are at `CUT`."""
    return wilson(int(((probabilities >= CUT) == (hard > 0)).sum()), len(hard))


def area(hard: Vector, probabilities: Vector) -> Interval:
    """Area under the ROC curve, by bootstrap over problems."""
    return _bootstrapped((hard, probabilities), auc)


def advantage(hard: Vector, probabilities: Vector, others: Vector) -> Interval:
    """How much larger the first's area is than the others', by bootstrap over the problems of both."""
    return _bootstrapped(
        (hard, probabilities, others),
        lambda y, left, right, axis: auc(y, left, axis=axis) - auc(y, right, axis=axis),
    )


def auc(hard: Vector, probabilities: Vector, axis: int = -1) -> Any:
    """The probability that a hard problem gets the higher probability: the rank sum of Mann and Whitney, ties half."""
    positive = hard.sum(axis=axis)
    ranks = (rankdata(probabilities, axis=axis) * hard).sum(axis=axis)
    return (ranks - positive * (positive + 1) / 2) / (positive * (hard.shape[axis] - positive))


def calibration(hard: Vector, probabilities: Vector) -> list[Bin]:
    """Equal widths, empty ones left out."""
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


def _bootstrapped(data: tuple[Vector, ...], statistic: Callable[..., Any]) -> Interval:
    found = bootstrap(
        data, statistic, n_resamples=RESAMPLES, paired=True, vectorized=True, method="percentile",
        batch=200, rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Interval(value=float(statistic(*data, axis=-1)), low=float(found.low), high=float(found.high))


def _groups(hard: Vector, probabilities: Vector, names: Sequence[str]) -> dict[str, Group]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    return {name: _group(hard[places[name]], probabilities[places[name]]) for name in sorted(places)}


def _group(hard: Vector, probabilities: Vector) -> Group:
    return Group(
        n=len(hard),
        called_hard=wilson(int((probabilities >= CUT).sum()), len(hard)),
        accuracy=accuracy(hard, probabilities),
        auc=area(hard, probabilities) if 0 < hard.sum() < len(hard) else None,
    )


def _cut(hard: Vector, probabilities: Vector, threshold: float) -> Cut:
    easy = probabilities < threshold
    count = int(easy.sum())
    return Cut(
        threshold=threshold,
        easy=wilson(count, len(hard)),
        hard_among_easy=wilson(int(hard[easy].sum()), count),
    )
