"""`mathrag corpus orphans`: indexes on Elasticsearch that nothing uses."""

from typing import Annotated

import typer

from mathrag.cli.confirm import Yes, confirm
from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.texts import Orphans

Delete = Annotated[bool, typer.Option("--delete", help="Delete the indexes permanently instead of listing them.")]


def orphans(delete: Delete = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """List indexes that aborted builds or a replaced database left on Elasticsearch; --delete removes them."""
    with report_errors(as_json=as_json), Client() as client:
        if delete and not (yes or client.shows):
            _print(client.send(texts.orphans()))
            confirm("Delete all unused indexes for good?", as_json=as_json)
        answer = client.send(texts.orphans(delete=delete))
        print_json(answer) if as_json else _print(answer)


def _print(answer: Orphans) -> None:
    for index in answer["orphans"]:
        typer.echo(f"{'deleted' if answer['deleted'] else 'unused'}: {index}")
    if not answer["orphans"]:
        typer.echo("Every index of this installation is used.")
