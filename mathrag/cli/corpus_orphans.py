"""`mathrag corpus orphans`: indexes on Elasticsearch that nothing uses."""

from typing import Annotated, Any

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.purge import Yes, confirm
from mathrag.client.client import INDEXED_S, Client

PATH = "/v1/indexes/orphans"
Delete = Annotated[bool, typer.Option("--delete", help="Delete them for good; without it they are only listed.")]


def orphans(delete: Delete = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """List indexes that broken-off builds or a replaced database left on Elasticsearch; --delete removes them."""
    with reported(as_json=as_json), Client(patience_s=INDEXED_S) as client:
        if delete and not (yes or client.shows):
            _print(client.get(PATH))
            confirm("Delete all unused indexes for good?", as_json=as_json)
        answer = client.delete(PATH) if delete else client.get(PATH)
        print_json(answer) if as_json else _print(answer)


def _print(answer: Any) -> None:
    for index in answer["orphans"]:
        typer.echo(f"{'deleted' if answer['deleted'] else 'unused'}: {index}")
    if not answer["orphans"]:
        typer.echo("Every index of this installation is used.")
