"""The pages of a stack in a browser."""

import json
import webbrowser
from pathlib import Path

import pytest

from mathrag.cli import up as up_module
from mathrag.cli.output import Exit
from mathrag.client import address
from mathrag.client.address import State
from tests.unit.commands import mathrag

STATE = State(pid=1, url="http://127.0.0.1:8080", phase="running", children=())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: found.append(url) or True)
    monkeypatch.setattr(up_module.control, "find_holder", lambda _: 1)
    monkeypatch.setenv("DISPLAY", ":0")
    return found


def test_the_pages_of_a_running_stack_are_opened(opened: list[str], tmp_path: Path) -> None:
    address.write_state(tmp_path, STATE)
    ended = mathrag("open", "--data-dir", str(tmp_path))
    assert (ended.exit_code, ended.stdout, opened) == (Exit.DONE, f"Opened {STATE.url}\n", [STATE.url])


def test_without_a_display_the_address_is_printed(
    opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(up_module.sys, "platform", "linux")
    address.write_state(tmp_path, STATE)
    ended = mathrag("open", "--data-dir", str(tmp_path), "--json")
    assert (json.loads(ended.stdout), opened) == ({"url": STATE.url, "opened": False}, [])


def test_a_demonstrations_folder_stands_for_the_stack_below_it(
    opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", "other.yaml")
    (tmp_path / "stack").mkdir()
    (tmp_path / "mathrag.yaml").write_text("{}\n")
    address.write_state(tmp_path / "stack", STATE)
    assert mathrag("open", "--data-dir", str(tmp_path)).exit_code == Exit.DONE
    assert opened == [STATE.url]
    assert up_module.os.environ["MATHRAG_CONFIG"] == str(tmp_path / "mathrag.yaml")


def test_a_stack_that_only_starts_is_not_opened(opened: list[str], tmp_path: Path) -> None:
    address.write_state(tmp_path, State(pid=1, url=STATE.url, phase="starting", children=()))
    ended = mathrag("open", "--data-dir", str(tmp_path))
    assert ended.exit_code != Exit.DONE
    assert "is not ready" in ended.stderr
    assert opened == []


def test_a_stack_that_does_not_run_is_started_on_a_port_that_is_free(
    opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Path, int]] = []

    def up(*, data_dir: Path, port: int, **_: object) -> None:
        started.append((data_dir, port))
        address.write_state(tmp_path, STATE)

    monkeypatch.setattr(up_module, "up", up)
    monkeypatch.setattr(up_module.control, "find_holder", lambda _: None)
    for free in (True, False):
        monkeypatch.setattr(up_module.redis, "is_free", lambda *_, free=free: free)
        assert mathrag("open", "--data-dir", str(tmp_path)).exit_code == Exit.DONE
    assert started == [(tmp_path, 8080), (tmp_path, 0)]
