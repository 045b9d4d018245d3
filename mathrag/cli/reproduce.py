"""`mathrag reproduce`: the paper's experiment with one's own models, from the checks to the table.

Every step can be run again: what is there is used, and what was interrupted goes on.
"""

import os
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from mathrag.cli import reproduce_steps
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.reproduce_report import REPORT
from mathrag.client.errors import Failed
from mathrag.reproduction import preset as presets
from mathrag.reproduction import problems
from mathrag.reproduction.preset import Changes

reproduce = typer.Typer(no_args_is_help=True)

Preset = Annotated[str, typer.Option("--preset", help="paper (Ollama), paper-tgi, small, or a YAML file of your own.")]
Data = Annotated[Path | None, typer.Option(help="Folder with MATH's training part and what is asked.")]
Corpus = Annotated[Path | None, typer.Option(help="The training part, where the folder calls it otherwise.")]
Questions = Annotated[Path | None, typer.Option(help="What is asked: MATH-500, MATH's test part, or any of it.")]
Items = Annotated[
    int | None, typer.Option(min=1, help="How many, every subject with its share. [default: the preset's]")
]
Repeats = Annotated[int | None, typer.Option(min=1, help="[default: the preset's, 5]")]
Sampled = Annotated[bool, typer.Option("--sampled", help="Temperature 0.7: greedy repeats share their replies.")]
Redraw = Annotated[
    bool,
    typer.Option("--redraw-judge", help="Rate documents anew in every repeat: what the judge's temperature varies."),
]
Heatmap = Annotated[bool, typer.Option("--heatmap", help="Run the grid of weights, too: 65 more jobs of one repeat.")]
Server = Annotated[str | None, typer.Option(help="Address of the Ollama server. [default: http://127.0.0.1:11434]")]
Device = Annotated[str | None, typer.Option(help="UUID of the GPU (`nvidia-smi -L`): its memory is then measured.")]
Budget = Annotated[int | None, typer.Option(min=1, help="MiB of it that models may take. [default: 11264]")]
Slots = Annotated[int | None, typer.Option(min=1, help="Questions at once, as OLLAMA_NUM_PARALLEL. [default: 4]")]
Embedder = Annotated[
    str | None, typer.Option(help="GGUF file of bge-small-en-v1.5, address of a server that has it, or `shipped`.")
]
Out = Annotated[Path | None, typer.Option(help="Where everything is kept. [default: reproduction/PRESET]")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the models are loaded.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the service running afterwards.")]
Name = Annotated[str, typer.Argument(help="paper, paper-tgi, small.")]


@reproduce.command("preset")
def show_preset(name: Name, as_json: AsJson = False) -> None:
    """Print a preset: `mathrag reproduce preset paper > own.yaml` begins one of your own."""
    with reported(as_json=as_json):
        text = presets.text(name)
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
    """Check, plan, run and report dense, sparse, hybrid and the gate on MATH, beside the paper's figures.

    On this machine it starts a service of its own, whose data lie below --out, and stops it afterwards; MATHRAG_URL
    names one that runs. The same command again goes on where it was.
    """
    with reported(as_json=as_json):
        changes = Changes(
            server=server, device=device, budget_mib=budget, slots=slots, embedder=embedder, repeats=repeats,
            sampled=sampled, redraw_judge=redraw_judge,
        )  # fmt: skip
        name, chosen = Path(preset).stem, presets.load(preset)
        found = problems.find(data, corpus, questions)
        _check(changes)
        wanted = reproduce_steps.Wanted(
            name=name, preset=presets.changed(chosen, changes, data or found[0].parent), corpus=found[0],
            questions=found[1], items=items or chosen.items, out=(out or Path("reproduction") / name).absolute(),
            heatmap=heatmap, yes=yes, keep=keep,
        )  # fmt: skip
        _run(wanted, as_json=as_json)


def _check(changes: Changes) -> None:
    if os.environ.get("MATHRAG_URL") and changes.configures:
        raise Failed(
            "usage", f"{', '.join(changes.configures)}: MATHRAG_URL names a service that is configured already"
        )


def _run(wanted: reproduce_steps.Wanted, *, as_json: bool) -> None:
    # Steps are for a person, also one whose program reads the report.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        reproduce_steps.run(wanted)
    if as_json:
        print_json(msgspec.json.decode((wanted.out / REPORT).read_bytes()))
