"""`mathrag job calibrate`: thresholds for `crag`, from a job whose lists are labelled or judged."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_facts, print_json
from mathrag.cli.references import JobReference
from mathrag.client import jobs
from mathrag.client.client import Client


def calibrate(
    reference: JobReference,
    trust: Annotated[float, typer.Option(help="Share of lists for which each threshold must be right.")] = 0.9,
    judged_by: Annotated[
        str | None,
        typer.Option(help="Job of `crag` whose judge labels the lists (default: gold documents label them)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the confidence thresholds of `crag` from a job's retrieved lists."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(jobs.calibration(reference, trust, judged_by))
        if as_json:
            print_json(found)
        else:
            typer.echo(f"{found['name']}: crag by {found['evaluator']}")
            print_facts(describe_calibration(found))


def describe_calibration(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the name and value of each printed line; the last one has the options for a submission."""
    figures = found["calibration"]
    others = figures["observations"] - figures["relevant"]
    yield "lists", f"{figures['relevant']} with a relevant document, {others} without"
    yield "skipped", found["skipped"] and f"{found['skipped']}, without a confidence from the evaluator"
    bounds = {name: figures[name] for name in ("upper", "lower")}
    for name, bound in bounds.items():
        yield f"crag.{name}", format_threshold(bound)
    settings = [
        f"--set crag.{name}={bound['value']:.3g}" for name, bound in bounds.items() if bound["value"] is not None
    ]
    yield "submit with", " ".join(settings)


def format_threshold(bound: Any) -> str:
    """Return a threshold with its interval, such as "0.66 (0.58 to 0.74, bootstrap 95 %)"."""
    if bound["value"] is None:
        return "no threshold is good enough"
    often = "" if bound["met"] == 1 else f"; found in {100 * bound['met']:.0f} % of the resamples"
    return f"{bound['value']:.3g} ({bound['low']:.3g} to {bound['high']:.3g}, bootstrap 95 %{often})"
