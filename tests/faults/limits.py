"""What a host runs out of: room on a disk, memory, file descriptors."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from resource import RLIMIT_NOFILE

import psutil

CGROUPS = Path("/sys/fs/cgroup")
BLOCK = 1 << 16


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator["Disk"]:
    """A file system of its own with so much room, mounted at `folder`; needs root.

    Raises:
        PermissionError: it cannot be mounted here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["/bin/mount", "-t", "tmpfs", "-o", f"size={mib}m", "mathrag-faults", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        raise PermissionError(mounted.stderr.strip())
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


class Disk:
    """A file system that a test may fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """No byte more can be written."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(BLOCK))

    def relieve(self) -> None:
        """As before."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def no_descriptor_left(process: psutil.Process) -> Iterator[None]:
    """Inside the block the process can open nothing: neither files nor connections."""
    soft, hard = process.rlimit(RLIMIT_NOFILE)
    process.rlimit(RLIMIT_NOFILE, (process.num_fds(), hard))
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(RLIMIT_NOFILE, (soft, hard))


def evict(*files: Path) -> None:
    """Drop what the kernel keeps of these files in memory: the next reader waits for the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def room(folder: Path) -> int:
    """Bytes that may still be written there."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def pressure(group: Path) -> int:
    """How often a cgroup has met its limit of memory."""
    first, second = group / "memory.failcnt", group / "memory.events"
    if first.exists():
        return int(first.read_text())
    return int(dict(line.split() for line in second.read_text().splitlines())["max"])


@contextmanager
def little_memory(name: str, processes: list[psutil.Process], mib: int) -> Iterator[Path]:
    """These processes and their children share so much memory, file cache included; needs root.

    Raises:
        PermissionError: there is no memory controller that we may use.
    """
    group = _memory_controller() / name
    try:
        group.mkdir()
    except OSError as error:
        raise PermissionError(f"no cgroup can be made: {error}") from error
    try:
        for process in processes:
            (group / "cgroup.procs").write_text(str(process.pid))
        _limit(group).write_text(str(mib << 20))
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def _memory_controller() -> Path:
    return CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS


def _limit(group: Path) -> Path:
    first, second = group / "memory.limit_in_bytes", group / "memory.max"
    return first if first.exists() else second
