"""`mathrag demo`: run the whole system on two small batches, and explain the results."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import report_errors

Seed = Annotated[int, typer.Option(help="Seed for generating questions and documents; the results depend on it.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the demo; an earlier demo there is deleted (default: .mathrag/demo)."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Ask 10 questions of each set: shows that everything works, compares nothing.")
]


def demo(seed: Seed = 1, data_dir: DataDir = None, quick: Quick = False) -> None:
    """Run the demo: start a stack, answer 300 questions in five ways, explain the results (1 to 4 minutes)."""
    # SIGTERM must stop the stack, too: SystemExit runs the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with report_errors(as_json=False, extra="embedded"):
        from mathrag.cli import demonstration

        demonstration.demonstrate(seed, data_dir or demonstration.DATA_DIR, demonstration.QUICK if quick else None)
