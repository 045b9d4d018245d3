"""Compare all pipelines on the same questions in one table: accuracy, paired test, fallbacks, calls, loads, seconds.

    .venv/bin/python -m bench.comparison --items 200 --math 200 [--json FILE]

Starts a stack of its own and runs every registered pipeline, one job after another, each computed anew so that its
calls and loads are its own: on the problem world, and on problems of MATH where ../shared/data has them.
`MATHRAG_CONFIG` names other models.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from bench.floor import furnish
from bench.running import Stack, stack
from shared.ingest.datasets import draw_stratified
from shared.pipelines import registry
from shared.settings import REPOSITORY

MATH = REPOSITORY.parent / "shared" / "data" / "math"
BASELINE = "dense"
SAMPLING_SEED = 1

PARAMS: dict[str, Any] = {
    "context_size": 1,
    "generate": {"max_tokens": 256},
    "hyde": {"documents": 4, "decoding": {"temperature": 0.7, "max_tokens": 128}},
}
"""Parameters of every job. The shipped generator reads only the first rule that it finds; bounds on answers and
hypothetical documents save time. Everything else is the documented default."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"mathrag-gate-judge": ("mathrag-gate", {"gate": {"tau": 1.0}})}
"""Further rows, each a pipeline with other parameters; here the judge rates, whatever the correlation."""


class Row(NamedTuple):
    """Result of one pipeline's job; the report is None if the service refused the job."""

    name: str
    reason: str
    report: dict[str, Any] | None
    clean: bool


def main() -> None:
    """Run all, print the tables, write the raw results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200, help="questions about the problem world; 0: none")
    parser.add_argument("--math", type=int, default=200, help="problems of MATH; 0: none")
    parser.add_argument("--data", type=Path, default=MATH, help="folder with train.jsonl and test-dev.jsonl")
    parser.add_argument("--pipelines", nargs="*", default=[*registry.names(), *VARIANTS], help="default: every one")
    parser.add_argument("--json", type=Path, help="file for the raw reports")
    options = parser.parse_args()
    found = {}
    with stack() as running:
        for part in parts(running, options.items, options.math, options.data):
            found[part] = compare_pipelines(running, part, options.pipelines)
    if options.json:
        options.json.write_text(json.dumps({part: [row._asdict() for row in rows] for part, rows in found.items()}))


def parts(running: Stack, items: int, math: int, data: Path) -> Iterator[str]:
    """Upload each part, then yield its name, which is that of its corpus and of its dataset."""
    if items:
        furnish(running, items)
        yield "world"
    if math and not (data / "test-dev.jsonl").exists():
        print(f"\nMATH is left out: {data} has no test-dev.jsonl; name its folder with --data")
    elif math:
        lines = (data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)
        running.upload("corpora", "math", [(data / "train.jsonl").read_bytes()])
        chosen = draw_stratified([json.loads(line)["subject"] for line in lines], math, SAMPLING_SEED)
        running.upload("datasets", "math", [lines[position] for position in chosen])
        yield "math"


def compare_pipelines(running: Stack, part: str, pipelines: Sequence[str]) -> list[Row]:
    """Run all pipelines on one part and print their table."""
    print(f"\n### {part}\n\n{HEADER}")
    rows = []
    for name in pipelines:
        rows.append(job(running, part, name))
        print(f"{name} has ended", flush=True)
    print(table(rows, said(running.api, part, rows)), flush=True)
    return rows


def job(running: Stack, part: str, name: str) -> Row:
    """Submit a job, wait for its end, and read its report and audit."""
    pipeline, changed = VARIANTS.get(name, (name, {}))
    wanted = {"name": f"{part}-{name}", "dataset": part, "corpus": part, "pipeline": pipeline}
    try:
        params = registry.get(pipeline).select_read({**PARAMS, **changed})
        ended = running.run(**wanted, params=params, reuse="none")
    except httpx2.HTTPStatusError as refusal:
        return Row(name, refusal.response.json()["detail"], None, clean=True)
    report, audit = (running.get(f"/v1/jobs/{ended['id']}/{what}") for what in ("report", "audit"))
    return Row(name, report["reason"] or "", report, audit["clean"])


def said(api: httpx2.Client, part: str, rows: Sequence[Row]) -> dict[str, str]:
    """Describe each pipeline against the baseline in the API's words, with all tests as one family."""
    ended = {row.name: row.report["id"] for row in rows if row.report and row.report["state"] == "completed"}
    if BASELINE not in ended or len(ended) == 1:
        return {}
    found = api.get("/v1/comparison", params={"job": list(ended.values()), "baseline": ended[BASELINE]})
    pairs = found.raise_for_status().json()["pairs"]
    return {pair["left"].removeprefix(f"{part}-"): pair["words"] for pair in pairs}


COLUMNS = (
    "pipeline", "accuracy (Wilson 95 %)", f"against {BASELINE} (McNemar, Holm)", "nDCG@10", "failed", "refused",
    "fallbacks", "calls made", "loads", "seconds", "audit",
)  # fmt: skip
HEADER = "\n".join(("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"))


def table(rows: Sequence[Row], words: Mapping[str, str]) -> str:
    """Join the rows, each with its words against the baseline."""
    return "\n".join(line(row, words.get(row.name, "")) for row in rows)


def line(row: Row, words: str) -> str:
    if row.report is None or row.report["state"] != "completed":
        return f"| {row.name} | not run: {row.reason} |" + " - |" * (len(COLUMNS) - 2)
    report = row.report
    cells = [
        row.name, accuracy(report["accuracy"]), words,
        ndcg(report["retrieval"]), counted(report["failures"]), report["refused"], fallbacks(report["fallbacks"]),
        counted(report["calls_made"]), report["model_loads"], f"{report['seconds']:.0f}",
        "clean" if row.clean else "violations",
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) or "-" for cell in cells) + " |"


def accuracy(found: dict[str, Any]) -> str:
    """Show share and interval in percent."""
    if found["value"] is None:
        return "n/a"
    return "{:.1f} % ({:.1f} to {:.1f})".format(*(100 * found[key] for key in ("value", "low", "high")))


def ndcg(found: dict[str, Any] | None) -> str:
    """Show nDCG@10 of the final order; empty if there are no relevance judgements or no search."""
    return f"{found['final']['nDCG@10']['value']:.3f}" if found else ""


def fallbacks(stages: dict[str, dict[str, int]]) -> str:
    """List fallbacks by stage, with their kinds and counts."""
    return "; ".join(f"{stage}: {counted(kinds)}" for stage, kinds in stages.items())


def counted(counts: dict[str, int]) -> str:
    """List the counts that are not 0."""
    return ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)


if __name__ == "__main__":
    main()
