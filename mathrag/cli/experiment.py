"""`mathrag experiment` and `mathrag pilot`: run grids of jobs from a YAML file, and compare them."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mathrag.cli.api import list_and_print, send_and_print
from mathrag.cli.command_groups import Mutation
from mathrag.cli.job import Key, Wait, measure_heads
from mathrag.cli.output import (
    AsJson,
    Exit,
    Model,
    Set,
    flatten_parameters,
    parse_parameters,
    print_facts,
    print_json,
    print_table,
    print_warnings,
    report_errors,
    split_pairs,
)
from mathrag.cli.plan import print_plan as print_loads
from mathrag.cli.references import CorpusOption, Measure
from mathrag.client import experiments
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json, Request
from mathrag.client.waiting import follow_experiment
from mathrag.formatting import format_accuracy, format_counts, format_mean
from mathrag.installation import import_server
from mathrag.messages import format_count

CELLS = ("CELL", "DATASET", "VARIANT", "POINT", "SEED", "JOB", "STATE")
ROWS = ("DATASET", "VARIANT", "POINT", "SEED", "ACCURACY")


def describe_progress(found: Json) -> str:
    """Return a line such as "gate-or-not  running  jobs 3 completed, 1 running  samples 350/400  eta 12 s"."""
    counts = found["request_counts"]
    jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items())
    samples = f"samples {counts['total'] - counts['in_progress']}/{counts['total']}"
    eta = [] if found["eta_seconds"] is None else [f"eta {found['eta_seconds']} s"]
    return "  ".join([found["name"], found["state"], f"jobs {jobs or 'none'}", samples, *eta])


def follow(client: Client, name: str, *, silent: bool = False) -> Json:
    """Print the experiment's progress, unless `silent`, until it has ended; return its last state."""
    last_line = ""
    for found in follow_experiment(client, name):
        if not silent and (line := describe_progress(found)) != last_line:
            typer.echo(last_line := line)
    return found


def print_plan(found: Any) -> None:
    """Print the size of the experiment and the order of its model loads."""
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
    print_loads(found["plan"])
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def print_experiment(found: Json) -> None:
    """Print every cell with its job, and the reasons for refused cells."""
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
    rows = []
    for row in found["rows"]:
        result = row["result"]
        accuracy = format_accuracy(result["accuracy"]) if result else row["refused"] or row["state"]
        measured = [format_mean(result["measured"]) if result else None] * len(extra)
        gate = result["gate"]["strategy"] if result and result["gate"] else None
        rows.append((row["dataset"], row["variant"], format_point(row), row["seed"], accuracy, *measured, gate))
    print_table((*ROWS, *extra, "GATE"), rows)
    comparisons = found["comparisons"]
    datasets = list(comparisons["datasets"].items()) if comparisons else []
    together = [("ALL DATASETS" if datasets else "SYSTEM", comparisons["pooled"])] if comparisons else []
    for title, compared in datasets + together:
        typer.echo()
        print_table((title, "AGAINST", "ITEMS", "VERDICT"), [
            (pair["left"], pair["right"], pair["items"], pair["words"]) for pair in compared["pairs"]
        ])  # fmt: skip
    if found["recommendation"]:
        typer.echo(f"\nrecommendation: {found['recommendation']['words']}")
    print_facts([("calls made", format_counts(found["calls_made"]) or "none"), ("model loads", found["model_loads"])])
    pooled = comparisons["pooled"]["notes"] if comparisons else []
    for note in [*found["notes"], *pooled]:
        typer.echo(f"  note: {note}")


def format_point(cell: Any) -> str:
    """Return the cell's parameters, such as "context_size=3 gate.tau=0.3"; "-" if it has none."""
    return " ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in cell["point"].items()) or "-"


experiment = typer.Typer()

File = Annotated[
    Path, typer.Argument(help="Experiment in YAML or JSON; `mathrag experiment schema` prints the schema.")
]
Reuse = Annotated[
    str | None,
    typer.Option(
        metavar="all|none", help="Whether to reuse other jobs' replies (default: `reuse` in the file, or all)."
    ),
]
Name = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="Experiment: name, id, or the first characters of the id.")
]


@experiment.command()
def plan(file: File, reuse: Reuse = None, as_json: AsJson = False) -> None:
    """Estimate an experiment's cells, jobs, calls, model loads and time; nothing is submitted."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(experiments.plan(_read_body(file, reuse)))
        print_json(found) if as_json else print_plan(found)


@experiment.command(cls=Mutation)
def run(file: File, reuse: Reuse = None, key: Key = None, wait: Wait = False, as_json: AsJson = False) -> None:
    """Submit all jobs of an experiment, or none if one is invalid; they run in the background."""
    with report_errors(as_json=as_json), Client() as client:
        made = client.send(experiments.submit(_read_body(file, reuse), key=key))
        print_warnings(made)
        if wait:
            _watch(client, made["id"], as_json)
        elif as_json:
            print_json(made)
        else:
            sizes = f"{format_count(made['cells'], 'cell')}, {format_count(sum(made['jobs'].values()), 'job')}"
            typer.echo(f"experiment {made['name']} is submitted: {sizes}")
            typer.echo(f"  next: mathrag experiment watch {made['name']}")


@experiment.command("list")
def list_experiments(
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 50, as_json: AsJson = False
) -> None:
    """List experiments, newest first."""

    def make_row(found: Json) -> tuple[object, ...]:
        jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items())
        return found["id"][:8], found["name"], found["state"], found["cells"], jobs

    list_and_print(
        experiments.list_experiments(), ("ID", "NAME", "STATE", "CELLS", "JOBS"), make_row, as_json,
        limit=limit, nothing="No experiments yet: mathrag experiment run --help",
    )  # fmt: skip


@experiment.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show every cell of an experiment with the state of its job."""
    send_and_print(experiments.get(name), print_experiment, as_json)


@experiment.command()
def report(name: Name, measure: Measure = None, as_json: AsJson = False) -> None:
    """Show the results of every cell, and the differences to the baseline."""
    send_and_print(experiments.report(name, measure=measure), print_report, as_json)


@experiment.command()
def watch(name: Name, as_json: AsJson = False) -> None:
    """Follow an experiment until all its jobs have ended; exits with 1 unless all completed."""
    with report_errors(as_json=as_json), Client() as client:
        _watch(client, name, as_json)


Questions = Annotated[int, typer.Option(min=20, max=1000, help="Number of questions to draw at random.")]
DrawSeed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
PilotName = Annotated[
    str | None, typer.Option("--name", help="Name of the experiment and of its dataset (default: pilot-DATASET).")
]
Pipelines = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline", metavar="PIPELINE", help="Pipeline to try; repeat for several (default: all that can run)."
    ),
]


def pilot(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Dataset with gold answers.")],
    corpus: CorpusOption = None,
    questions: Questions = 40,
    pipeline: Pipelines = None,
    name: PilotName = None,
    seed: DrawSeed = 0,
    settings: Set = None,
    model: Model = None,
    measure: Measure = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Try several pipelines on a few questions, and recommend one.

    The questions that are not drawn become a second dataset, on which you can test the recommendation
    (docs/how-to/experiments.md#pilot).
    """
    with report_errors(as_json=as_json), Client() as client:
        request = experiments.pilot(
            dataset, corpus, name=name, questions=questions, seed=seed, key=key,
            variants=[{"name": each, "pipeline": each} for each in pipeline or ()],
            params=parse_parameters(settings or []), models=split_pairs(model, "--model"),
        )  # fmt: skip
        made = client.send(request)
        if not as_json:
            print_warnings(made)
            for left_out, why in made["left_out"].items():
                typer.echo(f"  left out: {left_out}: {why}")
        found = follow(client, made["id"], silent=as_json)
        report = client.send(experiments.report(made["id"], measure=measure))
        if as_json:
            print_json({**report, "rest": made["rest"], "left_out": made["left_out"]})
        else:
            print_report(report)
        if found["state"] != "completed":
            raise typer.Exit(Exit.FINDING)
        if report["recommendation"] and not as_json:
            following = _compose_submission(report["recommendation"], made["rest"] or dataset, corpus, model or [])
            typer.echo(f"  next: {following}")


def _compose_submission(found: Json, dataset: str, corpus: str | None, models: list[str]) -> str:
    """Return the command that submits the recommended variant on a dataset."""
    words = ["mathrag", "job", "submit", "--name", f"{found['variant']}-{dataset}", "--dataset", dataset]
    words += ["--corpus", corpus] if corpus else []
    words += ["--pipeline", found["pipeline"]]
    for setting in flatten_parameters(found["params"]):
        words += ["--set", setting]
    for model in models:
        words += ["--model", model]
    return shlex.join([*words, "--wait"])


@experiment.command(cls=Mutation)
def cancel(name: Name, as_json: AsJson = False) -> None:
    """Cancel all jobs that have not ended. Repeating the command changes nothing."""
    _change(experiments.cancel(name), "show", as_json)


@experiment.command(cls=Mutation)
def resume(name: Name, as_json: AsJson = False) -> None:
    """Requeue the jobs that failed or were cancelled, and those with samples that failed for a temporary reason."""
    _change(experiments.resume(name), "watch", as_json)


@experiment.command("schema")
def print_schema(as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False) -> None:
    """Print the JSON schema of experiment files, for editors; also in the repository as experiment-schema.json."""
    with report_errors(as_json=as_json):
        typer.echo(import_server("shared.experiments").schema())


def _read_body(file: Path, reuse: str | None) -> Any:
    """Return the file's content with `reuse` added, as the body of a request."""
    body = read(file)
    return {**body, "reuse": reuse} if reuse and isinstance(body, dict) else body


def read(file: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        Failed: the file does not exist, or it is not valid YAML.
    """
    import yaml

    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise Failed(
            "not_found",
            f"file {file} cannot be read: {error.strerror}",
            hint="correct the path; mathrag experiment schema prints the schema of such a file",
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        hint = "correct this line; mathrag experiment schema prints the schema"
        raise Failed("invalid", f"{file}{where}: {error.problem}", hint) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        hint = "save it as YAML in UTF-8; mathrag experiment schema prints the schema"
        raise Failed("invalid", f"{file} is not valid YAML: {' '.join(str(error).split())}", hint) from error


def _watch(client: Client, name: str, as_json: bool) -> None:
    found = follow(client, name, silent=as_json)
    print_json(found) if as_json else print_experiment(found)
    if found["state"] != "completed":
        raise typer.Exit(Exit.FINDING)


def _change(request: Request[Json], next_verb: str, as_json: bool) -> None:
    def print_change(changed: Json) -> None:
        typer.echo(describe_progress(changed))
        typer.echo(f"  next: mathrag experiment {next_verb} {changed['name']}")

    send_and_print(request, print_change, as_json)
