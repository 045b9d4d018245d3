"""`mathrag up`, `down` and `status` where nothing can or does run."""

import json
import socket
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mathrag.cli.main import app
from mathrag.cli.up import apply_scale
from mathrag.client.errors import Failed
from mathrag.stack import lock, passwords, ports, privacy
from mathrag.stack.children import build_stack
from mathrag.stack.keeper import Child
from shared.device_settings import Device
from shared.settings import Settings


def run(*arguments: str) -> tuple[int, str]:
    """Exit status and all output."""
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_down_of_nothing_is_fine(tmp_path: Path) -> None:
    """To stop what does not run is no error."""
    code, said = run("down", "--data-dir", str(tmp_path))
    assert (code, said) == (0, f"Nothing runs on {tmp_path}.\n")


def test_status_of_nothing(tmp_path: Path) -> None:
    """Scripts see it in the exit status, people in the text, programs in the JSON."""
    code, said = run("status", "--data-dir", str(tmp_path))
    assert code == 1
    assert "Start it with `mathrag up`" in said
    code, said = run("status", "--json", "--data-dir", str(tmp_path))
    nothing = {"running": False, "data_dir": str(tmp_path), "warning": None, "stack": None}
    assert (code, json.loads(said)) == (1, nothing)


def test_port_in_use_names_the_fix(tmp_path: Path) -> None:
    """A taken port is said before anything starts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = run("up", "--data-dir", str(tmp_path), "--port", str(port))
    assert code == 5
    assert f"error: port {port} is in use" in said
    assert f"mathrag up --port {port + 1}" in said
    assert list(tmp_path.iterdir()) == []


def test_second_up_is_refused(tmp_path: Path) -> None:
    """Where a stack runs, another one is refused with the command that stops the first."""
    with lock.hold(tmp_path):
        code, said = run("up", "--data-dir", str(tmp_path), "--port", "0")
    assert code == 5
    assert "already runs" in said
    assert f"mathrag down --data-dir {tmp_path}" in said


def test_ports_are_remembered_unless_taken(tmp_path: Path) -> None:
    """The same ports as last time; only one that somebody took is replaced."""
    first = ports.load_ports(tmp_path, ("a", "b"))
    assert ports.load_ports(tmp_path, ("a", "b")) == first
    with socket.create_server(("127.0.0.1", first["a"])):
        second = ports.load_ports(tmp_path, ("a", "b"))
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]


def test_passwords_are_remembered(tmp_path: Path) -> None:
    """Made once, private, all different."""
    first = passwords.load_passwords(tmp_path)
    assert passwords.load_passwords(tmp_path) == first
    assert len({first.superuser, first.owner, first.app, first.redis}) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["passwords.json"]
    assert (tmp_path / "passwords.json").stat().st_mode & 0o077 == 0
    assert first.app not in repr(first)


def test_scale_starts_so_many_workers(tmp_path: Path) -> None:
    """Each has a name of its own; the first keeps the service's."""
    built = build_stack(apply_scale(Settings(), ["judge=3", "generator=0"]), data_dir=tmp_path, port=0)
    names = [row.name for row in built.table()]
    assert [name for name in names if name.startswith(("judge", "generator"))] == ["judge", "judge-2", "judge-3"]


@pytest.mark.parametrize("word", ["judge", "judge=many", "guard=2", "judge=-1"])
def test_a_scale_that_is_none_is_refused(word: str) -> None:
    """Guards are not scaled: there is one a device."""
    with pytest.raises(Failed, match="judge=3"):
        apply_scale(Settings(), [word])


def test_every_device_has_a_guard_of_its_own(tmp_path: Path) -> None:
    """With a name, a port and a log of its own; all services are told where they are."""
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
    """One guard, and nothing said of further devices."""
    built = build_stack(Settings(), data_dir=tmp_path, port=0)
    assert [row.name for row in built.table() if "guard" in row.name] == ["guard"]
    assert "MATHRAG_DEVICES" not in built.environment()


def test_a_data_folder_is_closed_to_other_users(tmp_path: Path) -> None:
    """A new one from the start, and what an earlier release left open in an old one; that one keeps its own mode."""
    (old := tmp_path / "old").mkdir(mode=0o755)
    (old / "logs").mkdir(mode=0o755)
    for data_dir, mode in ((old, 0o755), (tmp_path / "new", privacy._choose_mode())):
        build_stack(Settings(), data_dir=data_dir, port=0)
        assert stat.S_IMODE(data_dir.stat().st_mode) == mode
        assert {stat.S_IMODE((data_dir / name).stat().st_mode) for name in privacy.FOLDERS} == {0o700}
