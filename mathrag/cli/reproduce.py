"""`mathrag reproduce`: repeat the paper's experiment with your own models, or grade its published answers again.

Every step can be run again: finished work is reused, and interrupted work continues.
"""

import os
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from mathrag.cli import reproduce_published, reproduce_steps
from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.reproduce_report import REPORT
from mathrag.client.errors import Failed
from mathrag.reproduction import preset as presets
from mathrag.reproduction import problems
from mathrag.reproduction.preset import Changes

reproduce = typer.Typer(no_args_is_help=True)

Preset = Annotated[
    str, typer.Option("--preset", help="Preset: paper (Ollama), paper-tgi, small, or your own YAML file.")
]
Data = Annotated[Path | None, typer.Option(help="Folder with MATH's training set and the questions.")]
Corpus = Annotated[Path | None, typer.Option(help="Training set, if --data does not contain it under its usual name.")]
Questions = Annotated[Path | None, typer.Option(help="Questions: MATH-500, MATH's test set, or a part of it.")]
Items = Annotated[
    int | None, typer.Option(min=1, help="Number of questions, in proportion to the subjects (default: the preset's).")
]
Repeats = Annotated[
    int | None, typer.Option(min=1, help="How often each question is asked (default: the preset's, 5).")
]
Sampled = Annotated[
    bool, typer.Option("--sampled", help="Use temperature 0.7; greedy repeats would share their replies.")
]
Redraw = Annotated[
    bool,
    typer.Option("--redraw-judge", help="Rate documents again in every repeat, to see the judge's variation."),
]
Heatmap = Annotated[bool, typer.Option("--heatmap", help="Also run the grid of weights: 65 more jobs of one repeat.")]
Server = Annotated[str | None, typer.Option(help="Address of the Ollama server (default: http://127.0.0.1:11434).")]
Device = Annotated[str | None, typer.Option(help="UUID of the GPU (`nvidia-smi -L`), to measure its memory.")]
Budget = Annotated[int | None, typer.Option(min=1, help="GPU memory that models may use, in MiB (default: 11264).")]
Slots = Annotated[
    int | None, typer.Option(min=1, help="Questions in parallel, as in OLLAMA_NUM_PARALLEL (default: 4).")
]
Embedder = Annotated[
    str | None, typer.Option(help="GGUF file of bge-small-en-v1.5, address of its server, or `shipped`.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for all files (default: reproduction/PRESET).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before models are loaded.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the service running afterwards.")]
Name = Annotated[str, typer.Argument(help="Preset: paper, paper-tgi or small.")]


@reproduce.command("preset")
def show_preset(name: Name, as_json: AsJson = False) -> None:
    """Print a preset, to edit as your own: `mathrag reproduce preset paper > own.yaml`."""
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
    """Check, plan, run and report dense, sparse, hybrid and the gate on MATH, next to the paper's figures.

    It starts its own service on this machine, with data below --out, and stops it afterwards; set MATHRAG_URL to use
    a running service. After an interruption, the same command continues.
    """
    with report_errors(as_json=as_json):
        changes = Changes(
            server=server, device=device, budget_mib=budget, slots=slots, embedder=embedder, repeats=repeats,
            sampled=sampled, redraw_judge=redraw_judge,
        )  # fmt: skip
        name, chosen = Path(preset).stem, presets.load(preset)
        found = problems.find(data, corpus, questions)
        _check(changes)
        wanted = reproduce_steps.RunOptions(
            name=name, preset=presets.apply_changes(chosen, changes, data or found[0].parent), corpus=found[0],
            questions=found[1], items=items or chosen.items, out=(out or Path("reproduction") / name).absolute(),
            heatmap=heatmap, yes=yes, keep=keep,
        )  # fmt: skip
        _run(wanted, as_json=as_json)


reproduce.command("published")(reproduce_published.published)


def _check(changes: Changes) -> None:
    if os.environ.get("MATHRAG_URL") and changes.configures:
        raise Failed(
            "usage",
            f"{', '.join(changes.configures)} cannot be used with MATHRAG_URL: that service is already configured",
            hint="omit these options, or unset MATHRAG_URL",
        )


def _run(wanted: reproduce_steps.RunOptions, *, as_json: bool) -> None:
    # With --json, the steps go to stderr for a person, and only the report to stdout.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        reproduce_steps.run(wanted)
    if as_json:
        print_json(msgspec.json.decode((wanted.out / REPORT).read_bytes()))
