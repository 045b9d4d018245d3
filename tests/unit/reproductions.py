"""Problems as MATH has them, and a run over them as the service would report it."""

import json
from pathlib import Path
from typing import Any

from mathrag.reproduction.page import Results
from mathrag.reproduction.problems import Problems
from shared.statistics.intervals import wilson

JOB = "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a{:02}"
GATE: dict[str, Any] = {
    "strategy": "judge", "reason": "rho = 0.139 <= tau = 0.45: judge", "tau": 0.45, "rho": 0.139, "low": -0.02,
    "high": 0.29, "spearman": 0.1, "documents": ["a", "b", "c"], "rule_scores": [0.1, 0.5, 0.9],
    "judge_scores": [0.25, 1.0, 0.5], "asked": 3, "unparsed": 0,
}  # fmt: skip
RESIDENCY: dict[str, Any] = {
    "epoch": 3, "device": "gpu:0", "models": ["qwen2.5-7b-instruct"], "cause": "drained", "state": "closed",
    "opened_at": "2026-11-21T08:00:00Z", "closed_at": "2026-11-21T08:01:00Z",
    "memory_mib": {"qwen2.5-7b-instruct": 5400.0},
}  # fmt: skip
QWEN = {"name": "qwen2.5-7b-instruct", "backend": "ollama", "digest": "845dbda0ea48", "version": "0.40.2"}
NOTES = ["a note", "job 'x': repeats shared their replies"]
MADE = {"retrieve": 200, "judge": 0, "generate": 100, "grade": 100}


def stage(device_s: float | None) -> dict[str, Any]:
    """Of one role."""
    return {"made": 100, "reused": 0, "executed": 100, "seconds": 60.0, "device_s": device_s}


def report(number: int = 0, right: int = 86, **changed: Any) -> dict[str, Any]:
    """A job's report: 100 questions, greedy, five repeats."""
    share = wilson(right, 100)
    accuracy = {
        "value": right / 100,
        "low": share.low,
        "high": share.high,
        "items": 100,
        "correct": 5 * right,
        "graded": 500,
    }
    params = {"context_size": 5, "generate": {"temperature": 0.0}}
    return {
        "id": JOB.format(number), "request_counts": {"total": 500, "completed": 500, "failed": 0},
        "accuracy": accuracy, "strict": accuracy, "bootstrap": {"value": right / 100, "low": 0.79, "high": 0.92},
        "repeats": {"accuracies": [right / 100] * 5, "mean": right / 100, "std": 0.0}, "retrieval": None,
        "stages": {"retrieve": stage(9.0), "generate": stage(410.0), "grade": stage(30.0)}, "model_loads": 1,
        "calls_made": MADE, "calls_reused": {"generate": 0}, "duplicates_dropped": 4, "gate": None,
        "residencies": [RESIDENCY], "notes": ["repeats shared their replies"], "endings": {"correct": 430, "logic": 70},
        "settings": {
            "repeats": 5, "params": params, "models": {"generate": QWEN}, "pipeline_hash": "77ab", "drawn": [],
        },
        **changed,
    }  # fmt: skip


def results(**jobs: Any) -> Results:
    """Of these jobs; by default of the paper's four rows."""
    named = jobs or {
        "dense": report(1), "sparse": report(2, 85), "hybrid": report(3, 81), "gate": report(4, 87, gate=GATE),
    }  # fmt: skip
    pair = {"left": "gate", "right": "hybrid", "words": "not separable at n = 100: +6.0 points"}
    return Results(experiment={"name": "math-paper-1"}, jobs=named, comparison={"pairs": [pair], "notes": NOTES})


PROBLEMS = Problems(
    corpus=Path("train.jsonl"), questions=Path("test.jsonl"), documents=7500, corpus_digest="c" * 64, asked=b"{}\n",
    items=100, of=500, notes=("100 of 500 questions are asked",),
)  # fmt: skip


def problem(number: int, **fields: Any) -> dict[str, Any]:
    """As MATH has it; every other one is geometry."""
    return {
        "problem": f"What is {number} + {number}?", "solution": f"It is \\boxed{{{2 * number}}}.",
        "level": "Level 1", "type": "Geometry" if number % 2 else "Algebra", **fields,
    }  # fmt: skip


def write(file: Path, numbers: range, **fields: Any) -> Path:
    """A JSONL file of these problems."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(problem(number, **fields)) + "\n" for number in numbers))
    return file
