"""Send requests of commands to the API, and print or save the answers."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from mathrag.cli.output import print_json, print_table, report_errors
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json, Page, Request, T


def send_and_print(request: Request[T], print_answer: Callable[[T], None], as_json: bool) -> None:
    """Send a request, and print the answer as JSON or by `print_answer`."""
    with report_errors(as_json=as_json), Client() as client:
        answer = client.send(request)
        print_json(answer) if as_json else print_answer(answer)


def list_and_print(
    request: Request[Page[Json]],
    head: Sequence[str],
    make_row: Callable[[Json], Sequence[object]],
    as_json: bool,
    *,
    limit: int | None = None,
    nothing: str = "",
) -> None:
    """Print the first `limit` entries of a list, or all, as JSON or as a table; `nothing` replaces an empty table."""
    with report_errors(as_json=as_json), Client() as client:
        found = list(client.all(request)) if limit is None else client.first(request, limit)
        if as_json:
            print_json(found)
        elif found or not nothing:
            print_table(head, map(make_row, found))
        else:
            typer.echo(nothing)


def save(client: Client, request: Request[bytes], out: Path | None = None, *, force: bool = False) -> bool:
    """Write an answer to the file `out`, or to standard output; tell whether a file was written.

    Raises:
        Failed: the file exists, and `force` is not set.
    """
    if out is None:
        sys.stdout.buffer.writelines(client.stream(request))
        sys.stdout.buffer.flush()
        return False
    if out.exists() and not force:
        raise Failed("conflict", f"{out} already exists", hint="choose another file, or --force")
    client.save(request, out)
    return not client.shows
