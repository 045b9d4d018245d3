"""`mathrag corpus|dataset show|preview|delete`: what is there, and how to be rid of it."""

import asyncio
import getpass
from itertools import islice
from typing import Annotated

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, facts, print_json, shortened
from mathrag.cli.purge import Yes, confirm, owner_url
from mathrag.cli.references import Corpus, Dataset
from mathrag.client.client import MOST_OF_A_PAGE, Client, segment
from mathrag.stack.addresses import DataDir
from shared.runtime import deleting
from shared.settings import load
from shared.storage.database import Database

Limit = Annotated[int, typer.Option(min=1, help="How many, from the first.")]


def show_dataset(name: Dataset, as_json: AsJson = False) -> None:
    """One dataset: how many items, and the hash of its content."""
    _show(f"/v1/datasets/{segment(name)}", f"mathrag dataset preview {name}", as_json)


def show_corpus(name: Corpus, as_json: AsJson = False) -> None:
    """One corpus: how many documents, whether it is indexed, and the hash of its content."""
    _show(f"/v1/corpora/{segment(name)}", f"mathrag corpus preview {name}", as_json)


def preview_dataset(name: Dataset, limit: Limit = 5, as_json: AsJson = False) -> None:
    """The first questions of a dataset, with their expected answers."""
    _preview(f"/v1/datasets/{segment(name)}/items", ("question", "gold", "subject", "level"), limit, as_json)


def preview_corpus(name: Corpus, limit: Limit = 5, as_json: AsJson = False) -> None:
    """The first documents of a corpus."""
    _preview(f"/v1/corpora/{segment(name)}/documents", ("problem", "text"), limit, as_json)


def delete_dataset(name: Dataset, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a dataset that no job uses, as the owner of the database."""
    _delete("dataset", name, yes, data_dir, as_json)


def delete_corpus(name: Corpus, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a corpus that no job uses, as the owner of the database; its documents go with the next purge."""
    _delete("corpus", name, yes, data_dir, as_json)


def _show(path: str, following: str, as_json: bool) -> None:
    with reported(as_json=as_json), Client() as client:
        found = client.get(path)
        if as_json:
            print_json(found)
            return
        typer.echo(found["name"])
        facts((key, found[key]) for key in ("items", "documents", "indexed", "hash", "created_at") if key in found)
        typer.echo(f"  next: {following}")


def _preview(path: str, fields: tuple[str, ...], limit: int, as_json: bool) -> None:
    with reported(as_json=as_json), Client() as client:
        rows = list(islice(client.all(path, limit=min(limit, MOST_OF_A_PAGE)), limit))
        if as_json:
            print_json(rows)
            return
        for row in rows:
            typer.echo(f"{row['index']}  {row['id'] or ''}".rstrip())
            facts((field, shortened(row[field])) for field in fields)


def _delete(kind: deleting.Kind, name: str, yes: bool, data_dir: DataDir, as_json: bool) -> None:
    with reported(as_json=as_json):
        owner = owner_url(load(), data_dir)
        if not yes:
            confirm(f"Delete {kind} {name} for good?", as_json=as_json)
        asyncio.run(_deleted(owner, kind, name))
        if as_json:
            print_json({"deleted": name, "kind": kind})
        else:
            typer.echo(f"Deleted {kind} {name}.")


async def _deleted(url: str, kind: deleting.Kind, name: str) -> None:
    owner = Database(url, pinned=False)
    try:
        await deleting.delete(owner, kind, name, getpass.getuser())
    finally:
        await owner.close()
