"""Files and folders that `mathrag backup` and `mathrag restore` refuse, before any server is started."""

import json
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
from typer.testing import CliRunner

from mathrag.cli.main import app
from mathrag.cli.output import Exit
from mathrag.cli.up import apply_scale
from mathrag.client import address
from mathrag.client.errors import Failed
from mathrag.stack import control, postgres, privacy, redis
from mathrag.stack.postgres import list_schemas
from mathrag.stack.process import Child
from mathrag.stack.supervisor import Stack, build_stack
from shared.settings import REPOSITORY, Device, Settings
from tests.faults.limits import small_disk
from tests.unit.commands import mathrag

SIGNATURE = "0123456789abcdef" * 4
MANIFEST = {
    "format": 1, "release": "0.1.0", "commit": None, "schema": list_schemas()[0], "created": "2026-11-28T06:41:42Z",
    "database_bytes": 1000,
}  # fmt: skip


def write_archive(folder: Path, members: Mapping[str, bytes] | None = None, **manifest: Any) -> Path:
    file = folder / "backup.zip"
    with ZipFile(file, "w", ZIP_STORED) as archive:
        archive.writestr("backup.json", json.dumps(MANIFEST | manifest))
        for name, content in ({"database.dump": b"PGDMP"} if members is None else members).items():
            archive.writestr(name, content)
    return file


def refused(*arguments: str) -> tuple[int, str]:
    ended = mathrag(*arguments)
    assert "defect" not in ended.output
    return ended.exit_code, " ".join(ended.stderr.split())


def refused_restore(file: Path, folder: Path) -> tuple[int, str]:
    return refused("restore", str(file), "--data-dir", str(folder))


def test_the_schemas_of_this_release_are_its_migrations_newest_first() -> None:
    files = (REPOSITORY / "migrations" / "versions").glob("[0-9]*.py")
    assert list_schemas() == sorted((file.name.partition("_")[0] for file in files), reverse=True)


@pytest.mark.parametrize("manifest", [{"schema": "9999"}, {"format": 2}])
def test_a_backup_of_a_newer_release_is_refused_with_both_releases(tmp_path: Path, manifest: dict[str, Any]) -> None:
    file = write_archive(tmp_path, release="7.0.0", **manifest)
    code, said = refused_restore(file, tmp_path / "new")
    assert code == Exit.CONFLICT
    assert "was written by another release, 7.0.0" in said
    assert f"knows schemas up to {list_schemas()[0]} fix: restore it with the release that wrote it" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_data_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "postgres").mkdir(parents=True)
    (folder / "passwords.json").write_text("{}")
    (folder / "restoring").mkdir()
    code, said = refused_restore(write_archive(tmp_path), folder)
    assert (code, "is not empty: it holds passwords.json, postgres, restoring" in said) == (Exit.CONFLICT, True)
    assert sorted(path.name for path in folder.iterdir()) == ["passwords.json", "postgres", "restoring"]


def test_a_folder_on_which_a_stack_runs_is_refused(tmp_path: Path) -> None:
    with control.hold(tmp_path / "data"):
        code, said = refused_restore(write_archive(tmp_path), tmp_path / "data")
    assert (code, "a stack runs on" in said) == (Exit.CONFLICT, True)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "indexes/../../evil", f"indexes/{SIGNATURE}/..", f"indexes/{SIGNATURE}/a/b",
     f"indexes/{SIGNATURE}/.hidden", "indexes/short/vectors.faiss", f"indexes/{SIGNATURE}/", "passwords.json",
     f"indexes/{SIGNATURE}/a\nb", "postgres/PG_VERSION"],
)  # fmt: skip
def test_a_name_that_no_backup_has_is_refused(tmp_path: Path, name: str) -> None:
    file = write_archive(tmp_path, {"database.dump": b"PGDMP", name: b"evil"})
    code, said = refused_restore(file, tmp_path / "new")
    assert (code, "which `mathrag backup` does not write" in said) == (Exit.INVALID, True)
    assert list(tmp_path.rglob("*")) == [file]


def test_contents_that_expand_are_refused(tmp_path: Path) -> None:
    file = write_archive(tmp_path)
    with ZipFile(file, "a", ZIP_DEFLATED) as archive:
        archive.writestr(f"indexes/{SIGNATURE}/vectors.faiss", bytes(1 << 20))
    code, said = refused_restore(file, tmp_path / "new")
    assert (code, "vectors.faiss" in said) == (Exit.INVALID, True)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    file = write_archive(tmp_path)
    with ZipFile(file, "a") as archive:
        archive.writestr("database.dump", b"another")
    assert refused_restore(file, tmp_path / "new")[0] == Exit.INVALID


@pytest.mark.parametrize("content", [b"", b"PGDMP, a dump of PostgreSQL", b"PK\x03\x04 cut"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mathrag.dump"
    file.write_bytes(content)
    code, said = refused_restore(file, tmp_path / "new")
    assert (code, "not a file that `mathrag backup` wrote" in said) == (Exit.INVALID, True)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.zip"
    with ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "hello")
    code, said = refused_restore(file, tmp_path / "new")
    assert (code, "no backup.json" in said) == (Exit.INVALID, True)


def test_a_backup_without_a_dump_is_refused(tmp_path: Path) -> None:
    code, said = refused_restore(write_archive(tmp_path, {}), tmp_path / "new")
    assert (code, "its list of contents is wrong" in said) == (Exit.INVALID, True)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    code, said = refused_restore(tmp_path / "none.zip", tmp_path / "new")
    assert (code, f"`{tmp_path}/none.zip`: no such file" in said) == (Exit.INVALID, True)


def test_a_disk_that_is_too_small_is_named_before_anything_is_written(tmp_path: Path) -> None:
    file = write_archive(tmp_path)
    try:
        with small_disk(tmp_path / "disk", 20) as disk:
            code, said = refused_restore(file, disk.folder / "new")
            left = {path.name for path in (disk.folder / "new").iterdir()}
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")
    assert (code, "MiB free, and the backup needs" in said, left) == (Exit.UNREACHABLE, True, {"lock"})


def test_a_damaged_index_is_found_and_nothing_of_it_stays(tmp_path: Path) -> None:
    file = write_archive(tmp_path, {"database.dump": b"PGDMP", f"indexes/{SIGNATURE}/vectors.faiss": b"all is well"})
    file.write_bytes(file.read_bytes().replace(b"all is well", b"all is bad!"))
    code, said = refused_restore(file, tmp_path / "new")
    assert (code, "is damaged: Bad CRC-32" in said) == (Exit.INVALID, True)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"lock"}


def test_a_backup_does_not_replace_a_file_unless_it_is_told_to(tmp_path: Path) -> None:
    file = tmp_path / "backup.zip"
    file.write_text("precious")
    code, said = refused("backup", str(file), "--data-dir", str(tmp_path))
    assert (code, "add --force to replace it" in said) == (Exit.CONFLICT, True)
    code, said = refused("backup", str(file), "--data-dir", str(tmp_path), "--force")
    assert (code, "no PostgreSQL of a stack runs on" in said) == (Exit.UNREACHABLE, True)
    assert file.read_text() == "precious"


@pytest.mark.parametrize(("name", "words"), [(".", "is a folder"), ("none/b.zip", "there is no folder")])
def test_a_backup_names_a_place_that_cannot_be_written(tmp_path: Path, name: str, words: str) -> None:
    code, said = refused("backup", str(tmp_path / name), "--data-dir", str(tmp_path))
    assert (code, words in said) == (Exit.INVALID, True)


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_database_of_ones_own_is_left_to_its_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql+asyncpg://somebody:secret@db:5432/mathrag")
    code, said = refused(command, str(write_archive(tmp_path)), "--data-dir", str(tmp_path / "new"))
    assert (code, "pg_" in said, "secret" in said) == (Exit.USAGE, True, False)
    assert not (tmp_path / "new").exists()


# `mathrag up`, `down`, `scale` and `status` where nothing can or does run.


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
    for data_dir, mode in ((old, 0o755), (tmp_path / "new", privacy._choose_mode())):
        build_stack(Settings(), data_dir=data_dir, port=0)
        assert stat.S_IMODE(data_dir.stat().st_mode) == mode
        assert {stat.S_IMODE((data_dir / name).stat().st_mode) for name in privacy.FOLDERS} == {0o700}
