"""`mathrag open`: open the web pages of a stack, starting it first if it does not run."""

import os
import sys
import webbrowser
from pathlib import Path

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.own_stack import CONFIGURATION, DATA
from mathrag.cli.stack import DataDir, resolve_directory
from mathrag.cli.up import up
from mathrag.client import address
from mathrag.client.errors import Failed
from mathrag.stack import control, redis
from shared.settings import load


def open(data_dir: DataDir = None, as_json: AsJson = False) -> None:  # noqa: A001 - the command's name
    """Open the web pages in a browser and print their address; starts the stack if it is not running."""
    with report_errors(as_json=as_json):
        directory = _find_stack(resolve_directory(data_dir))
        if control.find_holder(directory) is None:
            up(detach=True, data_dir=directory, port=_choose_port(), as_json=as_json)
        running = address.read_state(directory)
        if running is None or running.phase != "running":
            raise Failed(
                "unavailable", f"the stack on {directory} is not ready", hint=f"mathrag status --data-dir {directory}"
            )
        opened = _has_display() and webbrowser.open(running.url)
        if as_json:
            print_json({"url": running.url, "opened": opened})
        else:
            typer.echo(f"{'Opened' if opened else 'Open'} {running.url}")


def _find_stack(directory: Path) -> Path:
    """Return the stack's folder: that of a demo or reproduction has it below, with its own settings."""
    if not ((directory / CONFIGURATION).is_file() and (directory / DATA).is_dir()):
        return directory
    os.environ["MATHRAG_CONFIG"] = str(directory / CONFIGURATION)
    return directory / DATA


def _choose_port() -> int:
    """Return the port of the settings; 0, which picks a free one, if it is taken."""
    settings = load()
    return settings.port if redis.is_free(settings.port, settings.host) else 0


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
