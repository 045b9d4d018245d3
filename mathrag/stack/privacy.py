"""Close the data folder to other users: logs and indexes contain what users asked and uploaded."""

from pathlib import Path

from mathrag.stack import unprivileged

UMASK = 0o077
"""File mode mask of all processes of the stack."""
FOLDERS = ("logs", "indexes", "redis")
"""Folders that the stack creates and closes; PostgreSQL closes its own."""


def close_to_others(data_dir: Path) -> None:
    """Create the data folder and its subfolders, closed to others; close subfolders that an earlier release left open.

    An existing data folder keeps its mode, because it may contain other files; `mathrag doctor` reports an open one.
    """
    create_closed(data_dir)
    for folder in (data_dir / name for name in FOLDERS):
        folder.mkdir(exist_ok=True)
        folder.resolve().chmod(0o700)


def create_closed(folder: Path) -> None:
    """Create a folder and its missing parents, closed to others; folders that exist keep their mode."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(_choose_mode())


def _choose_mode() -> int:
    """Return the folder's mode: if PostgreSQL runs as `nobody`, it must be able to pass through, but not to list."""
    return 0o711 if unprivileged.find_command_prefix() == unprivileged.AS_NOBODY else 0o700
