"""The doubles of model servers as programs that can be started by a name, as an operator's configuration does."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def program(folder: Path, double: str) -> str:
    """An executable in `folder` that is `tests.doubles.DOUBLE`."""
    path = folder / double
    path.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m tests.doubles.{double} "$@"\n')
    path.chmod(0o700)
    return str(path)
