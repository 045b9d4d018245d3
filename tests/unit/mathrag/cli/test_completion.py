"""What a shell is told."""

import os
import subprocess
import sys

import httpx2
import pytest

from mathrag.cli.references import _complete_jobs
from tests.unit.commands import JOB, Server, mathrag, says


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --command")]
)
def test_each_shell_has_its_script(shell: str, mark: str) -> None:
    assert mark in mathrag("completion", shell).stdout


def test_the_script_is_answered() -> None:
    environment = {"_MATHRAG_COMPLETE": "complete_bash", "COMP_WORDS": "mathrag job pa", "COMP_CWORD": "2"}
    called = "from mathrag.cli.main import app; app(prog_name='mathrag')"
    ended = subprocess.run(
        [sys.executable, "-c", called], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["pause"]


def test_jobs_are_offered_by_name_and_by_id(server: Server) -> None:
    server(says({"data": [JOB], "next_cursor": None}))
    assert _complete_jobs("fi") == [("first", "dense, running")]
    assert _complete_jobs("6b") == [(JOB["id"], "dense, running")]


def test_a_shell_is_told_nothing_when_the_server_is_away(server: Server) -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    server(refused)
    assert _complete_jobs("") == []
