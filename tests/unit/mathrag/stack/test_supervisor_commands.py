"""`mathrag up`, `down`, `scale` and `status` where nothing can or does run."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mathrag.cli.main import app
from mathrag.cli.output import Exit
from mathrag.cli.up import apply_scale
from mathrag.client import address
from mathrag.client.errors import Failed
from mathrag.stack import control, postgres, privacy, redis
from mathrag.stack.process import Child
from mathrag.stack.supervisor import Stack, build_stack
from shared.settings import Device, Settings


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
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
    assert "already runs" in said
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
        (["judge"], "`judge` has no number from 1 to 64"),
        (["judge=0"], "`judge=0` has no number from 1 to 64"),
        (["judge=-1"], "`judge=-1` has no number from 1 to 64"),
        (["judge=65"], "`judge=65` has no number from 1 to 64"),
        ([f"judge={'9' * 5000}"], "has no number from 1 to 64"),
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
    assert (code, f"no stack runs on `{tmp_path}`" in said) == (Exit.UNREACHABLE, True)
    assert f"mathrag up --detach --data-dir {tmp_path} --scale judge=3 --scale generator=2" in said
    assert not list(tmp_path.glob("scale-*"))


@pytest.mark.parametrize("phase", ["starting", "stopping"])
def test_a_stack_that_starts_or_stops_is_not_scaled(tmp_path: Path, phase: address.Phase) -> None:
    address.write_state(tmp_path, address.State(pid=os.getpid(), url="", phase=phase, children=(), wanted={}))
    with control.hold(tmp_path):
        code, said = run("scale", "judge=3", "--data-dir", str(tmp_path))
    assert (code, f"the stack on `{tmp_path}` is {phase}" in said) == (Exit.UNREACHABLE, True)
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
    assert (code, "runs a release that cannot be scaled" in said) == (Exit.CONFLICT, True)
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
            if row.beside:
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
