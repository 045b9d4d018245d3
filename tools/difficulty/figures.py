"""Figures of the difficulty classifier on MATH's problems, and the card that shows them."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from mathrag.intervals import Interval, wilson
from shared.statistics.agreement import compute_auroc

HARD = 4
"""The first level that is hard. Levels 1 to 3 against 4 and 5 is how easy-to-hard generalisation is studied on MATH
(Sun et al. 2024, "Easy-to-Hard Generalization"), and it splits the training part nearly in half (47 to 53 %), so that
a probability of 1/2 means something and no class is learned from few examples."""
FOLDS = 5
"""Number of parts, of which one is held out."""


class MathProblem(NamedTuple):
    """A problem, of which the classifier sees only the text."""

    id: str
    text: str
    subject: str
    level: int

    @property
    def hard(self) -> bool:
        """Whether its level is `HARD` or above."""
        return self.level >= HARD


class ProblemSplit(NamedTuple):
    """Separates the problems to fit to from those to measure on; no problem is in both."""

    fitted: list[MathProblem]
    held_out: list[MathProblem]


def read_problems(path: Path) -> list[MathProblem]:
    """Read the problems of a file in MATH-500's format, without those of "Level ?" (two in MATH)."""
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return [
        MathProblem(row["unique_id"], row["problem"], row["subject"], int(row["level"][-1]))
        for row in rows
        if row["level"][-1].isdigit()
    ]


def split_problems(problems: Sequence[MathProblem]) -> ProblemSplit:
    """Split every subject and level in the same proportion, deterministically by the SHA-256 of the problems' ids."""
    strata: defaultdict[tuple[str, int], list[MathProblem]] = defaultdict(list)
    for problem in problems:
        strata[problem.subject, problem.level].append(problem)
    held_out: set[str] = set()
    for stratum in strata.values():
        drawn = sorted((problem.id for problem in stratum), key=lambda each: sha256(each.encode()).digest())
        held_out.update(drawn[: round(len(stratum) / FOLDS)])
    return ProblemSplit(
        [problem for problem in problems if problem.id not in held_out],
        [problem for problem in problems if problem.id in held_out],
    )


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
    cuts = []
    for threshold in (number / BINS for number in range(1, BINS)):
        easy = probabilities < threshold
        among_easy = wilson(int(hard[easy].sum()), int(easy.sum()))
        share = wilson(int(easy.sum()), len(hard))
        cuts.append(ThresholdFigures(threshold=threshold, easy=share, hard_among_easy=among_easy))
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
        cuts=cuts,
    )


def measure_rival(problems: Sequence[MathProblem], shipped: Vector, others: Vector) -> RivalFigures:
    """Measure another classifier (`others`) and compare it with the shipped one."""
    hard = np.array([problem.hard for problem in problems], dtype=np.float64)
    accuracy, area = measure_accuracy(hard, others), measure_area(hard, others)
    return RivalFigures(accuracy=accuracy, auc=area, advantage=measure_advantage(hard, shipped, others))


def measure_accuracy(hard: Vector, probabilities: Vector) -> Interval:
    """Measure the share of problems that are classified correctly at `CUT`."""
    return wilson(int(((probabilities >= CUT) == (hard > 0)).sum()), len(hard))


def measure_area(hard: Vector, probabilities: Vector) -> Interval:
    """Measure the area under the ROC curve, with a bootstrap over problems."""
    return _estimate_interval((hard, probabilities), compute_auroc)


def measure_advantage(hard: Vector, probabilities: Vector, others: Vector) -> Interval:
    """Measure by how much the first area is larger than that of `others`, with a paired bootstrap over problems."""
    return _estimate_interval(
        (hard, probabilities, others),
        lambda y, left, right, axis: compute_auroc(y, left, axis=axis) - compute_auroc(y, right, axis=axis),
    )


def measure_calibration(hard: Vector, probabilities: Vector) -> list[Bin]:
    """Sort problems into bins of equal width by probability, without empty bins."""
    places = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    bins = []
    for inside in (places == place for place in range(BINS) if (places == place).any()):
        n, share = int(inside.sum()), float(probabilities[inside].mean())
        bins.append(Bin(n=n, probability=share, hard=wilson(int(hard[inside].sum()), n)))
    return bins


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
    groups = {}
    for name in sorted(places):
        levels, estimates = hard[places[name]], probabilities[places[name]]
        groups[name] = GroupFigures(
            n=len(levels),
            called_hard=wilson(int((estimates >= CUT).sum()), len(levels)),
            accuracy=measure_accuracy(levels, estimates),
            auc=measure_area(levels, estimates) if 0 < levels.sum() < len(levels) else None,
        )
    return groups


# Render the classifier's card, `models/difficulty/README.md`, with the figures of the evaluation.

HEAD = """\
# Difficulty classifier

The classifier estimates, from the text of a problem alone, the probability that the problem is *hard*: level 4 or 5 of
MATH, against levels 1 to 3. It is a logistic regression over the shipped static embeddings ({fitted:,} problems, 379
weights and a bias, in `weights.json`). `shared/models/difficulty.py` reads it with numpy alone;
`docs/how-to/retrieval.md#routing` explains its use.

Licence: MIT, like the data (MATH, Hendrycks et al. 2021).

These commands make the files in two minutes on a processor; do not edit them by hand:

    .venv/bin/pip install -c requirements/base.txt -r requirements/train.in
    .venv/bin/python -m tools.difficulty --data MATH

## Data

The data are MATH's training part without the two problems of "Level ?". A fifth of every subject and level is held out,
by the SHA-256 of the problem's id. Cross-validation inside the fitted part chose the strength of the penalty. Test-dev
is 1,000 of MATH's test problems; it was used only for these tables, and for no choice.

Levels 1 to 3 are called easy because this split is nearly even, and because easy-to-hard generalisation is studied
on MATH with the same border (Sun et al. 2024).

All intervals are at 95 %: shares by Wilson, areas under the ROC curve by bootstrap over problems.
"""
CALIBRATION = """
Brier score {:.3f}; mean distance between probability and share of hard problems {:.3f}:
"""
LIMITS = """\
## Limits

- It is a weak classifier: it ranks three of four random pairs of a hard and an easy problem rightly. Words
  (TF-IDF), and length with the embeddings, are separably better. Only the embeddings are shipped, because the paper
  proposes to classify the meaning of a question, their vectors exist already, and 379 numbers can be inspected.
- Levels come from the contests and the annotators, and do not measure the difficulty for a model. Most errors are on
  levels 3 and 4, on both sides of the border.
- It is a little worse on test-dev than on the held-out fifth, because the embeddings were refined on all of MATH's
  training part, problems and solutions, but without levels. Quote test-dev.
- It fits only English and mathematics of MATH's kind. Chinese questions, and questions without a known word, get no
  probability. Elsewhere its number has no meaning: in the shipped problem world, a question names two digits and
  an operator, and no part of it tells the difficulty (`docs/how-to/retrieval.md#routing`).
"""


def render(evaluation: ClassifierEvaluation) -> str:
    sections = [HEAD.format(fitted=evaluation.fitted)]
    sections += [_render_part(name, part, evaluation.strengths) for name, part in evaluation.parts.items()]
    return "\n".join([*sections, LIMITS])


def _render_part(name: str, part: PartFigures, strengths: dict[str, float]) -> str:
    shipped, accuracy, area = part.shipped, _format_share(part.shipped.accuracy), _format_area(part.shipped.auc)
    kinds = [("**embeddings (shipped)**", f"{strengths['embeddings']:g}", accuracy, area, "")]
    for kind, rival in part.rivals.items():
        figures = (_format_share(rival.accuracy), _format_area(rival.auc), _format_area(rival.advantage))
        kinds.append((kind, f"{strengths[kind]:g}", *figures))
    kinds.append(("everything hard", "", f"{100 * shipped.hard:.1f} %", "0.5", ""))
    bins = [(f"{each.probability:.2f}", str(each.n), _format_share(each.hard)) for each in shipped.calibration]
    groups = [
        (group, str(each.n), _format_share(each.called_hard), _format_share(each.accuracy), _format_area(each.auc))
        for group, each in (shipped.levels | shipped.subjects).items()
    ]
    cuts = [
        (f"{each.threshold:g}", _format_share(each.easy), _format_share(each.hard_among_easy)) for each in shipped.cuts
    ]
    return "\n".join(
        [
            f"## On {name}, {shipped.n:,} problems\n",
            _render_table(("classifier", "C", "accuracy at 0.5", "ROC AUC", "shipped one's AUC is larger by"), kinds),
            CALIBRATION.format(shipped.brier, shipped.calibration_error),
            _render_table(("probability", "problems", "hard"), bins),
            "",
            _render_table(("level or subject", "problems", "called hard", "correctly called", "ROC AUC"), groups),
            "\nEffect of a threshold of `route`:\n",
            _render_table(("threshold", "take the rule path", "of these hard"), cuts),
            "",
        ]
    )


def _format_share(figure: Interval) -> str:
    if figure.value is None:
        return "none"
    return f"{100 * figure.value:.1f} % ({100 * figure.low:.1f} to {100 * figure.high:.1f})"


def _format_area(figure: Interval | None) -> str:
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})" if figure else ""


def _render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
