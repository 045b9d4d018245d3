"""`mathrag job calibrate`: thresholds for `crag`, from a job whose lists are labelled or judged."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, facts, print_json
from mathrag.cli.references import JobReference
from mathrag.client import jobs
from mathrag.client.client import Client


def calibrate(
    reference: JobReference,
    trust: Annotated[float, typer.Option(help="Share of lists that are what the thresholds say.")] = 0.9,
    judged_by: Annotated[
        str | None, typer.Option(help="Job of `crag` whose judge labels the lists; by default gold documents do.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """From which confidence on `crag` can be trusted to have found something, and below which not."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.calibration(reference, trust, judged_by))
        if as_json:
            print_json(found)
        else:
            typer.echo(f"{found['name']}: crag by {found['evaluator']}")
            facts(lines(found))


def lines(found: Any) -> Iterator[tuple[str, object]]:
    """Name and value of each line; the last one is what to submit with."""
    figures = found["calibration"]
    others = figures["observations"] - figures["relevant"]
    yield "lists", f"{figures['relevant']} with a relevant document, {others} without"
    yield "skipped", found["skipped"] and f"{found['skipped']}, without a confidence of the evaluator's own"
    bounds = {name: figures[name] for name in ("upper", "lower")}
    for name, bound in bounds.items():
        yield f"crag.{name}", threshold(bound)
    settings = [
        f"--set crag.{name}={bound['value']:.3g}" for name, bound in bounds.items() if bound["value"] is not None
    ]
    yield "submit with", " ".join(settings)


def threshold(bound: Any) -> str:
    """Such as "0.66 (0.58 to 0.74)"."""
    if bound["value"] is None:
        return "none is good enough"
    often = "" if bound["met"] == 1 else f"; found in {100 * bound['met']:.0f} % of the resamples"
    return f"{bound['value']:.3g} ({bound['low']:.3g} to {bound['high']:.3g}, bootstrap 95 %{often})"
