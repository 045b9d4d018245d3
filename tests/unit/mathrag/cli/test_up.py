import errno
import json
import os
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from mathrag.cli import up
from mathrag.cli import up as up_module
from mathrag.cli.main import app
from mathrag.cli.output import Exit
from mathrag.cli.up import _Starting
from mathrag.client import address
from mathrag.client.address import ChildState, State
from mathrag.client.errors import failure
from mathrag.stack import postgres
from mathrag.stack import redis as redis_module
from shared.extras import install_command
from tests.faults.limits import small_disk
from tests.unit.commands import mathrag

# The pages of a stack in a browser.


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


# What keeps a stack from starting is said in plain words: what is wrong, where, and what to do.


def refused(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["up", *arguments])
    assert "defect" not in result.output
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("port", ["99999", "-1", "eighty"])
def test_a_port_that_cannot_be_is_a_wrong_command_line(tmp_path: Path, port: str) -> None:
    code, said = refused("--data-dir", str(tmp_path), "--port", port)
    assert (code, "Invalid value for '--port'" in said) == (Exit.USAGE, True)


def test_the_highest_port_in_use_proposes_one_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_module, "probe_port", lambda *_: errno.EADDRINUSE)
    code, said = refused("--data-dir", str(tmp_path), "--port", "65535")
    assert (code, "mathrag up --port 65534" in said) == (Exit.CONFLICT, True)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-host.invalid"])
def test_a_host_that_is_not_this_machine_is_not_called_a_port_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("MATHRAG_HOST", host)
    code, said = refused("--data-dir", str(tmp_path), "--port", "18999")
    assert (code, f"'{host}' is not an address of this machine" in said) == (Exit.INVALID, True)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    code, said = refused("--data-dir", str(tmp_path / "file" / below), "--port", "0")
    assert (code, f"{tmp_path}/file" in said, "name a folder" in said) == (Exit.INVALID, True, True)


@pytest.mark.parametrize("command", ["status", "down", "doctor"])
def test_the_other_commands_name_it_too(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, [command, "--data-dir", str(tmp_path / "file")])
    assert (result.exit_code, "not a directory" in result.output) == (Exit.INVALID, True)


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    code, said = refused("--data-dir", "/proc/mathrag", "--port", "0")
    assert (code, "`/proc/mathrag`" in said) == (Exit.INVALID, True)


def test_a_full_disk_at_the_first_start_is_named(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", 1) as disk:
            disk.fill()
            code, said = refused("--data-dir", str(disk.folder), "--port", "0")
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")
    assert code == Exit.UNREACHABLE
    assert f"`{tmp_path}/disk/ports.json`: no space left on device fix: free some room" in said


@pytest.mark.parametrize("content", ["", "{", '["a"]'])
def test_a_broken_file_of_passwords_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "passwords.json").write_text(content)
    code, said = refused("--data-dir", str(tmp_path), "--port", "0")
    assert (code, f"{tmp_path}/passwords.json" in said, "from a backup" in said) == (Exit.UNREACHABLE, True, True)


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"redis": "x"}', '{"redis": 99999}'])
def test_a_broken_file_of_ports_is_made_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    found = redis_module.load_ports(tmp_path, ["redis"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", found["redis"]))
    assert redis_module.load_ports(tmp_path, ["redis"]) == found


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"- 1\n", "must be a mapping of keys to values"), (b"\x80", "is not UTF-8"), (b"a: [", "line 1")],
)
def test_a_configuration_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    file = tmp_path / "other.yaml"
    file.write_bytes(content)
    monkeypatch.setenv("MATHRAG_CONFIG", str(file))
    code, said = refused("--port", "0")
    assert (code, words in said, str(file) in said) == (Exit.INVALID, True, True)


def test_a_configuration_that_is_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path))
    code, said = refused("--port", "0")
    assert (code, f"`{tmp_path}` is a folder" in said) == (Exit.INVALID, True)


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path / "none.yaml"))
    monkeypatch.setattr(up, "build_stack", lambda *_, **__: pytest.fail("a stack was built"))
    code, said = refused("--data-dir", str(tmp_path / "data"), "--port", "0")
    assert code == Exit.INVALID
    assert f"MATHRAG_CONFIG: there is no file `{tmp_path}/none.yaml`" in said
    assert "unset MATHRAG_CONFIG" in said


def test_an_error_that_no_operator_can_mend_stays_a_defect() -> None:
    assert failure(OSError(errno.EBADF, "Bad file descriptor")).kind == "internal"


@pytest.mark.parametrize("detach", [(), ("--detach",)])
@pytest.mark.parametrize(
    ("server", "setting"), [(postgres, "MATHRAG_DATABASE_URL"), (redis_module, "MATHRAG_REDIS_URL")]
)
def test_a_missing_server_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ModuleType, setting: str, detach: tuple[str, ...]
) -> None:
    for name in ("MATHRAG_DATABASE_URL", "MATHRAG_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    code, said = refused("--data-dir", str(tmp_path), "--port", "0", *detach)
    assert (code, setting in said, install_command("embedded") in said) == (Exit.USAGE, True, True)
    assert not (tmp_path / "logs" / "supervisor.log").exists()


# Who starts the stack in the background sees what it does meanwhile.


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
