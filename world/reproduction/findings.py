"""Compute the figures of the text from the experiments' reports. Pure: the committed results contain everything."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from statistics import stdev
from typing import Any, NamedTuple

from shared.statistics.intervals import wilson
from shared.statistics.significance import compute_p

Json = Mapping[str, Any]
FORCED = ("gate-rules", "gate-judge")
BASELINE = "hybrid"
TAUS = (-1.0, 0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
"""Thresholds for which the gate's decision is recomputed from stored calibrations."""


class VariantAccuracy(NamedTuple):
    """The accuracy of one variant in one setting, or at one value of a parameter, over all seeds."""

    variant: str
    at: float
    correct: int
    graded: int
    by_seed: tuple[float, ...]
    """Accuracy in each world."""

    @property
    def value(self) -> float | None:
        """Accuracy in [0, 1]; None if nothing was graded."""
        return self.correct / self.graded if self.graded else None

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of Wilson's 95 % interval over all questions."""
        found = wilson(self.correct, self.graded)
        return found.low, found.high

    @property
    def spread(self) -> float | None:
        """Standard deviation (ddof 1) over the worlds; None if there is only one."""
        return stdev(self.by_seed) if len(self.by_seed) > 1 else None


def settings(results: Json) -> list[str]:
    """List the settings of the main comparison in its order."""
    return [name.removeprefix("main-") for name in results["studies"] if name.startswith("main-")]


def scores(study: Json, axis: str = "") -> list[VariantAccuracy]:
    """Score each variant at each value of the worlds, or of the grid's parameter `axis`."""
    where = {world["name"]: world["x"] for world in study["worlds"]}
    found: dict[tuple[str, float], list[Json]] = {}
    for row in list_answered(study):
        at = row["point"][axis] if axis else where[row["dataset"]]
        found.setdefault((row["variant"], at), []).append(row["result"]["accuracy"])
    return [_score(variant, at, accuracies) for (variant, at), accuracies in found.items()]


def _score(variant: str, at: float, accuracies: Sequence[Json]) -> VariantAccuracy:
    correct, graded = (sum(each[part] for each in accuracies) for part in ("correct", "graded"))
    by_seed = tuple(each["value"] for each in accuracies if each["value"] is not None)
    return VariantAccuracy(variant, at, correct, graded, by_seed)


def list_answered(study: Json) -> list[Json]:
    """Return the cells that have a job."""
    return [row for row in study["report"]["rows"] if row["result"] is not None]


def pairs(study: Json) -> dict[str, Json]:
    """Return each variant's comparison with the baseline over all worlds, by variant."""
    return {pair["left"]: pair for pair in study["report"]["comparisons"]["pooled"]["pairs"]}


def verdict(pair: Json) -> str:
    """Call the left side better or worse only if the test separates the two."""
    if not pair["separable"]:
        return "not separable"
    return "better" if pair["difference"]["value"] > 0 else "worse"


class Worlds(NamedTuple):
    """Compares a variant with the baseline; a world is one observation, because its questions share documents."""

    differences: tuple[Fraction, ...]
    """Differences of the accuracies, one per world."""

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
        """p of the paired randomisation test over worlds; with n worlds it is at least 2 / 2^n."""
        return compute_p(Counter(self.differences))


def by_world(study: Json) -> dict[str, Worlds]:
    """Compare each variant with the baseline in every world, by variant."""
    accuracies: dict[str, dict[str, Fraction]] = {}
    for row in list_answered(study):
        found = row["result"]["accuracy"]
        accuracies.setdefault(row["variant"], {})[row["dataset"]] = Fraction(found["correct"], found["graded"])
    base = accuracies.pop(BASELINE)
    return {
        variant: Worlds(tuple(value - base[world] for world, value in values.items()))
        for variant, values in accuracies.items()
    }


class Decided(NamedTuple):
    """The gate's decision in one world."""

    seed: int
    strategy: str
    rho: float | None
    low: float | None
    high: float | None


def decisions(study: Json) -> list[Decided]:
    """Return the decisions of the variant `gate`, one per world."""
    seeds = {world["name"]: world["seed"] for world in study["worlds"]}
    gates = [(seeds[row["dataset"]], row["result"]["gate"]) for row in list_answered(study) if row["variant"] == "gate"]
    return [Decided(seed, gate["strategy"], gate["rho"], gate["low"], gate["high"]) for seed, gate in gates]


def regrets(study: Json) -> int:
    """Count worlds in which the other choice answered more questions; a small difference may be chance."""
    correct = {(row["variant"], row["dataset"]): row["result"]["accuracy"]["correct"] for row in list_answered(study)}
    worlds = [world["name"] for world in study["worlds"]]
    return sum(correct["gate", world] < max(correct[each, world] for each in FORCED) for world in worlds)


def count_ratings(study: Json, variant: str) -> int:
    """Count the ratings that a variant's jobs used, made or reused, over all worlds."""
    results = [row["result"] for row in list_answered(study) if row["variant"] == variant]
    return sum(each[calls].get("judge", 0) for each in results for calls in ("calls_made", "calls_reused"))


def by_tau(study: Json, taus: Iterable[float] = TAUS) -> list[tuple[float, int, VariantAccuracy]]:
    """Compute for each threshold the number of worlds that choose rules, and the accuracy, from stored figures.

    A world's answers are those of the job that was forced to the gate's choice at the threshold.
    """
    rows = {(row["variant"], row["dataset"]): row["result"] for row in list_answered(study)}
    worlds = [world["name"] for world in study["worlds"]]
    found = []
    for tau in taus:
        chosen = [_choose(rows["gate", world]["gate"]["rho"], tau) for world in worlds]
        accuracies = [rows[each, world]["accuracy"] for each, world in zip(chosen, worlds, strict=True)]
        found.append((tau, chosen.count("gate-rules"), _score("gate", tau, accuracies)))
    return found


def _choose(rho: float | None, tau: float) -> str:
    """Choose as `shared.rag.gate` does."""
    return "gate-rules" if rho is not None and rho > tau else "gate-judge"


def endings(study: Json) -> dict[str, Counter[str]]:
    """Count the endings of samples by variant, over all worlds."""
    found: dict[str, Counter[str]] = {}
    for row in list_answered(study):
        found.setdefault(row["variant"], Counter()).update(study["endings"][row["job"]])
    return found
