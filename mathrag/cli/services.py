"""Programs of services that answer one question and end: what no running service is needed for."""

import subprocess
import sys
from typing import TypeVar

import msgspec

from mathrag.client.errors import Failed

T = TypeVar("T")


def run(module: str, question: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m module`; what it says on standard error is shown as it comes.

    Raises:
        Failed: it ended without an answer.
    """
    command = [sys.executable, "-m", module]
    ended = subprocess.run(command, input=question, stdout=subprocess.PIPE, check=False)  # noqa: S603 - our own command
    if not ended.stdout:
        raise Failed("internal", f"{module} ended with {ended.returncode}", hint="its last words are above")
    return ended


def answer(module: str, question: bytes, kind: type[T]) -> T:
    """What the program answers.

    Raises:
        Failed: it ended without an answer.
    """
    return msgspec.json.decode(run(module, question).stdout, type=kind)
