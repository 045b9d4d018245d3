"""Checks of this machine: its disk, its data folder, and the index files in it."""

import asyncio
import hashlib
import shutil
import stat
from pathlib import Path

import msgspec
from sqlalchemy import text

from services.orchestrator.deps import Deps
from shared.checks import NotReady
from shared.settings import find_existing_folder

GIB = 1 << 30
LEAST_FREE = GIB
"""Bytes that must be free; PostgreSQL stops when there are none."""
OPEN_TO_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
MANIFEST = "manifest.json"
READY = text("SELECT encode(signature, 'hex') AS name, path, file_hash FROM indexes WHERE state = 'ready' ORDER BY id")


class Manifest(msgspec.Struct, frozen=True):
    """The part of an index's manifest that is checked here."""

    files: dict[str, str]
    """SHA-256 in hex by file name."""


async def check_disk(deps: Deps) -> str:
    """Check that the disk has free space."""
    folder = find_existing_folder(deps.settings.data_dir)
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        raise NotReady(f"{free / GIB:.1f} GiB free at {folder}")
    return f"{free / GIB:.1f} GiB free at {folder}"


async def check_privacy(deps: Deps) -> str:
    """Check that other users of the machine can neither list nor write the data folder."""
    folder = find_existing_folder(deps.settings.data_dir)
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Others may pass through: a PostgreSQL that runs as `nobody` needs it.
    if folder == deps.settings.data_dir.absolute() and mode & OPEN_TO_OTHERS:
        raise NotReady(f"other users may read {folder} (mode {mode:o})", fix=f"chmod 700 {folder}")
    return ""


async def check_indexes(deps: Deps) -> str:
    """Check that the files of every index are those that were built."""
    async with deps.database.transaction() as connection:
        rows = (await connection.execute(READY)).all()
    root = deps.settings.data_dir
    for row in rows:
        if reason := await asyncio.to_thread(_find_defect, root / row.path, row.file_hash):
            raise NotReady(f"index {row.name[:12]}: {reason}")
    return f"{len(rows)} unchanged"


def _find_defect(folder: Path, file_hash: bytes) -> str | None:
    try:
        manifest = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(manifest).digest() != file_hash:
            return f"{MANIFEST} is not the one that was registered"
        for name, expected in msgspec.json.decode(manifest, type=Manifest).files.items():
            with (folder / name).open("rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() != expected:
                    return f"{name} was changed"
    except OSError as error:
        return f"{error.filename} cannot be read"
    return None
