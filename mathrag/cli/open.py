"""`mathrag open`: the pages of a stack, started first where it does not run."""

import os
import sys
import webbrowser
from pathlib import Path

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.own_stack import CONFIGURATION, DATA
from mathrag.cli.stack import DataDir, directory_of
from mathrag.cli.up import up
from mathrag.client import stack_state
from mathrag.client.errors import Failed
from mathrag.stack import lock, ports
from shared.settings import load


def open(data_dir: DataDir = None, as_json: AsJson = False) -> None:  # noqa: A001 - the command's name
    """Open the pages in a browser; starts the stack where it does not run, and prints the address."""
    with reported(as_json=as_json):
        directory = _stack_of(directory_of(data_dir))
        if lock.holder(directory) is None:
            up(detach=True, data_dir=directory, port=_port(), as_json=as_json)
        running = stack_state.read(directory)
        if running is None or running.phase != "running":
            raise Failed(
                "unavailable", f"the stack on {directory} is not ready", hint=f"mathrag status --data-dir {directory}"
            )
        opened = _has_display() and webbrowser.open(running.url)
        if as_json:
            print_json({"url": running.url, "opened": opened})
        else:
            typer.echo(f"{'Opened' if opened else 'Open'} {running.url}")


def _stack_of(directory: Path) -> Path:
    """The folder of a demonstration or a reproduction has its stack below it, and settings of its own."""
    if not ((directory / CONFIGURATION).is_file() and (directory / DATA).is_dir()):
        return directory
    os.environ["MATHRAG_CONFIG"] = str(directory / CONFIGURATION)
    return directory / DATA


def _port() -> int:
    """The port of the settings, or any free one where that is taken."""
    settings = load()
    return settings.port if ports.is_free(settings.port, settings.host) else 0


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
