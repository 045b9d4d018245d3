"""The findings on knowledge graphs: figures and Markdown, all computed from the committed results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from shared.pages import figures as drawn
from shared.pages.figures import Figure
from shared.pages.pages import table
from tools.reproduction import pages
from tools.reproduction.rule_setting import MEASURES

# Figures that RuleRAG's authors report for DPR and LLaMA2-7B on their five question sets (Hu et al. 2024).


class PublishedFigures(NamedTuple):
    """Figures of one question set, in percent. The sets are not public, so this project's sets differ."""

    title: str
    recall: tuple[float, float, float]
    """R@10 of standard retrieval, of RuleRAG-ICL and of RuleRAG-FT."""
    exact: tuple[float, float, float]
    """Exact match of the same three systems."""


PUBLISHED = (
    PublishedFigures("RuleQA-I (ICEWS14)", (14.1, 24.2, 45.1), (5.2, 9.8, 20.5)),
    PublishedFigures("RuleQA-Y (YAGO)", (3.8, 6.6, 55.7), (2.6, 6.1, 44.6)),
    PublishedFigures("RuleQA-W (WIKI)", (7.4, 22.6, 49.9), (4.8, 12.7, 41.6)),
    PublishedFigures("RuleQA-F (FB15K-237)", (18.9, 29.9, 95.1), (11.0, 19.0, 34.9)),
    PublishedFigures("RuleQA-N (NELL-995)", (19.3, 26.5, 92.5), (9.8, 15.2, 42.0)),
)

# Derive verdicts from the committed results. Pure; the rules were fixed before the measurement.

Json = Mapping[str, Any]
VERDICTS = ("higher", "lower", "not distinguishable")


def verdict(pair: Json) -> str:
    """Call an arm higher or lower than the baseline only if the corrected test separates the two."""
    if not pair["separable"]:
        return "not distinguishable"
    return "higher" if pair["difference"]["value"] > 0 else "lower"


def arms(results: Json) -> dict[str, str]:
    """Return labels by name, in the settings' order, of the arms that were measured on at least one graph."""
    measured = {name for graph in results["graphs"].values() for name in graph["arms"]}
    return {arm["name"]: arm["label"] for arm in results["setting"]["arms"] if arm["name"] in measured}


def pair(graph: Json, measure: str, baseline: str, arm: str) -> Json | None:
    """Return the comparison of an arm with a baseline by one measure; None if one of them was left out."""
    found: Json | None = graph["pairs"].get(measure, {}).get(baseline, {}).get(arm)
    return found


def by_verdict(results: Json, arm: str, baseline: str) -> dict[str, dict[str, list[str]]]:
    """Return the measures with each verdict, by the graph's title."""
    found: dict[str, dict[str, list[str]]] = {each: {} for each in VERDICTS}
    for graph, measure, each in _pairs(results, arm, baseline):
        found[verdict(each)].setdefault(graph, []).append(MEASURES[measure])
    return found


def _pairs(results: Json, arm: str, baseline: str) -> Iterator[tuple[str, str, Json]]:
    for graph in results["graphs"].values():
        for measure in MEASURES:
            if (found := pair(graph, measure, baseline, arm)) is not None:
                yield graph["title"], measure, found


def never_higher(results: Json, baseline: str) -> Sequence[str]:
    """Return arms that are above the baseline by no measure on any graph."""
    return [
        arm
        for arm in arms(results)
        if any(_pairs(results, arm, baseline)) and not by_verdict(results, arm, baseline)["higher"]
    ]


def sometimes_lower(results: Json, baseline: str) -> Sequence[str]:
    """Return arms that are below the baseline by at least one measure."""
    return [arm for arm in arms(results) if by_verdict(results, arm, baseline)["lower"]]


# Write the findings as Markdown, block by block; every number and verdict is computed from the results.

RESULTS = "results"
"""Path of the raw results, relative to the page."""
FIGURES = {"scores": ["rules-recall", "rules-exact"], "number": ["rules-number"]}
"""Figures of each block."""
CLAIMS = {
    ("icl", "standard"): "Rules in retrieval and prompt",
    ("plain", "standard"): "The prompt alone, without rules",
    ("retrieval", "standard"): "Rules in retrieval only",
    ("generation", "standard"): "Rules in generation only",
    ("searches", "standard"): "Rules searched for as the authors do, without chains",
    ("searches", "icl"): "The same",
    ("random", "icl"): "Random rules",
    ("worst", "icl"): "Rules of low confidence",
    ("cot", "icl"): "Reasoning before the answer",
    ("one", "icl"): "One rule instead of three",
    ("five", "icl"): "Five rules instead of three",
    ("ft-retriever", "icl"): "A tuned retriever",
    ("ft-generator", "icl"): "A tuned generator",
    ("ft", "icl"): "Both tuned",
}
"""Wording of each comparison of an arm with a baseline."""


def blocks(results: Json) -> dict[str, str]:
    figures = {name: [f"![{each}](figures/{each}.svg)" for each in FIGURES.get(name, [])] for name in BLOCKS}
    return {name: "\n\n".join([make(results), *figures[name]]) for name, make in BLOCKS.items()}


def run(results: Json) -> str:
    """Describe the run in a few sentences."""
    about = results["about"]
    measured = [arm for graph in results["graphs"].values() for arm in graph["arms"].values()]
    calls = sum(count for arm in measured for count in arm["calls_made"].values())
    audits = sorted({arm["audit"] for arm in measured})
    changed = " **The settings differed from the committed ones.**" if about["settings_changed"] else ""
    return (
        f"{about['ended'][:10]}, commit {about['commit']}, settings of commit {about['settings_commit']}, "
        f"{about['minutes']:.0f} minutes on {about['machine']}: {len(measured)} jobs, {calls:,} calls made; audits: "
        f"{', '.join(audits)}. Generator by SHA-256: `{about['generator'][:12]}`. "
        f"Raw: [rules.json]({RESULTS}/rules.json).{changed}"
    )


def sets(results: Json) -> str:
    """Tabulate the question set of each graph."""
    rows = [
        [graph["title"], *(f"{graph[key]:,}" for key in ("facts", "relations", "rules")), graph["miner"],
         f"{graph['questions']:,}", *(f"{graph['counts'][key]:,}" for key in ("available", "with_leads")),
         f"{graph['training']:,}"]
        for graph in results["graphs"].values()
    ]  # fmt: skip
    counts = ["facts", "relations", "rules", "miner", "questions", "possible", "a rule leads to an answer", "tuned on"]
    return table(["graph", *counts], rows)


def scores(results: Json) -> str:
    """Tabulate every arm on every graph by every measure."""
    tables = []
    for graph in results["graphs"].values():
        rows = [
            [label, *(_format_score(graph["scores"][measure].get(arm)) for measure in MEASURES)]
            for arm, label in arms(results).items()
            if arm in graph["arms"]
        ]
        head = f"**{graph['title']}**, n = {graph['questions']:,} questions"
        tables.append(f"{head}\n\n{table(['', *MEASURES.values()], rows)}")
    return "\n\n".join(tables)


def _format_score(score: Json | None) -> str:
    if score is None:
        return "-"
    if score["low"] is None:
        return _percent(score["value"])
    return f"{_percent(score['value'])} ({_percent(score['low'])} to {_percent(score['high'])})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def claims(results: Json) -> str:
    """Tabulate the questions of the study with the results of the corrected tests."""
    labels, rows = arms(results), []
    for (arm, baseline), said in CLAIMS.items():
        if arm in labels and baseline in labels:
            found = by_verdict(results, arm, baseline)
            places = ("; ".join(f"{graph}: {', '.join(each)}" for graph, each in found[v].items()) for v in VERDICTS)
            rows.append([said, labels[baseline], *(place or "-" for place in places)])
    # And in sentences, which arms do not help.
    sentences = []
    for baseline in (each for each in results["setting"]["baselines"] if each in labels):
        never = "; ".join(labels[arm] for arm in never_higher(results, baseline)) or "none"
        lower = "; ".join(labels[arm] for arm in sometimes_lower(results, baseline)) or "none"
        sentences.append(
            f"Against {labels[baseline]}, higher by no measure on any graph: {never}. "
            f"Lower by some measure on some graph: {lower}."
        )
    return "\n\n".join([table(["", "against", *VERDICTS], rows), "\n\n".join(sentences)])


def against(baseline: str) -> Callable[[Json], str]:
    """Make a function that tabulates every arm against the baseline, with intervals and tests."""

    def block(results: Json) -> str:
        labels, tables = arms(results), []
        for graph in results["graphs"].values():
            rows = [
                [label, *(_format_difference(pair(graph, measure, baseline, arm)) for measure in MEASURES)]
                for arm, label in labels.items()
                if arm in graph["arms"] and arm != baseline
            ]
            head = f"**{graph['title']}**, against {labels[baseline]}"
            tables.append(f"{head}\n\n{table(['', *MEASURES.values()], rows)}")
        return "\n\n".join(tables)

    return block


def _format_difference(pair: Json | None) -> str:
    if pair is None:
        return "-"
    value, low, high = (100 * pair["difference"][each] for each in ("value", "low", "high"))
    p = "p < 0.001" if pair["adjusted"] < 0.001 else f"p = {pair['adjusted']:.3f}"
    return f"{verdict(pair)}: {value:+.1f} ({low:+.1f} to {high:+.1f}), {p}"


def tabulate_published(results: Json) -> str:
    """Tabulate the gains of rules in context and of tuning, with those of the authors."""
    rows = []
    for each in PUBLISHED:
        gains = [
            ", ".join(f"{of[0]:.1f} → {of[at]:.1f} ({of[at] - of[0]:+.1f})" for of in (each.recall, each.exact))
            for at in (1, 2)
        ]
        rows.append([each.title, *gains])
    rows += [
        [f"**{graph['title']}**, here", _format_gains(graph, "icl"), _format_gains(graph, "ft")]
        for graph in results["graphs"].values()
    ]
    return table(["", "RuleRAG-ICL, R@10 and exact match", "RuleRAG-FT, R@10 and exact match"], rows)


def _format_gains(graph: Json, arm: str) -> str:
    found: list[str] = []
    for measure in ("answer@10", "accuracy"):
        gain, scores = pair(graph, measure, "standard", arm), graph["scores"][measure]
        if gain is None:
            found.append("not measured")
            continue
        value, low, high = (100 * gain["difference"][each] for each in ("value", "low", "high"))
        before, after = (100 * scores[each]["value"] for each in ("standard", arm))
        found.append(f"{before:.1f} → {after:.1f} ({value:+.1f}, {low:+.1f} to {high:+.1f})")
    return ", ".join(found)


def number(results: Json) -> str:
    """Tabulate the arms by their number of rules."""
    rows = [
        [graph["title"], str(count), *(_format_score(graph["scores"][measure].get(arm)) for measure in MEASURES)]
        for graph in results["graphs"].values()
        for arm, count in list_numbered_arms(results)
    ]
    return table(["", "rules", *MEASURES.values()], rows)


def list_numbered_arms(results: Json) -> list[tuple[str, int]]:
    """Return the arms that differ from RuleRAG-ICL only in the number of rules, with that number, in its order."""
    most = results["setting"]["params"]["rulerag"]["most"]
    counts = {"plain": 0, "icl": most}
    for arm in results["setting"]["arms"]:
        if list(arm["params"]) == ["rulerag"] and list(arm["params"]["rulerag"]) == ["most"]:
            counts[arm["name"]] = arm["params"]["rulerag"]["most"]
    return sorted(((arm, count) for arm, count in counts.items() if arm in arms(results)), key=itemgetter(1))


def cost(results: Json) -> str:
    """Tabulate loads, seconds, calls and audits of every job."""
    labels = arms(results)
    rows = [
        [graph["title"], labels[name], str(arm["model_loads"]), f"{arm['seconds']:.0f}",
         *(f"{arm['calls_made'].get(role, 0):,} + {arm['calls_reused'].get(role, 0):,}" for role in ROLES),
         f"{sum(arm['failures'].values()):,}", arm["audit"]]
        for graph in results["graphs"].values()
        for name, arm in graph["arms"].items()
    ]  # fmt: skip
    return table(
        ["graph", "", "loads", "seconds", *(f"{each}, made + reused" for each in ROLES), "failed", "audit"], rows
    )


ROLES = ("rules", "retrieve", "generate")

BLOCKS: dict[str, Callable[[Json], str]] = {
    "run": run, "sets": sets, "scores": scores, "claims": claims, "standard": against("standard"),
    "icl": against("icl"), "number": number, "published": tabulate_published, "cost": cost,
}  # fmt: skip


DRAWN = {
    "rules-recall": ("answer@10", "R@10", "questions with an answer in the first ten documents"),
    "rules-exact": ("accuracy", "Exact match", "questions answered by a gold answer"),
}
"""Measures drawn for all arms, with title and the total of the share."""
SHARES = {"answer@10": "R@10", "accuracy": "exact match"}
"""Measures drawn over the number of rules."""


def figures(results: Json) -> Iterator[Figure]:
    for name, (measure, title, of) in DRAWN.items():
        bars = [
            drawn.AccuracyRow(label=label, group=graph, **score)
            for arm, label in arms(results).items()
            for graph, score in _scores(results, measure, arm)
        ]
        yield drawn.draw_accuracy(bars, title=title, name=name, axis=f"{title} (% of questions)", of=of)
    points = [
        pages.PlottedShare(x=count, label=f"{graph}, {said}", **score)
        for measure, said in SHARES.items()
        for arm, count in list_numbered_arms(results)
        for graph, score in _scores(results, measure, arm)
    ]
    yield pages.chart(
        points, name="rules-number", title="R@10 and exact match by the number of rules",
        axis="Most rules of a question", share="Share", of="questions",
    )  # fmt: skip


def _scores(results: Json, measure: str, arm: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield value, interval and number of questions with each graph's title."""
    for graph in results["graphs"].values():
        if (score := graph["scores"][measure].get(arm)) is not None:
            low, high = (score["value"] if score[end] is None else score[end] for end in ("low", "high"))
            yield graph["title"], {"n": score["items"], "value": score["value"], "low": low, "high": high}
