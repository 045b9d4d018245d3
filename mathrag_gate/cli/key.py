"""`mathrag key`: manage API keys directly in the database, so that creating the first key needs no key."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from msgspec import UNSET
from sqlalchemy.exc import SQLAlchemyError

from mathrag.cli.output import AsJson, DataDir, print_json, print_table, report_errors
from mathrag.client.errors import Failed
from mathrag.errors import Invalid
from mathrag_gate.stack.backup import find_database_url
from shared.access.filters import keys_required
from shared.settings import load
from shared.shapes import Scope, parse_duration
from shared.storage import keys
from shared.storage.database import LOCAL, Database

T = TypeVar("T")

key = typer.Typer(no_args_is_help=True)

WEIGHT = "Share of the samples served, relative to other keys: 1 to 100."
PROJECT = "Project of the key."
Name = Annotated[str, typer.Argument(help="Name of the key, such as its user: letters, digits, `.`, `_` and `-`.")]
Scopes = Annotated[list[Scope], typer.Option("--scope", help="Scope of the key: read, submit or operate.")]
Expires = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Lifetime, such as 90d, 24h or 30m (default: no expiry).")
]
Grace = Annotated[str, typer.Option(metavar="DURATION", help="Time for which the old key stays valid, such as 24h.")]
Which = Annotated[str, typer.Argument(metavar="KEY", help="Name of the key, or its prefix such as mrg_1a2b3c4d.")]


@key.command()
def create(
    name: Name,
    scope: Scopes,
    expires: Expires = None,
    weight: Annotated[int, typer.Option(help=WEIGHT)] = 1,
    project: Annotated[str | None, typer.Option(help=PROJECT)] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it; it is shown only once."""
    with report_errors(as_json=as_json):
        lifetime = None if expires is None else _parse_duration("--expires", expires)
        made = _run_on_database(
            data_dir,
            lambda database: keys.create_key(
                database, LOCAL, name, set(scope), lifetime, weight=weight, project=project
            ),
        )
        _show(name, made, as_json=as_json)
        if not keys_required(load()):
            typer.echo("This stack does not require keys; set `access.keys: required` to change that.", err=True)


@key.command(name="set")
def change(
    name: Name,
    weight: Annotated[int | None, typer.Option(help=WEIGHT)] = None,
    project: Annotated[str | None, typer.Option(help=PROJECT)] = None,
    no_project: Annotated[bool, typer.Option("--no-project", help="Remove the key from its project.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Change the weight or the project of a key; its earlier jobs and uploads keep theirs."""
    with report_errors(as_json=as_json):
        if no_project and project is not None:
            raise Failed("usage", "--project and --no-project exclude each other", hint="leave one of them out")
        if weight is None and project is None and not no_project:
            raise Failed("usage", "nothing to change", hint="add --weight, --project or --no-project")
        chosen = None if no_project else UNSET if project is None else project
        now_weight, now_project = _run_on_database(
            data_dir, lambda database: keys.change_key(database, LOCAL, name, weight, chosen)
        )
        if as_json:
            print_json({"name": name, "weight": now_weight, "project": now_project})
        else:
            typer.echo(
                f"{name} has weight {now_weight} and {f'project {now_project}' if now_project else 'no project'}."
            )


@key.command()
def rotate(name: Name, grace: Grace = "24h", data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Replace a key with a new one; the old key stays valid for --grace."""
    with report_errors(as_json=as_json):
        span = _parse_duration("--grace", grace)
        made = _run_on_database(data_dir, lambda database: keys.rotate_key(database, LOCAL, name, span))
        _show(name, made, as_json=as_json)


@key.command()
def revoke(which: Which, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Revoke a key; it stops working within five seconds."""
    with report_errors(as_json=as_json):
        prefixes = _run_on_database(data_dir, lambda database: keys.revoke_keys(database, LOCAL, which))
        if as_json:
            print_json({"revoked": prefixes})
        else:
            typer.echo(f"Revoked {', '.join(prefixes)}.")


@key.command(name="list")
def list_keys(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List all keys by prefix, including revoked and expired ones; the keys themselves are not stored."""
    with report_errors(as_json=as_json):
        found = _run_on_database(data_dir, keys.list_keys)
        if as_json:
            print_json(found)
        else:
            rows = []
            for each in found:
                expires, used = (at and f"{at:%Y-%m-%d %H:%M}" for at in (each.expires_at, each.used_at))
                scopes = ",".join(each.scopes)
                rows.append((each.name, each.prefix, scopes, each.weight, each.project, each.state, expires, used))
            print_table(("NAME", "PREFIX", "SCOPES", "WEIGHT", "PROJECT", "STATE", "EXPIRES", "USED"), rows)


def _run_on_database(data_dir: Path | None, work: Callable[[Database], Awaitable[T]]) -> T:
    async def run() -> T:
        database = Database(find_database_url(data_dir), pinned=False)
        try:
            return await work(database)
        except (SQLAlchemyError, OSError) as error:
            message = "the database failed: " + str(error).partition("\n")[0]
            raise Failed(
                "unreachable", message, hint="read the database's log, and check MATHRAG_DATABASE_URL"
            ) from error
        finally:
            await database.close()

    return asyncio.run(run())


def _parse_duration(option: str, words: str) -> timedelta:
    try:
        return parse_duration(option, words)
    except Invalid as error:
        raise Failed("usage", error.message, hint=error.hint) from error


def _show(name: str, made: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "key": made})
    else:
        typer.echo(made)
        typer.echo(f"This is the key of {name!r}; it is shown only once.", err=True)
