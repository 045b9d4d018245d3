"""The `show`, `preview` and `delete` commands that corpora and datasets share."""

from itertools import islice
from typing import Annotated, Literal

import typer

from mathrag.cli.confirm import confirm
from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_facts, print_json, shorten
from mathrag.cli.references import DataDir
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.request import MOST_OF_A_PAGE

Limit = Annotated[int, typer.Option(min=1, help="Number of entries to show.")]


def show(kind: texts.Kind, name: str, following: str, as_json: AsJson) -> None:
    """Print the counts and the content hash, and the command to run next."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(texts.get(kind, name))
        if as_json:
            print_json(found)
            return
        typer.echo(found["name"])
        print_facts(
            (key, found[key]) for key in ("items", "documents", "indexed", "hash", "created_at") if key in found
        )
        typer.echo(f"  next: {following}")


def preview(kind: texts.Kind, name: str, fields: tuple[str, ...], limit: int, as_json: AsJson) -> None:
    """Print the given fields of the first `limit` entries."""
    with report_errors(as_json=as_json), Client() as client:
        rows = list(islice(client.all(texts.entries(kind, name, min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(rows)
            return
        for row in rows:
            typer.echo(f"{row['index']}  {row['id'] or ''}".rstrip())
            print_facts((field, shorten(row[field])) for field in fields)


def delete(kind: Literal["corpus", "dataset"], name: str, yes: bool, data_dir: DataDir, as_json: AsJson) -> None:
    """Delete as the owner of the database, after a confirmation."""
    with report_errors(as_json=as_json):
        from mathrag.stack import backup
        from shared.settings import load

        owner = backup.owner_url(load(), data_dir)
        if not yes:
            confirm(f"Delete {kind} {name} for good?", as_json=as_json)
        backup.delete(owner, kind, name)
        if as_json:
            print_json({"deleted": name, "kind": kind})
        else:
            typer.echo(f"Deleted {kind} {name}.")
