"""What an operator's own shell may do without the API: reach the database of a running stack, or the configured one."""

from pathlib import Path
from typing import Annotated

import typer

from services.orchestrator.cli.failures import Failed
from services.orchestrator.stack import lock
from services.orchestrator.stack.children import stack
from shared.settings import load

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Of the stack. [default: .mathrag]")]


def database_url(data_dir: Path | None) -> str:
    """MATHRAG_DATABASE_URL, else the embedded database of `data_dir`, as the application's role.

    Raises:
        Failed: neither is there.
    """
    settings = load()
    if settings.database_url:
        return settings.database_url
    directory = (data_dir or settings.data_dir).absolute()
    if lock.holder(directory) is None:
        raise Failed(
            "unreachable",
            f"nothing runs on {directory}",
            hint="start it with `mathrag up`, or set MATHRAG_DATABASE_URL",
        )
    return stack(settings, data_dir=directory, port=settings.port).postgres.url()
