"""`mathrag demo`: the whole system on two small batches, from nothing to conclusions."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import reported
from mathrag.client.errors import Failed

Seed = Annotated[int, typer.Option(help="Of questions and documents; another one gives other figures.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Where it is kept; an earlier demo there is deleted. [.mathrag/demo]")
]


def demo(seed: Seed = 1, data_dir: DataDir = None) -> None:
    """Start everything, answer 300 questions in five ways, and explain what came out; one to four minutes."""
    # An end from outside must stop the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with reported(as_json=False):
        try:
            from world.demo import running  # images of containers come without it
        except ModuleNotFoundError as missing:
            raise Failed("unavailable", "this installation has no demo", hint="install the wheel") from missing
        running.demonstrate(seed, data_dir or running.DATA_DIR)
