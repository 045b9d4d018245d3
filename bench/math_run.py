"""Run the main job on MATH, then jobs that may cost nothing or only their changes; print one Markdown table.

    .venv/bin/python -m bench.math_run --data ../shared/data/math

Starts a stack of its own, ingests `train.jsonl` and `test-dev.jsonl`, and reads every figure back through the API.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.running import Stack, stack

ANCHOR = "Problem: What is 3 plus 3?\nSolution: The answer is 6."
SLICE = 100


def main() -> None:
    """Run the jobs one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and test-dev.jsonl")
    parser.add_argument("--items", type=int, default=1000)
    options = parser.parse_args()
    lines = (options.data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)[: options.items]
    with stack() as running:
        running.upload("corpora", "math", [(options.data / "train.jsonl").read_bytes()])
        running.upload("datasets", "math-dev", lines)
        running.upload("datasets", "math-dev-3-changed", reword_three(lines))
        running.upload("datasets", "math-slice", lines[:SLICE])
        print(HEADER)
        job(running, "the-main-job", "math-dev")
        job(running, "the-same-job-again", "math-dev")
        job(running, "three-items-changed", "math-dev-3-changed")
        job(running, "one-anchor-changed", "math-dev", params={"anchors": {"negative": ANCHOR}})
        shorter = {"max_tokens": 256}
        job(running, f"{SLICE}-items-greedy-5-repeats", "math-slice", repeats=5, params={"generate": shorter})
        warm = {"generate": {**shorter, "temperature": 0.7}}
        job(running, f"{SLICE}-items-temperature-0.7-5-repeats", "math-slice", repeats=5, params=warm)


COLUMNS = (
    "job", "samples ended", "seconds", "loads", "model calls", "made: retrieve / judge / generate / grade", "reused",
    "seconds by stage", "accuracy (Wilson 95 %)", "extraction", "failures", "audit",
)  # fmt: skip
HEADER = "\n".join(("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"))


def reword_three(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the same items, three of them reworded."""
    for number, line in enumerate(lines):
        item = json.loads(line)
        if number in (0, len(lines) // 2, len(lines) - 1):
            item["problem"] = "Answer this question. " + item["problem"]
        yield json.dumps(item).encode() + b"\n"


def job(running: Stack, name: str, dataset: str, **fields: Any) -> None:
    """Submit a job, wait for its end, and print its report as a row."""
    ended = running.run(name=name, dataset=dataset, corpus="math", pipeline="mathrag-gate", **fields)
    report, audit = (running.get(f"/v1/jobs/{ended['id']}/{part}") for part in ("report", "audit"))
    print(row(name, ended["state"], report, audit), flush=True)


def row(name: str, state: str, report: dict[str, Any], audit: dict[str, Any]) -> str:
    counts, accuracy = report["request_counts"], report["accuracy"]
    ended = f"{counts['completed']} completed, {counts['failed']} failed of {counts['total']}"
    made = " / ".join(str(report["calls_made"].get(role, 0)) for role in ("retrieve", "judge", "generate", "grade"))
    seconds = {role: stage["seconds"] for role, stage in report["stages"].items()}
    stages = ", ".join(f"{role} {spent:.1f}" for role, spent in seconds.items() if spent is not None)
    interval = "n/a"
    if accuracy["value"] is not None:
        figures = [100 * accuracy[key] for key in ("value", "low", "high")]
        interval = "{:.1f} % ({:.1f} to {:.1f})".format(*figures) + f", {accuracy['correct']} of {accuracy['graded']}"
    cells = [
        f"{name} ({state})", ended, f"{report['seconds']:.1f}", report["model_loads"], report["model_calls"], made,
        sum(report["calls_reused"].values()), stages, interval, words(report["extraction"]), words(report["failures"]),
        "clean" if audit["clean"] else f"{len(audit['violations'])} violations",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def words(counts: dict[str, int]) -> str:
    """List counts by name."""
    return ", ".join(f"{kind} {count}" for kind, count in counts.items()) or "none"


if __name__ == "__main__":
    main()
