"""`mathrag dataset training-data`: write training data for retrievers and generators to a file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.references import Dataset
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.texts import training


class TrainingForm(StrEnum):
    """The form of a line of training data."""

    PAIRS = "pairs"
    TRIPLETS = "triplets"
    INSTRUCTIONS = "instructions"
    MESSAGES = "messages"


Rules = Annotated[str, typer.Option(help="Rule bank that the dataset was made with.")]
As = Annotated[
    TrainingForm,
    typer.Option(
        "--as", help="Form of a line: pairs, triplets (retrievers), instructions, messages (generators; TRL)."
    ),
]
Out = Annotated[Path, typer.Option(help="File to write.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Number of questions to draw (default: all).")]
Seed = Annotated[int, typer.Option(min=0, help="Seed for all random draws.")]
Graph = Annotated[str | None, typer.Option(help="Graph that the rules were mined from, if the bank was imported.")]
Cot = Annotated[bool, typer.Option("--cot", help="With messages: begin the reply with the rule and the document.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


def training_data(
    name: Dataset,
    rules: Rules,
    out: Out,
    form: As = TrainingForm.PAIRS,
    limit: Limit = None,
    seed: Seed = 0,
    graph: Graph = None,
    cot: Cot = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write training data from the questions that rules lead to, as JSON lines."""
    with report_errors(as_json=as_json), Client() as client:
        if cot and form is not TrainingForm.MESSAGES:
            raise Failed("usage", f"--cot: lines of --as {form} have no reply", hint="use --as messages")
        if out.exists() and not force:
            raise Failed("conflict", f"{out} already exists", hint="choose another file, or --force")
        client.save(training(name, rules, form.value, limit=limit, seed=seed, graph=graph, cot=str(cot).lower()), out)
        if client.shows:
            return
        with out.open("rb") as file:
            count = sum(1 for _ in file)
        if as_json:
            print_json({"dataset": name, "file": str(out), "as": form.value, "lines": count})
        else:
            typer.echo(f"{count} {form.value} are in {out}")
