"""The steps of `mathrag reproduce`, in order: problems, checks, service, plan, experiment and report."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import typer
import yaml

from mathrag.cli import doctor, reproduce_report
from mathrag.cli.experiment_report import describe_progress
from mathrag.cli.own_stack import CONFIGURATION, own_stack
from mathrag.client import catalog, experiments, jobs, service, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.experiments import Experiment
from mathrag.client.following import follow_experiment
from mathrag.client.sources import Sources
from mathrag.reproduction import checks, problems, record
from mathrag.reproduction import preset as presets
from mathrag.reproduction.preset import Preset
from mathrag.reproduction.problems import Problems
from mathrag.reproduction.record import Record
from shared.checks.check import Check
from shared.contracts import canonical
from shared.ingest import paths

SERVED_S = 120.0
"""Longest wait for the guard to know the models of both roles: it looks for them again every few seconds."""
POLL_S = 0.5
UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")
"""What an experiment's name may not hold."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the options of a run after the preset has filled in those that were not given."""

    name: str
    preset: Preset
    corpus: Path
    questions: Path
    items: int
    out: Path
    heatmap: bool
    yes: bool
    keep: bool


def run(wanted: RunOptions) -> None:
    """Run all steps; run again after a failure, they continue where they stopped.

    Raises:
        Failed, MathragError: a check or a step failed.
    """
    print_title("Problems")
    questions = problems.read(wanted.corpus, wanted.questions, wanted.items)
    show_problems(questions)
    print_title("Models")
    with connect_or_start(wanted) as client:
        now = identify_run(client, wanted, questions)
        record.check(wanted.out, now)
        print_title("Upload")
        upload(client, questions)
        documents = [now.experiment, *list_heatmap_experiments(wanted, now)]
        print_title("Plan")
        new = [each for each in documents if find_experiment(client, each["name"]) is None]
        for each in new:
            show_plan(client.send(experiments.plan(each)))
        if new and not wanted.yes:
            confirm_plan()
        record.write(wanted.out, now)
        print_title("Run")
        ended = [follow(client, submit(client, each)) for each in documents]
        print_title("Report")
        reproduce_report.report(client, wanted.name, wanted.preset, questions, ended, wanted.out)


def print_title(step: str) -> None:
    """Print the title of a step."""
    typer.echo(f"\n== {step}")


def show_problems(asked: Problems) -> None:
    """Print the questions and the corpus, and what a reader must know of them."""
    typer.echo(f"  questions  {asked.items} of {asked.of} in {asked.questions}")
    typer.echo(f"  corpus     {asked.documents} documents in {asked.corpus}")
    for note in asked.notes:
        typer.echo(f"  note: {note}")


@contextmanager
def connect_or_start(wanted: RunOptions) -> Iterator[Client]:
    """Connect to the service that MATHRAG_URL names, or start one for this run; both are checked first.

    Raises:
        Failed: a check failed; nothing was started.
    """
    if os.environ.get("MATHRAG_URL"):
        with Client() as client:
            require_passed(msgspec.convert(client.send(service.readiness())["checks"], list[Check]))
            yield client
        return
    require_passed(checks.complete_checks(_run_checks(wanted.preset), presets.settings(wanted.preset)))
    print_title("Service")
    with own_stack(wanted.out, wanted.preset.configuration, keep=wanted.keep), Client() as client:
        yield client


def _run_checks(preset: Preset) -> list[Check]:
    """Run the doctor's checks with the configuration that the run will use."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / CONFIGURATION
        file.write_text(yaml.safe_dump(preset.configuration), "utf-8")
        return doctor.run_checks({"MATHRAG_CONFIG": str(file)})


def require_passed(found: list[Check]) -> None:
    """Print all checks.

    Raises:
        Failed: a check failed; the hint is the first failed check's fix.
    """
    doctor.print_checks(found)
    wrong = next((check for check in found if not check.ok), None)
    if wrong is not None:
        raise Failed("unavailable", f"{wrong.name}: {wrong.detail}", wrong.fix or None)


def identify_run(client: Client, wanted: RunOptions, asked: Problems) -> Record:
    """Wait until the guard knows the models, and return what determines this run's answers.

    Raises:
        Failed: the service uses other models than the preset, or no guard serves them in time.
    """
    answering = _wait_for_models(client)
    for role, name in wanted.preset.configuration.get("roles", {}).items():
        if (other := answering[role]["name"]) != name:
            hint = f"configure it as in `mathrag reproduce preset {wanted.name}`, or unset MATHRAG_URL"
            raise Failed("conflict", f"{other} answers {role} at {client.url}, but the preset requires {name}", hint)
    models = {model["name"]: model["digest"] for model in answering.values()}
    document = presets.document(wanted.preset, "", asked.dataset_name, asked.corpus_name)
    # The name depends on the models, so that an earlier experiment with other models is never continued.
    known = canonical.digest([document, models]).hex()[:8]
    document["name"] = f"math-{UNNAMED.sub('-', wanted.name)[:30]}-{known}"
    embeddings = dict(wanted.preset.configuration.get("retrieval", {}).get("embeddings", {}))
    if "path" in embeddings:
        embeddings["path"] = Path(embeddings["path"]).name  # wherever it lies
    return Record(preset=wanted.name, experiment=document, models=models, embeddings=embeddings)


def _wait_for_models(client: Client) -> dict[str, catalog.Model]:
    """Return the model of each role, once a guard serves all of them."""
    deadline = time.monotonic() + SERVED_S
    while True:
        found = {role: model for model in client.send(catalog.models()) for role in model["default_for"]}
        missing = sorted({model["name"] for model in found.values() if not model["registered"]})
        if not missing:
            return found
        if time.monotonic() > deadline:
            hint = f"mathrag doctor; the guard's log says more ({client.url})"
            raise Failed("unavailable", f"no guard serves {', '.join(missing)} after {SERVED_S:.0f} s", hint)
        time.sleep(POLL_S)


def upload(client: Client, asked: Problems) -> None:
    """Upload corpus and questions under names derived from their content; repeating it changes nothing."""
    options = {"format": "jsonl", "skip_empty": "false", "on_error": "reject"}
    made = client.send(texts.upload("corpora", Sources(paths.corpus_lines(asked.corpus)), asked.corpus_name, **options))
    typer.echo(f"  corpus {asked.corpus_name}: {made['documents']} documents, indexed")
    made = client.send(texts.upload("datasets", [asked.asked], asked.dataset_name, **options))
    typer.echo(f"  dataset {asked.dataset_name}: {made['items']} questions")


def list_heatmap_experiments(wanted: RunOptions, now: Record) -> list[dict[str, Any]]:
    """Return the experiment over the grid of weights, if --heatmap asks for it."""
    if not wanted.heatmap:
        return []
    (place,) = now.experiment["datasets"]
    name = f"{now.experiment['name']}-weights"
    return [presets.heatmap(wanted.preset, name, place["dataset"], place["corpus"])]


def show_plan(found: Any) -> None:
    """Print what a new experiment would need: jobs, calls, time.

    Raises:
        Failed: its models fit on no device.
    """
    planned = found["plan"]
    if planned["chosen"] is None:
        raise Failed("unavailable", f"no plan fits: {planned['why']}", "change --budget or --slots")
    calls = ", ".join(f"{role} {each['most']:,}" for role, each in found["calls"].items())
    typer.echo(f"  {found['name']}: {found['jobs']} jobs, {found['samples']:,} answers")
    typer.echo(f"  calls at most: {calls}")
    typer.echo(f"  {planned['why']} (times {planned['chosen']['basis']})")
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def confirm_plan() -> None:
    """Ask whether to continue.

    Raises:
        Failed: the answer is no, or there is no terminal.
    """
    if not sys.stdin.isatty():
        raise Failed("usage", "confirmation is needed, and there is no terminal", "run the same command with --yes")
    if not typer.confirm("\nContinue?", default=True):
        raise Failed("usage", "nothing was submitted", "run the same command to be asked again")


def submit(client: Client, document: dict[str, Any]) -> str:
    """Submit the experiment, or resume the existing one of this name; return the name."""
    name: str = document["name"]
    if find_experiment(client, name) is None:
        client.send(experiments.submit(document, name))
    else:
        client.send(experiments.change(name, "resume"))
    return name


def find_experiment(client: Client, name: str) -> Experiment | None:
    """Return the experiment of this name as it is now; None if it was never submitted."""
    try:
        return client.send(experiments.get(name))
    except Failed as failed:
        if failed.kind != "not_found":
            raise
        return None


def follow(client: Client, name: str) -> Experiment:
    """Follow the experiment until it has ended, printing its progress, and return it.

    Raises:
        Failed: one of its jobs failed or was cancelled.
    """
    last_line = ""
    for found in follow_experiment(client, name):
        if (line := describe_progress(found)) != last_line:
            typer.echo(f"  {line}")
            last_line = line
    if found["state"] != "completed":
        raise Failed(
            "unavailable", f"experiment {name} is {found['state']}: {_describe_failures(client, found)}", AGAIN
        )
    return found


AGAIN = "run the same command again: it repeats only what failed"


def _describe_failures(client: Client, found: Any) -> str:
    bad = {cell["job"]: cell["variant"] for cell in found["grid"] if cell["state"] in ("failed", "cancelled")}
    failed_jobs = [(variant, client.send(jobs.get(job))) for job, variant in bad.items()]
    return "; ".join(f"{variant} {job['state']}: {job['reason'] or 'no reason given'}" for variant, job in failed_jobs)
