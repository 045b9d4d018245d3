"""`mathrag job`: submit and follow jobs, read and compare their results, import and export."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli import progress
from mathrag.cli.api import list_and_print, save, send_and_print
from mathrag.cli.command_groups import LocalCommand, Mutation
from mathrag.cli.job_check import (
    CheckResult,
    Condition,
    describe_failed_job,
    evaluate_difference,
    evaluate_limits,
    list_figures,
    parse_limits,
    print_check,
)
from mathrag.cli.output import (
    AsJson,
    DataDir,
    Exit,
    Model,
    Set,
    Yes,
    describe_unserved,
    describe_wait,
    parse_parameters,
    print_facts,
    print_json,
    print_lines_as_json,
    print_table,
    print_warnings,
    report_errors,
    split_pairs,
)
from mathrag.cli.references import (
    Baseline,
    CorpusOption,
    DatasetOption,
    JobReference,
    Jobs,
    Measure,
    OptionalJobs,
    PromptOption,
    QuestionLimit,
    Repeats,
    RequiredPipelineOption,
    parse_prompts,
)
from mathrag.cli.uploads import ColumnOption, Delimiter, FormatOption, OnErrorOption, send
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.jobs import Job
from mathrag.client.request import Json, Request
from mathrag.client.uploads import Sources
from mathrag.errors import NotFound
from mathrag.formatting import format_accuracy, format_interval, format_mean, take_last_line
from mathrag.installation import import_server
from mathrag.messages import format_count
from mathrag.reading import answers
from mathrag.reading.lines import LISTED, OnError
from mathrag.reading.rows import Format
from mathrag.report_lines import GRADERS, build_lines

PARTS = ("completed", "failed", "cancelled", "in_progress")
"""Counts of a job's samples, in the order in which they are printed."""
ENDINGS = (
    "correct", "refused", "failed", "truncated", "extraction", "retrieval_miss", "judge_failure", "arithmetic", "logic",
    "ungraded",
)  # fmt: skip
"""Endings of samples, in the taxonomy's order."""
job = typer.Typer()

Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="Repeating the request with the same key returns the first result (default: a new key).",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", help="Metric to measure, such as faithfulness; repeat for several."),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the job or experiment has ended, and show its progress.")
]
Rows = Annotated[jobs.RowFormat, typer.Option("--format", help="Format of the rows.")]
Prompts = Annotated[bool, typer.Option("--prompts", help="Include the prompts.")]
ArchiveBefore = Annotated[
    str | None,
    typer.Option(
        "--before", metavar="DATE", help="Archive jobs that ended before a date (2026-12-31) or longer ago (90d)."
    ),
]
ArchiveKeepLast = Annotated[
    int | None, typer.Option("--keep-last", metavar="N", min=0, help="Archive ended jobs except the newest N.")
]
Preview = Annotated[bool, typer.Option("--dry-run", help="Show the jobs; archive nothing.")]
ForceFiles = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


@job.command(cls=Mutation)
def submit(
    name: Annotated[str, typer.Option(help="Name of the new job.")],
    dataset: DatasetOption,
    pipeline: RequiredPipelineOption,
    corpus: CorpusOption = None,
    limit: QuestionLimit = None,
    repeats: Repeats = 1,
    reuse: Annotated[str, typer.Option(metavar="all|none", help="Whether to reuse other jobs' replies.")] = "all",
    grader: Annotated[
        str | None, typer.Option(help="Grader of the answers, such as text or rubric (default: the dataset's).")
    ] = None,
    prompt: PromptOption = None,
    metric: Metrics = None,
    settings: Set = None,
    model: Model = None,
    rank: Annotated[int, typer.Option(help="Priority; lower values run first.")] = 100,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=TEXT", help="Text to store with the job, such as owner=ada."),
    ] = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job; it runs in the background."""
    with report_errors(as_json=as_json), Client() as client:
        chosen = [f"grading.grader={grader}"] if grader else []
        body = {
            "name": name, "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "repeats": repeats,
            "reuse": reuse, **({} if limit is None else {"limit": limit}),
            "params": add_metrics(parse_parameters([*(settings or []), *chosen, *parse_prompts(prompt)]), metric),
            "models": split_pairs(model, "--model"), "rank": rank,
            "metadata": split_pairs(metadata, "--metadata"),
        }  # fmt: skip
        _print_submission(client, client.send(jobs.submit(body, key)), wait, as_json)


def add_metrics(params: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Return the parameters with these metrics added.

    Raises:
        Failed: `--set metrics.names` also names metrics.
    """
    if not names:
        return params
    group = params.get("metrics", {})
    if "names" in group:
        raise Failed("usage", "metrics are named both by --metric and by --set metrics.names", hint="use only --metric")
    return {**params, "metrics": {**group, "names": names}}


def _print_submission(client: Client, submitted: Job, wait: bool, as_json: bool) -> None:
    print_warnings(submitted)
    if wait:
        _watch(client, submitted["id"], as_json)
    elif as_json:
        print_json(submitted)
    else:
        typer.echo(f"job {submitted['name']} is submitted: {submitted['id']}")
        typer.echo(f"  next: mathrag job watch {submitted['id'][:8]}")


def _watch(client: Client, reference: str, as_json: bool) -> None:
    ended = progress.watch(client, reference, progress.Silent() if as_json else progress.choose_view())
    print_json(ended) if as_json else print_job(ended)
    if ended["state"] != "completed":
        raise typer.Exit(Exit.FINDING)


def print_job(found: Job) -> None:
    """Print a job's state, counts and inputs, and the next command."""
    counts = found["request_counts"]
    typer.echo(f"job {found['name']} is {found['state']}")
    stages = [f"{role} {stage['done']}/{stage['total']}" for role, stage in found.get("stages", {}).items()]
    parts = [f"{counts[part]} {part.replace('_', ' ')}" for part in PARTS]
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
            ("samples", f"{', '.join(parts)}, of {counts['total']}"),
            ("calls", ", ".join(stages + ["archived"] * found.get("archived", False))),
            ("gate", gate and gate["reason"]),
            ("unreadable", found.get("unreadable")),
        ]
    )
    verb = "report" if found["state"] in jobs.ENDED else "watch"
    typer.echo(f"  next: mathrag job {verb} {found['id'][:8]}")


@job.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 50,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state, such as running or failed.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Only jobs with this pipeline.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only jobs with this dataset.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs with this name.")] = None,
    contains: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only jobs with this text in their name.")
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="Only jobs of this experiment.")] = None,
    submitted_by: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only jobs submitted with the API key of this name.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="newest|name|state", help="Order of the list (default: newest).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first or in the order of --sort."""
    filters: dict[str, Any] = {
        "state": state, "pipeline": pipeline, "dataset": dataset, "name": name, "name_contains": contains,
        "experiment": experiment, "submitted_by": submitted_by,
    }  # fmt: skip

    def make_row(found: Job) -> tuple[object, ...]:
        counts = found["request_counts"]
        standing = f"{found['state']}, waits" if found.get("waiting") else found["state"]
        shown = (found["id"][:8], found["name"], found["pipeline"], found["dataset"], standing)
        return *shown, counts["completed"], counts["failed"], counts["total"]

    list_and_print(
        jobs.list_jobs(**{"sort": sort, **filters}),
        ("ID", "NAME", "PIPELINE", "DATASET", "STATE", "DONE", "FAILED", "TOTAL"), make_row, as_json, limit=limit,
        nothing="No job matches." if any(filters.values()) else "No jobs yet: mathrag job submit --help",
    )  # fmt: skip


@job.command()
def show(reference: JobReference, as_json: AsJson = False) -> None:
    """Show the state of a job: its samples, calls and inputs."""
    send_and_print(jobs.get(reference), print_job, as_json)


@job.command()
def watch(reference: JobReference, as_json: AsJson = False) -> None:
    """Follow a job until it has ended; exits with 1 unless it completed."""
    with report_errors(as_json=as_json), Client() as client:
        _watch(client, reference, as_json)


@job.command(cls=Mutation)
def cancel(reference: JobReference, as_json: AsJson = False) -> None:
    """Cancel a job: its samples end now. Repeating the command changes nothing."""
    _change(jobs.cancel(reference), "show", as_json)


@job.command(cls=Mutation)
def pause(reference: JobReference, as_json: AsJson = False) -> None:
    """Pause a job: no new calls start until you resume it; calls in flight finish."""
    _change(jobs.pause(reference), "resume", as_json)


@job.command(cls=Mutation)
def resume(reference: JobReference, as_json: AsJson = False) -> None:
    """Resume a paused job."""
    _change(jobs.resume(reference), "watch", as_json)


def _change(request: Request[Job], next_verb: str, as_json: bool) -> None:
    def print_change(changed: Job) -> None:
        typer.echo(f"job {changed['name']} is {changed['state']}")
        typer.echo(f"  next: mathrag job {next_verb} {changed['id'][:8]}")

    send_and_print(request, print_change, as_json)


@job.command(cls=Mutation)
def requeue(reference: JobReference, key: Key = None, wait: Wait = False, as_json: AsJson = False) -> None:
    """Submit an ended job again as a new job, which reuses the completed calls."""
    with report_errors(as_json=as_json), Client() as client:
        _print_submission(client, client.send(jobs.requeue(reference, key=key)), wait, as_json)


@job.command(cls=Mutation)
def measure(
    reference: JobReference,
    metric: Metrics = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new job (default: the job's name with `-measured`).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Parameter of the group `metrics`, such as metrics.unit=claims; repeat for several.",
        ),
    ] = None,
    model: Model = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Measure the answers of a completed job in a new job, which only calls the judge model."""
    with report_errors(as_json=as_json), Client() as client:
        if not metric:
            raise Failed("usage", "no metric is named", hint="name one: --metric faithfulness")
        params = add_metrics(parse_parameters(settings or []), metric)
        request = jobs.measure(
            reference, metric, name=name, params=params, models=split_pairs(model, "--model"), key=key
        )
        _print_submission(client, client.send(request), wait, as_json)


@job.command()
def report(reference: JobReference, as_json: AsJson = False) -> None:
    """Show a job's accuracy with confidence intervals, failures and cost."""
    send_and_print(jobs.report(reference), print_report, as_json)


def print_report(found: Any) -> None:
    """Print the report."""
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


@job.command("import")
def import_answers(
    name: Annotated[str, typer.Argument(help="Name of the new job.")],
    dataset: DatasetOption,
    source: Annotated[Path, typer.Option("--from", help="Answers as JSON lines or CSV, or a log (--layout).")],
    column: ColumnOption = None,
    first_repeat: Annotated[
        int, typer.Option(min=0, help="Number that the file gives to each item's first repeat.")
    ] = 0,
    grader: Annotated[
        str | None, typer.Option(help="Grader of the answers, such as text or rubric (default: the dataset's).")
    ] = None,
    metric: Metrics = None,
    model: Model = None,
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    layout: Annotated[answers.Layout | None, typer.Option(help="Program that wrote the log.")] = None,
    on_error: OnErrorOption = OnError.REJECT,
    as_json: AsJson = False,
) -> None:
    """Import and grade answers from another system."""
    with report_errors(as_json=as_json), Client() as client:
        columns = answers.make_mapping(column or ())
        if not source.is_file():
            raise NotFound(f"--from {source}: the file does not exist", hint="correct the path")
        rows = answers.read_answers(source, columns, layout=layout, format=format, delimiter=delimiter)
        sources = Sources(rows, on_error=on_error)
        models = [f"{role}={named}" for role, named in split_pairs(model, "--model").items()]
        options = {
            "column": column or None, "first_repeat": first_repeat, "grader": grader, "metric": metric or None,
            "model": models or None,
        }  # fmt: skip
        request = jobs.import_answers(sources, name, dataset, on_error=on_error.value, **options)
        try:
            made = send(client, request, sources)
        finally:
            # If all lines were rejected, the server refuses the upload; the rejected lines are the reason.
            rejected = [f"{each.source}, line {each.line}: {each.message}" for each in sources.rejected[:LISTED]]
            print_warnings({"warnings": rejected})
        print_warnings({"warnings": map(sources.translate, made.get("warnings", ()))})
        if as_json:
            print_json(made)
        else:
            stored = format_count(made["request_counts"]["total"], "answer is", "answers are")
            typer.echo(f"job {made['name']}: {stored} stored and being graded")
            typer.echo(f"  next: mathrag job watch {made['id'][:8]}")
        if sources.rejected or made["request_counts"]["total"] < sources.sent:
            raise typer.Exit(Exit.FINDING)


@job.command(cls=LocalCommand)
def archive(
    references: OptionalJobs = None,
    before: ArchiveBefore = None,
    keep_last: ArchiveKeepLast = None,
    preview: Preview = False,
    yes: Yes = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Compress the calls of ended jobs (requires the database owner); their pages, exports and audits stay."""
    with report_errors(as_json=as_json):
        purge = import_server("mathrag_gate.cli.purge")
        purge.archive(references or [], before, keep_last, data_dir, preview=preview, yes=yes, as_json=as_json)


@job.command()
def compare(references: Jobs, baseline: Baseline = None, measure: Measure = None, as_json: AsJson = False) -> None:
    """Compare jobs on their common items, with significance tests."""
    send_and_print(jobs.compare(references, baseline=baseline, measure=measure), print_comparison, as_json)


def print_comparison(found: Any) -> None:
    """Print tables of the jobs, of the pairs, and of the endings of each job's samples."""
    extra = measure_heads(found["measure"])
    heads = ("NAME", "PIPELINE", "ITEMS", "ACCURACY (WILSON 95 %)", *extra, "BOOTSTRAP", "STD")
    print_table(heads, [
        (
            each["name"], each["pipeline"], each["items"], format_accuracy(each["accuracy"]),
            *[format_mean(each["measured"])] * len(extra), each["bootstrap"] and format_interval(each["bootstrap"]),
            format_deviation(each["repeats"]),
        )
        for each in found["jobs"]
    ])  # fmt: skip
    typer.echo()
    # The effect size is Cohen's h for shares, and Cohen's d for graded scores.
    letter = "h" if found["measure"] in ("accuracy", "exact") or found["measure"].startswith("answer@") else "d"
    print_table(("LEFT", "AGAINST", "GAINED", "LOST", "UNPAIRED", "EFFECT", "VERDICT"), [
        (
            each["left"], each["right"], each["gained"], each["lost"], each["left_only"] + each["right_only"],
            None if each["effect"] is None else f"{letter} = {each['effect']:+.2f}", each["words"],
        )
        for each in found["pairs"]
    ])  # fmt: skip
    if any(each["endings"] for each in found["jobs"]):
        typer.echo()
        print_table(("ENDING", *(each["name"] for each in found["jobs"])), list_ending_rows(found["jobs"]))
    for pair in found["pairs"]:
        if pair["moved"]:
            typer.echo(f"\n{pair['left']} (rows) against {pair['right']} (columns): endings of the same samples")
            print_table(("ENDING", *list_ending_columns(pair["moved"])), move_rows(pair["moved"]))
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


@job.command()
def check(
    reference: JobReference,
    minimums: Annotated[
        list[str] | None,
        typer.Option("--min", metavar="FIGURE=NUMBER", help="Lower limit of a figure, such as accuracy=0.8."),
    ] = None,
    maximums: Annotated[
        list[str] | None,
        typer.Option("--max", metavar="FIGURE=NUMBER", help="Upper limit of a figure, such as failures=0."),
    ] = None,
    confident: Annotated[
        bool, typer.Option("--confident", help="Test the worse end of each figure's 95 % interval, not its value.")
    ] = False,
    baseline: Annotated[str | None, typer.Option(metavar="JOB", help="Baseline job; requires --no-worse.")] = None,
    no_worse: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="SHARE",
            help="Maximum loss against the baseline: 0.02 is two points. The lower end of the difference's 95 %"
            " interval is tested.",
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="Measure to compare with the baseline; see `mathrag job compare --help`."),
    ] = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Test a completed job's figures against limits, for CI pipelines; exits with 1 if a limit is missed."""
    with report_errors(as_json=as_json), Client() as client:
        if (baseline is None) != (no_worse is None):
            hint = "give both, for example --baseline main --no-worse 0.02"
            raise Failed("usage", "--baseline and --no-worse must be given together", hint=hint)
        if measure is not None and baseline is None:
            raise Failed(
                "usage", "--measure requires --baseline", hint="add --baseline and --no-worse, or remove --measure"
            )
        smallest, largest = parse_limits(minimums, "--min"), parse_limits(maximums, "--max")
        if not smallest and not largest and baseline is None:
            raise Failed("usage", "no limit is given", hint="give one, for example --min accuracy=0.8 --max failures=0")
        ended = [_fetch_ended(client, each, wait, as_json) for each in (reference, baseline) if each is not None]
        reason = next((describe_failed_job(each) for each in ended if each["state"] != "completed"), None)
        conditions: list[Condition] = []
        notes: list[str] = []
        if reason is None:
            report = client.send(jobs.report(ended[0]["id"]))
            conditions += evaluate_limits(list_figures(report), smallest, largest, confident=confident)
            notes += report["notes"]
            if no_worse is not None:
                compared = client.send(jobs.compare([ended[0]["id"]], baseline=ended[1]["id"], measure=measure))
                conditions.append(evaluate_difference(compared, no_worse))
                notes += (note for note in compared["notes"] if note not in notes)
        holds = reason is None and all(each.holds for each in conditions)
        found = CheckResult(
            job=ended[0]["name"], id=ended[0]["id"], holds=holds, reason=reason, conditions=tuple(conditions),
            notes=tuple(notes),
        )  # fmt: skip
        print_json(found) if as_json else print_check(found)
        if not holds:
            raise typer.Exit(Exit.FINDING)


def _fetch_ended(client: Client, reference: str, wait: bool, as_json: bool) -> Job:
    if wait:
        return progress.watch(client, reference, progress.Silent() if as_json else progress.choose_view())
    found = client.send(jobs.get(reference))
    if found["state"] not in jobs.ENDED:
        message = f"job {found['name']} is {found['state']}, so its figures are not final"
        raise Failed("conflict", message, hint="add --wait")
    return found


def measure_heads(measure: str) -> tuple[str, ...]:
    """Return the extra column for a measure other than accuracy, which always has a column."""
    return () if measure == "accuracy" else (f"{measure.upper()} (95 %)",)


def list_ending_rows(jobs: Any) -> Iterator[tuple[object, ...]]:
    """Yield a row for each ending that occurs, with a column for each job, in the taxonomy's order."""
    most = max((each["endings"] for each in jobs), key=len)
    names = dict.fromkeys([*most, *(name for each in jobs for name in each["endings"])])
    for name in names:
        yield name, *(each["endings"].get(name, 0) for each in jobs)


def list_ending_columns(moved: Any) -> list[str]:
    """Return the endings that occur in the right job, in the taxonomy's order."""
    names = dict.fromkeys(name for row in moved.values() for name in row)
    known = [each for each in ENDINGS if each in names]
    return [*known, *(name for name in names if name not in ENDINGS)]  # endings that only later servers know come last


def move_rows(moved: Any) -> Iterator[tuple[object, ...]]:
    """Yield a row for each ending in the left job; None where no sample moved to that column's ending."""
    for was, row in moved.items():
        yield was, *(row.get(now) for now in list_ending_columns(moved))


def format_deviation(repeats: Any) -> str:
    """Return the standard deviation between repeats in percentage points; "-" if there is one repeat."""
    return "-" if repeats["std"] is None else f"{100 * repeats['std']:.2f} of {len(repeats['accuracies'])} repeats"


@job.command()
def calibrate(
    reference: JobReference,
    trust: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of lists for which each threshold must be right.")
    ] = jobs.TRUST,
    judged_by: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="crag job whose judge labels the lists (default: gold documents label them)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Calibrate crag's upper and lower confidence thresholds on a job's retrieved lists."""

    def print_calibration(found: Json) -> None:
        typer.echo(f"{found['name']}: crag by {found['evaluator']}")
        print_facts(describe_calibration(found))

    send_and_print(jobs.calibration(reference, trust=trust, judged_by=judged_by), print_calibration, as_json)


def describe_calibration(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the name and value of each printed line; the last line has the options for `job submit`."""
    figures = found["calibration"]
    others = figures["observations"] - figures["relevant"]
    yield "lists", f"{figures['relevant']} with a relevant document, {others} without"
    yield "skipped", found["skipped"] and f"{found['skipped']}, for which the evaluator gave no confidence"
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


@job.command()
def results(reference: JobReference, rows: Rows = "jsonl", prompts: Prompts = False, as_json: AsJson = False) -> None:
    """Print the ended samples with the models' replies, one per line; --json prints one array."""
    with report_errors(as_json=as_json), Client() as client:
        if as_json:
            print_lines_as_json(client.stream(jobs.results(reference, prompts=prompts)))
            return
        if rows == "parquet" and sys.stdout.isatty():
            raise Failed(
                "usage", "refusing to write Parquet to a terminal", hint="redirect the output: > results.parquet"
            )
        save(client, jobs.results_file(reference, format=rows, prompts=prompts))


@job.command()
def export(
    reference: JobReference,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Folder for the files; created if it does not exist.")
    ],
    rows: Rows = "jsonl",
    prompts: Prompts = False,
    force: ForceFiles = False,
    as_json: AsJson = False,
) -> None:
    """Write the files of an ended job to a folder: job, report, results, provenance and audit."""
    with report_errors(as_json=as_json), Client() as client:
        files = export_files(reference, rows, prompts=prompts)
        there = [name for name in files if (to / name).exists()]
        if there and not force:
            raise Failed(
                "conflict",
                f"folder {to} already contains {', '.join(there)}",
                hint="choose another folder, or add --force",
            )
        if not client.shows:
            to.mkdir(parents=True, exist_ok=True)
        for name, request in files.items():
            client.save(request, to / name)
        if client.shows:
            return
        if as_json:
            print_json({"job": reference, "folder": str(to), "files": list(files)})
        else:
            typer.echo(f"job {reference}: {', '.join(files)} in {to}")


def export_files(job: str, rows: jobs.RowFormat, *, prompts: bool = False) -> dict[str, Request[bytes]]:
    """Return the requests for the files of a job's export, by file name."""
    return {
        "job.json": jobs.file(job),
        "report.json": jobs.file(job, "report"),
        f"results.{rows}": jobs.results_file(job, format=rows, prompts=prompts),
        "provenance.jsonl": jobs.file(job, "provenance", format="jsonl"),
        "audit.json": jobs.file(job, "audit"),
    }
