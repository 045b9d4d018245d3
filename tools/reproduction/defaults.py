"""``make reproduce-defaults``: pipelines with their default parameters against `hybrid`, on data without a choice.

    .venv/bin/python -m tools.reproduction.defaults --data DIR [--data-dir DIR] [--only-write]

DIR holds graphs (kinship/, icews14/, umls/) and a collection in BEIR's layout (cranfield/). Finished runs
are not repeated, also after an interruption. Results go to docs/reference/results/defaults.json, and the numbers of
docs/reference/defaults.md are rewritten.
"""

import argparse
import json
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import typer
from msgspec.structs import replace
from scipy.stats import t

from mathrag.cli.output import report_errors
from mathrag.client import graphs, texts
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.uploads import Sources
from mathrag.reading import graph_paths, paths
from mathrag_gate.demo import world as world_module
from mathrag_gate.demo.world import change_setting
from services.orchestrator.experiments.pilot import BASELINE
from shared.calls import Amie
from shared.pages.pages import rewrite_blocks, table
from shared.params import QUALITY_ALONE
from shared.settings import REPOSITORY
from tools.reproduction import experiments, pages, rule_setting, rules
from tools.reproduction.pilot import get_shares, percent
from tools.reproduction.world import DOCS, World, digest, furnish, model_files, serve_stack, upload

SETTINGS = ("agreeing", "bilingual", "clean", "opposed", "orthogonal", "unrelated")
SEEDS = (51, 52, 53, 54)
"""The defaults were chosen on seeds 31 to 33."""
ITEMS = 60
"""Questions of a world."""
JUDGED = ("mathrag-gate", "crag", "enhanced", "enhanced-crag")
PAPER = "quality-alone"
VARIANTS: list[dict[str, Any]] = [
    {"name": BASELINE, "pipeline": "hybrid"},
    *({"name": name, "pipeline": name} for name in JUDGED),
    {"name": PAPER, "pipeline": "mathrag-gate", "params": QUALITY_ALONE},
]
QUESTIONS = 300
"""Questions about a graph."""
SETTING = rule_setting.read_setting()
GRAPHS = {
    **{name: replace(graph, params={}) for name, graph in SETTING.graphs.items()},
    "umls": rule_setting.Graph(
        title="UMLS", facts=rule_setting.Part(file="umls/train.txt"), training=rule_setting.Part(file="umls/valid.txt"),
        test=rule_setting.Part(file="umls/test.txt"), mining=Amie(),
    ),
}  # fmt: skip
"""The first two were tuned on their training questions; nothing was chosen on the third."""
RULES: list[dict[str, Any]] = [{"name": BASELINE, "pipeline": "hybrid"}, {"name": "rulerag", "pipeline": "rulerag"}]
OF_GRAPHS: dict[str, Any] = {
    "candidates": 10, "context_size": 5, "duplicates": "off", "grading": {"grader": "f1", "threshold": 1.0},
    "generate": {"max_tokens": 1},
}  # fmt: skip
"""Retrieval is measured, not the answer, which is cut at once."""
MEASURES = {"answer@1": "R@1", "answer@5": "R@5", "answer@10": "R@10"}
COLLECTION = "cranfield"
DATA_DIR = REPOSITORY / ".mathrag" / "defaults"
RESULTS, PAGE = DOCS / "results" / "defaults.json", DOCS / "defaults.md"


def measure_worlds(folder: Path) -> list[dict[str, Any]]:
    worlds = [
        World(label, change_setting(world_module.read(label), items=ITEMS), seed)
        for label in SETTINGS
        for seed in SEEDS
    ]
    furnish(folder / "corpora", worlds)
    with serve_stack(folder) as client:
        upload(client, folder / "corpora", worlds)
        return [
            {"name": f"{world.label}-{world.seed}", **run_variants(client, world.name, world.name, VARIANTS)}
            for world in worlds
        ]


def run_variants(
    client: Client, dataset: str, corpus: str, variants: Sequence[Mapping[str, Any]], **fields: Any
) -> dict[str, Any]:
    """Run an experiment and return its accuracies, its jobs and its seconds."""
    document = {
        "datasets": [{"dataset": dataset, "corpus": corpus}], "baseline": BASELINE, "variants": list(variants),
        **fields,
    }  # fmt: skip
    found = experiments.run(client, {"name": f"defaults-{digest(document)}", **document}, dataset)
    rows = found["report"]["rows"]
    return {
        "accuracy": {row["variant"]: row["result"]["accuracy"] for row in rows},
        "jobs": {row["variant"]: row["job"] for row in rows},
        "seconds": found["seconds"],
    }


def measure_graph(label: str, data: Path, folder: Path) -> dict[str, Any]:
    """Mine the graph's rules as its setting says, and measure retrieval for questions of its test facts."""
    graph, setting = GRAPHS[label], replace(SETTING, graphs=GRAPHS, questions=QUESTIONS)
    run = rules.start_run(label, setting, data, folder / "graphs", sys.executable)
    with rules.serve_stack(run.folder, {}) as client:
        if experiments.find(client, graphs.get(run.name)) is None:
            rules.command("graph", "create", run.name, "--from", str(run.files["facts"]))
        rules.mine(run)
        lines = Sources(graph_paths.fact_lines(run.files["test"], []))
        only = {"unanswered": "true"} if graph.unanswered else {}
        name = run.names["dataset"]
        made = client.send(
            texts.from_graph(name, run.name, lines, rules=run.name, limit=QUESTIONS, grader="f1", **only)
        )
        client.send(texts.index(run.name))
        found = run_variants(client, name, run.name, RULES, params={**OF_GRAPHS, "rules": run.name})
        measured = {measure: compare(client, found["jobs"], measure) for measure in MEASURES}
    return {"title": graph.title, "questions": made["items"], "measures": measured, "seconds": found["seconds"]}


def compare(client: Client, jobs: Mapping[str, str], measure: str) -> dict[str, Any]:
    """Compare `rulerag` with the baseline by a measure; return both shares and their difference."""
    found = client.send(api.compare(list(jobs.values()), baseline=jobs[BASELINE], measure=measure))
    shares = {
        variant: next(each["measured"]["value"] for each in found["jobs"] if job in each["jobs"])
        for variant, job in jobs.items()
    }
    (pair,) = found["pairs"]
    return {"shares": shares, "difference": pair["difference"], "adjusted": pair["adjusted"]}


def measure_collection(data: Path, folder: Path) -> dict[str, Any]:
    """Measure the order of documents in a collection with judgements of relevance, by nDCG@10."""
    place, name = data / COLLECTION, COLLECTION
    with serve_stack(folder / COLLECTION) as client:
        if experiments.find(client, texts.get_corpus(name)) is None:
            client.send(texts.upload("corpora", Sources(paths.corpus_lines(place)), name, skip_empty=True))
        if experiments.find(client, texts.get_dataset(name)) is None:
            client.send(texts.upload("datasets", Sources(paths.dataset_lines(place)), name))
        params = {"grading": {"grader": "text"}, "generate": {"max_tokens": 1}}
        found = run_variants(client, name, name, VARIANTS[:-1], params=params)
        reports = {variant: client.send(api.report(job)) for variant, job in found["jobs"].items()}
    return {
        "ndcg": {variant: each["retrieval"]["final"]["nDCG@10"] for variant, each in reports.items()},
        "questions": reports[BASELINE]["retrieval"]["items"],
        "relevance": reports["mathrag-gate"]["gate"]["relevance"],
        "seconds": found["seconds"],
    }  # fmt: skip


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """Write the blocks of the page."""
    return {
        "run": pages.format_origin(results["about"], "defaults.json"),
        "worlds": format_worlds(results["worlds"]),
        "graphs": format_graphs(results["graphs"]),
        "collection": format_collection(results["collection"]),
    }


def format_worlds(worlds: Sequence[Mapping[str, Any]]) -> str:
    """Compare each pipeline with the baseline: over all worlds with Student's interval, and by setting."""
    shares = {each["name"]: get_shares(each) for each in worlds}
    held = [of[BASELINE] for of in shares.values()]
    by_setting = [[name for name in shares if name.rpartition("-")[0] == setting] for setting in SETTINGS]
    rows = [
        [f"`{BASELINE}`", percent(fmean(held)), "", "", ""]
        + [percent(fmean(shares[name][BASELINE] for name in names)) for names in by_setting]
    ]
    for pipeline in (*JUDGED, PAPER):
        leads = {name: 100 * (of[pipeline] - of[BASELINE]) for name, of in shares.items()}
        mean = fmean(leads.values())
        half = float(t.ppf(0.975, len(leads) - 1)) * stdev(leads.values()) / sqrt(len(leads))
        below = sum(lead < 0 for lead in leads.values())
        rows.append([
            f"`{pipeline}`", percent(fmean(of[pipeline] for of in shares.values())),
            f"{mean:+.1f} ({mean - half:.1f} to {mean + half:.1f})", f"{below} of {len(leads)}",
            f"{min(leads.values()):+.1f}", *(f"{fmean(leads[name] for name in names):+.1f}" for names in by_setting),
        ])  # fmt: skip
    header = ("pipeline", "accuracy", "lead", "below `hybrid` in", "worst", *(f"`{each}`" for each in SETTINGS))
    return table(header, rows)


def format_graphs(found: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for graph in found:
        for measure, title in MEASURES.items():
            each = graph["measures"][measure]
            difference = [100 * each["difference"][key] for key in ("value", "low", "high")]
            rows.append([
                graph["title"], f"{graph['questions']:,}", title, percent(each["shares"][BASELINE]),
                percent(each["shares"]["rulerag"]), "{:+.1f} ({:.1f} to {:.1f})".format(*difference),
                "< 0.001" if each["adjusted"] < 0.001 else f"{each['adjusted']:.3f}",
            ])  # fmt: skip
    return table(("graph", "questions", "", f"`{BASELINE}`", "`rulerag`", "difference", "p"), rows)


def format_collection(found: Mapping[str, Any]) -> str:
    rows = [
        [f"`{name}`", f"{each['value']:.3f} ({each['low']:.3f} to {each['high']:.3f})"]
        for name, each in found["ndcg"].items()
    ]
    tested = found["relevance"]
    passed = "passed" if tested["passed"] else "did not pass"
    header = ("pipeline", f"nDCG@10, {found['questions']} questions")
    preferred = f"it preferred a question's own documents for {tested['preferred']} of {tested['questions']} questions"
    return f"{table(header, rows)}\n\nThe judge {passed} the test: {preferred}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kinship/, icews14/, umls/ and cranfield/")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="kept, so that the next run continues")
    parser.add_argument("--only-write", action="store_true", help="write the text from existing results")
    options = parser.parse_args()
    # An end from outside must stop the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with report_errors(as_json=False):
            if not options.only_write:
                RESULTS.write_text(json.dumps(run(options.data, options.data_dir), separators=(",", ":")) + "\n")
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    found = blocks(json.loads(RESULTS.read_text()))
    PAGE.write_text(rewrite_blocks(PAGE.read_text(), found))
    print("\n\n".join(found.values()))


def run(data: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    worlds = measure_worlds(folder)
    collection = measure_collection(data, folder)
    of_graphs = [measure_graph(label, data, folder) for label in GRAPHS]
    parts: Iterable[Mapping[str, Any]] = (*worlds, collection, *of_graphs)
    origin = pages.describe_origin(sum(each["seconds"] for each in parts))
    for each in worlds:
        del each["jobs"]
    return {
        "about": {**origin, "models": model_files()}, "worlds": worlds, "graphs": of_graphs, "collection": collection,
    }  # fmt: skip


if __name__ == "__main__":
    main()
