"""`mathrag backup` and `mathrag restore`: write the embedded stack to one file, and restore it."""

from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.output import AsJson, DataDir, print_json, report_errors
from mathrag.client.errors import Failed
from mathrag_gate.cli.stack import require_directory, resolve_directory
from mathrag_gate.stack import backup as archive
from shared.settings import load

Target = Annotated[Path, typer.Argument(metavar="FILE", help="File to write, such as mathrag-backup.zip.")]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="File that `mathrag backup` wrote.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
EmptyDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="New or empty data directory to restore into (default: .mathrag)."),
]


def backup(file: Target, data_dir: DataDir = None, force: Force = False, as_json: AsJson = False) -> None:
    """Write the database and the indexes of a running stack to one file, while its jobs run."""
    with report_errors(as_json=as_json, needs="mathrag-gate[embedded]"):
        _refuse_own_database(
            "which `mathrag backup` does not back up",
            "use PostgreSQL's tools: pg_dump --format=custom --file=FILE DATABASE",
        )
        written = archive.back_up(require_directory(data_dir), file, replace=force)
        size = file.stat().st_size
        if as_json:
            print_json({"file": str(file), "bytes": size, "backup": written})
            return
        typer.echo(f"Wrote {file} ({size / (1 << 20):.1f} MiB): release {written.release}, schema {written.schema}.")
        typer.echo("It contains all questions, answers and prompts; only you can read it. It does not contain the")
        typer.echo("configuration, plug-ins and model files.")


def restore(file: Source, data_dir: EmptyDir = None, as_json: AsJson = False) -> None:
    """Restore a backup into a new data directory; its running jobs continue at the next `mathrag up`."""
    with report_errors(as_json=as_json, needs="mathrag-gate[embedded]"):
        _refuse_own_database(
            "which `mathrag up` would use instead of the restored one",
            f"unset it, or restore there: unzip -p {file} database.dump | pg_restore --no-owner --dbname=DATABASE",
        )
        directory = resolve_directory(data_dir)
        restored = archive.restore(file, directory)
        if as_json:
            print_json({"data_dir": str(directory), "backup": restored})
            return
        typer.echo(f"Restored {file} of {restored.created:%Y-%m-%d %H:%M} UTC into {directory}.")
        typer.echo(f"Its jobs continue with: mathrag up --detach --data-dir {directory}")


def _refuse_own_database(why: str, hint: str) -> None:
    if load().database_url:
        raise Failed("usage", f"MATHRAG_DATABASE_URL names your own database server, {why}", hint)
