"""Version and commit of the running program."""

import shutil
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


@cache
def release() -> tuple[str, str | None]:
    """Return version and commit of the running program, as `collect_acceptance` stores them."""
    from shared.settings import load  # `mathrag --version` needs none

    return version("mathrag-gate"), load().commit or checkout()[0]


@cache
def checkout() -> tuple[str | None, bool | None]:
    """Return the commit of this clone, and whether files differ from it; None if there is no clone. The answer is
    cached."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return commit, None if changed is None else bool(changed)


def _git(*arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        return None
    # Without optional locks: who works in this clone meanwhile must not find its index locked.
    command = [git, "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None
