"""A report for a person: accuracy first, then what could be wrong with it, then what it cost."""

from collections.abc import Iterator
from typing import Any

import typer

from services.orchestrator.cli.output import accuracy, counted, facts, last_line, table


def print_report(found: Any) -> None:
    """All of it, in some twenty lines."""
    took = f" after {found['seconds']:.1f} s" if found["seconds"] is not None else ""
    typer.echo(f"{found['name']}: {found['settings']['pipeline']}, {found['state']}{took}")
    facts(lines(found))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")
    for title, group in (("LEVEL", found["by_level"]), ("SUBJECT", found["by_subject"])):
        if group:
            typer.echo()
            table((title, "ACCURACY"), [(name, accuracy(figure)) for name, figure in group.items()])


def lines(found: Any) -> Iterator[tuple[str, object]]:
    """Name and value of each line."""
    counts = found["request_counts"]
    yield "reason", last_line(found["reason"])
    yield "samples", f"{counts['completed']} completed, {counts['failed']} failed, of {counts['total']}"
    yield "accuracy", f"{accuracy(found['accuracy'])} [math-verify, Wilson 95 %]"
    yield "strict", f"{accuracy(found['strict'])}; the graders differ on {found['disagreements']}"
    yield "extraction", found["extraction"] and f"{counted(found['extraction'])}; {found['truncated']} truncated"
    yield "failures", counted({**found["failures"], **found["grading_failures"]})
    yield "scoring", scoring(found)
    yield "gate", found["gate"] and found["gate"]["reason"]
    yield "model loads", found["model_loads"]
    yield "model calls", found["model_calls"]
    yield "calls made", counted(found["calls_made"]) or "none"
    yield "calls reused", counted(found["calls_reused"]) or "none"
    yield "calls lapsed", found["calls_lapsed"] and f"{found['calls_lapsed']}, which may have run twice"
    yield "seconds", timing(found["stages"])


def scoring(found: Any) -> str:
    """What went wrong before the prompt was built."""
    parts = {
        "judge replies without a rating": found["parse_failures"],
        "samples unscored": found["unscored"],
        "near-duplicates dropped": found["duplicates_dropped"],
    }
    return ", ".join(f"{count} {name}" for name, count in parts.items() if count)


def timing(stages: Any) -> str:
    """Seconds by stage, of those that this job executed."""
    return ", ".join(f"{role} {stage['seconds']:.1f}" for role, stage in stages.items() if stage["seconds"] is not None)
