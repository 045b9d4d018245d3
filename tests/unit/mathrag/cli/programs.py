"""Programs of services run in this process: a process of their own imports for a second before it does anything."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from io import BytesIO, TextIOWrapper
from unittest.mock import patch

import pytest

from mathrag_gate.cli import checks


def run_here(
    module: str, question: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """As `mathrag_gate.cli.checks.run`: with streams, an environment and an exit code of its own."""
    main = import_module(module).main
    written = BytesIO()
    given, said = TextIOWrapper(BytesIO(question)), TextIOWrapper(written)
    code: object = None
    with ExitStack() as changed:
        changed.enter_context(patch.dict(os.environ, environment or {}))
        changed.enter_context(patch.object(sys, "stdin", given))
        changed.enter_context(patch.object(sys, "stdout", said))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    said.flush()
    assert code is None or isinstance(code, int)
    return subprocess.CompletedProcess([module], code or 0, written.getvalue())


def stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command of this test starts a process for a program."""
    monkeypatch.setattr(checks, "run", run_here)
