"""How corpora and datasets are shown, looked into and deleted."""

from itertools import islice
from typing import Annotated, Literal

import typer

from mathrag.cli.confirm import confirm
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, facts, print_json, shortened
from mathrag.cli.references import DataDir
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.request import MOST_OF_A_PAGE

Limit = Annotated[int, typer.Option(min=1, help="How many, from the first.")]


def show(kind: texts.Kind, name: str, following: str, as_json: AsJson) -> None:
    """Print counts and hash."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(texts.get(kind, name))
        if as_json:
            print_json(found)
            return
        typer.echo(found["name"])
        facts((key, found[key]) for key in ("items", "documents", "indexed", "hash", "created_at") if key in found)
        typer.echo(f"  next: {following}")


def preview(kind: texts.Kind, name: str, fields: tuple[str, ...], limit: int, as_json: AsJson) -> None:
    """Print these fields of the first entries."""
    with reported(as_json=as_json), Client() as client:
        rows = list(islice(client.all(texts.entries(kind, name, min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(rows)
            return
        for row in rows:
            typer.echo(f"{row['index']}  {row['id'] or ''}".rstrip())
            facts((field, shortened(row[field])) for field in fields)


def delete(kind: Literal["corpus", "dataset"], name: str, yes: bool, data_dir: DataDir, as_json: AsJson) -> None:
    """Delete as the owner of the database, once a person has agreed."""
    with reported(as_json=as_json):
        from mathrag.stack import deletion
        from shared.settings import load

        owner = deletion.owner_url(load(), data_dir)
        if not yes:
            confirm(f"Delete {kind} {name} for good?", as_json=as_json)
        deletion.delete(owner, kind, name)
        if as_json:
            print_json({"deleted": name, "kind": kind})
        else:
            typer.echo(f"Deleted {kind} {name}.")
