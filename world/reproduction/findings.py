"""From the experiments' reports to the figures of the text. Pure: everything stands in the committed results."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from statistics import stdev
from typing import Any, NamedTuple

from shared.statistics.intervals import wilson
from shared.statistics.pairs import p_value

Json = Mapping[str, Any]
FORCED = ("gate-rules", "gate-judge")
BASELINE = "hybrid"
TAUS = (-1.0, 0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
"""Thresholds at which the gate is decided anew from the stored calibrations."""


class Score(NamedTuple):
    """One variant in one setting, or at one value of what is varied: all its seeds together."""

    variant: str
    at: float
    correct: int
    graded: int
    by_seed: tuple[float, ...]
    """Accuracy in each world."""

    @property
    def value(self) -> float | None:
        """Accuracy in [0, 1]; None: nothing was graded."""
        return self.correct / self.graded if self.graded else None

    @property
    def bounds(self) -> tuple[float, float]:
        """Wilson's 95 % interval over all questions."""
        found = wilson(self.correct, self.graded)
        return found.low, found.high

    @property
    def spread(self) -> float | None:
        """Standard deviation (ddof 1) over the worlds; None: there is one."""
        return stdev(self.by_seed) if len(self.by_seed) > 1 else None


def settings(results: Json) -> list[str]:
    """Of the main comparison, in its order."""
    return [name.removeprefix("main-") for name in results["studies"] if name.startswith("main-")]


def scores(study: Json, axis: str = "") -> list[Score]:
    """By variant and by value: of the worlds, or of the parameter `axis` of the grid."""
    where = {world["name"]: world["x"] for world in study["worlds"]}
    found: dict[tuple[str, float], list[Json]] = {}
    for row in answered(study):
        at = row["point"][axis] if axis else where[row["dataset"]]
        found.setdefault((row["variant"], at), []).append(row["result"]["accuracy"])
    return [_score(variant, at, accuracies) for (variant, at), accuracies in found.items()]


def _score(variant: str, at: float, accuracies: Sequence[Json]) -> Score:
    correct, graded = (sum(each[part] for each in accuracies) for part in ("correct", "graded"))
    by_seed = tuple(each["value"] for each in accuracies if each["value"] is not None)
    return Score(variant, at, correct, graded, by_seed)


def answered(study: Json) -> list[Json]:
    """Cells that a job was made for."""
    return [row for row in study["report"]["rows"] if row["result"] is not None]


def pairs(study: Json) -> dict[str, Json]:
    """Each variant against the baseline over all worlds, by its name."""
    return {pair["left"]: pair for pair in study["report"]["comparisons"]["pooled"]["pairs"]}


def verdict(pair: Json) -> str:
    """Of the left side: better or worse only where the test tells the two apart."""
    if not pair["separable"]:
        return "not separable"
    return "better" if pair["difference"]["value"] > 0 else "worse"


class Worlds(NamedTuple):
    """One variant against the baseline, with a world as one observation: questions of a world share documents."""

    differences: tuple[Fraction, ...]
    """Of the accuracies, by world."""

    @property
    def better(self) -> int:
        """Worlds in which the variant answers more questions."""
        return sum(each > 0 for each in self.differences)

    @property
    def worse(self) -> int:
        """Worlds in which it answers fewer."""
        return sum(each < 0 for each in self.differences)

    @property
    def p(self) -> float:
        """Of the paired randomisation test over worlds; with n of them 2 / 2^n at least."""
        return p_value(Counter(self.differences))


def by_world(study: Json) -> dict[str, Worlds]:
    """Each variant against the baseline in every world, by its name."""
    accuracies: dict[str, dict[str, Fraction]] = {}
    for row in answered(study):
        found = row["result"]["accuracy"]
        accuracies.setdefault(row["variant"], {})[row["dataset"]] = Fraction(found["correct"], found["graded"])
    base = accuracies.pop(BASELINE)
    return {
        variant: Worlds(tuple(value - base[world] for world, value in values.items()))
        for variant, values in accuracies.items()
    }


class Decided(NamedTuple):
    """What the gate made of one world."""

    seed: int
    strategy: str
    rho: float | None
    low: float | None
    high: float | None


def decisions(study: Json) -> list[Decided]:
    """Of the variant `gate`, by world."""
    seeds = {world["name"]: world["seed"] for world in study["worlds"]}
    gates = [(seeds[row["dataset"]], row["result"]["gate"]) for row in answered(study) if row["variant"] == "gate"]
    return [Decided(seed, gate["strategy"], gate["rho"], gate["low"], gate["high"]) for seed, gate in gates]


def regrets(study: Json) -> int:
    """Worlds in which the other choice answered more questions; few questions may be chance."""
    correct = {(row["variant"], row["dataset"]): row["result"]["accuracy"]["correct"] for row in answered(study)}
    worlds = [world["name"] for world in study["worlds"]]
    return sum(correct["gate", world] < max(correct[each, world] for each in FORCED) for world in worlds)


def judged(study: Json, variant: str) -> int:
    """Ratings that a variant's jobs asked for, made or reused, over all worlds."""
    results = [row["result"] for row in answered(study) if row["variant"] == variant]
    return sum(each[calls].get("judge", 0) for each in results for calls in ("calls_made", "calls_reused"))


def by_tau(study: Json, taus: Iterable[float] = TAUS) -> list[tuple[float, int, Score]]:
    """For each threshold the worlds in which rules are chosen, and the accuracy; from stored figures alone.

    At each threshold a world's answers are those of the job that was forced to what the gate would choose.
    """
    rows = {(row["variant"], row["dataset"]): row["result"] for row in answered(study)}
    worlds = [world["name"] for world in study["worlds"]]
    found = []
    for tau in taus:
        chosen = [_chosen(rows["gate", world]["gate"]["rho"], tau) for world in worlds]
        accuracies = [rows[each, world]["accuracy"] for each, world in zip(chosen, worlds, strict=True)]
        found.append((tau, chosen.count("gate-rules"), _score("gate", tau, accuracies)))
    return found


def _chosen(rho: float | None, tau: float) -> str:
    """As `shared.rag.gate` decides."""
    return "gate-rules" if rho is not None and rho > tau else "gate-judge"


def endings(study: Json) -> dict[str, Counter[str]]:
    """How samples ended, by variant, over all worlds."""
    found: dict[str, Counter[str]] = {}
    for row in answered(study):
        found.setdefault(row["variant"], Counter()).update(study["endings"][row["job"]])
    return found
