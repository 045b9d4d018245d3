"""The option `mathrag --version`."""

from typing import Annotated

import typer


def _print(value: bool) -> None:
    if value:
        from importlib.metadata import version

        from mathrag.installation import CLIENT, checkout, has_server

        commit, changed = checkout()
        clone = f" (commit {commit[:12]}{', changed' if changed else ''})" if commit else ""
        typer.echo(f"mathrag {version(CLIENT)}{clone}{'' if has_server() else ' without the server'}")
        raise typer.Exit


def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print, is_eager=True, help="Print the version and commit, and exit.")
    ] = False,
) -> None:
    """Answer batches of questions with retrieval-augmented generation on one small GPU, and measure how well."""
