"""Who starts the stack in the background sees what it does meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from mathrag.cli import up
from mathrag.cli.main import app
from mathrag.cli.output import Exit
from mathrag.cli.up import _Starting
from mathrag.client import address
from mathrag.client.address import ChildState, State


def stack(**phases: str) -> State:
    children = tuple(
        ChildState(name=name, phase=phase, pid=1, port=None, restarts=0, log="") for name, phase in phases.items()
    )
    return State(pid=1, url="http://127.0.0.1:1", phase="starting", children=children)


def test_each_service_is_named_once_when_it_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    starting = _Starting()
    for now in (
        None, stack(postgres="starting"), stack(postgres="ready", redis="starting"),
        stack(postgres="ready", redis="ready"), stack(postgres="ready", redis="ready"),
    ):  # fmt: skip
        starting.show(now)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["postgres", "ready"], ["redis", "ready"],
    ]  # fmt: skip


@pytest.fixture
def slow_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    slow = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    now = State(pid=slow.pid, url="", phase="starting", children=stack(postgres="ready", redis="starting").children)

    def start(*_: object, **__: object) -> "subprocess.Popen[bytes]":
        address.write_state(tmp_path, now)
        return slow

    with monkeypatch.context() as patch:
        patch.setattr(up, "subprocess", SimpleNamespace(Popen=start, DEVNULL=None, STDOUT=None))
        yield tmp_path
    assert slow.poll() is None, "it was ended"
    slow.kill()
    slow.wait()


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_whoever_has_waited_long_enough_is_told_what_goes_on_and_how_to_look(
    slow_stack: Path, form: tuple[str, ...]
) -> None:
    command = ("up", "--detach", "--timeout", "0", "--data-dir", str(slow_stack), "--port", "0", *form)
    ended = CliRunner().invoke(app, command)
    said = " ".join(ended.stderr.split())
    assert ended.exit_code == Exit.UNREACHABLE
    assert "is not ready after 0 s, and keeps on starting (ready: postgres; starting: redis for 0 s; " in said
    assert "not begun: guard, retriever, judge, generator, orchestrator)" in said
    assert f"mathrag status --data-dir {slow_stack}" in said
    assert f"{slow_stack}/logs/supervisor.log" in said


def test_a_supervisor_in_the_background_logs_with_times_why_it_ends(tmp_path: Path) -> None:
    (tmp_path / "passwords.json").write_text("{")
    command = [sys.executable, "-m", "mathrag.cli.main", "up", "--in-background"]
    ended = subprocess.run(
        [*command, "--data-dir", str(tmp_path), "--port", "0"], capture_output=True, text=True, check=False,
        env={**os.environ, "MATHRAG_TELEMETRY__LOG_FORMAT": "json"},
    )  # fmt: skip
    *lines, error, fix = ended.stderr.splitlines()
    (line,) = map(json.loads, lines)
    assert line["event"].startswith("the stack ends: ")
    assert line["timestamp"] > "2026"
    assert (ended.stdout, error.startswith("error: "), fix.startswith("  fix: ")) == ("", True, True)
