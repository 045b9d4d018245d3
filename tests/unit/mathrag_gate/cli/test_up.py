"""`mathrag up`, `down`, `scale` and `status`."""

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mathrag.cli.output import Exit
from mathrag.client import address
from mathrag.client.address import ChildState, State
from mathrag.client.errors import Failed, failure
from mathrag.installation import install_command
from mathrag_gate.cli import up
from mathrag_gate.cli.up import _Starting, apply_scale
from mathrag_gate.stack import control, postgres, privacy, redis
from mathrag_gate.stack.process import Child
from mathrag_gate.stack.supervisor import Stack, build_stack
from shared.settings import Device, Settings
from tests.faults.limits import small_disk
from tests.unit.commands import mathrag

# The pages of a stack in a browser.


STATE = State(pid=1, url="http://127.0.0.1:8080", phase="running", children=())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: found.append(url) or True)
    monkeypatch.setattr(up.control, "find_holder", lambda _: 1)
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
    monkeypatch.setattr(up.sys, "platform", "linux")
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
    assert up.os.environ["MATHRAG_CONFIG"] == str(tmp_path / "mathrag.yaml")


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

    def start(*, data_dir: Path, port: int, **_: object) -> None:
        started.append((data_dir, port))
        address.write_state(tmp_path, STATE)

    monkeypatch.setattr(up, "up", start)
    monkeypatch.setattr(up.control, "find_holder", lambda _: None)
    for free in (True, False):
        monkeypatch.setattr(up.redis, "is_free", lambda *_, free=free: free)
        assert mathrag("open", "--data-dir", str(tmp_path)).exit_code == Exit.DONE
    assert started == [(tmp_path, 8080), (tmp_path, 0)]


# What keeps a stack from starting is said in plain words: what is wrong, where, and what to do.


def refused(*arguments: str) -> tuple[int, str]:
    result = mathrag("up", *arguments)
    assert "defect" not in result.output
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("port", ["99999", "-1", "eighty"])
def test_a_port_that_cannot_be_is_a_wrong_command_line(tmp_path: Path, port: str) -> None:
    code, said = refused("--data-dir", str(tmp_path), "--port", port)
    assert (code, "Invalid value for '--port'" in said) == (Exit.USAGE, True)


def test_the_highest_port_in_use_proposes_one_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "probe_port", lambda *_: errno.EADDRINUSE)
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
    result = mathrag(command, "--data-dir", str(tmp_path / "file"))
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
    assert f"`{tmp_path}/disk/ports.json`: no space left on device fix: free disk space" in said


@pytest.mark.parametrize("content", ["", "{", '["a"]'])
def test_a_broken_file_of_passwords_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "passwords.json").write_text(content)
    code, said = refused("--data-dir", str(tmp_path), "--port", "0")
    assert (code, f"{tmp_path}/passwords.json" in said, "from a backup" in said) == (Exit.UNREACHABLE, True, True)


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"redis": "x"}', '{"redis": 99999}'])
def test_a_broken_file_of_ports_is_made_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    found = redis.load_ports(tmp_path, ["redis"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", found["redis"]))
    assert redis.load_ports(tmp_path, ["redis"]) == found


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
    assert f"MATHRAG_CONFIG: the file `{tmp_path}/none.yaml`" in said
    assert "unset MATHRAG_CONFIG" in said


def test_an_error_that_no_operator_can_mend_stays_a_defect() -> None:
    assert failure(OSError(errno.EBADF, "Bad file descriptor")).kind == "internal"


@pytest.mark.parametrize("detach", [(), ("--detach",)])
@pytest.mark.parametrize(("server", "setting"), [(postgres, "MATHRAG_DATABASE_URL"), (redis, "MATHRAG_REDIS_URL")])
def test_a_missing_server_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ModuleType, setting: str, detach: tuple[str, ...]
) -> None:
    for name in ("MATHRAG_DATABASE_URL", "MATHRAG_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    code, said = refused("--data-dir", str(tmp_path), "--port", "0", *detach)
    assert (code, setting in said, install_command("mathrag-gate[embedded]") in said) == (Exit.USAGE, True, True)
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
    ended = mathrag(*command)
    said = " ".join(ended.stderr.split())
    assert ended.exit_code == Exit.UNREACHABLE
    assert "is not ready after 0 s; it continues to start (ready: postgres; starting: redis for 0 s; " in said
    assert "not started: guard, retriever, judge, generator, orchestrator)" in said
    assert f"mathrag status --data-dir {slow_stack}" in said
    assert f"{slow_stack}/logs/supervisor.log" in said


def test_a_supervisor_in_the_background_logs_with_times_why_it_ends(tmp_path: Path) -> None:
    (tmp_path / "passwords.json").write_text("{")
    command = [sys.executable, "-P", "-m", "mathrag.cli.main", "up", "--in-background"]
    ended = subprocess.run(
        [*command, "--data-dir", str(tmp_path), "--port", "0"], capture_output=True, text=True, check=False,
        env={**os.environ, "MATHRAG_TELEMETRY__LOG_FORMAT": "json"},
    )  # fmt: skip
    *lines, error, fix = ended.stderr.splitlines()
    (line,) = map(json.loads, lines)
    assert line["event"].startswith("the stack ends: ")
    assert line["timestamp"] > "2026"
    assert (ended.stdout, error.startswith("error: "), fix.startswith("  fix: ")) == ("", True, True)


# `mathrag up`, `down`, `scale` and `status` where nothing can or does run.


def run(*arguments: str) -> tuple[int, str]:
    result = mathrag(*arguments)
    return result.exit_code, result.output


def test_down_of_nothing_is_fine(tmp_path: Path) -> None:
    code, said = run("down", "--data-dir", str(tmp_path))
    assert (code, said) == (0, f"Nothing runs on {tmp_path}.\n")


def test_status_of_nothing(tmp_path: Path) -> None:
    code, said = run("status", "--data-dir", str(tmp_path))
    assert code == 1
    assert "Start it with `mathrag up`" in said
    code, said = run("status", "--json", "--data-dir", str(tmp_path))
    nothing = {"running": False, "data_dir": str(tmp_path), "warning": None, "stack": None}
    assert (code, json.loads(said)) == (1, nothing)


def test_a_data_folder_that_does_not_exist_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    wrong = {}
    for words in (["status"], ["down"], ["open"], ["doctor"], ["scale", "judge=2"], ["backup", str(tmp_path / "x")]):
        code, said = run(*words, "--data-dir", str(nowhere))
        fix = f"fix: correct --data-dir, or start a new stack there: mathrag up --detach --data-dir {nowhere}"
        if code != Exit.NOT_FOUND or f"the data directory `{nowhere}` does not exist" not in said or fix not in said:
            wrong[words[0]] = (code, said)
    assert (wrong, nowhere.exists()) == ({}, False)


def test_port_in_use_names_the_fix(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = run("up", "--data-dir", str(tmp_path), "--port", str(port))
    assert code == 5
    assert f"error: port {port} is in use" in said
    assert f"mathrag up --port {port + 1}" in said
    assert list(tmp_path.iterdir()) == []


def test_second_up_is_refused(tmp_path: Path) -> None:
    with control.hold(tmp_path):
        code, said = run("up", "--data-dir", str(tmp_path), "--port", "0")
    assert code == 5
    assert f"a stack is already running in `{tmp_path}`" in said
    assert f"mathrag down --data-dir {tmp_path}" in said


def test_ports_are_remembered_unless_taken(tmp_path: Path) -> None:
    first = redis.load_ports(tmp_path, ("a", "b"))
    assert redis.load_ports(tmp_path, ("a", "b")) == first
    with socket.create_server(("127.0.0.1", first["a"])):
        second = redis.load_ports(tmp_path, ("a", "b"))
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]


def test_passwords_are_remembered(tmp_path: Path) -> None:
    first = postgres.load_passwords(tmp_path)
    assert postgres.load_passwords(tmp_path) == first
    assert len({first.superuser, first.owner, first.app, first.redis}) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["passwords.json"]
    assert (tmp_path / "passwords.json").stat().st_mode & 0o077 == 0
    assert first.app not in repr(first)


def test_scale_starts_so_many_workers(tmp_path: Path) -> None:
    built = build_stack(apply_scale(Settings(), ["judge=3", "generator=0"]), data_dir=tmp_path, port=0)
    names = [row.name for row in built.table()]
    assert [name for name in names if name.startswith(("judge", "generator"))] == ["judge", "judge-2", "judge-3"]


@pytest.mark.parametrize("word", ["judge", "judge=many", "guard=2", "judge=-1"])
def test_a_scale_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(Failed, match="judge=3"):
        apply_scale(Settings(), [word])


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["judge"], "`judge`: the number of workers must be from 1 to 64"),
        (["judge=0"], "`judge=0`: the number of workers must be from 1 to 64"),
        (["judge=-1"], "`judge=-1`: the number of workers must be from 1 to 64"),
        (["judge=65"], "`judge=65`: the number of workers must be from 1 to 64"),
        ([f"judge={'9' * 5000}"], "the number of workers must be from 1 to 64"),
        (["judge=2", "guard=2"], "`guard=2` does not name a service that can be scaled"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_number_of_workers_is_a_wrong_command_line(tmp_path: Path, words: list[str], wrong: str) -> None:
    with control.hold(tmp_path):
        code, said = run("scale", *words, "--data-dir", str(tmp_path))
    assert (code, wrong in " ".join(said.split())) == (Exit.USAGE, True)
    assert not list(tmp_path.glob("scale-*"))


def test_where_no_stack_runs_the_command_that_starts_one_is_named(tmp_path: Path) -> None:
    code, said = run("scale", "judge=3", "generator=2", "--data-dir", str(tmp_path))
    assert (code, f"no stack is running in `{tmp_path}`" in said) == (Exit.UNREACHABLE, True)
    assert f"mathrag up --detach --data-dir {tmp_path} --scale judge=3 --scale generator=2" in said
    assert not list(tmp_path.glob("scale-*"))


@pytest.mark.parametrize("phase", ["starting", "stopping"])
def test_a_stack_that_starts_or_stops_is_not_scaled(tmp_path: Path, phase: address.Phase) -> None:
    address.write_state(tmp_path, address.State(pid=os.getpid(), url="", phase=phase, children=(), wanted={}))
    with control.hold(tmp_path):
        code, said = run("scale", "judge=3", "--data-dir", str(tmp_path))
    assert (code, f"the stack in `{tmp_path}` is {phase}" in said) == (Exit.UNREACHABLE, True)
    assert f"mathrag status --data-dir {tmp_path}" in said


def test_workers_that_the_supervisor_is_about_to_stop_do_not_count(tmp_path: Path) -> None:
    children = tuple(
        address.ChildState(name=name, service="judge", phase="ready", pid=1, port=None, restarts=0, log="")
        for name in ("judge", "judge-2")
    )
    for wanted, code in ((1, Exit.UNREACHABLE), (2, Exit.DONE)):
        now = address.State(pid=os.getpid(), url="", phase="running", children=children, wanted={"judge": wanted})
        address.write_state(tmp_path, now)
        with control.hold(tmp_path):
            assert run("scale", "judge=2", "--timeout", "0", "--data-dir", str(tmp_path))[0] == code


def test_a_stack_of_a_release_that_cannot_be_scaled_is_to_be_restarted(tmp_path: Path) -> None:
    address.write_state(tmp_path, address.State(pid=os.getpid(), url="", phase="running", children=()))
    with control.hold(tmp_path):
        code, said = run("scale", "judge=3", "--data-dir", str(tmp_path))
    assert (code, "runs an older release, which cannot be scaled" in said) == (Exit.CONFLICT, True)
    assert f"mathrag down --data-dir {tmp_path}; mathrag up" in said


def test_the_workers_of_the_table_are_the_first_of_those_that_are_added(tmp_path: Path) -> None:
    built = build_stack(apply_scale(Settings(), ["judge=3"]), data_dir=tmp_path, port=0)
    rows = {row.name: row for row in built.table() if isinstance(row, Child)}
    assert set(built.workers()) == set(control.SERVICES)
    for service, count in (("judge", 3), ("generator", 1)):
        made = [built.workers()[service](number) for number in range(1, count + 1)]
        assert [one.name for one in made] == [name for name, row in rows.items() if row.service == service]
        assert all(one.command() == rows[one.name].command() for one in made)
        assert all(one.environment == rows[one.name].environment for one in made)
    assert built.workers()["judge"](4).name == "judge-4"


def test_every_device_has_a_guard_of_its_own(tmp_path: Path) -> None:
    settings = Settings(devices=(Device(id="cpu:1"), Device(id="far", guard_url="http://far:8082")))
    built = build_stack(settings, data_dir=tmp_path, port=0)
    guards = {child.name: child for child in built.table() if isinstance(child, Child) and "guard" in child.name}
    assert set(guards) == {"guard", "guard-2"}  # the third one runs elsewhere
    assert [child.command()[-4:-2] for child in guards.values()] == [["--device", "cpu:0"], ["--device", "cpu:1"]]
    told = built.environment()
    assert told["MATHRAG_GUARD_URL"] == f"http://127.0.0.1:{guards['guard'].port}"
    further = {each["id"]: each["guard_url"] for each in json.loads(told["MATHRAG_DEVICES"])}
    assert further == {"cpu:1": f"http://127.0.0.1:{guards['guard-2'].port}", "far": "http://far:8082"}


def test_one_device_is_started_as_ever(tmp_path: Path) -> None:
    built = build_stack(Settings(), data_dir=tmp_path, port=0)
    assert [row.name for row in built.table() if "guard" in row.name] == ["guard"]
    assert "MATHRAG_DEVICES" not in built.environment()


def test_services_start_together_as_far_as_they_can(tmp_path: Path) -> None:
    settings = Settings(devices=(Device(id="cpu:1"),))
    assert list_groups(build_stack(settings, data_dir=tmp_path, port=0)) == [
        ["postgres"], ["redis"], ["guard", "guard-2", "retriever"], ["judge", "generator", "orchestrator"],
    ]  # fmt: skip
    without = apply_scale(settings, ["judge=0", "generator=0"])
    assert list_groups(build_stack(without, data_dir=tmp_path, port=0))[2:] == [
        ["guard", "guard-2", "retriever"], ["orchestrator"],
    ]  # fmt: skip


def list_groups(built: Stack) -> list[list[str]]:
    found: list[list[str]] = []
    for row in built.table():
        if isinstance(row, Child):
            if row.starts_with_previous:
                found[-1].append(row.name)
            else:
                found.append([row.name])
    return found


def test_every_child_is_asked_whether_it_answers(tmp_path: Path) -> None:
    table = build_stack(Settings(), data_dir=tmp_path, port=0).table()
    assert [row.name for row in table if isinstance(row, Child) and row.answers is None] == []


def test_a_data_folder_is_closed_to_other_users(tmp_path: Path) -> None:
    (old := tmp_path / "old").mkdir(mode=0o755)
    (old / "logs").mkdir(mode=0o755)
    # A server that runs as `nobody` must be able to pass through.
    own = 0o711 if privacy.find_command_prefix() == privacy.AS_NOBODY else 0o700
    for data_dir, mode in ((old, 0o755), (tmp_path / "new", own)):
        build_stack(Settings(), data_dir=data_dir, port=0)
        assert stat.S_IMODE(data_dir.stat().st_mode) == mode
        assert {stat.S_IMODE((data_dir / name).stat().st_mode) for name in privacy.FOLDERS} == {0o700}
