"""`mathrag job`: submit, follow, compare, export, import and calibrate."""

import sys
import uuid
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from mathrag.cli import progress
from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import (
    AsJson,
    Exit,
    Model,
    Set,
    describe_unserved,
    describe_wait,
    parse_parameters,
    print_facts,
    print_json,
    print_lines_as_json,
    print_table,
    report_errors,
    split_pair,
)
from mathrag.cli.references import (
    Baseline,
    CorpusOption,
    DatasetOption,
    JobReference,
    Jobs,
    Measure,
    RequiredPipelineOption,
)
from mathrag.cli.uploads import Delimiter, FormatOption, OnErrorOption, send
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.jobs import Job
from mathrag.client.request import MOST_OF_A_PAGE, Request
from mathrag.client.uploads import Sources
from shared.errors import NotFound
from shared.ingest import answers as answers_module
from shared.ingest.answers import Layout, make_mapping
from shared.ingest.lines import LISTED, OnError
from shared.ingest.rows import Format
from shared.messages import format_count
from shared.pages.formatting import format_accuracy, format_interval, format_mean, take_last_line
from shared.pages.lines import GRADERS, build_lines

# `mathrag job calibrate`: thresholds for `crag`, from a job whose lists are labelled or judged.


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


# `mathrag job compare`: show jobs side by side, with tests of their differences.


def compare(references: Jobs, baseline: Baseline = None, measure: Measure = None, as_json: AsJson = False) -> None:
    """Compare jobs on the items that they have in common, with significance tests."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(jobs.compare(references, baseline, measure))
        if as_json:
            print_json(found)
        else:
            print_comparison(found)


def print_comparison(found: Any) -> None:
    """Print tables of the jobs, of the pairs, and of how the samples of each job ended."""
    extra = measure_heads(found["measure"])
    heads = ("NAME", "PIPELINE", "ITEMS", "ACCURACY (WILSON 95 %)", *extra, "BOOTSTRAP", "STD")
    print_table(heads, [_make_job_row(each, others=len(extra)) for each in found["jobs"]])
    typer.echo()
    letter = "d" if found["measure"] == "score" else "h"
    pairs = [_pair(each, letter) for each in found["pairs"]]
    print_table(("LEFT", "AGAINST", "LEFT ONLY", "RIGHT ONLY", "EFFECT", "VERDICT"), pairs)
    if any(each["endings"] for each in found["jobs"]):
        typer.echo()
        print_table(("ENDING", *(each["name"] for each in found["jobs"])), list_ending_rows(found["jobs"]))
    for pair in found["pairs"]:
        if pair["moved"]:
            typer.echo(f"\n{pair['left']} (rows) against {pair['right']} (columns): how the same samples ended")
            print_table(("ENDING", *list_ending_columns(pair["moved"])), move_rows(pair["moved"]))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def measure_heads(measure: str) -> tuple[str, ...]:
    """Return the extra column for a measure other than accuracy; accuracy always has its column."""
    return () if measure == "accuracy" else (f"{measure.upper()} (95 %)",)


def list_ending_rows(jobs: Any) -> Iterator[tuple[object, ...]]:
    """Yield a row for each ending that occurs, with a column for each job, in the taxonomy's order."""
    most = max((each["endings"] for each in jobs), key=len)
    names = dict.fromkeys([*most, *(name for each in jobs for name in each["endings"])])
    for name in names:
        yield name, *(each["endings"].get(name, 0) for each in jobs)


def list_ending_columns(moved: Any) -> list[str]:
    """Return the endings that occur in the right job, in the taxonomy's order."""
    from shared.rag.provenance import Ending

    names = {name for row in moved.values() for name in row}
    return [each.value for each in Ending if each.value in names]


def move_rows(moved: Any) -> Iterator[tuple[object, ...]]:
    """Yield a row for each ending in the left job; None where no sample moved to that column's ending."""
    for was, row in moved.items():
        yield was, *(row.get(now) for now in list_ending_columns(moved))


def format_deviation(repeats: Any) -> str:
    """Return the standard deviation between repeats in percentage points; "-" if there is one repeat."""
    return "-" if repeats["std"] is None else f"{100 * repeats['std']:.2f} of {len(repeats['accuracies'])} repeats"


def _make_job_row(found: Any, others: int) -> tuple[object, ...]:
    figures = (
        format_accuracy(found["accuracy"]),
        *[format_mean(found["measured"])] * others,
        found["bootstrap"] and format_interval(found["bootstrap"]),
        format_deviation(found["repeats"]),
    )
    return found["name"], found["pipeline"], found["items"], *figures


def _pair(found: Any, letter: str) -> tuple[object, ...]:
    """Return the row of a pair; `letter` names the effect size: Cohen's h or d."""
    effect = None if found["effect"] is None else f"{letter} = {found['effect']:+.2f}"
    return found["left"], found["right"], found["left_only"], found["right_only"], effect, found["words"]


# `mathrag job results` and `job export`: write a job's results to files.


class RowFormat(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


Rows = Annotated[RowFormat, typer.Option("--format", help="Format of the rows.")]
To = Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder for the files; created if it does not exist.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


class ExportFile(NamedTuple):
    """A file of an export, and the request that fetches it."""

    file: str
    request: Request[bytes]


Prompts = Annotated[bool, typer.Option("--prompts", help="Include the generator's prompts.")]


def export_files(job: str, rows: RowFormat, *, prompts: bool = False) -> Iterator[ExportFile]:
    """Yield every file of a job's export, with the request that fetches it."""
    yield ExportFile("job.json", jobs.file(job))
    yield ExportFile("report.json", jobs.file(job, "report"))
    yield ExportFile(f"results.{rows}", _request_results(job, rows, prompts=prompts))
    yield ExportFile("provenance.jsonl", jobs.file(job, "provenance", format="jsonl"))
    yield ExportFile("audit.json", jobs.file(job, "audit"))


def _request_results(job: str, rows: RowFormat, *, prompts: bool) -> Request[bytes]:
    return jobs.file(job, "results", format=rows.value, prompts="true" if prompts else None)


def results(
    reference: JobReference, rows: Rows = RowFormat.JSONL, prompts: Prompts = False, as_json: AsJson = False
) -> None:
    """Print the samples that have ended, with the models' replies: one per line; --json prints one array."""
    with report_errors(as_json=as_json), Client() as client:
        if as_json:
            print_lines_as_json(client.stream(_request_results(reference, RowFormat.JSONL, prompts=prompts)))
            return
        if rows is RowFormat.PARQUET and sys.stdout.isatty():
            raise Failed("usage", "refusing to print Parquet to a terminal", hint="redirect it: > results.parquet")
        sys.stdout.buffer.writelines(client.stream(_request_results(reference, rows, prompts=prompts)))
        sys.stdout.buffer.flush()


def export(
    reference: JobReference,
    to: To,
    rows: Rows = RowFormat.JSONL,
    prompts: Prompts = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write an ended job to a folder: job, report, results, provenance and audit."""
    with report_errors(as_json=as_json), Client() as client:
        paths = list(export_files(reference, rows, prompts=prompts))
        there = [part.file for part in paths if (to / part.file).exists()]
        if there and not force:
            raise Failed("conflict", f"{to} already has {', '.join(there)}", hint="choose another folder, or --force")
        if not client.shows:
            to.mkdir(parents=True, exist_ok=True)
        for part in paths:
            client.save(part.request, to / part.file)
        if client.shows:
            return
        if as_json:
            print_json({"job": reference, "folder": str(to), "files": [part.file for part in paths]})
        else:
            typer.echo(f"job {reference}: {', '.join(part.file for part in paths)} in {to}")


# Print a job's report for a person.


def print_report(found: Any) -> None:
    """Print the report in about twenty lines."""
    took = f" after {found['seconds']:.1f} s" if found["seconds"] is not None else ""
    typer.echo(f"{found['name']}: {found['settings']['pipeline']}, {found['state']}{took}")
    print_facts(build_lines(found))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")
    if found["differing"]:
        typer.echo()
        print_differing(found["differing"], found["disagreements"], found["grader"])
    for title, group in (("LEVEL", found["by_level"]), ("SUBJECT", found["by_subject"])):
        if group:
            typer.echo()
            print_table((title, "ACCURACY"), [(name, format_accuracy(figure)) for name, figure in group.items()])


def print_differing(rows: Any, count: int, grader: str) -> None:
    """Print the answers that the graders judge differently, one per line."""
    head = ("INDEX", "REPEAT", "ANSWER", "GOLD", GRADERS.get(grader, grader).upper(), "STRICT")
    words = {True: "correct", False: "wrong"}
    fields = ("index", "repeat", "answer", "gold")
    verdicts = ("math_verify", "strict")
    print_table(head, [(*(row[each] for each in fields), *(words[row[each]] for each in verdicts)) for row in rows])
    if count > len(rows):
        typer.echo(f"{count - len(rows)} more: mathrag sample list JOB --differing")


# `mathrag job import`: import the answers of another system as a job, and grade them.


def import_answers(
    name: Annotated[str, typer.Argument(help="Name of the new job.")],
    dataset: DatasetOption,
    source: Annotated[Path, typer.Option("--from", help="File of answers: JSON lines, CSV, or a log (--layout).")],
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="WHAT=COLUMN", help="Column of a field, such as answer=prediction."),
    ] = None,
    first_repeat: Annotated[int, typer.Option(min=0, help="Number of an item's first repeat.")] = 0,
    grader: Annotated[str | None, typer.Option(help="Grader of the answers (default: the dataset's).")] = None,
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    layout: Annotated[Layout | None, typer.Option(help="Program whose log the file is.")] = None,
    on_error: OnErrorOption = OnError.REJECT,
    as_json: AsJson = False,
) -> None:
    """Import and grade the answers of another system, as a job without provenance."""
    with report_errors(as_json=as_json), Client() as client:
        columns = make_mapping(column or ())
        if not source.is_file():
            raise NotFound(f"there is no file {str(source)!r}", hint="correct the path of --from")
        rows = answers_module.read_answers(source, columns, layout=layout, format=format, delimiter=delimiter)
        sources = Sources(rows, on_error=on_error)
        options = {"column": column or None, "first_repeat": first_repeat, "grader": grader}
        request = jobs.import_answers(sources, name, dataset, on_error=on_error.value, **options)
        try:
            made = send(client, request, sources)
        finally:
            # If nothing is left to store, the rejected lines are the reason.
            _warn(f"{each.source}, line {each.line}: {each.message}" for each in sources.rejected[:LISTED])
        _warn(map(sources.translate, made.get("warnings", ())))
        if as_json:
            print_json(made)
        else:
            answers = format_count(made["request_counts"]["total"], "answer is", "answers are")
            typer.echo(f"job {made['name']}: {answers} stored and being graded")
            typer.echo(f"  next: mathrag job watch {made['id'][:8]}")
        if sources.rejected or made["request_counts"]["total"] < sources.sent:
            raise typer.Exit(Exit.FINDING)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


# `mathrag job`: submit jobs, follow and change them, and read their results.

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


job.command("import")(import_answers)
job.command()(compare)
job.command()(calibrate)
job.command()(results)
job.command()(export)


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
    dataset = f"{found['dataset']}, the first {found['limit']} items" if found.get("limit") else str(found["dataset"])
    print_facts(
        [
            ("id", found["id"]),
            ("reason", take_last_line(found["reason"])),
            ("waiting", describe_unserved(found)),
            *(("waiting", describe_wait(each)) for each in found.get("waiting", ())),
            ("pipeline", found["pipeline"]),
            ("dataset", dataset),
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


def _make_row(found: Job) -> tuple[object, ...]:
    counts = found["request_counts"]
    standing = f"{found['state']}, waits" if found.get("waiting") else found["state"]
    state = (found["id"][:8], found["name"], found["pipeline"], found["dataset"], standing)
    return *state, counts["completed"], counts["failed"], counts["total"]
