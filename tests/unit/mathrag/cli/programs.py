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

from mathrag.cli import doctor


def run_here(
    module: str, question: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """As `mathrag.cli.doctor.run`: standard input, standard output, the environment and the exit code are its own."""
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
    monkeypatch.setattr(doctor, "run", run_here)
