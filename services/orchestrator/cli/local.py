"""What an operator's own shell reaches without the API: the configured database, or that of a stack which runs here."""

from pathlib import Path
from typing import Annotated

import typer

from services.orchestrator.cli.failures import Failed
from services.orchestrator.stack import lock, passwords, state
from services.orchestrator.stack.postgres import Postgres
from shared.settings import load

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Of the stack. [default: .mathrag]")]


def database_url(data_dir: Path | None) -> str:
    """MATHRAG_DATABASE_URL, else the embedded database of `data_dir`, as the application's role.

    Raises:
        Failed: neither is there.
    """
    settings = load()
    return settings.database_url or embedded(data_dir or settings.data_dir).url()


def embedded(data_dir: Path) -> Postgres:
    """The PostgreSQL that runs on `data_dir`.

    Raises:
        Failed: none does.
    """
    running = state.read(data_dir) if lock.holder(data_dir) is not None else None
    ports = [child.port for child in running.children if child.name == "postgres"] if running else []
    if not ports or ports[0] is None:
        hint = "start it with `mathrag up`, or set MATHRAG_DATABASE_URL"
        raise Failed("unreachable", f"no PostgreSQL of ours runs on {data_dir.absolute()}", hint=hint)
    return Postgres(data_dir / "postgres", port=ports[0], passwords=passwords.remembered(data_dir))
