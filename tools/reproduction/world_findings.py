"""The findings of the problem world: figures and Markdown, all computed from the committed results."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import fmean, stdev
from typing import Any, NamedTuple

import msgspec

from mathrag.intervals import wilson
from mathrag_gate.demo.world import read as read_setting
from shared.pages import figures as drawn
from shared.pages.figures import Figure
from shared.pages.pages import table
from shared.rag.provenance import Ending
from shared.samples import GateDecision
from shared.statistics.significance import compute_p
from tools.reproduction import pages

# Compute the figures of the text from the experiments' reports. Pure: the committed results contain everything.

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
        # The choice of `shared.rag.gate`.
        rhos = [rows["gate", world]["gate"]["rho"] for world in worlds]
        chosen = ["gate-rules" if rho is not None and rho > tau else "gate-judge" for rho in rhos]
        accuracies = [rows[each, world]["accuracy"] for each, world in zip(chosen, worlds, strict=True)]
        found.append((tau, chosen.count("gate-rules"), _score("gate", tau, accuracies)))
    return found


def count_endings(study: Json) -> dict[str, Counter[str]]:
    """Count the endings of samples by variant, over all worlds."""
    found: dict[str, Counter[str]] = {}
    for row in list_answered(study):
        found.setdefault(row["variant"], Counter()).update(study["endings"][row["job"]])
    return found


# Write the findings as Markdown, block by block; every number is computed from the committed results.

LABELS = {
    "closed-book": "no documents", "dense": "dense", "sparse": "sparse", "hybrid": "hybrid (RRF)",
    "gate-rules": "gate, rules forced", "gate-judge": "gate, judge forced", "gate": "gate, tau 0.45",
    "oracle": "true grades",
}  # fmt: skip

RESULTS = "results"
"""Path of the results, relative to the page."""
FIGURES = {
    "main": ["accuracy"],
    **{name: [name] for name in ("tau", "endings", "weights", "noise", "context", "bad", "unrelated", "agreement")},
}
CLAIMS = {
    "dense": "dense alone (fusion adds noise if this is better)",
    "sparse": "sparse alone (same)",
    "gate-judge": "reranked by the judge",
    "gate-rules": "reranked by rules",
    "gate": "reranked by the gate's choice, tau 0.45",
    "oracle": "reranked by true grades, the upper bound for any judge",
}


def blocks(results: Json) -> dict[str, str]:
    shown = {**FIGURES, "gate": [f"rho-{each}" for each in results["decisions"]]}
    return {
        name: "\n\n".join([make(results), *(f"![{each}]({RESULTS}/{each}.svg)" for each in shown.get(name, []))])
        for name, make in BLOCKS.items()
    }


def run(results: Json) -> str:
    """Describe the run in a sentence."""
    about, studies = results["about"], results["studies"].values()
    jobs = {row["job"] for study in studies for row in list_answered(study)}
    loads = sum(study["report"]["model_loads"] for study in studies)
    calls = sum(count for study in studies for count in study["report"]["calls_made"].values())
    models = ", ".join(f"{role} `{digest[:12]}`" for role, digest in about["models"].items())
    return (
        f"{about['ended'][:10]}, commit {about['commit']}, {about['minutes']:.0f} minutes on {about['machine']}: "
        f"{len(jobs)} jobs, {calls:,} calls made, {loads} model loads. Models by SHA-256: {models}. "
        f"Raw: [world.json]({RESULTS}/world.json)."
    )


def main(results: Json) -> str:
    """Tabulate the accuracy of every variant in every setting."""
    rows = []
    for name in settings(results):
        found = {score.variant: score for score in scores(results["studies"][f"main-{name}"])}
        best = max(score.value or 0 for variant, score in found.items() if variant != "oracle")
        cells = [f"`{name}`"]
        for score in (found[variant] for variant in LABELS):
            (low, high), accuracy = score.bounds, f"{100 * (score.value or 0):.1f}"
            accuracy = f"**{accuracy}**" if score.value == best and score.variant != "oracle" else accuracy
            cells.append(f"{accuracy} ({100 * low:.1f} to {100 * high:.1f})")
        rows.append(cells)
    return table(["setting", *LABELS.values()], rows)


def claims(results: Json) -> str:
    """Tabulate the paper's claims by the settings in which they hold, fail, or are not separable."""
    rows = []
    for variant, said in CLAIMS.items():
        found: dict[str, list[str]] = {"better": [], "worse": [], "not separable": []}
        for name in settings(results):
            study = results["studies"][f"main-{name}"]
            pooled, worlds = verdict(pairs(study)[variant]), by_world(study)[variant]
            alike = {"better": f" ({worlds.better})", "worse": f" ({worlds.worse})"}.get(pooled, "")
            found[pooled].append(f"`{name}`{alike}")
        rows.append([said, *(", ".join(names) or "-" for names in found.values())])
    return table(["against hybrid retrieval", "better in", "worse in", "not separable in"], rows)


def against(results: Json) -> str:
    """Tabulate every variant against hybrid, in the report's words."""
    rows = []
    for name in settings(results):
        compared = pairs(results["studies"][f"main-{name}"])
        rows += [[f"`{name}`", LABELS[left], pair["words"]] for left, pair in compared.items()]
    return table(["setting", "variant", "against hybrid"], rows)


def worlds(results: Json) -> str:
    """Tabulate every variant against hybrid with a world as one observation, by setting and pooled."""
    names = settings(results)
    by_setting = {name: by_world(results["studies"][f"main-{name}"]) for name in names}
    rows = [[f"`{name}`", *_of_worlds(v, found[v])] for name, found in by_setting.items() for v in CLAIMS]
    misleading = [name for name in names if read_setting(name).near_words]
    for variant in CLAIMS:
        pooled = Worlds(sum((by_setting[name][variant].differences for name in misleading), ()))
        rows.append(["*with distractors*", *_of_worlds(variant, pooled)])
    each = len(by_setting[names[0]]["dense"].differences)
    sentence = (
        f"*With distractors* pools {', '.join(f'`{name}`' for name in misleading)}. With {each} worlds no p can be "
        f"below {2 / 2**each:.4f}, so a single setting cannot separate anything at 0.05."
    )
    head = ["setting", "variant", "worlds better, worse", "points, mean (lowest to highest world)", "p over worlds"]
    return table(head, rows) + f"\n\n{sentence}"


def _of_worlds(variant: str, found: Worlds) -> list[str]:
    points = [100 * float(each) for each in found.differences]
    p = "< 0.001" if found.p < 0.001 else f"{found.p:.4f}"
    spread = f"{fmean(points):+.1f} ({min(points):+.1f} to {max(points):+.1f})"
    return [LABELS[variant], f"{found.better}, {found.worse} of {len(points)}", spread, p]


def gate(results: Json) -> str:
    """Tabulate the gate's decisions and the ratings that they saved."""
    rows = []
    for name in settings(results):
        study = results["studies"][f"main-{name}"]
        decided = [row["result"]["gate"] for row in list_answered(study) if row["variant"] == "gate"]
        rules = sum(each["strategy"] == "rules" for each in decided)
        asked, forced = count_ratings(study, "gate"), count_ratings(study, "gate-judge")
        rho = ", ".join("none" if each["rho"] is None else f"{each['rho']:.2f}" for each in decided)
        chosen = f"rules {rules}, judge {len(decided) - rules}"
        rows.append([f"`{name}`", rho, chosen, str(regrets(study)), f"{asked:,} of {forced:,}"])
    header = ["setting", "rho by seed", "chosen", "worse than the other choice", "requested ratings, of the judge's"]
    return table(header, rows)


def seeds(results: Json) -> str:
    """Tabulate the standard deviation between worlds of one setting."""
    rows = []
    for name in settings(results):
        found = {score.variant: score for score in scores(results["studies"][f"main-{name}"])}
        spreads = (found[variant].spread for variant in LABELS)
        rows.append([f"`{name}`", *("-" if each is None else f"{100 * each:.1f}" for each in spreads)])
    return table(["setting", *LABELS.values()], rows)


def tau(results: Json) -> str:
    """Tabulate the gate at other thresholds, recomputed from stored figures."""
    rows = []
    for name in settings(results):
        found = by_tau(results["studies"][f"main-{name}"])
        rows.append([f"`{name}`", *(f"{percent(score)} ({rules})" for _, rules, score in found)])
    return table(["setting", *(f"{each:g}" for each in TAUS)], rows)


def format_endings(results: Json) -> str:
    """Tabulate the endings of samples in the orthogonal setting."""
    found = count_endings(results["studies"]["main-orthogonal"])
    kinds = [kind.value for kind in Ending if any(counts[kind.value] for counts in found.values())]
    rows = [[LABELS[variant], *(f"{counts[kind]:,}" for kind in kinds)] for variant, counts in found.items()]
    return table(["variant", *(kind.replace("_", " ") for kind in kinds)], rows)


def weights(results: Json) -> str:
    """Describe accuracy over the weights, from rank only to quality only."""
    study = results["studies"]["weights"]
    by_job = {row["job"]: row for row in reversed(list_answered(study))}
    shares = []
    for row in by_job.values():
        rank_weight, quality_weight = row["point"]["rrf_weight"], row["point"]["quality_weight"]
        shares.append((quality_weight / (rank_weight + quality_weight), row["result"]["accuracy"]))
    shares.sort()
    best = max(each["value"] for _, each in shares)
    best_shares = ", ".join(f"{share:.2f}" for share, each in shares if each["value"] == best)
    (first, rank), (last, quality) = shares[0], shares[-1]
    return (
        f"{len(list_answered(study))} cells are {len(shares)} jobs. "
        f"Accuracy is {100 * rank['value']:.1f} % with quality's share of the weights "
        f"at {first:.2f}, {100 * quality['value']:.1f} % at {last:.2f}, and highest, "
        f"{100 * best:.1f} %, at {best_shares}; n = {rank['graded']} questions, one world."
    )


def make_table(name: str, axis: str = "") -> Callable[[Json], str]:
    """Make a function that tabulates one study, with a row for each value and a column for each variant."""

    def block(results: Json) -> str:
        found = scores(results["studies"][name], axis)
        variants = list(dict.fromkeys(score.variant for score in found))
        by_value = {(score.at, score.variant): score for score in found}
        values = sorted({score.at for score in found})
        counted = {score.graded for score in found}
        rows = [[f"{at:g}", *(percent(by_value[at, variant]) for variant in variants)] for at in values]
        note = f"n = {min(counted):,} questions a cell" if len(counted) == 1 else f"n = {min(counted):,} or more"
        return table([results["studies"][name]["about"].lower(), *variants], rows) + f"\n\n{note}."

    return block


def noise(results: Json) -> str:
    """Tabulate accuracy by the share of wrong ratings."""
    study = results["studies"]["noise"]
    found = {score.variant: score for score in scores(study)}
    compared = pairs(study)
    rows = [["hybrid, no ratings", percent(found.pop("hybrid")), "-"]]
    rows += [
        [f"{variant.removeprefix('oracle-')} %", percent(score), compared[variant]["words"]]
        for variant, score in found.items()
    ]
    return table(["wrong ratings", "accuracy", "against hybrid"], rows)


def percent(score: VariantAccuracy) -> str:
    """Show a score in percent with one decimal."""
    return "-" if score.value is None else f"{100 * score.value:.1f}"


BLOCKS: dict[str, Callable[[Json], str]] = {
    "run": run, "main": main, "claims": claims, "against": against, "worlds": worlds, "gate": gate, "seeds": seeds,
    "tau": tau, "endings": format_endings, "weights": weights, "noise": noise,
    "context": make_table("context", "context_size"),
    "bad": make_table("bad"), "unrelated": make_table("unrelated"), "agreement": make_table("agreement"),
}  # fmt: skip


VARIED = {
    "noise": "Ratings that are wrong (%)", "context": "Documents in the context",
    "bad": "Bad documents (share of an operator's own)", "unrelated": "Unrelated documents (for each question)",
    "agreement": "Agreement of form and logic (-1 to 1)", "tau": "tau, the gate's threshold",
}  # fmt: skip


def figures(results: Json) -> Iterator[Figure]:
    bars = []
    for name in settings(results):
        for score in scores(results["studies"][f"main-{name}"]):
            (low, high), label = score.bounds, LABELS[score.variant]
            bars.append(
                drawn.AccuracyRow(label=label, value=score.value, low=low, high=high, n=score.graded, group=name)
            )
    yield drawn.draw_accuracy(bars, title="Accuracy in six settings of the problem world")
    for name, decision in results["decisions"].items():
        title = f"Do rules agree with the judge? Setting {name}, first seed"
        yield drawn.draw_rho(msgspec.convert(decision, GateDecision), title=title, name=f"rho-{name}")
    cells = []
    for row in results["studies"]["weights"]["report"]["rows"]:
        found: Json = row["result"]["accuracy"] if row["result"] else {}
        cells.append(
            drawn.WeightsRow(
                **row["point"], value=found.get("value"), low=found.get("low"), high=found.get("high"),
                n=found.get("graded", 0), job=row["job"],
            )
        )  # fmt: skip
    yield drawn.draw_weights(cells, title="Accuracy by weights, setting orthogonal, judge forced")
    counted = count_endings(results["studies"]["main-orthogonal"])
    rows = [row for variant, counts in counted.items() for row in drawn.make_ending_rows(LABELS[variant], counts)]
    yield drawn.draw_endings(rows, title="How samples ended, setting orthogonal")
    for name, axis in VARIED.items():
        yield pages.chart(_curve(results, name), name=name, title=f"Accuracy: {axis}", axis=axis)


def _curve(results: Json, name: str) -> list[pages.PlottedShare]:
    if name == "tau":
        studies = {each: results["studies"][f"main-{each}"] for each in settings(results)}
        return [_point(tau, each, score) for each, study in studies.items() for tau, _, score in by_tau(study)]
    found = scores(results["studies"][name], "context_size" if name == "context" else "")
    if name != "noise":
        return [_point(score.at, LABELS[score.variant], score) for score in found]
    points = []
    for score in found:
        if score.variant == "hybrid":  # it uses no ratings, so its line is level
            points += [_point(share, LABELS["hybrid"], score) for share in (0.0, 50.0)]
        else:
            points.append(_point(float(score.variant.removeprefix("oracle-")), "gate, judge with noise", score))
    return points


def _point(x: float, label: str, score: VariantAccuracy) -> pages.PlottedShare:
    low, high = score.bounds
    return pages.PlottedShare(x=x, label=label, value=score.value, low=low, high=high, n=score.graded)
