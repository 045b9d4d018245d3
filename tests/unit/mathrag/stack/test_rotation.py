"""A log that is too large is kept once beside itself and begins anew, whoever has it open."""

from pathlib import Path

import pytest

from mathrag.stack.redis import rotate
from tests.faults.limits import room, small_disk

pytestmark = pytest.mark.anyio


def test_a_large_log_is_kept_once_and_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "judge.log"
    with log.open("ab", buffering=0) as writer:
        for lines in (b"first\n", b"second\n", b"third\n"):
            writer.write(lines)
            rotate(tmp_path, 3)
        writer.write(b"last\n")
    assert (tmp_path / "judge.log.1").read_bytes() == b"third\n"
    assert log.read_bytes() == b"last\n"


def test_a_small_log_is_let_alone(tmp_path: Path) -> None:
    (tmp_path / "guard.log").write_bytes(b"abc")
    (tmp_path / "notes.txt").write_bytes(b"longer than that")
    rotate(tmp_path, 3)
    assert {file.name for file in tmp_path.iterdir()} == {"guard.log", "notes.txt"}


def test_without_room_for_the_copy_nothing_is_lost(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "logs", 4) as disk:
            log = disk.folder / "redis.log"
            log.write_bytes(bytes(2 << 20))
            disk.fill()
            rotate(disk.folder, 1 << 20)
            assert log.stat().st_size == 2 << 20
            assert not log.with_name("redis.log.1").exists()
            disk.relieve()
            rotate(disk.folder, 1 << 20)
            assert (log.stat().st_size, log.with_name("redis.log.1").stat().st_size) == (0, 2 << 20)
            assert room(disk.folder) > 0
    except PermissionError as error:
        pytest.skip(f"mounting a small file system needs root: {error}")
