"""This machine: its configuration, its disk, and the index files on it."""

import asyncio
import hashlib
import shutil
import stat
from pathlib import Path

import msgspec
from sqlalchemy import text

from services.orchestrator.deps import Deps
from shared.checks.check import NotReady

GIB = 1 << 30
LEAST_FREE = GIB
"""Bytes; PostgreSQL stops when there are none."""
OPEN_TO_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
MANIFEST = "manifest.json"
READY = text("SELECT encode(signature, 'hex') AS name, path, file_hash FROM indexes WHERE state = 'ready' ORDER BY id")


class Manifest(msgspec.Struct, frozen=True):
    """What an index's folder should hold, as far as it is looked at here."""

    files: dict[str, str]
    """File name -> SHA-256 in hex."""


async def disk(deps: Deps) -> str:
    """There is room for more."""
    folder = _existing(deps.settings.data_dir.absolute())
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        raise NotReady(f"{free / GIB:.1f} GiB free at {folder}")
    return f"{free / GIB:.1f} GiB free at {folder}"


async def privacy(deps: Deps) -> str:
    """Other users of the machine can neither list nor write the data folder."""
    folder = _existing(deps.settings.data_dir.absolute())
    mode = stat.S_IMODE(folder.stat().st_mode)
    # That others may pass through is what a PostgreSQL that runs as `nobody` needs.
    if folder == deps.settings.data_dir.absolute() and mode & OPEN_TO_OTHERS:
        raise NotReady(f"other users may read {folder} (mode {mode:o})", fix=f"chmod 700 {folder}")
    return ""


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


async def indexes(deps: Deps) -> str:
    """The files of every index are those that were built."""
    async with deps.database.transaction() as connection:
        rows = (await connection.execute(READY)).all()
    root = deps.settings.data_dir
    for row in rows:
        if reason := await asyncio.to_thread(_wrong, root / row.path, row.file_hash):
            raise NotReady(f"index {row.name[:12]}: {reason}")
    return f"{len(rows)} as they were built"


def _wrong(folder: Path, file_hash: bytes) -> str | None:
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
