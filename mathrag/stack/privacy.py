"""The data folder is for its owner alone: logs and indexes hold what users asked and uploaded."""

from pathlib import Path

from mathrag.stack import unprivileged

UMASK = 0o077
"""Of everything that the stack starts."""
FOLDERS = ("logs", "indexes", "redis")
"""Made by us, so we may close them; PostgreSQL closes its own."""


def close_to_others(data_dir: Path) -> None:
    """Make the data folder and what we keep in it, or close what an earlier release left open.

    A data folder that was there before keeps its mode, because it may hold files of others: `mathrag doctor` tells.
    """
    if not data_dir.exists():
        data_dir.mkdir(parents=True)
        data_dir.chmod(_mode())
    for folder in (data_dir / name for name in FOLDERS):
        folder.mkdir(exist_ok=True)
        folder.resolve().chmod(0o700)


def _mode() -> int:
    """PostgreSQL has to pass through where it runs as another user; nobody can list the folder all the same."""
    return 0o711 if unprivileged.prefix() == unprivileged.AS_NOBODY else 0o700
