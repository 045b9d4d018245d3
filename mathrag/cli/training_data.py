"""`mathrag dataset training-data`: what retrievers and generators learn from, as a file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.references import Dataset
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.training import training


class Form(StrEnum):
    """What a line is."""

    PAIRS = "pairs"
    TRIPLETS = "triplets"
    INSTRUCTIONS = "instructions"
    MESSAGES = "messages"


Rules = Annotated[str, typer.Option(help="The rule bank that the dataset was made with.")]
As = Annotated[
    Form,
    typer.Option("--as", help="pairs, triplets: for retrievers; instructions, messages (TRL): for generators."),
]
Out = Annotated[Path, typer.Option(help="File to write.")]
Limit = Annotated[int | None, typer.Option(min=1, help="So many questions, drawn by the seed; else all.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn.")]
Graph = Annotated[str | None, typer.Option(help="That an imported bank was mined from.")]
Cot = Annotated[bool, typer.Option("--cot", help="messages: the reply names rule and document first.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]


def training_data(
    name: Dataset,
    rules: Rules,
    out: Out,
    form: As = Form.PAIRS,
    limit: Limit = None,
    seed: Seed = 0,
    graph: Graph = None,
    cot: Cot = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the questions that rules lead to as training data, a JSON object a line."""
    with reported(as_json=as_json), Client() as client:
        if cot and form is not Form.MESSAGES:
            raise Failed("usage", f"--cot: {form} have no reply", hint="use --as messages")
        if out.exists() and not force:
            raise Failed("conflict", f"{out} is there already", hint="another file, or --force")
        client.save(training(name, rules, form.value, limit=limit, seed=seed, graph=graph, cot=str(cot).lower()), out)
        if client.shows:
            return
        with out.open("rb") as file:
            count = sum(1 for _ in file)
        if as_json:
            print_json({"dataset": name, "file": str(out), "as": form.value, "lines": count})
        else:
            typer.echo(f"{count} {form.value} are in {out}")
