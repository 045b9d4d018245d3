"""`mathrag job`: submit, look, change, and read what came out."""

import uuid
from itertools import islice
from typing import Annotated, Any, Literal

import typer

from mathrag.cli import job_calibrate, job_compare, job_files, job_import, progress
from mathrag.cli.command_groups import Mutation
from mathrag.cli.failures import Exit, reported
from mathrag.cli.job_report import print_report
from mathrag.cli.job_state import unserved
from mathrag.cli.output import AsJson, facts, print_json, table, waits
from mathrag.cli.parameters import Model, Set, pair, parameters
from mathrag.cli.references import CorpusOption, DatasetOption, JobReference, RequiredPipelineOption
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.jobs import Job
from mathrag.client.request import MOST_OF_A_PAGE
from shared.pages.words import last_line

PARTS: tuple[tuple[Literal["completed", "failed", "cancelled", "in_progress"], str], ...] = (
    ("completed", "completed"), ("failed", "failed"), ("cancelled", "cancelled"), ("in_progress", "in progress"),
)  # fmt: skip
job = typer.Typer()

Metadata = Annotated[list[str] | None, typer.Option("--metadata", metavar="KEY=TEXT", help="To find it again.")]
Key = Annotated[
    str | None, typer.Option("--idempotency-key", help="The same key again is the same job. [default: a new one]")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many questions of the dataset.")]
Wait = Annotated[bool, typer.Option("--wait", help="Watch it until it has ended.")]


@job.command(cls=Mutation)
def submit(
    name: Annotated[str, typer.Option(help="What you call it.")],
    dataset: DatasetOption,
    pipeline: RequiredPipelineOption,
    corpus: CorpusOption = None,
    limit: Limit = None,
    repeats: Annotated[int, typer.Option(help="How often each question is asked.")] = 1,
    reuse: Annotated[str, typer.Option(help="`all` replies of other jobs, or `none`.")] = "all",
    grader: Annotated[
        str | None, typer.Option(help="How answers are graded, such as text or rubric. [default: the dataset's]")
    ] = None,
    settings: Set = None,
    model: Model = None,
    rank: Annotated[int, typer.Option(help="Smaller is answered sooner.")] = 100,
    metadata: Metadata = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job; it runs whether or not anyone watches."""
    with reported(as_json=as_json), Client() as client:
        chosen = [f"grading.grader={grader}"] if grader else []
        body = {
            "name": name, "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "repeats": repeats,
            "reuse": reuse, **({} if limit is None else {"limit": limit}),
            "params": parameters([*(settings or []), *chosen]),
            "models": dict(pair(text, "--model") for text in model or []), "rank": rank,
            "metadata": dict(pair(text, "--metadata") for text in metadata or []),
        }  # fmt: skip
        _submitted(client, client.send(jobs.submit(body, key or str(uuid.uuid4()))), wait, as_json)


@job.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(help="How many.")] = 50,
    state: Annotated[str | None, typer.Option(help="Such as running or failed.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Only of this pipeline.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only over this dataset.")] = None,
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    contains: Annotated[str | None, typer.Option(help="Only those with this in their name.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Only of this experiment.")] = None,
    sort: Annotated[str | None, typer.Option(help="By newest, name or state. [default: newest]")] = None,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first, or as sorted."""
    with reported(as_json=as_json), Client() as client:
        narrowed = {"state": state, "pipeline": pipeline, "dataset": dataset, "name": name}
        filters = {**narrowed, "name_contains": contains, "experiment": experiment}
        found = list(islice(client.all(jobs.listed(min(limit, MOST_OF_A_PAGE), sort=sort, **filters)), limit))
        if as_json:
            print_json(found)
        elif found:
            table(("ID", "NAME", "PIPELINE", "DATASET", "STATE", "DONE", "FAILED", "TOTAL"), map(_row, found))
        else:
            typer.echo("No such job." if any(filters.values()) else "No jobs yet: mathrag job submit --help")


@job.command()
def show(reference: JobReference, as_json: AsJson = False) -> None:
    """One job as it is now."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.get(reference))
        if as_json:
            print_json(found)
        else:
            print_job(found)


@job.command()
def watch(reference: JobReference, as_json: AsJson = False) -> None:
    """Follow a job until it has ended; exits with 1 unless it completed."""
    with reported(as_json=as_json), Client() as client:
        _watch(client, reference, as_json)


@job.command(cls=Mutation)
def cancel(reference: JobReference, as_json: AsJson = False) -> None:
    """Cancel a job: its samples end now. Again is harmless."""
    _change(reference, "cancel", "show", as_json)


@job.command(cls=Mutation)
def pause(reference: JobReference, as_json: AsJson = False) -> None:
    """Begin nothing more of a job until it is resumed; calls in flight may still end."""
    _change(reference, "pause", "resume", as_json)


@job.command(cls=Mutation)
def resume(reference: JobReference, as_json: AsJson = False) -> None:
    """Let a paused job go on where it was."""
    _change(reference, "resume", "watch", as_json)


def _change(reference: str, verb: Literal["cancel", "pause", "resume"], next_verb: str, as_json: bool) -> None:
    with reported(as_json=as_json), Client() as client:
        changed = client.send(jobs.change(reference, verb))
        if as_json:
            print_json(changed)
        else:
            typer.echo(f"job {changed['name']} is {changed['state']}")
            typer.echo(f"  next: mathrag job {next_verb} {changed['id'][:8]}")


@job.command(cls=Mutation)
def requeue(reference: JobReference, key: Key = None, wait: Wait = False, as_json: AsJson = False) -> None:
    """Ask for the same as a job that has ended: a new job, which computes only what failed."""
    with reported(as_json=as_json), Client() as client:
        _submitted(client, client.send(jobs.requeue(reference, key or str(uuid.uuid4()))), wait, as_json)


@job.command()
def report(reference: JobReference, as_json: AsJson = False) -> None:
    """How well, with what certainty, and at what cost."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.report(reference))
        if as_json:
            print_json(found)
        else:
            print_report(found)


job.command("import")(job_import.import_answers)
job.command()(job_compare.compare)
job.command()(job_calibrate.calibrate)
job.command()(job_files.results)
job.command()(job_files.export)


def _submitted(client: Client, submitted: Job, wait: bool, as_json: bool) -> None:
    warn(submitted)
    if wait:
        _watch(client, submitted["id"], as_json)
    elif as_json:
        print_json(submitted)
    else:
        typer.echo(f"job {submitted['name']} is submitted: {submitted['id']}")
        typer.echo(f"  next: mathrag job watch {submitted['id'][:8]}")


def warn(submitted: Any) -> None:
    """Print what the service says beside having accepted it, on standard error."""
    for warning in submitted.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)


def _watch(client: Client, reference: str, as_json: bool) -> None:
    ended = progress.watch(client, reference, progress.Silent() if as_json else progress.view())
    if as_json:
        print_json(ended)
    else:
        print_job(ended)
    if ended["state"] != "completed":
        raise typer.Exit(Exit.FINDING)


def print_job(found: Job) -> None:
    """What a person wants to know of a job, and where to go from here."""
    counts = found["request_counts"]
    typer.echo(f"job {found['name']} is {found['state']}")
    stages = [f"{role} {stage['done']}/{stage['total']}" for role, stage in found.get("stages", {}).items()]
    gate = found.get("gate")
    facts(
        [
            ("id", found["id"]),
            ("reason", last_line(found["reason"])),
            ("waiting", unserved(found)),
            *(("waiting", waits(each)) for each in found.get("waiting", ())),
            ("pipeline", found["pipeline"]),
            ("dataset", _dataset(found)),
            ("corpus", found["corpus"]),
            ("samples", f"{', '.join(f'{counts[part]} {name}' for part, name in PARTS)}, of {counts['total']}"),
            ("calls", ", ".join(stages)),
            ("gate", gate and gate["reason"]),
            ("unreadable", found.get("unreadable")),
        ]
    )
    verb = "report" if found["state"] in jobs.ENDED else "watch"
    typer.echo(f"  next: mathrag job {verb} {found['id'][:8]}")


def _dataset(found: Job) -> str:
    return f"{found['dataset']}, the first {found['limit']} items" if found.get("limit") else str(found["dataset"])


def _row(found: Job) -> tuple[object, ...]:
    counts = found["request_counts"]
    standing = f"{found['state']}, waits" if found.get("waiting") else found["state"]
    state = (found["id"][:8], found["name"], found["pipeline"], found["dataset"], standing)
    return *state, counts["completed"], counts["failed"], counts["total"]
