"""Files and folders that `mathrag backup` and `mathrag restore` refuse, before any server is started."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from mathrag.cli.output import Exit
from mathrag_gate.stack import control, privacy
from mathrag_gate.stack.postgres import list_schemas
from shared.settings import REPOSITORY
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
    assert "was written by release 7.0.0" in said
    assert f"reads schemas up to {list_schemas()[0]} fix: restore it with the release that wrote it" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_data_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "postgres").mkdir(parents=True)
    (folder / "passwords.json").write_text("{}")
    (folder / "restoring").mkdir()
    code, said = refused_restore(write_archive(tmp_path), folder)
    assert (code, "is not empty: it contains passwords.json, postgres, restoring" in said) == (Exit.CONFLICT, True)
    assert sorted(path.name for path in folder.iterdir()) == ["passwords.json", "postgres", "restoring"]


def test_a_folder_on_which_a_stack_runs_is_refused(tmp_path: Path) -> None:
    with control.hold(tmp_path / "data"):
        code, said = refused_restore(write_archive(tmp_path), tmp_path / "data")
    assert (code, "a stack is running in" in said) == (Exit.CONFLICT, True)


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
    assert (code, "not a backup" in said) == (Exit.INVALID, True)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.zip"
    with ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "hello")
    code, said = refused_restore(file, tmp_path / "new")
    assert (code, "no readable backup.json" in said) == (Exit.INVALID, True)


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
    assert (code, "MiB free, but the backup needs" in said, left) == (Exit.UNREACHABLE, True, {"lock"})


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
    assert (code, "no PostgreSQL server is running in" in said) == (Exit.UNREACHABLE, True)
    assert file.read_text() == "precious"


@pytest.mark.parametrize(("name", "words"), [(".", "is a folder"), ("none/b.zip", "does not exist")])
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


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_folders_that_are_created_are_closed_to_others_and_others_stay_as_they_are(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    privacy.create_closed(tmp_path / ".mathrag" / "demo")
    others_may_list = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
    assert mode(tmp_path / ".mathrag") & others_may_list == 0
    assert mode(tmp_path / ".mathrag" / "demo") & others_may_list == 0
    assert mode(tmp_path) == 0o755
