"""`mathrag key`: who may call the API. Works on the database itself, so the first key needs no key."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from sqlalchemy.exc import SQLAlchemyError

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.references import DataDir
from mathrag.client.errors import Failed
from mathrag.stack.addresses import database_url
from shared.contracts.api_keys import Scope
from shared.storage import keys
from shared.storage.database import Database
from shared.storage.operations import LOCAL

T = TypeVar("T")
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_SPAN = re.compile(r"(?P<count>\d{1,6})(?P<unit>[mhd])")

key = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Who uses it; letters, digits, `.`, `_` and `-`.")]
Scopes = Annotated[list[Scope], typer.Option("--scope", help="read, submit or operate; again for more.")]
Expires = Annotated[str | None, typer.Option(help="Such as 90d, 24h or 30m. [default: never]")]
Grace = Annotated[str, typer.Option(help="How long the old key stays valid.")]
Which = Annotated[str, typer.Argument(help="Name, or prefix such as mrg_1a2b3c4d.")]


@key.command()
def create(
    name: Name, scope: Scopes, expires: Expires = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Make a key and print it, this once."""
    with reported(as_json=as_json):
        lifetime = None if expires is None else _span("--expires", expires)
        made = _on_database(data_dir, lambda database: keys.create(database, LOCAL, name, set(scope), lifetime))
        _show(name, made, as_json=as_json)


@key.command()
def rotate(name: Name, grace: Grace = "24h", data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Make a new key in place of an old one, which stays valid for a while."""
    with reported(as_json=as_json):
        span = _span("--grace", grace)
        _show(name, _on_database(data_dir, lambda database: keys.rotate(database, LOCAL, name, span)), as_json=as_json)


@key.command()
def revoke(which: Which, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Make a key worthless, within five seconds."""
    with reported(as_json=as_json):
        prefixes = _on_database(data_dir, lambda database: keys.revoke(database, LOCAL, which))
        if as_json:
            print_json({"revoked": prefixes})
        else:
            typer.echo(f"Revoked {', '.join(prefixes)}.")


@key.command(name="list")
def listed(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """All keys that ever were; not the keys themselves, which nobody has."""
    with reported(as_json=as_json):
        found = _on_database(data_dir, keys.listed)
        if as_json:
            print_json(found)
        else:
            table(("NAME", "PREFIX", "SCOPES", "STATE", "EXPIRES", "USED"), map(_row, found))


def _on_database(data_dir: Path | None, work: Callable[[Database], Awaitable[T]]) -> T:
    async def run() -> T:
        database = Database(database_url(data_dir), pinned=False)
        try:
            return await work(database)
        except (SQLAlchemyError, OSError) as error:
            said = str(error).partition("\n")[0]
            raise Failed(
                "unreachable", f"the database: {said}", hint="see its log, and MATHRAG_DATABASE_URL"
            ) from error
        finally:
            await database.close()

    return asyncio.run(run())


def _span(option: str, words: str) -> timedelta:
    found = _SPAN.fullmatch(words)
    if found is None:
        raise Failed("usage", f"{option}: {words!r} is no span of time", hint="a number and m, h or d, such as 90d")
    return int(found["count"]) * UNITS[found["unit"]]


def _show(name: str, made: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "key": made})
    else:
        typer.echo(made)
        typer.echo(f"This is the key of {name!r}; it cannot be shown again.", err=True)


def _row(found: keys.ApiKey) -> tuple[object, ...]:
    state = "valid" if found.valid else "revoked" if found.revoked_at else "expired"
    expires, used = (at and f"{at:%Y-%m-%d %H:%M}" for at in (found.expires_at, found.used_at))
    return found.name, found.prefix, ",".join(found.scopes), state, expires, used
