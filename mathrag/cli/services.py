"""Run programs of the services that answer one request and end, without a running service."""

import os
import subprocess
import sys
from collections.abc import Mapping

from mathrag.client.errors import Failed
from shared.extras import find_missing_package


def run(
    module: str, question: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m module`, showing its standard error as it is written.

    Args:
        module: the service's module.
        question: the program's standard input.
        environment: variables in addition to those of this process.

    Raises:
        NotInstalled: the packages of services are missing.
        Failed: the program ended without a result.
    """
    if missing := find_missing_package():
        raise missing
    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", module], input=question, stdout=subprocess.PIPE, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if not ended.stdout:
        raise Failed(
            "internal", f"{module} ended with exit code {ended.returncode} and no result", hint="see its messages above"
        )
    return ended
