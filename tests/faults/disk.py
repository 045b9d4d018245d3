"""A small file system of its own, that a test may fill."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHUNK = 1 << 20


class Disk:
    """Mounted at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Fill the disk until no byte more can be written."""
        with self._ballast.open("wb", buffering=0) as file:
            size = CHUNK
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def relieve(self) -> None:
        """Remove what `fill` has written."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def disk(folder: Path, mib: int) -> Iterator[Disk | None]:
    """A disk of so many MiB, in memory; None where nobody may mount one."""
    folder.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if (
        not (mount and umount)
        or subprocess.run([mount, "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=False).returncode
    ):
        yield None
        return
    try:
        yield Disk(folder)
    finally:
        subprocess.run([umount, "--lazy", folder], check=True)


def require(mounted: Disk | None) -> Disk:
    """Return the disk, or skip the test if none can be mounted."""
    if mounted is None:
        pytest.skip("a file system cannot be mounted here: that takes root and CAP_SYS_ADMIN")
    return mounted
