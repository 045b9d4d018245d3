"""`mathrag job`: submit jobs, follow and change them, and read their results."""

import uuid
from itertools import islice
from typing import Annotated, Any, Literal

import typer

from mathrag.cli import job_calibrate, job_compare, job_files, job_import, progress
from mathrag.cli.command_groups import Mutation
from mathrag.cli.failures import Exit, report_errors
from mathrag.cli.job_report import print_report
from mathrag.cli.job_state import describe_unserved
from mathrag.cli.output import AsJson, describe_wait, print_facts, print_json, print_table
from mathrag.cli.parameters import Model, Set, parse_parameters, split_pair
from mathrag.cli.references import CorpusOption, DatasetOption, JobReference, RequiredPipelineOption
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.jobs import Job
from mathrag.client.request import MOST_OF_A_PAGE
from shared.pages.formatting import take_last_line

PARTS: tuple[tuple[Literal["completed", "failed", "cancelled", "in_progress"], str], ...] = (
    ("completed", "completed"), ("failed", "failed"), ("cancelled", "cancelled"), ("in_progress", "in progress"),
)  # fmt: skip
job = typer.Typer()

Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=TEXT", help="Text to store with the job, such as owner=ada."),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", help="A request with the same key returns the first one's result (default: a new key)."
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Number of questions, from the first (default: all).")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow the progress until it has ended.")]


@job.command(cls=Mutation)
def submit(
    name: Annotated[str, typer.Option(help="Name of the new job.")],
    dataset: DatasetOption,
    pipeline: RequiredPipelineOption,
    corpus: CorpusOption = None,
    limit: Limit = None,
    repeats: Annotated[int, typer.Option(help="How often each question is asked.")] = 1,
    reuse: Annotated[str, typer.Option(help="Reuse replies of other jobs: `all` or `none`.")] = "all",
    grader: Annotated[
        str | None, typer.Option(help="Grader of the answers, such as text or rubric (default: the dataset's).")
    ] = None,
    settings: Set = None,
    model: Model = None,
    rank: Annotated[int, typer.Option(help="Priority; jobs with a smaller rank run first.")] = 100,
    metadata: Metadata = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job, which runs in the background."""
    with report_errors(as_json=as_json), Client() as client:
        chosen = [f"grading.grader={grader}"] if grader else []
        body = {
            "name": name, "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "repeats": repeats,
            "reuse": reuse, **({} if limit is None else {"limit": limit}),
            "params": parse_parameters([*(settings or []), *chosen]),
            "models": dict(split_pair(text, "--model") for text in model or []), "rank": rank,
            "metadata": dict(split_pair(text, "--metadata") for text in metadata or []),
        }  # fmt: skip
        _print_submission(client, client.send(jobs.submit(body, key or str(uuid.uuid4()))), wait, as_json)


@job.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(help="Number of jobs to list.")] = 50,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state, such as running or failed.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Only jobs of this pipeline.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only jobs over this dataset.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    contains: Annotated[str | None, typer.Option(help="Only jobs with this text in their name.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Only jobs of this experiment.")] = None,
    submitted_by: Annotated[str | None, typer.Option(help="Only jobs that were submitted with this key.")] = None,
    sort: Annotated[str | None, typer.Option(help="Order: newest, name or state (default: newest).")] = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first or in the order of --sort."""
    with report_errors(as_json=as_json), Client() as client:
        narrowed = {"state": state, "pipeline": pipeline, "dataset": dataset, "name": name}
        filters = {**narrowed, "name_contains": contains, "experiment": experiment, "submitted_by": submitted_by}
        found = list(islice(client.all(jobs.list_jobs(min(limit, MOST_OF_A_PAGE), sort=sort, **filters)), limit))
        if as_json:
            print_json(found)
        elif found:
            print_table(
                ("ID", "NAME", "PIPELINE", "DATASET", "STATE", "DONE", "FAILED", "TOTAL"), map(_make_row, found)
            )
        else:
            typer.echo("No job matches." if any(filters.values()) else "No jobs yet: mathrag job submit --help")


@job.command()
def show(reference: JobReference, as_json: AsJson = False) -> None:
    """Show a job as it is now."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(jobs.get(reference))
        if as_json:
            print_json(found)
        else:
            print_job(found)


@job.command()
def watch(reference: JobReference, as_json: AsJson = False) -> None:
    """Follow a job until it has ended; exits with 1 unless it completed."""
    with report_errors(as_json=as_json), Client() as client:
        _watch(client, reference, as_json)


@job.command(cls=Mutation)
def cancel(reference: JobReference, as_json: AsJson = False) -> None:
    """Cancel a job: its samples end now. Repeating it changes nothing."""
    _change(reference, "cancel", "show", as_json)


@job.command(cls=Mutation)
def pause(reference: JobReference, as_json: AsJson = False) -> None:
    """Pause a job: start no more calls until it is resumed; calls in flight may still end."""
    _change(reference, "pause", "resume", as_json)


@job.command(cls=Mutation)
def resume(reference: JobReference, as_json: AsJson = False) -> None:
    """Resume a paused job."""
    _change(reference, "resume", "watch", as_json)


def _change(reference: str, verb: Literal["cancel", "pause", "resume"], next_verb: str, as_json: bool) -> None:
    with report_errors(as_json=as_json), Client() as client:
        changed = client.send(jobs.change(reference, verb))
        if as_json:
            print_json(changed)
        else:
            typer.echo(f"job {changed['name']} is {changed['state']}")
            typer.echo(f"  next: mathrag job {next_verb} {changed['id'][:8]}")


@job.command(cls=Mutation)
def requeue(reference: JobReference, key: Key = None, wait: Wait = False, as_json: AsJson = False) -> None:
    """Submit an ended job again, as a new job that computes only what failed."""
    with report_errors(as_json=as_json), Client() as client:
        _print_submission(client, client.send(jobs.requeue(reference, key or str(uuid.uuid4()))), wait, as_json)


@job.command()
def report(reference: JobReference, as_json: AsJson = False) -> None:
    """Show a job's accuracy with confidence intervals, its failures and its cost."""
    with report_errors(as_json=as_json), Client() as client:
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


def _print_submission(client: Client, submitted: Job, wait: bool, as_json: bool) -> None:
    warn(submitted)
    if wait:
        _watch(client, submitted["id"], as_json)
    elif as_json:
        print_json(submitted)
    else:
        typer.echo(f"job {submitted['name']} is submitted: {submitted['id']}")
        typer.echo(f"  next: mathrag job watch {submitted['id'][:8]}")


def warn(submitted: Any) -> None:
    """Print the warnings that came with the accepted request on standard error."""
    for warning in submitted.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)


def _watch(client: Client, reference: str, as_json: bool) -> None:
    ended = progress.watch(client, reference, progress.Silent() if as_json else progress.choose_view())
    if as_json:
        print_json(ended)
    else:
        print_job(ended)
    if ended["state"] != "completed":
        raise typer.Exit(Exit.FINDING)


def print_job(found: Job) -> None:
    """Print a job's state, counts and inputs, and the command to run next."""
    counts = found["request_counts"]
    typer.echo(f"job {found['name']} is {found['state']}")
    stages = [f"{role} {stage['done']}/{stage['total']}" for role, stage in found.get("stages", {}).items()]
    gate = found.get("gate")
    print_facts(
        [
            ("id", found["id"]),
            ("reason", take_last_line(found["reason"])),
            ("waiting", describe_unserved(found)),
            *(("waiting", describe_wait(each)) for each in found.get("waiting", ())),
            ("pipeline", found["pipeline"]),
            ("dataset", _describe_dataset(found)),
            ("corpus", found["corpus"]),
            ("submitted by", found.get("submitted_by")),
            ("samples", f"{', '.join(f'{counts[part]} {name}' for part, name in PARTS)}, of {counts['total']}"),
            ("calls", ", ".join(stages)),
            ("gate", gate and gate["reason"]),
            ("unreadable", found.get("unreadable")),
        ]
    )
    verb = "report" if found["state"] in jobs.ENDED else "watch"
    typer.echo(f"  next: mathrag job {verb} {found['id'][:8]}")


def _describe_dataset(found: Job) -> str:
    return f"{found['dataset']}, the first {found['limit']} items" if found.get("limit") else str(found["dataset"])


def _make_row(found: Job) -> tuple[object, ...]:
    counts = found["request_counts"]
    standing = f"{found['state']}, waits" if found.get("waiting") else found["state"]
    state = (found["id"][:8], found["name"], found["pipeline"], found["dataset"], standing)
    return *state, counts["completed"], counts["failed"], counts["total"]
