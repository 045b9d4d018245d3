"""Print an experiment for a person: its progress, its cells, and their results."""

from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from mathrag.cli import plan
from mathrag.cli.job_compare import measure_heads
from mathrag.cli.output import print_facts, print_table
from mathrag.client.client import Client
from mathrag.client.experiments import Experiment
from mathrag.client.waiting import follow_experiment
from shared.pages.formatting import format_accuracy, format_counts, format_mean
from shared.plurals import format_count

CELLS = ("CELL", "DATASET", "VARIANT", "POINT", "SEED", "JOB", "STATE")
ROWS = ("DATASET", "VARIANT", "POINT", "SEED", "ACCURACY")


def describe_progress(found: Experiment) -> str:
    """Return a line such as "gate-or-not  running  jobs 3 completed, 1 running  samples 350/400  eta 12 s"."""
    counts = found["request_counts"]
    jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items())
    samples = f"samples {counts['total'] - counts['in_progress']}/{counts['total']}"
    eta = [] if found["eta_seconds"] is None else [f"eta {found['eta_seconds']} s"]
    return "  ".join([found["name"], found["state"], f"jobs {jobs or 'none'}", samples, *eta])


def follow(client: Client, name: str, *, silent: bool = False) -> Experiment:
    """Print the experiment's progress, unless `silent`, until it has ended; return its last state."""
    last_line = ""
    for found in follow_experiment(client, name):
        if not silent and (line := describe_progress(found)) != last_line:
            typer.echo(last_line := line)
    return found


def print_plan(found: Any) -> None:
    """Print the size of the experiment, and in which order its models would be loaded."""
    parts = (
        format_count(found["cells"], "cell"),
        format_count(found["jobs"], "job"),
        format_count(found["samples"], "sample"),
    )
    typer.echo(f"{found['name']}: {', '.join(parts)}")
    print_table(("CALLS", "AT MOST", "IF SEPARATE"), [
        (role, calls["most"], calls["apart"]) for role, calls in found["calls"].items()
    ])  # fmt: skip
    chosen = found["plan"]["chosen"]
    if chosen:
        typer.echo(f"for these calls: {chosen['loads']} model loads, {chosen['seconds']:.0f} s ({chosen['basis']})")
    plan.print_plan(found["plan"])
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def print_experiment(found: Experiment) -> None:
    """Print every cell with its job, and why cells were refused."""
    typer.echo(describe_progress(found))
    print_table(CELLS, [
        (
            cell["index"], cell["dataset"], cell["variant"], format_point(cell), cell["seed"], cell["job_name"],
            cell["state"],
        )
        for cell in found["grid"]
    ])  # fmt: skip
    for why in sorted({cell["refused"] for cell in found["grid"] if cell["refused"]}):
        typer.echo(f"  refused: {why}")
    typer.echo(f"  next: mathrag experiment report {found['name']}")


def print_report(found: Any) -> None:
    """Print a row for each cell, the comparisons, the cost and the notes."""
    typer.echo(f"{found['name']}: {found['state']}")
    extra = measure_heads(found["measure"])
    print_table((*ROWS, *extra, "GATE"), [_make_row(row, others=len(extra)) for row in found["rows"]])
    for title, compared in _list_comparisons(found["comparisons"]):
        typer.echo()
        print_table((title, "AGAINST", "ITEMS", "VERDICT"), [
            (pair["left"], pair["right"], pair["items"], pair["words"]) for pair in compared["pairs"]
        ])  # fmt: skip
    print_facts([("calls made", format_counts(found["calls_made"]) or "none"), ("model loads", found["model_loads"])])
    pooled = found["comparisons"]["pooled"]["notes"] if found["comparisons"] else []
    for note in [*found["notes"], *pooled]:
        typer.echo(f"  note: {note}")


def _list_comparisons(found: Any) -> Iterator[tuple[str, Any]]:
    """Yield the comparisons with their titles: each dataset, then all datasets together."""
    if found is not None:
        yield from found["datasets"].items()
        yield "ALL DATASETS" if found["datasets"] else "SYSTEM", found["pooled"]


def format_point(cell: Any) -> str:
    """Return the cell's parameters, such as "context_size=3 gate.tau=0.3"; "-" if it has none."""
    return " ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in cell["point"].items()) or "-"


def _make_row(row: Any, others: int) -> tuple[object, ...]:
    result = row["result"]
    result_text = format_accuracy(result["accuracy"]) if result else row["refused"] or row["state"]
    gate = result["gate"]["strategy"] if result and result["gate"] else None
    notes = [format_mean(result["measured"]) if result else None] * others
    return row["dataset"], row["variant"], format_point(row), row["seed"], result_text, *notes, gate
