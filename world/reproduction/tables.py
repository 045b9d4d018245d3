"""Write the findings as Markdown, block by block; every number is computed from the committed results."""

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

from shared.rag.provenance import Ending
from world import setting as settings
from world.markdown import table
from world.reproduction import findings
from world.reproduction.findings import Json, VariantAccuracy

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
    "dense": "dense alone (fusion brings in noise, where this is better)",
    "sparse": "sparse alone (the same)",
    "gate-judge": "reranked by the judge",
    "gate-rules": "reranked by rules",
    "gate": "reranked as the gate decides, tau 0.45",
    "oracle": "reranked by true grades, the most that any judge could do",
}


def blocks(results: Json) -> dict[str, str]:
    """Write all blocks by name, each with its figures."""
    return {name: "\n\n".join([make(results), *_figures(results, name)]) for name, make in BLOCKS.items()}


def _figures(results: Json, name: str) -> Iterator[str]:
    drawn = [f"rho-{each}" for each in results["decisions"]] if name == "gate" else FIGURES.get(name, [])
    yield from (f"![{each}]({RESULTS}/{each}.svg)" for each in drawn)


def run(results: Json) -> str:
    """Describe the run in a sentence."""
    about, studies = results["about"], results["studies"].values()
    jobs = {row["job"] for study in studies for row in findings.list_answered(study)}
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
    for name in findings.settings(results):
        found = {score.variant: score for score in findings.scores(results["studies"][f"main-{name}"])}
        best = max(score.value or 0 for variant, score in found.items() if variant != "oracle")
        cells = (_accuracy(found[variant], best) for variant in LABELS)
        rows.append([f"`{name}`", *cells])
    return table(["setting", *LABELS.values()], rows)


def _accuracy(score: VariantAccuracy, best: float) -> str:
    low, high = score.bounds
    accuracy = f"{100 * (score.value or 0):.1f}"
    accuracy = f"**{accuracy}**" if score.value == best and score.variant != "oracle" else accuracy
    return f"{accuracy} ({100 * low:.1f} to {100 * high:.1f})"


def claims(results: Json) -> str:
    """Tabulate the paper's claims by the settings in which they hold, fail, or are not separable."""
    rows = [[said, *_by_verdict(results, variant)] for variant, said in CLAIMS.items()]
    return table(["against hybrid retrieval", "better in", "worse in", "not separable in"], rows)


def _by_verdict(results: Json, variant: str) -> Iterator[str]:
    found: dict[str, list[str]] = {"better": [], "worse": [], "not separable": []}
    for name in findings.settings(results):
        study = results["studies"][f"main-{name}"]
        verdict, worlds = findings.verdict(findings.pairs(study)[variant]), findings.by_world(study)[variant]
        alike = {"better": f" ({worlds.better})", "worse": f" ({worlds.worse})"}.get(verdict, "")
        found[verdict].append(f"`{name}`{alike}")
    return (", ".join(names) or "-" for names in found.values())


def against(results: Json) -> str:
    """Tabulate every variant against hybrid, in the report's words."""
    rows = []
    for name in findings.settings(results):
        pairs = findings.pairs(results["studies"][f"main-{name}"])
        rows += [[f"`{name}`", LABELS[left], pair["words"]] for left, pair in pairs.items()]
    return table(["setting", "variant", "against hybrid"], rows)


def worlds(results: Json) -> str:
    """Tabulate every variant against hybrid with a world as one observation, by setting and pooled."""
    names = findings.settings(results)
    by_setting = {name: findings.by_world(results["studies"][f"main-{name}"]) for name in names}
    rows = [[f"`{name}`", *_of_worlds(v, found[v])] for name, found in by_setting.items() for v in CLAIMS]
    misleading = [name for name in names if settings.read(name).near_words]
    for variant in CLAIMS:
        pooled = findings.Worlds(sum((by_setting[name][variant].differences for name in misleading), ()))
        rows.append(["*with distractors*", *_of_worlds(variant, pooled)])
    each = len(by_setting[names[0]]["dense"].differences)
    sentence = (
        f"*With distractors* pools {', '.join(f'`{name}`' for name in misleading)}. With {each} worlds no p can be "
        f"below {2 / 2**each:.4f}, so that a single setting separates nothing at 0.05, whatever was seen in it."
    )
    head = ["setting", "variant", "worlds better, worse", "points, mean (lowest to highest world)", "p over worlds"]
    return table(head, rows) + f"\n\n{sentence}"


def _of_worlds(variant: str, found: findings.Worlds) -> list[str]:
    points = [100 * float(each) for each in found.differences]
    p = "< 0.001" if found.p < 0.001 else f"{found.p:.4f}"
    spread = f"{fmean(points):+.1f} ({min(points):+.1f} to {max(points):+.1f})"
    return [LABELS[variant], f"{found.better}, {found.worse} of {len(points)}", spread, p]


def gate(results: Json) -> str:
    """Tabulate the gate's decisions and the ratings that they saved."""
    rows = []
    for name in findings.settings(results):
        study = results["studies"][f"main-{name}"]
        decided = findings.decisions(study)
        rules = sum(each.strategy == "rules" for each in decided)
        asked, forced = findings.count_ratings(study, "gate"), findings.count_ratings(study, "gate-judge")
        rho = ", ".join("none" if each.rho is None else f"{each.rho:.2f}" for each in decided)
        chosen = f"rules {rules}, judge {len(decided) - rules}"
        rows.append([f"`{name}`", rho, chosen, str(findings.regrets(study)), f"{asked:,} of {forced:,}"])
    header = ["setting", "rho by seed", "chosen", "worse than the other choice", "ratings asked for, of the judge's"]
    return table(header, rows)


def seeds(results: Json) -> str:
    """Tabulate the standard deviation between worlds of one setting."""
    rows = []
    for name in findings.settings(results):
        found = {score.variant: score for score in findings.scores(results["studies"][f"main-{name}"])}
        spreads = (found[variant].spread for variant in LABELS)
        rows.append([f"`{name}`", *("-" if each is None else f"{100 * each:.1f}" for each in spreads)])
    return table(["setting", *LABELS.values()], rows)


def tau(results: Json) -> str:
    """Tabulate the gate at other thresholds, recomputed from stored figures."""
    rows = []
    for name in findings.settings(results):
        found = findings.by_tau(results["studies"][f"main-{name}"])
        rows.append([f"`{name}`", *(f"{percent(score)} ({rules})" for _, rules, score in found)])
    return table(["setting", *(f"{each:g}" for each in findings.TAUS)], rows)


def endings(results: Json) -> str:
    """Tabulate the endings of samples in the orthogonal setting."""
    found = findings.endings(results["studies"]["main-orthogonal"])
    kinds = [kind.value for kind in Ending if any(counts[kind.value] for counts in found.values())]
    rows = [[LABELS[variant], *(f"{counts[kind]:,}" for kind in kinds)] for variant, counts in found.items()]
    return table(["variant", *(kind.replace("_", " ") for kind in kinds)], rows)


def weights(results: Json) -> str:
    """Describe accuracy over the weights, from rank only to quality only."""
    study = results["studies"]["weights"]
    by_job = {row["job"]: row for row in reversed(findings.list_answered(study))}
    shares = sorted((_share(row["point"]), row["result"]["accuracy"]) for row in by_job.values())
    best = max(each["value"] for _, each in shares)
    best_shares = ", ".join(f"{share:.2f}" for share, each in shares if each["value"] == best)
    (first, rank), (last, quality) = shares[0], shares[-1]
    return (
        f"{len(findings.list_answered(study))} cells are {len(shares)} jobs. "
        f"Accuracy is {100 * rank['value']:.1f} % with quality's share of the weights "
        f"at {first:.2f}, {100 * quality['value']:.1f} % at {last:.2f}, and highest, "
        f"{100 * best:.1f} %, at {best_shares}; n = {rank['graded']} questions, one world."
    )


def _share(point: Mapping[str, float]) -> float:
    return point["quality_weight"] / (point["rrf_weight"] + point["quality_weight"])


def make_table(name: str, axis: str = "") -> Callable[[Json], str]:
    """Make a function that tabulates one study, with a row for each value and a column for each variant."""

    def block(results: Json) -> str:
        found = findings.scores(results["studies"][name], axis)
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
    found = {score.variant: score for score in findings.scores(study)}
    pairs = findings.pairs(study)
    rows = [["hybrid, no ratings", percent(found.pop("hybrid")), "-"]]
    rows += [[_wrong(variant), percent(score), pairs[variant]["words"]] for variant, score in found.items()]
    return table(["wrong ratings", "accuracy", "against hybrid"], rows)


def _wrong(variant: str) -> str:
    return f"{variant.removeprefix('oracle-')} %"


def percent(score: VariantAccuracy) -> str:
    """Show a score in percent with one decimal."""
    return "-" if score.value is None else f"{100 * score.value:.1f}"


BLOCKS: dict[str, Callable[[Json], str]] = {
    "run": run, "main": main, "claims": claims, "against": against, "worlds": worlds, "gate": gate, "seeds": seeds,
    "tau": tau, "endings": endings, "weights": weights, "noise": noise,
    "context": make_table("context", "context_size"),
    "bad": make_table("bad"), "unrelated": make_table("unrelated"), "agreement": make_table("agreement"),
}  # fmt: skip
