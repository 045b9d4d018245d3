"""``make reproduce-pilot``: compare a pilot's recommendation on ten data sets with the result on the other questions.

    .venv/bin/python -m tools.reproduction.pilot [--data-dir DIR] [--items N] [--only-write]

Each data set is a different world. 40 of its questions go through a pilot, and all others through the same candidates
afterwards. Finished runs are not repeated, also after an interruption. Results of all items go to
docs/reference/results/pilot.json, and the numbers of docs/reference/pilot.md are rewritten.
"""

import argparse
import json
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import typer
from scipy.stats import kendalltau

from mathrag.cli.output import report_errors
from mathrag.client import experiments as api
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag_gate.demo import world as world_module
from mathrag_gate.demo.world import change_setting
from services.orchestrator.experiments.pilot import BASELINE, CANDIDATES
from shared.pages.pages import rewrite_blocks, table
from shared.params import QUALITY_ALONE
from shared.settings import REPOSITORY
from tools.reproduction import experiments, pages
from tools.reproduction.world import DOCS, World, digest, furnish, model_files, serve_stack, upload

SETTINGS = ("agreeing", "clean", "opposed", "orthogonal", "unrelated")
SEEDS = (61, 62)
"""The default candidates were chosen on seeds 21 to 33."""
ITEMS = 120
"""Questions of a data set: 40 for the pilot, and the rest."""
GATE = {"name": "gate", "pipeline": "mathrag-gate", "params": QUALITY_ALONE}
"""Measured in addition to the candidates: the gate chooses a quality scorer without knowing the right answers."""
BY_RULES, BY_JUDGE = "quality-rules", "quality-judge"
TAU = 0.45
DATA_DIR = REPOSITORY / ".mathrag" / "pilot"


def list_worlds(items: int) -> list[World]:
    return [
        World(label, change_setting(world_module.read(label), items=items), seed)
        for label in SETTINGS
        for seed in SEEDS
    ]


def measure(client: Client, corpora: Path, world: World) -> dict[str, Any]:
    """Run the pilot of a world and then all candidates on the rest; return what both found."""
    name = f"pilot-{world.name}"
    if experiments.find(client, api.get(name)) is None:
        client.send(api.pilot(world.name, world.name, name=name))
    pilot = experiments.run(client, {"name": name}, name)
    document = {
        "datasets": [{"dataset": f"{name}-rest", "corpus": world.name}], "baseline": BASELINE,
        "variants": [*(each.model_dump() for each in CANDIDATES), GATE],
    }  # fmt: skip
    rest = experiments.run(client, {"name": f"rest-{digest(document)}", **document}, f"rest of {world.name}")
    job = next(row["job"] for row in rest["report"]["rows"] if row["variant"] == GATE["name"])
    decision = client.send(jobs.report(job))["gate"]
    lines = (corpora / world.name / "corpus.jsonl").read_text().splitlines()
    kinds = {line["id"]: line["meta"]["operator"] for line in map(json.loads, lines)}
    operators = {each.hash: kinds[each.id] for each in client.corpora.documents(world.name)}
    gate = {key: decision[key] for key in ("strategy", "rho", "low", "high")}
    return {
        "name": f"{world.label}-{world.seed}", "pilot": trim(pilot), "rest": trim(rest),
        "gate": gate | {"order": measure_order_agreement(decision, operators)},
    }  # fmt: skip


def measure_order_agreement(decision: Mapping[str, Any], topics: Mapping[str, str]) -> float:
    """Return the mean of Kendall's tau-b between rules and judge over the documents of each topic."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    scores = zip(decision["rule_scores"], decision["judge_scores"], strict=True)
    for document, pair in zip(decision["documents"], scores, strict=True):
        groups[topics[document]].append(pair)
    found = [kendalltau(*zip(*pairs, strict=True)).statistic for pairs in groups.values() if len(pairs) > 1]
    return fmean(each for each in found if not isnan(each))  # one score for all documents orders nothing


def trim(found: Mapping[str, Any]) -> dict[str, Any]:
    """Keep accuracies, comparisons with the baseline, and the recommendation."""
    report = found["report"]
    return {
        "seconds": found["seconds"],
        "recommendation": report["recommendation"],
        "accuracy": {row["variant"]: row["result"]["accuracy"] for row in report["rows"]},
        "differences": {
            pair["left"]: {key: pair[key] for key in ("difference", "separable", "words")}
            for pair in report["comparisons"]["pooled"]["pairs"]
        },
    }


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """Write the blocks of the page."""
    return {
        "run": pages.format_origin(results["about"], "pilot.json"),
        "choice": format_choices(results["worlds"]),
        "candidates": format_candidates(results["worlds"]),
        "gate": format_gates(results["worlds"]),
    }


def format_choices(worlds: Sequence[Mapping[str, Any]]) -> str:
    """Compare each recommendation with the baseline and with the best candidate on the rest, and count."""
    rows, chosen, best, separable = [], [], [], 0
    for each in worlds:
        pilot, rest = each["pilot"], each["rest"]
        name = pilot["recommendation"]["variant"]
        shares = get_shares(rest)
        leader = max(pilot["accuracy"], key=shares.__getitem__)
        versus = rest["differences"].get(name)
        separable += bool(versus and versus["separable"] and versus["difference"]["value"] > 0)
        chosen.append(shares[name])
        best.append(shares[leader])
        found = pilot["differences"].get(name)
        rows.append([
            each["name"], f"`{name}`", format_difference(found), format_difference(versus), percent(shares[BASELINE]),
            percent(shares[name]), f"{percent(shares[leader])} (`{leader}`)", f"{pilot['seconds']:.0f} s",
        ])  # fmt: skip
    header = (
        "data set", "pilot recommends", "lead in the pilot", "lead on the rest", "`hybrid` on the rest", "recommended",
        "best", "pilot took",
    )  # fmt: skip
    held = [get_shares(each["rest"])[BASELINE] for each in worlds]
    told = [each for each in worlds if each["pilot"]["recommendation"]["separable"]]
    worse = sum(one < other for one, other in zip(chosen, held, strict=True))
    summary = (
        f"The pilot recommended another variant than `{BASELINE}` in {len(told)} of {len(worlds)} data sets; on the "
        f"rest it was separably better in {separable}. The recommendation answered fewer questions than `{BASELINE}` "
        f"in {worse}. "
        f"Mean accuracy on the rest: `{BASELINE}` {percent(fmean(held))}, recommended {percent(fmean(chosen))}, "
        f"the best in hindsight {percent(fmean(best))}."
    )
    return f"{table(header, rows)}\n\n{summary}"


def format_candidates(worlds: Sequence[Mapping[str, Any]]) -> str:
    names = list(worlds[0]["rest"]["accuracy"])
    shares = [get_shares(each["rest"]) for each in worlds]
    rows = [[each["name"], *(percent(of[name]) for name in names)] for each, of in zip(worlds, shares, strict=True)]
    rows.append(["mean", *(percent(fmean(of[name] for of in shares)) for name in names)])
    below = [sum(of[name] < of[BASELINE] for of in shares) for name in names]
    rows.append([f"below `{BASELINE}`", *(f"{count} of {len(shares)}" for count in below)])
    return table(["data set", *(f"`{name}`" for name in names)], rows)


def format_gates(worlds: Sequence[Mapping[str, Any]]) -> str:
    """Show who would score quality by agreement, by the pilot, and in hindsight; and what each way answers."""
    rows = []
    answered: dict[str, list[float]] = defaultdict(list)
    for each in worlds:
        gate, shares = each["gate"], get_shares(each["rest"])
        ways = {
            "by rho": gate["rho"] > TAU, "by lower end": gate["low"] > TAU, "by order": gate["order"] > TAU,
            "by pilot": prefers_rules(get_shares(each["pilot"])), "in hindsight": prefers_rules(shares),
        }  # fmt: skip
        for way, rules in ways.items():
            answered[way].append(shares[BY_RULES if rules else BY_JUDGE])
        figures = [f"{gate['rho']:.2f} ({gate['low']:.2f} to {gate['high']:.2f})", f"{gate['order']:.2f}"]
        quality = [percent(shares[name]) for name in (BY_RULES, BY_JUDGE)]
        rows.append([each["name"], *figures, *quality, *("rules" if rules else "judge" for rules in ways.values())])
    rows.append(["mean accuracy", "", "", "", "", *(percent(fmean(values)) for values in answered.values())])
    header = ("data set", "rho", "order", f"`{BY_RULES}`", f"`{BY_JUDGE}`", *answered)
    return table(header, rows)


def prefers_rules(shares: Mapping[str, float]) -> bool:
    return shares[BY_RULES] > shares[BY_JUDGE]


def get_shares(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: each["value"] for name, each in found["accuracy"].items()}


def format_difference(found: Mapping[str, Any] | None) -> str:
    """Write the points between a variant and the baseline with their interval; - for the baseline itself."""
    if found is None:
        return "-"
    value, low, high = (100 * found["difference"][key] for key in ("value", "low", "high"))
    return f"{value:+.1f} ({low:.1f} to {high:.1f})"


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="kept, so that the next run continues")
    parser.add_argument("--items", type=int, default=ITEMS, help="fewer than all: nothing is written to docs")
    parser.add_argument("--only-write", action="store_true", help="write the text from existing results")
    options = parser.parse_args()
    # An end from outside must stop the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    measured = options.items == ITEMS
    file = DOCS / "results" / "pilot.json" if measured else options.data_dir / "pilot.json"
    try:
        with report_errors(as_json=False):
            if not options.only_write:
                results = run(list_worlds(options.items), options.data_dir)
                file.write_text(json.dumps(results, separators=(",", ":")) + "\n")
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    found = blocks(json.loads(file.read_text()))
    if measured:
        text = DOCS / "pilot.md"
        text.write_text(rewrite_blocks(text.read_text(), found))
    print("\n\n".join(found.values()))


def run(worlds: Iterable[World], data_dir: Path) -> dict[str, Any]:
    corpora, worlds = data_dir / "corpora", list(worlds)
    furnish(corpora, worlds)
    with serve_stack(data_dir) as client:
        upload(client, corpora, worlds)
        found = [measure(client, corpora, world) for world in worlds]
    seconds = sum(each[part]["seconds"] for each in found for part in ("pilot", "rest"))
    return {"about": {**pages.describe_origin(seconds), "models": model_files()}, "worlds": found}


if __name__ == "__main__":
    main()
