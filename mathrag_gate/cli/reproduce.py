"""`mathrag reproduce`: repeat the paper's experiment with other models, and grade its published answers."""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import typer
import yaml
from msgspec.structs import replace

from mathrag.check import Check
from mathrag.cli import doctor, progress
from mathrag.cli.experiment import follow, print_plan, print_report
from mathrag.cli.output import AsJson, print_json, print_table, print_warnings, report_errors
from mathrag.cli.uploads import upload
from mathrag.client import experiments, jobs, service, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.jobs import Job
from mathrag.client.request import Json
from mathrag.client.uploads import Sources
from mathrag.errors import NotFound
from mathrag.formatting import format_accuracy
from mathrag.messages import format_count
from mathrag.reading import paths
from mathrag.reading.lines import Fields
from mathrag_gate.cli import checks, report
from mathrag_gate.cli.up import CONFIGURATION, own_stack
from mathrag_gate.reproduction import preset as presets
from mathrag_gate.reproduction import problems
from mathrag_gate.reproduction import published as published_runs
from mathrag_gate.reproduction.problems import CORPUS
from mathrag_gate.reproduction.published import GATE, METHODS, TRAINING
from shared import canonical
from shared.pages.pages import rewrite_blocks
from shared.pipelines.imported import IMPORTED

reproduce = typer.Typer(no_args_is_help=True)

# `mathrag reproduce math`. Every step can be repeated: finished work is reused, and interrupted work continues.

SERVED_S = 120.0
"""Longest wait in seconds for the guard to know the models of both roles; it searches every few seconds."""
POLL_S = 0.5
UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")
"""Matches characters that an experiment's name may not have."""
EMBEDDER = "put bge-small-en-v1.5 there as a GGUF file, or choose another with --embedder (docs/how-to/math.md)"
"""Fix that replaces the doctor's, which would change settings of the preset."""
AGAIN = "run the same command again: it only repeats the failed jobs"
PAPER = {"dense": "86.00 ± 0.00 %", "sparse": "85.00 ± 0.00 %", "hybrid": "81.00 ± 0.00 %", "gate": "86.80 ± 1.10 %"}
"""The paper's accuracy by variant, with the standard deviation over five runs."""
CAVEATS = "docs/how-to/math.md#limits-of-the-comparison explains which of the paper's figures are comparable with these"

Preset = Annotated[
    str, typer.Option("--preset", help="Preset: paper (Ollama), paper-code, paper-tgi, small, or your own YAML file.")
]
Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with MATH's training set and the questions.")]
Corpus = Annotated[
    Path | None, typer.Option(help="MATH's training set, if --data does not contain it under its usual name.")
]
Questions = Annotated[Path | None, typer.Option(help="Questions: MATH-500, MATH's test set, or a part of it.")]
Items = Annotated[
    int | None,
    typer.Option(min=1, help="Number of questions to draw, in proportion to the subjects (default: the preset's)."),
]
Repeats = Annotated[
    int | None, typer.Option(min=1, help="Number of times that each question is asked (default: the preset's, 5).")
]
Sampled = Annotated[
    bool, typer.Option("--sampled", help="Use temperature 0.7; without it, repeats are greedy and share their replies.")
]
Redraw = Annotated[
    bool,
    typer.Option(
        "--redraw-judge", help="Rate the documents again in every repeat, to measure how much the judge varies."
    ),
]
Heatmap = Annotated[bool, typer.Option("--heatmap", help="Also run the grid of weights: 65 more jobs of one repeat.")]
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Address of the Ollama server (default: http://127.0.0.1:11434).")
]
Device = Annotated[
    str | None, typer.Option(metavar="UUID", help="UUID of the GPU (`nvidia-smi -L`), to measure its memory.")
]
Budget = Annotated[
    int | None, typer.Option(min=1, metavar="MIB", help="GPU memory that models may use (default: 11264).")
]
Slots = Annotated[
    int | None,
    typer.Option(min=1, help="Number of questions to answer in parallel; must equal OLLAMA_NUM_PARALLEL (default: 4)."),
]
Embedder = Annotated[
    str | None, typer.Option(help="GGUF file of bge-small-en-v1.5, the address of its server, or `shipped`.")
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for all files (default: reproduction/PRESET).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the separate service running afterwards.")]
Name = Annotated[str, typer.Argument(metavar="PRESET", help="Preset: paper, paper-code, paper-tgi or small.")]


@reproduce.command("preset")
def show_preset(name: Name, as_json: AsJson = False) -> None:
    """Print a preset, so that you can edit a copy: `mathrag reproduce preset paper > own.yaml`."""
    with report_errors(as_json=as_json):
        text = presets.read_text(name)
        if as_json:
            print_json(msgspec.yaml.decode(text))
        else:
            typer.echo(text, nl=False)


@reproduce.command("math")
def math(
    preset: Preset = "paper",
    data: Data = None,
    corpus: Corpus = None,
    questions: Questions = None,
    items: Items = None,
    repeats: Repeats = None,
    sampled: Sampled = False,
    redraw_judge: Redraw = False,
    heatmap: Heatmap = False,
    server: Server = None,
    device: Device = None,
    budget: Budget = None,
    slots: Slots = None,
    embedder: Embedder = None,
    out: Out = None,
    yes: Yes = False,
    keep: Keep = False,
    as_json: AsJson = False,
) -> None:
    """Check the setup, estimate the cost, run dense, sparse, hybrid and the gate on MATH, and compare with the paper.

    The command starts a separate service on this machine, with data below --out, and stops it afterwards. Set
    MATHRAG_URL to use a running service. After an interruption, run the same command again to continue.
    """
    with report_errors(as_json=as_json):
        configured = {"server": server, "device": device, "budget": budget, "slots": slots, "embedder": embedder}
        given = ", ".join(f"--{option}" for option, value in configured.items() if value is not None)
        if given and os.environ.get("MATHRAG_URL"):
            message = f"{given} cannot be used with MATHRAG_URL, because that service is already configured"
            raise Failed("usage", message, hint="omit these options, or unset MATHRAG_URL")
        chosen = presets.load(preset)
        corpus, questions = problems.find(data, corpus, questions)
        chosen.configure(
            data or corpus.parent, server=server, device=device, budget_mib=budget, slots=slots, embedder=embedder
        )
        chosen.vary(repeats=repeats, sampled=sampled, redraw_judge=redraw_judge)
        asked = msgspec.json.Encoder().encode_lines(problems.choose(questions, items or chosen.items))
        name = Path(preset).stem
        bodies = {name: chosen.experiment, **({f"{name}-weights": chosen.make_heatmap()} if heatmap else {})}
        out = (out or Path("reproduction") / name).absolute()
        # With --json, the steps go to stderr, and only the reports go to stdout.
        with redirect_stdout(sys.stderr) if as_json else nullcontext(), _connect(chosen, out, keep=keep) as client:
            digests = _wait_for_models(client, chosen, name)
            place = _upload(client, corpus, asked)
            documents = []
            for key, body in bodies.items():
                # The name depends on all that determines the answers, so that an earlier experiment with other models
                # or another embedder is never continued.
                document = {**body, "datasets": [place]}
                known = canonical.digest([document, digests, chosen.configuration["retrieval"]]).hex()[:8]
                documents.append({**document, "name": f"math-{UNNAMED.sub('-', key)[:30]}-{known}"})
            new = [each for each in documents if not _exists(client, each["name"])]
            if new:
                _plan(client, new, yes=yes)
            found = [_run(client, each, out / each["name"], is_new=each in new) for each in documents]
            rows = [(row["variant"], format_accuracy(row["result"]["accuracy"])) for row in found[0]["rows"]]
            print_table(("VARIANT", "HERE", "THE PAPER"), [(*row, PAPER.get(row[0])) for row in rows])
            typer.echo(f"  note: {CAVEATS}")
        if as_json:
            print_json({"paper": PAPER, "experiments": found})


@contextmanager
def _connect(preset: presets.Preset, out: Path, *, keep: bool) -> Iterator[Client]:
    """Connect to the service that MATHRAG_URL names, or start one for this run; check it first.

    Raises:
        Failed: a check failed; nothing was started.
    """
    if os.environ.get("MATHRAG_URL"):
        with Client() as client:
            _require_passed(msgspec.convert(client.send(service.readiness())["checks"], list[Check]))
            yield client
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / CONFIGURATION
        file.write_text(yaml.safe_dump(preset.configuration), "utf-8")
        found = checks.run_checks({"MATHRAG_CONFIG": str(file)})
    _require_passed([replace(each, fix=EMBEDDER) if each.name == "embeddings" else each for each in found])
    with own_stack(out, preset.configuration, keep=keep), Client() as client:
        yield client


def _require_passed(found: list[Check]) -> None:
    """Print all checks.

    Raises:
        Failed: a check failed; the hint is the fix of the first one.
    """
    doctor.print_checks(found)
    wrong = next((check for check in found if not check.ok), None)
    if wrong is not None:
        raise Failed("unavailable", f"{wrong.name}: {wrong.detail}", wrong.fix or None)


def _wait_for_models(client: Client, preset: presets.Preset, name: str) -> dict[str, str | None]:
    """Wait until a guard serves all models, and return their digests by name.

    Raises:
        Failed: no guard serves them in time, or they are not the preset's models.
    """
    deadline = time.monotonic() + SERVED_S
    while True:
        found = {role: model for model in client.send(service.models()) for role in model["default_for"]}
        missing = sorted({model["name"] for model in found.values() if not model["registered"]})
        if not missing:
            break
        if time.monotonic() > deadline:
            hint = f"run mathrag doctor, and read the guard's log ({client.url})"
            raise Failed("unavailable", f"no guard serves {', '.join(missing)} after {SERVED_S:.0f} s", hint)
        time.sleep(POLL_S)
    for role, wanted in preset.configuration.get("roles", {}).items():
        if (other := found[role]["name"]) != wanted:
            hint = f"configure the service like `mathrag reproduce preset {name}`, or unset MATHRAG_URL"
            raise Failed(
                "conflict",
                f"the service at {client.url} uses {other} for {role}, but the preset requires {wanted}",
                hint,
            )
    return {model["name"]: model["digest"] for model in found.values()}


def _upload(client: Client, corpus: Path, asked: bytes) -> dict[str, str]:
    """Upload corpus and questions, and return their names. The names are derived from the content, so repeating the
    upload changes nothing."""
    whole = hashlib.sha256(b"".join(Sources(paths.corpus_lines(corpus))))
    names = {"dataset": f"math-{hashlib.sha256(asked).hexdigest()[:8]}", "corpus": f"math-{whole.hexdigest()[:8]}"}
    made = upload(client, "corpora", names["corpus"], Sources(paths.corpus_lines(corpus)), progress.SilentUpload())
    typer.echo(f"corpus {names['corpus']}: {made['documents']} documents of {corpus}, indexed")
    made = client.send(texts.upload("datasets", [asked], names["dataset"]))
    typer.echo(f"dataset {names['dataset']}: {made['items']} questions")
    return names


def _exists(client: Client, name: str) -> bool:
    try:
        client.send(experiments.get(name))
    except Failed as failed:
        if failed.kind != "not_found":
            raise
        return False
    return True


def _plan(client: Client, documents: list[dict[str, Any]], *, yes: bool) -> None:
    """Print the plan of new experiments, and ask for confirmation unless `yes`.

    Raises:
        Failed: the models do not fit on a device, the user declines, or standard input is not a terminal.
    """
    for each in documents:
        found = client.send(experiments.plan(each))
        print_plan(found)
        if found["plan"]["chosen"] is None:
            raise Failed("unavailable", f"no plan fits: {found['plan']['why']}", "change --budget or --slots")
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failed(
            "usage", "cannot ask for confirmation: standard input is not a terminal", "run the same command with --yes"
        )
    if not typer.confirm("\nContinue?", default=True):
        raise Failed("usage", "you declined, so nothing was submitted", "run the same command to be asked again")


def _run(client: Client, document: dict[str, Any], folder: Path, *, is_new: bool) -> Any:
    """Submit the experiment, or resume the one with this name; print its report and write it to `folder`.

    Raises:
        Failed: a job of the experiment failed or was cancelled.
    """
    name = document["name"]
    client.send(experiments.submit(document, key=name) if is_new else experiments.resume(name))
    ended = follow(client, name)
    if ended["state"] != "completed":
        bad = [cell for cell in ended["grid"] if cell["state"] in ("failed", "cancelled")]
        reasons = [f"{cell['variant']} {cell['state']}: {client.send(jobs.get(cell['job']))['reason']}" for cell in bad]
        raise Failed(
            "unavailable", f"experiment {name} did not complete ({ended['state']}): {'; '.join(reasons)}", AGAIN
        )
    found = client.send(experiments.report(name))
    print_report(found)
    report.bundle(out=folder, experiment=name, force=True)
    return found


# `mathrag reproduce published`. Every step can be repeated: existing datasets and jobs are used.

EXPERIMENT = "20251124_184341"
"""The published experiment that is the paper's main table."""
GRADER = "math-dataset"
ANOTHER_NAME = "choose another name: --name NAME"

PublishedData = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder with runs.csv, responses.jsonl, items.jsonl and two optional files.")
]
Training = Annotated[
    Path | None, typer.Option("--problems", help="MATH's training set, if --data does not contain it as train.jsonl.")
]
Experiment = Annotated[str, typer.Option(help="Published experiment to grade; the default is the paper's main table.")]
Grader = Annotated[str, typer.Option(help="Grader of the answers, such as math.")]
PublishedName = Annotated[str, typer.Option(help="Name of the dataset, and prefix of the jobs' names.")]
Page = Annotated[
    Path | None,
    typer.Option("--out", help="Also write a Markdown page with every changed verdict and all other results."),
]


@reproduce.command("published")
def published(
    data: PublishedData,
    problems: Training = None,
    experiment: Experiment = EXPERIMENT,
    grader: Grader = GRADER,
    name: PublishedName = "published",
    out: Page = None,
    as_json: AsJson = False,
) -> None:
    """Grade the paper's published answers again, and compare the verdicts and methods with the published ones.

    The command imports one job for each method into the running service; if you repeat it, it imports nothing. --out
    writes a page with every changed verdict and its reason, the comparison of the methods, and the published rho,
    weights, times and Recall@5. If the page exists, the command replaces only these parts.
    """
    with report_errors(as_json=as_json), Client() as client:
        training = problems or next((data / each for each in CORPUS if (data / each).exists()), None)
        if training is None:
            raise NotFound(f"{data} contains none of {', '.join(CORPUS)}", hint=TRAINING)
        found = published_runs.read(data, training, experiment)
        page = published_runs.read_page(out) if out else ""
        client.send(texts.upload("datasets", _encode(found.list_questions()), name))
        suffix = "".join(f"-{each}" for each in (experiment, grader) if each not in (EXPERIMENT, GRADER))
        made = {
            method: _import(client, f"{name}-{method}{suffix}", name, grader, found.list_answers(method))
            for method in METHODS
        }
        methods = []
        for method, job in made.items():
            ended = progress.watch(client, job["id"], progress.Silent())
            if ended["state"] != "completed":
                message = (
                    f"job {ended['name']} did not complete ({ended['state']}): {ended['reason'] or 'no reason given'}"
                )
                raise Failed("unavailable", message, f"to import its answers again, {ANOTHER_NAME}")
            report = client.send(jobs.report(job["id"]))
            verdicts = [run.published_correct for run in found.runs if run.method == method]
            methods.append(
                {"method": method, "job": job["id"], "published": sum(verdicts) / len(verdicts),
                 "accuracy": report["accuracy"], "theirs": report["theirs"]}
            )  # fmt: skip
        compared = client.send(jobs.compare([job["id"] for job in made.values()], baseline=made[GATE]["id"]))
        if out:
            samples = {
                method: {(each["custom_id"], each["repeat"]): each for each in client.all(jobs.samples(job["id"]))}
                for method, job in made.items()
            }
            blocks = published_runs.make_blocks(found, methods, compared["pairs"], samples, grader)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(rewrite_blocks(page, blocks), "utf-8")
            typer.echo(f"wrote {out}", err=True)
        if as_json:
            print_json({"experiment": experiment, "grader": grader, "methods": methods, "comparison": compared})
        else:
            _print_verdicts(methods, compared, grader)


def _print_verdicts(methods: list[Json], compared: Json, grader: str) -> None:
    """Print both verdicts by method, and the comparison of each method with the gate."""
    rows = []
    for each in methods:
        theirs = each["theirs"] and f"{each['theirs']['differing']} of {each['theirs']['scored']}"
        rows.append((each["method"], f"{100 * each['published']:.1f} %", format_accuracy(each["accuracy"]), theirs))
    print_table(("METHOD", "AUTHORS", f"THIS SERVICE ({grader}, WILSON 95 %)", "DIFFERENT VERDICTS"), rows)
    typer.echo()
    pairs = [(each["left"], each["right"], each["words"]) for each in compared["pairs"]]
    print_table(("JOB", "AGAINST", "VERDICT"), pairs)
    for note in compared["notes"]:
        typer.echo(f"  note: {note}")


def _encode(found: list[Fields]) -> list[bytes]:
    return [msgspec.json.Encoder().encode_lines(found)]


def _import(client: Client, name: str, dataset: str, grader: str, answers: list[Fields]) -> Job:
    """Import the answers as a job, or return the job with this name if it grades the same dataset.

    Raises:
        Failed: another job has this name.
    """
    there = next(iter(client.first(jobs.list_jobs(name=name), 1)), None)
    if there is None:
        made = client.send(jobs.import_answers(_encode(answers), name, dataset, grader=grader))
        imported = format_count(len(answers), "answer is", "answers are")
        typer.echo(f"{name}: {imported} imported and being graded", err=True)
        print_warnings(made)
        return made
    report = client.send(jobs.report(there["id"]))
    used = report["settings"]["pipeline"], report["settings"]["dataset"], report["grader"]
    if used != (IMPORTED, dataset, grader):
        message = "job {} already exists, with pipeline {}, dataset {} and grader {}".format(name, *used)
        raise Failed("conflict", message, ANOTHER_NAME)
    typer.echo(f"job {name} already exists", err=True)
    return there
