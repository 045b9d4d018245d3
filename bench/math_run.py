"""The main job on MATH, then what must cost nothing and what must cost exactly its share; prints one Markdown table.

    .venv/bin/python -m bench.math_run --data ../shared/data/math

Starts a stack of its own, ingests `train.jsonl` and `test-dev.jsonl`, and reads every figure back through the API.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

ANCHOR = "Problem: What is 3 plus 3?\nSolution: The answer is 6."
SLICE = 100


def main() -> None:
    """Run the jobs one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and test-dev.jsonl")
    parser.add_argument("--items", type=int, default=1000)
    options = parser.parse_args()
    lines = (options.data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)[: options.items]
    with stack() as url, httpx2.Client(base_url=url, timeout=600, trust_env=False) as api:
        upload(api, "corpora", "math", (options.data / "train.jsonl").read_bytes())
        upload(api, "datasets", "math-dev", b"".join(lines))
        upload(api, "datasets", "math-dev-3-changed", b"".join(changed(lines)))
        upload(api, "datasets", "math-slice", b"".join(lines[:SLICE]))
        print(HEADER)
        job(api, "the-main-job", "math-dev")
        job(api, "the-same-job-again", "math-dev")
        job(api, "three-items-changed", "math-dev-3-changed")
        job(api, "one-anchor-changed", "math-dev", params={"anchors": {"negative": ANCHOR}})
        shorter = {"max_tokens": 256}
        job(api, f"{SLICE}-items-greedy-5-repeats", "math-slice", repeats=5, params={"generate": shorter})
        warm = {"generate": {**shorter, "temperature": 0.7}}
        job(api, f"{SLICE}-items-temperature-0.7-5-repeats", "math-slice", repeats=5, params=warm)


COLUMNS = (
    "job", "samples ended", "seconds", "loads", "model calls", "made: retrieve / judge / generate / grade", "reused",
    "seconds by stage", "accuracy (Wilson 95 %)", "extraction", "failures", "audit",
)  # fmt: skip
HEADER = "\n".join(("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"))


@contextmanager
def stack() -> Iterator[str]:
    """A fresh embedded stack; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        mathrag("up", "--detach", "--data-dir", folder, "--port", "0")
        try:
            yield json.loads(mathrag("status", "--json", "--data-dir", folder))["stack"]["url"]
        finally:
            mathrag("down", "--data-dir", folder)


def mathrag(*arguments: str) -> str:
    """The command line's output."""
    command = [sys.executable, "-m", "services.orchestrator.cli.main", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def upload(api: httpx2.Client, kind: str, name: str, body: bytes) -> None:
    """Create a corpus or a dataset."""
    began = time.monotonic()
    api.post(f"/v1/{kind}", params={"name": name}, content=body).raise_for_status()
    print(f"{kind} {name}: {time.monotonic() - began:.1f} s", file=sys.stderr)


def changed(lines: list[bytes]) -> Iterator[bytes]:
    """The same items, three of them asked in other words."""
    for number, line in enumerate(lines):
        item = json.loads(line)
        if number in (0, len(lines) // 2, len(lines) - 1):
            item["problem"] = "Answer this question. " + item["problem"]
        yield json.dumps(item).encode() + b"\n"


def job(api: httpx2.Client, name: str, dataset: str, **fields: Any) -> None:
    """Submit, wait, and print the report as a row."""
    body = {"name": name, "dataset": dataset, "corpus": "math", "pipeline": "mathrag-gate", **fields}
    job_id = api.post("/v1/jobs", json=body).raise_for_status().json()["id"]
    while (state := api.get(f"/v1/jobs/{job_id}").json()["state"]) not in ("completed", "failed", "cancelled"):
        time.sleep(0.5)
    report = api.get(f"/v1/jobs/{job_id}/report").json()
    audit = api.get(f"/v1/jobs/{job_id}/audit").json()
    print(row(name, state, report, audit), flush=True)


def row(name: str, state: str, report: dict[str, Any], audit: dict[str, Any]) -> str:
    """One line of the table."""
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
    """Counts as words."""
    return ", ".join(f"{kind} {count}" for kind, count in counts.items()) or "none"


if __name__ == "__main__":
    main()
