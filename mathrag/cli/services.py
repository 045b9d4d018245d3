"""Programs of services that answer one question and end: what no running service is needed for."""

import os
import subprocess
import sys
from collections.abc import Mapping

from mathrag.client.errors import Failed


def run(
    module: str, question: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m module`; what it says on standard error is shown as it comes.

    Args:
        module: of a service.
        question: its standard input.
        environment: variables beside those of this process.

    Raises:
        Failed: it ended without an answer.
    """
    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", module], input=question, stdout=subprocess.PIPE, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if not ended.stdout:
        raise Failed("internal", f"{module} ended with {ended.returncode}", hint="its last words are above")
    return ended
