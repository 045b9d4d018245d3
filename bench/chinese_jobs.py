"""Chinese problems through a running stack: what is found, how it is asked, and what the shipped models make of it.

    .venv/bin/python -m bench.chinese_jobs --data ../shared/data/zh

The corpus is CMATH's problems with their answers, as plain passages; a question is the last clause of a problem, its
only relevant document that problem.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.comparison import accuracy, counted, fallbacks, ndcg
from bench.running import Stack, stack
from shared.pipelines import registry

PIPELINES = ("sparse", "dense", "hybrid", "mathrag-gate", "crag", "critic-loop", "enhanced", "hyde")
PARAMS = {"context_size": 1, "generate": {"max_tokens": 64}}
COLUMNS = ("pipeline", "nDCG@10", "Recall@10", "MRR", "prompts in Chinese", "failed", "fallbacks", "accuracy", "loads")
_CLAUSE = re.compile(r"[，。？！；,?!;]")


def main() -> None:
    """Upload, ask, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cmath-test.jsonl")
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--pipelines", nargs="*", default=PIPELINES)
    options = parser.parse_args()
    problems = [json.loads(line) for line in (options.data / "cmath-test.jsonl").read_bytes().splitlines()]
    with stack() as running:
        running.upload("corpora", "cmath", as_lines(passages(problems)))
        running.upload("datasets", "cmath", as_lines(questions(problems, options.items)))
        print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
        for name in options.pipelines:
            print(row(running, name), flush=True)


def passages(problems: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a document for every problem, without the problem's field, so that none is dropped as a duplicate."""
    for number, problem in enumerate(problems):
        yield {"id": str(number), "text": f"{problem['question']}\n答案：{problem['golden']}"}


def questions(problems: Sequence[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` items evenly over the file; each asks the last clause of a problem, which its document contains."""
    step = max(1, len(problems) // count)
    for number in range(0, step * count, step):
        problem = problems[number]
        yield {
            "id": str(number), "question": last_clause(problem["question"]), "answer": problem["golden"],
            "gold_documents": [str(number)],
        }  # fmt: skip


def last_clause(text: str) -> str:
    """Return the text between the last two marks of punctuation, such as 一共买了多少小包茶叶."""
    return [part for part in _CLAUSE.split(text) if part.strip()][-1].strip()


def as_lines(rows: Iterator[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in rows]


def row(running: Stack, pipeline: str) -> str:
    """Run one job and show it as a row of the table."""
    params = registry.get(pipeline).select_read({**PARAMS, "gate": {"on_unusable": "rules"}})
    ended = running.run(
        name=f"cmath-{pipeline}", dataset="cmath", corpus="cmath", pipeline=pipeline, params=params, reuse="none"
    )
    report = running.get(f"/v1/jobs/{ended['id']}/report")
    if report["state"] != "completed":
        return f"| {pipeline} | not run: {report['reason']} |" + " - |" * (len(COLUMNS) - 2)
    final = report["retrieval"]["final"]
    cells = [
        pipeline, ndcg(report["retrieval"]), *(f"{final[name]['value']:.3f}" for name in ("Recall@10", "MRR")),
        chinese(running, ended["id"]), counted(report["failures"]), fallbacks(report["fallbacks"]),
        accuracy(report["accuracy"]), report["model_loads"],
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) or "-" for cell in cells) + " |"


def chinese(running: Stack, job: str, samples: int = 10) -> str:
    """Count the first samples' prompts that were made from a Chinese template."""
    steps = [step for at in range(samples) for step in running.get(f"/v1/jobs/{job}/samples/{at}")["steps"]]
    templates = [step["request"]["template"].partition("@")[0] for step in steps if "template" in step["request"]]
    return f"{sum(name.endswith('-zh') for name in templates)} of {len(templates)}"


if __name__ == "__main__":
    main()
