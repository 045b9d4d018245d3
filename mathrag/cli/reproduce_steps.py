"""The steps of `mathrag reproduce`: problems, models, service, plan, experiment, report; checks come first."""

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
from mathrag.cli.experiment_report import progress
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for."""

    name: str
    preset: Preset
    corpus: Path
    questions: Path
    items: int
    out: Path
    heatmap: bool
    yes: bool
    keep: bool


def run(wanted: Wanted) -> None:
    """All steps.

    Raises:
        Failed, MathragError: something is not as it must be. Whatever was done, the same command goes on from there.
    """
    title("Problems")
    asked = problems.read(wanted.corpus, wanted.questions, wanted.items)
    show_problems(asked)
    title("Models")
    with served(wanted) as client:
        now = identified(client, wanted, asked)
        record.check(wanted.out, now)
        title("Upload")
        upload(client, asked)
        documents = [now.experiment, *heatmaps(wanted, now)]
        title("Plan")
        new = [each for each in documents if known(client, each["name"]) is None]
        for each in new:
            show_plan(client.send(experiments.plan(each)))
        if new and not wanted.yes:
            agreed()
        record.write(wanted.out, now)
        title("Run")
        ended = [follow(client, submit(client, each)) for each in documents]
        title("Report")
        reproduce_report.report(client, wanted.name, wanted.preset, asked, ended, wanted.out)


def title(step: str) -> None:
    """Where a person is."""
    typer.echo(f"\n== {step}")


def show_problems(asked: Problems) -> None:
    """What is asked and searched."""
    typer.echo(f"  questions  {asked.items} of {asked.of} in {asked.questions}")
    typer.echo(f"  corpus     {asked.documents} documents in {asked.corpus}")
    for note in asked.notes:
        typer.echo(f"  note: {note}")


@contextmanager
def served(wanted: Wanted) -> Iterator[Client]:
    """The service that MATHRAG_URL names, or one of the run's own; either is checked first.

    Raises:
        Failed: a check failed; nothing was started.
    """
    if os.environ.get("MATHRAG_URL"):
        with Client() as client:
            passed(msgspec.convert(client.send(service.readiness())["checks"], list[Check]))
            yield client
        return
    passed(checks.complete(_probed(wanted.preset), presets.settings(wanted.preset)))
    title("Service")
    with own_stack(wanted.out, wanted.preset.configuration, keep=wanted.keep), Client() as client:
        yield client


def _probed(preset: Preset) -> list[Check]:
    """What the doctor finds with the configuration that is going to be written."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / CONFIGURATION
        file.write_text(yaml.safe_dump(preset.configuration), "utf-8")
        return doctor.probed({"MATHRAG_CONFIG": str(file)})


def passed(found: list[Check]) -> None:
    """Show them all.

    Raises:
        Failed: one is not well; the first one's fix is what to do next.
    """
    doctor.print_checks(found)
    wrong = next((check for check in found if not check.ok), None)
    if wrong is not None:
        raise Failed("unavailable", f"{wrong.name}: {wrong.detail}", wrong.fix or None)


def identified(client: Client, wanted: Wanted, asked: Problems) -> Record:
    """What this run's answers follow from, once the guard knows the models.

    Raises:
        Failed: other models answer there than the preset's, or none.
    """
    answering = _registered(client)
    for role, name in wanted.preset.configuration.get("roles", {}).items():
        if (other := answering[role]["name"]) != name:
            hint = f"configure it as `mathrag reproduce preset {wanted.name}` has it, or take MATHRAG_URL away"
            raise Failed("conflict", f"{other} answers {role} at {client.url}, the preset wants {name}", hint)
    models = {model["name"]: model["digest"] for model in answering.values()}
    document = presets.document(wanted.preset, "", asked.dataset_name, asked.corpus_name)
    # Other models are another experiment: what this server has of the same name was answered by others.
    known = canonical.digest([document, models]).hex()[:8]
    document["name"] = f"math-{UNNAMED.sub('-', wanted.name)[:30]}-{known}"
    embeddings = dict(wanted.preset.configuration.get("retrieval", {}).get("embeddings", {}))
    if "path" in embeddings:
        embeddings["path"] = Path(embeddings["path"]).name  # wherever it lies
    return Record(preset=wanted.name, experiment=document, models=models, embeddings=embeddings)


def _registered(client: Client) -> dict[str, catalog.Model]:
    """The models that answer both roles."""
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
    """Both, under names that say what they hold: what is there already stays."""
    given = {"format": "jsonl", "skip_empty": "false", "on_error": "reject"}
    made = client.send(texts.upload("corpora", Sources(paths.corpus_lines(asked.corpus)), asked.corpus_name, **given))
    typer.echo(f"  corpus {asked.corpus_name}: {made['documents']} documents, indexed")
    made = client.send(texts.upload("datasets", [asked.asked], asked.dataset_name, **given))
    typer.echo(f"  dataset {asked.dataset_name}: {made['items']} questions")


def heatmaps(wanted: Wanted, now: Record) -> list[dict[str, Any]]:
    """The second experiment, where it is wanted."""
    if not wanted.heatmap:
        return []
    (place,) = now.experiment["datasets"]
    name = f"{now.experiment['name']}-weights"
    return [presets.heatmap(wanted.preset, name, place["dataset"], place["corpus"])]


def show_plan(found: Any) -> None:
    """What an experiment that was never submitted would come to.

    Raises:
        Failed: its models fit nowhere.
    """
    planned = found["plan"]
    if planned["chosen"] is None:
        raise Failed("unavailable", f"the plan: {planned['why']}", "mathrag reproduce math --help: --budget, --slots")
    calls = ", ".join(f"{role} {each['most']:,}" for role, each in found["calls"].items())
    typer.echo(f"  {found['name']}: {found['jobs']} jobs, {found['samples']:,} answers")
    typer.echo(f"  calls at most: {calls}")
    typer.echo(f"  {planned['why']} (times {planned['chosen']['basis']})")
    for note in found["notes"]:
        typer.echo(f"  note: {note}")


def agreed() -> None:
    """Ask whether to go on.

    Raises:
        Failed: no, or there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise Failed("usage", "there is nobody to ask whether to go on", "the same command with --yes")
    if not typer.confirm("\nGo on?", default=True):
        raise Failed("usage", "nothing was submitted", "the same command asks again")


def submit(client: Client, document: dict[str, Any]) -> str:
    """Its name: a new experiment, or the one that is there, with what failed of it asked again."""
    name: str = document["name"]
    if known(client, name) is None:
        client.send(experiments.submit(document, name))
    else:
        client.send(experiments.change(name, "resume"))
    return name


def known(client: Client, name: str) -> Experiment | None:
    """The experiment as it stands; None: it was never submitted."""
    try:
        return client.send(experiments.get(name))
    except Failed as failed:
        if failed.kind != "not_found":
            raise
        return None


def follow(client: Client, name: str) -> Experiment:
    """The experiment once it has ended, with a line whenever more is known.

    Raises:
        Failed: a job of it failed or was cancelled.
    """
    said = ""
    for found in follow_experiment(client, name):
        if (line := progress(found)) != said:
            typer.echo(f"  {line}")
            said = line
    if found["state"] != "completed":
        raise Failed("unavailable", f"experiment {name} is {found['state']}: {_reasons(client, found)}", AGAIN)
    return found


AGAIN = "the same command asks again for what failed, and for nothing else"


def _reasons(client: Client, found: Any) -> str:
    bad = {cell["job"]: cell["variant"] for cell in found["grid"] if cell["state"] in ("failed", "cancelled")}
    said = [(variant, client.send(jobs.get(job))) for job, variant in bad.items()]
    return "; ".join(f"{variant} {job['state']}: {job['reason'] or 'no reason given'}" for variant, job in said)
