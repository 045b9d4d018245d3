"""What reproductions read: problems as MATH has them, and published runs."""

import json
from pathlib import Path
from typing import Any

# Problems as MATH has them.


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


# Published runs of two questions, in the files that `mathrag reproduce published` reads.

EXPERIMENT = "20251124_184341"
METHODS = ("dense", "sparse", "hybrid", "mathrag-gate")
TEXTS = ("It is $\\boxed{2}$.", "It is $\\boxed{\\frac{8}{2}}$.", "It is $\\boxed{4}$.")
"""The authors' grader takes the second one for 8."""
ANSWERS = ((1, 1, 1, 1), (1, 2, 2, 0), (2, 1, 1, 1), (2, 2, 3, 1))
"""Run, item, response and the authors' verdict, the same for each method."""
SECONDS, RECALL = (1, 2, 3, 10), (1, 0, 1, 1)
"""Of each answer: the seconds that it took, and the authors' Recall@5."""


def write_runs(folder: Path) -> None:
    """Write items.jsonl, responses.jsonl and runs.csv; the problems are those of `tests.unit.reproductions`."""
    items = [
        {"item": n, "unique_id": f"train/prealgebra/{n}.json", "problem": f"What is {n} + {n}?", "level": "Level 1"}
        for n in (1, 2)
    ]
    responses = [{"response": n, "text": text} for n, text in enumerate(TEXTS, start=1)]
    for name, found in (("items.jsonl", items), ("responses.jsonl", responses)):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in found))
    runs = [
        f"{experiment},{run},{method},{item},{response},7,7,{right},{seconds},{recall}"
        for experiment in (EXPERIMENT, "20251125_000000")
        for method in METHODS
        for (run, item, response, right), seconds, recall in zip(ANSWERS, SECONDS, RECALL, strict=True)
    ]
    heads = "experiment,run,method,item,response,published_answer,published_gold,published_correct,latency_s"
    (folder / "runs.csv").write_text("\n".join([f"{heads},published_recall_at_5", *runs, ""]))
