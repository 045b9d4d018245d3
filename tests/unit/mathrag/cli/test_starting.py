"""Who starts the stack in the background sees what it does meanwhile."""

import pytest

from mathrag.cli.up import _Starting
from mathrag.client.stack_state import ChildState, State


def stack(**phases: str) -> State:
    """A stack that starts, its children in these phases."""
    children = tuple(
        ChildState(name=name, phase=phase, pid=1, port=None, restarts=0, log="") for name, phase in phases.items()
    )
    return State(pid=1, url="http://127.0.0.1:1", phase="starting", children=children)


def test_each_service_is_named_once_when_it_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    """However often the stack is looked at, and also before it has written anything."""
    starting = _Starting()
    for now in (
        None, stack(postgres="starting"), stack(postgres="ready", redis="starting"),
        stack(postgres="ready", redis="ready"), stack(postgres="ready", redis="ready"),
    ):  # fmt: skip
        starting.show(now)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["postgres", "ready"], ["redis", "ready"],
    ]  # fmt: skip
