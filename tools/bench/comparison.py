"""Pipelines on the same questions: all of them in one table, on Chinese problems, and what jobs on MATH reuse."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec

from shared.ingest.datasets import draw_stratified
from shared.pipelines import registry
from tools.bench import Rows, benchmark
from tools.bench.stack import MATH, Stack, as_lines, start_stack

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
"""Further rows, each a pipeline with other parameters; here the judge rates at any correlation."""


class PipelineResult(NamedTuple):
    """Result of one pipeline's job; the report is None if the service refused the job."""

    name: str
    reason: str
    report: dict[str, Any] | None
    clean: bool


@benchmark
def comparison(
    items: int = 200, math: int = 200, data: Path = MATH, pipelines: tuple[str, ...] = (), json: Path | None = None
) -> Rows:
    """Compare pipelines, all by default, on the same questions: accuracy, paired test, fallbacks, calls, loads, time.

    The jobs run one after another without reuse, so that each makes its own calls and loads: on `items` of the problem
    world, and on `math` problems of MATH, in the folder `data`; 0 leaves a part out. `json` is a file for the raw
    reports. `MATHRAG_CONFIG` names other models.
    """
    found: dict[str, list[PipelineResult]] = {}
    with start_stack() as running:
        for part in upload_parts(running, items, math, data):
            found[part] = [run_pipeline(running, part, name) for name in pipelines or (*registry.names(), *VARIANTS)]
            yield f"### {part}\n\n{HEADER}\n{table(found[part], said(running.api, part, found[part]))}"
    if json:
        json.write_bytes(msgspec.json.encode({part: [row._asdict() for row in rows] for part, rows in found.items()}))


def upload_parts(running: Stack, items: int, math: int, data: Path) -> Iterator[str]:
    """Upload each part, then yield its name, which is that of its corpus and of its dataset."""
    if items:
        running.upload_world(items)
        yield "world"
    if math and not (data / "test-dev.jsonl").exists():
        print(f"MATH is left out: {data} has no test-dev.jsonl; name its folder with --data")
    elif math:
        lines = (data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)
        running.upload("corpora", "math", [(data / "train.jsonl").read_bytes()])
        chosen = draw_stratified([json.loads(line)["subject"] for line in lines], math, SAMPLING_SEED)
        running.upload("datasets", "math", [lines[position] for position in chosen])
        yield "math"


def run_pipeline(running: Stack, part: str, name: str) -> PipelineResult:
    """Submit a job, wait for its end, and read its report and audit."""
    pipeline, changed = VARIANTS.get(name, (name, {}))
    wanted = {"name": f"{part}-{name}", "dataset": part, "corpus": part, "pipeline": pipeline}
    try:
        params = registry.get(pipeline).select_read({**PARAMS, **changed})
        ended = running.run(**wanted, params=params, reuse="none")
    except httpx2.HTTPStatusError as refusal:
        return PipelineResult(name, refusal.response.json()["detail"], None, clean=True)
    report, audit = (running.get(f"/v1/jobs/{ended['id']}/{what}") for what in ("report", "audit"))
    return PipelineResult(name, report["reason"] or "", report, audit["clean"])


def said(api: httpx2.Client, part: str, rows: Sequence[PipelineResult]) -> dict[str, str]:
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


def table(rows: Sequence[PipelineResult], words: Mapping[str, str]) -> str:
    """Join the rows, each with its words against the baseline."""
    return "\n".join(line(row, words.get(row.name, "")) for row in rows)


def line(row: PipelineResult, words: str) -> str:
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


CHINESE = ("sparse", "dense", "hybrid", "mathrag-gate", "crag", "critic-loop", "enhanced", "hyde")
_CLAUSE = re.compile(r"[，。？！；,?!;]")


@benchmark
def chinese_jobs(data: Path, items: int = 100, pipelines: tuple[str, ...] = CHINESE) -> Rows:
    """Measure Chinese problems: search results, model calls, and the answers of the shipped models.

    The corpus is CMATH's problems with their answers, as plain passages; a question is the last clause of a problem,
    its only relevant document that problem. DATA is a folder with cmath-test.jsonl.
    """
    problems = [json.loads(line) for line in (data / "cmath-test.jsonl").read_bytes().splitlines()]
    with start_stack() as running:
        running.upload("corpora", "cmath", as_lines(passages(problems)))
        running.upload("datasets", "cmath", as_lines(questions(problems, items)))
        for name in pipelines:
            wanted = {"context_size": 1, "generate": {"max_tokens": 64}, "gate": {"on_unusable": "rules"}}
            params = registry.get(name).select_read(wanted)
            fields = {"name": f"cmath-{name}", "dataset": "cmath", "corpus": "cmath", "pipeline": name}
            ended = running.complete(**fields, params=params, reuse="none")
            report = running.report(ended)
            final = report["retrieval"]["final"]
            yield {
                "pipeline": name,
                **{measure: f"{final[measure]['value']:.3f}" for measure in ("nDCG@10", "Recall@10", "MRR")},
                "prompts in Chinese": count_chinese(running, ended["id"]), "failed": counted(report["failures"]),
                "fallbacks": fallbacks(report["fallbacks"]), "accuracy": accuracy(report["accuracy"]),
                "loads": report["model_loads"],
            }  # fmt: skip


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


def count_chinese(running: Stack, job: str, samples: int = 10) -> str:
    """Count the first samples' prompts that were made from a Chinese template."""
    steps = [step for at in range(samples) for step in running.get(f"/v1/jobs/{job}/samples/{at}")["steps"]]
    templates = [step["request"]["template"].partition("@")[0] for step in steps if "template" in step["request"]]
    return f"{sum(name.endswith('-zh') for name in templates)} of {len(templates)}"


ANCHOR = "Problem: What is 3 plus 3?\nSolution: The answer is 6."
SLICE = 100


@benchmark
def math_run(data: Path = MATH, items: int = 1000) -> Rows:
    """Run the main job on MATH, then jobs that may cost nothing or only their changes."""
    lines = (data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)[:items]
    shorter = {"max_tokens": 256}
    jobs: list[tuple[str, str, dict[str, Any]]] = [
        ("the-main-job", "math-dev", {}),
        ("the-same-job-again", "math-dev", {}),
        ("three-items-changed", "math-dev-3-changed", {}),
        ("one-anchor-changed", "math-dev", {"params": {"anchors": {"negative": ANCHOR}}}),
        (f"{SLICE}-items-greedy-5-repeats", "math-slice", {"repeats": 5, "params": {"generate": shorter}}),
        (
            f"{SLICE}-items-temperature-0.7-5-repeats", "math-slice",
            {"repeats": 5, "params": {"generate": {**shorter, "temperature": 0.7}}},
        ),
    ]  # fmt: skip
    with start_stack() as running:
        running.upload("corpora", "math", [(data / "train.jsonl").read_bytes()])
        datasets = {"math-dev": lines, "math-dev-3-changed": reword_three(lines), "math-slice": lines[:SLICE]}
        for name, questions_ in datasets.items():
            running.upload("datasets", name, questions_)
        for name, dataset, fields in jobs:
            ended = running.run(name=name, dataset=dataset, corpus="math", pipeline="mathrag-gate", **fields)
            report, audit = running.report(ended), running.get(f"/v1/jobs/{ended['id']}/audit")
            counts = report["request_counts"]
            seconds = {role: each["seconds"] for role, each in report["stages"].items()}
            yield {
                "job": f"{name} ({ended['state']})",
                "samples ended": f"{counts['completed']} completed, {counts['failed']} failed of {counts['total']}",
                "seconds": report["seconds"], "loads": report["model_loads"], "model calls": report["model_calls"],
                "calls made": counted(report["calls_made"]), "reused": sum(report["calls_reused"].values()),
                "seconds by stage": ", ".join(f"{role} {spent:.1f}" for role, spent in seconds.items() if spent),
                "accuracy (Wilson 95 %)": accuracy(report["accuracy"]), "extraction": counted(report["extraction"]),
                "failures": counted(report["failures"]),
                "audit": "clean" if audit["clean"] else f"{len(audit['violations'])} violations",
            }  # fmt: skip


def reword_three(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the same items, three of them reworded."""
    for number, line in enumerate(lines):
        item = json.loads(line)
        if number in (0, len(lines) // 2, len(lines) - 1):
            item["problem"] = "Answer this question. " + item["problem"]
        yield json.dumps(item).encode() + b"\n"
