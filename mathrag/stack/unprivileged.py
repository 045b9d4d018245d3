"""Start PostgreSQL as another user if this process is root, as which it refuses to run; no account is created.

In a user namespace the same files belong to user 1000, so nothing outside the namespace changes: no new account, no
chmod. Where user namespaces are refused (some containers), the server runs as `nobody`, which must then be able to
reach its folder.
"""

import functools
import os
import shutil
import subprocess
from pathlib import Path

from shared.errors import Unavailable

NAMESPACE = ("unshare", "--user", "--map-user=1000")
NOBODY = 65534
# setpriv sets the death signal after the change of user, which clears the one that was set before.
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig=INT")


@functools.cache
def find_command_prefix() -> tuple[str, ...]:
    """Return the command prefix that drops root; empty if this process is not root.

    Raises:
        Unavailable: neither `unshare` nor `setpriv` works.
    """
    if os.geteuid() != 0:
        return ()
    for candidate in (NAMESPACE, AS_NOBODY):
        if _works(candidate):
            return candidate
    raise Unavailable(
        "PostgreSQL does not run as root, and neither `unshare` nor `setpriv` works here",
        hint="run as an ordinary user, or set MATHRAG_DATABASE_URL to a server of your own",
    )


def _works(candidate: tuple[str, ...]) -> bool:
    if shutil.which(candidate[0]) is None:
        return False
    return subprocess.run([*candidate, "true"], capture_output=True, check=False).returncode == 0  # noqa: S603


def hand_over(path: Path) -> None:
    """Give a file or folder to the user that the server will run as; in a user namespace nothing needs to change."""
    if find_command_prefix() == AS_NOBODY:
        os.chown(path, NOBODY, NOBODY)
