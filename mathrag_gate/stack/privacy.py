"""Protect the data: run PostgreSQL as another user if this process is root, and close data folders to other users.

In a user namespace, the same files belong to user 1000, so nothing outside the namespace changes: no new account, no
chmod. Some containers do not allow user namespaces. The server then runs as the user `nobody`, which must be able to
reach its folder.
"""

import functools
import os
import shutil
import subprocess
from pathlib import Path

from mathrag.errors import Unavailable

NAMESPACE = ("unshare", "--user", "--map-user=1000")
NOBODY = 65534
# setpriv sets the death signal after the change of user, because that change clears it.
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig=INT")


@functools.cache
def find_command_prefix() -> tuple[str, ...]:
    """Return the command prefix that drops root privileges; empty if this process is not root.

    Raises:
        Unavailable: neither `unshare` nor `setpriv` works.
    """
    if os.geteuid() != 0:
        return ()
    for candidate in (NAMESPACE, AS_NOBODY):
        if shutil.which(candidate[0]) is None:
            continue
        if subprocess.run([*candidate, "true"], capture_output=True, check=False).returncode == 0:  # noqa: S603
            return candidate
    raise Unavailable(
        "PostgreSQL cannot run as root, and neither `unshare` nor `setpriv` works here to change the user",
        hint="run as an ordinary user, or set MATHRAG_DATABASE_URL to your own PostgreSQL server",
    )


def hand_over(path: Path) -> None:
    """Give a file or folder to the server's user; in a user namespace, nothing needs to change."""
    if find_command_prefix() == AS_NOBODY:
        os.chown(path, NOBODY, NOBODY)


UMASK = 0o077
"""File mode mask of all processes of the stack."""
FOLDERS = ("logs", "indexes", "redis")
"""Folders that the stack creates and closes; PostgreSQL closes its own folder."""


def close_to_others(data_dir: Path) -> None:
    """Create the data folder and its subfolders, closed to other users; close subfolders that older releases left open.

    An existing data folder keeps its mode, because it may contain other files; `mathrag doctor` reports an open one.
    """
    create_closed(data_dir)
    for folder in (data_dir / name for name in FOLDERS):
        folder.mkdir(exist_ok=True)
        folder.resolve().chmod(0o700)


def create_closed(folder: Path) -> None:
    """Create a folder and its missing parents, closed to other users; existing folders keep their mode."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        # If PostgreSQL runs as the user `nobody`, it must be able to pass through the folder, but not to list it.
        each.chmod(0o711 if find_command_prefix() == AS_NOBODY else 0o700)


def write_private(path: Path, content: str) -> None:
    """Write a file atomically, with mode 0600 from the start."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not name its file
    partial.rename(path)
