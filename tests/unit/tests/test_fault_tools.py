"""What the fault tests do to processes and hosts really happens, and is over afterwards."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults import clocks, limits
from tests.faults.clocks import Clocks
from tests.faults.limits import Disk
from tests.faults.vocabulary import Subject

HOUR = 3600.0
ECHO = """
import os, sys, time
many = [os.dup(0) for _ in range(20)]
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def talker(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with spawned({}) as process:
        yield process


def spawned(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def asked(process: "subprocess.Popen[str]", question: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_process_without_descriptors_can_open_nothing_until_it_is_relieved(
    talker: "subprocess.Popen[str]",
) -> None:
    assert asked(talker, "1 + 1") == "2"
    opens = "len([open(sys.executable)])"
    with limits.no_descriptor_left(psutil.Process(talker.pid)):
        assert asked(talker, "2 + 2") == "4"
        assert asked(talker, opens) == "Too many open files"
    assert asked(talker, opens) == "1"


def test_a_full_disk_has_no_room_until_it_is_relieved(tmp_path: Path) -> None:
    try:
        with limits.small_disk(tmp_path / "disk", 1) as disk:
            assert_full_and_relieved(disk)
        assert not (tmp_path / "disk" / "kept").exists()
    except PermissionError as error:
        pytest.skip(f"mounting needs root: {error}")


def assert_full_and_relieved(disk: Disk) -> None:
    disk.fill()
    assert limits.room(disk.folder) == 0
    with pytest.raises(OSError, match="No space left"):
        (disk.folder / "kept").write_bytes(b"x")
    disk.relieve()
    (disk.folder / "kept").write_bytes(b"x")


def test_an_evicted_file_still_says_what_it_said(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"weights")
    limits.evict(file)
    assert file.read_bytes() == b"weights"


def test_a_group_meets_its_limit_and_ends_with_its_block(talker: "subprocess.Popen[str]") -> None:
    try:
        with limits.run_in_group("mathrag-unit", [psutil.Process(talker.pid)]) as group:
            assert asked(talker, "len(bytearray(16 << 20))") == str(16 << 20)
            assert group.peak() > 8 << 20
            group.limit(48 << 20)
            assert group.count_hits() == 0
    except PermissionError as error:
        pytest.skip(str(error))
    assert not group.folder.exists()
    assert asked(talker, "1 + 1") == "2"


@pytest.mark.skipif(not clocks.LIBRARIES, reason="libfaketime is not installed (Debian: libfaketime)")
def test_a_clock_jumps_for_one_process_and_only_on_the_wall(tmp_path: Path) -> None:
    mine = Clocks(tmp_path)
    mine.set("guard", 0)
    with spawned(mine.environment("guard")) as process:
        assert abs(float(asked(process, "time.time()")) - time.time()) < 60
        mine.jump(Subject.GUARD, -HOUR)
        while abs(float(asked(process, "time.time()")) - (time.time() - HOUR)) > 60:
            time.sleep(0.1)
        assert abs(float(asked(process, "time.monotonic()")) - time.monotonic()) < 60


def test_a_jump_of_every_host_leaves_the_database_alone(tmp_path: Path) -> None:
    mine = Clocks(tmp_path)
    mine.jump(Subject.CLOCK, HOUR)
    assert not mine.file("postgres").exists()
    assert mine.file("guard").read_text() == mine.file("judge").read_text() == "+3600.0s\n"
    mine.set("guard", 0, 1.1)
    assert mine.file("guard").read_text() == "+0s x1.1\n"
