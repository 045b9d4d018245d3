"""An experiment for a person: how far it is, its cells, and what they came to."""

from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from mathrag.cli import plan
from mathrag.cli.job_compare import measure_heads
from mathrag.cli.output import facts, table
from mathrag.client.experiments import Experiment
from shared.pages.words import accuracy, counted, measured

CELLS = ("CELL", "DATASET", "VARIANT", "POINT", "SEED", "JOB", "STATE")
ROWS = ("DATASET", "VARIANT", "POINT", "SEED", "ACCURACY")


def numbered(count: int, what: str) -> str:
    """Such as "1 cell", "2 cells"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def progress(found: Experiment) -> str:
    """Such as "gate-or-not  running  jobs 3 completed, 1 running  samples 350/400  eta 12 s"."""
    counts = found["request_counts"]
    jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items())
    samples = f"samples {counts['total'] - counts['in_progress']}/{counts['total']}"
    eta = [] if found["eta_seconds"] is None else [f"eta {found['eta_seconds']} s"]
    return "  ".join([found["name"], found["state"], f"jobs {jobs or 'none'}", samples, *eta])


def print_plan(found: Any) -> None:
    """How much it is, and which way its models would be loaded."""
    parts = (numbered(found["cells"], "cell"), numbered(found["jobs"], "job"), numbered(found["samples"], "sample"))
    typer.echo(f"{found['name']}: {', '.join(parts)}")
    table(("CALLS", "AT MOST", "IF APART"), [
        (role, calls["most"], calls["apart"]) for role, calls in found["calls"].items()
    ])  # fmt: skip
    chosen = found["plan"]["chosen"]
    if chosen:
        typer.echo(f"for so many calls: {chosen['loads']} model loads, {chosen['seconds']:.0f} s ({chosen['basis']})")
    plan.print_plan(found["plan"])
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def print_experiment(found: Experiment) -> None:
    """Every cell, with the job that answers it."""
    typer.echo(progress(found))
    table(CELLS, [
        (cell["index"], cell["dataset"], cell["variant"], point(cell), cell["seed"], cell["job_name"], cell["state"])
        for cell in found["grid"]
    ])  # fmt: skip
    for why in sorted({cell["refused"] for cell in found["grid"] if cell["refused"]}):
        typer.echo(f"  refused: {why}")
    typer.echo(f"  next: mathrag experiment report {found['name']}")


def print_report(found: Any) -> None:
    """A row per cell, then what it cost."""
    typer.echo(f"{found['name']}: {found['state']}")
    extra = measure_heads(found["measure"])
    table((*ROWS, *extra, "GATE"), [_row(row, others=len(extra)) for row in found["rows"]])
    for title, compared in _comparisons(found["comparisons"]):
        typer.echo()
        table((title, "AGAINST", "ITEMS", "VERDICT"), [
            (pair["left"], pair["right"], pair["items"], pair["words"]) for pair in compared["pairs"]
        ])  # fmt: skip
    facts([("calls made", counted(found["calls_made"]) or "none"), ("model loads", found["model_loads"])])
    pooled = found["comparisons"]["pooled"]["notes"] if found["comparisons"] else []
    for note in [*found["notes"], *pooled]:
        typer.echo(f"  note: {note}")


def _comparisons(found: Any) -> Iterator[tuple[str, Any]]:
    """Each under its title: the datasets, then all of them."""
    if found is not None:
        yield from found["datasets"].items()
        yield "ALL DATASETS" if found["datasets"] else "SYSTEM", found["pooled"]


def point(cell: Any) -> str:
    """Such as "context_size=3 gate.tau=0.3"."""
    return " ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in cell["point"].items()) or "-"


def _row(row: Any, others: int) -> tuple[object, ...]:
    result = row["result"]
    said = accuracy(result["accuracy"]) if result else row["refused"] or row["state"]
    gate = result["gate"]["strategy"] if result and result["gate"] else None
    others_said = [measured(result["measured"]) if result else None] * others
    return row["dataset"], row["variant"], point(row), row["seed"], said, *others_said, gate
