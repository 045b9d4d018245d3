"""Limits of a host: room on a disk, memory, file descriptors."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EBUSY
from pathlib import Path
from resource import RLIMIT_NOFILE

import psutil

CGROUPS = Path("/sys/fs/cgroup")
BLOCK = 1 << 16
FEW = 8
"""Fewer descriptors than any of our processes has open."""


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator["Disk"]:
    """Mount a file system of this size at `folder`; needs root.

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


@contextmanager
def small_disk_if_allowed(folder: Path, mib: int) -> Iterator["Disk | None"]:
    """Mount a file system of this size at `folder`; None without the right to mount."""
    with ExitStack() as mounted:
        try:
            disk = mounted.enter_context(small_disk(folder, mib))
        except PermissionError:
            disk = None
        yield disk


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
        """Remove what `fill` has written."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def no_descriptor_left(process: psutil.Process) -> Iterator[None]:
    """Inside the block the process can open nothing: neither files nor connections."""
    soft, hard = process.rlimit(RLIMIT_NOFILE)
    process.rlimit(RLIMIT_NOFILE, (FEW, hard))  # open descriptors above it stay open
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(RLIMIT_NOFILE, (soft, hard))


def evict(*files: Path) -> None:
    """Drop these files from the kernel's page cache, so that the next reader waits for the disk."""
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


class Group:
    """A separate cgroup, of either version, whose memory can be limited."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._first = (folder / "memory.limit_in_bytes").exists()

    def peak(self) -> int:
        """Most bytes that its processes have had together, file cache included."""
        return int((self.folder / ("memory.max_usage_in_bytes" if self._first else "memory.peak")).read_text())

    def limit(self, size: int) -> None:
        """Limit the group's memory to this many bytes, or to the least that the kernel can reach."""
        while True:
            try:
                (self.folder / ("memory.limit_in_bytes" if self._first else "memory.max")).write_text(str(size))
            except OSError as error:
                if error.errno != EBUSY:
                    raise
                size += 1 << 20
            else:
                return

    def count_hits(self) -> int:
        """Return how often the group has met its limit."""
        if self._first:
            return int((self.folder / "memory.failcnt").read_text())
        lines = (self.folder / "memory.events").read_text().splitlines()
        return int(dict(line.split() for line in lines)["max"])


@contextmanager
def run_in_group(name: str, processes: list[psutil.Process]) -> Iterator[Group]:
    """Put these processes and their future children into a group with a memory limit; needs root.

    Raises:
        PermissionError: this user may use no memory controller.
    """
    root = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    folder = root / name
    try:
        folder.mkdir()
    except OSError as error:
        raise PermissionError(f"no cgroup can be made: {error}") from error
    try:
        for process in processes:
            (folder / "cgroup.procs").write_text(str(process.pid))
        yield Group(folder)
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        folder.rmdir()
