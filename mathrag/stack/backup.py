"""Back up the embedded stack to one zip file while it runs, and restore such a file into an empty data folder.

The file holds a manifest, a dump of the database, and the indexes, without which jobs in flight could not search. Redis
and the passwords of the servers are made again. Nothing in it is compressed by zip: `pg_dump` compresses its dump, and
an uncompressed archive cannot expand to more than its own size.
"""

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkstemp
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from mathrag.client.stack_state import LOCK
from mathrag.stack import disk_space, lock, passwords, ports, privacy, process
from mathrag.stack import postgres as pg
from mathrag.stack.addresses import find_embedded
from mathrag.stack.migration import list_schemas
from mathrag.stack.supervisor import LOGS
from shared.errors import Conflict, Invalid, OutOfSpace, Unavailable
from shared.release import release
from shared.storage.database import Database

FORMAT = 1
MANIFEST = "backup.json"
DUMP = "database.dump"
INDEXES = "indexes"
POSTGRES = "postgres"
PASSWORDS = "passwords.json"
UNFINISHED = "restoring"
"""Folder in the data folder in which everything is restored, before it is moved to its place."""
MANIFEST_BYTES = 1 << 16
CLUSTER_BYTES = 64 << 20
"""Disk space of a cluster with an empty database (measured: 55 MiB)."""
FULL = (errno.ENOSPC, errno.EDQUOT)
SIZES = text("SELECT version_num, pg_database_size(current_database()) FROM alembic_version")

_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_INDEX_FILE = re.compile(INDEXES + r"/[0-9a-f]{64}/\w[\w.-]{0,99}", re.ASCII)
# zipfile raises all of these for bytes that are not a zip archive of its kind.
_NO_ARCHIVE = (BadZipFile, NotImplementedError, EOFError, ValueError)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Tells what a backup holds, and which release wrote it."""

    format: int
    release: str
    commit: str | None
    schema: str
    """Newest migration of the database."""
    created: datetime
    database_bytes: int
    """Size of the database on the disk, of which the dump is a part."""


def back_up(data_dir: Path, file: Path, *, replace: bool) -> Manifest:
    """Write a backup of the stack that runs on `data_dir`; `file` appears when it is complete.

    Raises:
        Failed: no stack runs there.
        Conflict: the file exists and may not be replaced, or an index was replaced meanwhile.
        Unavailable: the database cannot be read.
        OutOfSpace: the disk of the file is full.
    """
    _refuse_target(file, replace=replace)
    server = find_embedded(data_dir)
    with _write_complete(file) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        manifest = asyncio.run(_describe(server))
        archive.writestr(_make_member(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)))
        with archive.open(_make_member(DUMP), "w", force_zip64=True) as member:
            server.dump(member)
        # Later than the dump, so every index that the dump refers to is there.
        for path in _list_index_files(data_dir):
            _add_file(archive, path, path.relative_to(data_dir).as_posix())
    return manifest


def _refuse_target(file: Path, *, replace: bool) -> None:
    if file.is_dir():
        raise Invalid(f"`{file}` is a folder", hint="name a file")
    if file.exists() and not replace:
        raise Conflict(f"`{file}` exists", hint="name another file, or add --force to replace it")
    if not file.absolute().parent.is_dir():
        raise Invalid(f"there is no folder `{file.parent}`", hint=f"mkdir -p {file.parent}")


@contextmanager
def _write_complete(file: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that only its owner can read; at the end it gets its name, or is deleted after an error."""
    descriptor, name = mkstemp(prefix=f".{file.name}.", dir=file.absolute().parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        draft.replace(file)
    except OSError as error:
        if error.errno in FULL:
            raise OutOfSpace(
                f"the disk of `{file}` is full; no backup was written", hint="free space, or name a file elsewhere"
            ) from error
        raise
    finally:
        draft.unlink(missing_ok=True)


async def _describe(server: pg.Postgres) -> Manifest:
    database = Database(server.owner_url(), pinned=False, size=1)
    try:
        async with database.transaction() as connection:
            schema, size = (await connection.execute(SIZES)).one()
    except SQLAlchemyError as error:
        reason = str(error).partition("\n")[0]
        raise Unavailable(
            f"the database cannot be read: {reason}", hint="try again when `mathrag status` shows that the stack runs"
        ) from error
    finally:
        await database.close()
    version, commit = release()
    return Manifest(
        format=FORMAT, release=version, commit=commit, schema=schema, created=datetime.now(UTC), database_bytes=size
    )


def _list_index_files(data_dir: Path) -> list[Path]:
    """Return the files of finished indexes; folders with other names are unfinished, or not the retriever's."""
    folders = (folder for folder in (data_dir / INDEXES).glob("*") if _SIGNATURE.fullmatch(folder.name))
    return sorted(path for folder in folders for path in folder.iterdir())


def _add_file(archive: ZipFile, path: Path, name: str) -> None:
    try:
        with path.open("rb") as source, archive.open(_make_member(name), "w", force_zip64=True) as member:
            shutil.copyfileobj(source, member, pg.PIECE)
    except FileNotFoundError as error:
        raise Conflict("an index was replaced while it was read", hint="run the backup again") from error


def _make_member(name: str) -> ZipInfo:
    member = ZipInfo(name, datetime.now(UTC).timetuple()[:6])
    member.external_attr = 0o600 << 16
    return member


def restore(file: Path, data_dir: Path) -> Manifest:
    """Restore a backup into a data folder that is new or empty; an attempt that failed leaves no data there.

    Raises:
        Conflict: the folder is in use or holds data, or a newer release wrote the file.
        Invalid: the file is not a backup, or is damaged.
        OutOfSpace: the disk of the folder is full.
        Unavailable: PostgreSQL does not start, or refuses the dump.
    """
    before = os.umask(privacy.UMASK)
    try:
        return _restore(file, data_dir)
    finally:
        os.umask(before)


def _restore(file: Path, data_dir: Path) -> Manifest:
    if lock.find_holder(data_dir) is not None:
        raise Conflict(f"a stack runs on `{data_dir}`", hint="name a new folder: --data-dir DIR")
    _refuse_data(data_dir)
    with _open_archive(file) as archive:
        manifest = _read_manifest(archive, file)
        _check_members(archive, file)
        privacy.create_closed(data_dir)
        with lock.hold(data_dir):
            _refuse_data(data_dir)  # another restore may have ended meanwhile
            _remove_unfinished(data_dir)
            try:
                _check_space(archive, manifest, data_dir)
                _extract(archive, manifest, data_dir)
            except BaseException:
                _remove_unfinished(data_dir)
                raise
    return manifest


def _refuse_data(data_dir: Path) -> None:
    found = {path.name for path in data_dir.iterdir()} if data_dir.exists() else set()
    if UNFINISHED in found and POSTGRES not in found:
        found -= {UNFINISHED, INDEXES, PASSWORDS}
    if found := found - {LOCK, LOGS}:
        shown = ", ".join(sorted(found)[:3])
        raise Conflict(f"`{data_dir}` is not empty: it holds {shown}", hint="name a new folder: --data-dir DIR")


def _remove_unfinished(data_dir: Path) -> None:
    """Remove what an interrupted restore has left. It moves the database last: once that is there, it is complete."""
    if not (data_dir / POSTGRES).exists():
        for name in (INDEXES, UNFINISHED):
            shutil.rmtree(data_dir / name, ignore_errors=True)
        (data_dir / PASSWORDS).unlink(missing_ok=True)


@contextmanager
def _open_archive(file: Path) -> Iterator[ZipFile]:
    try:
        archive = ZipFile(file)
    except _NO_ARCHIVE as error:
        raise Invalid(f"`{file}` is damaged, or not a file that `mathrag backup` wrote: {error}") from error
    with archive:
        try:
            yield archive
        except BadZipFile as error:
            raise Invalid(f"`{file}` is damaged: {error}", hint="restore another backup") from error


def _read_manifest(archive: ZipFile, file: Path) -> Manifest:
    """Read the manifest of a backup that this release can restore."""
    try:
        with archive.open(MANIFEST) as member:
            manifest = msgspec.json.decode(member.read(MANIFEST_BYTES), type=Manifest)
    except (KeyError, msgspec.DecodeError, RuntimeError) as error:
        raise Invalid(f"`{file}` is not a file that `mathrag backup` wrote: no {MANIFEST} in it can be read") from error
    schemas = list_schemas()
    if manifest.format != FORMAT or manifest.schema not in schemas:
        raise Conflict(
            f"`{file}` was written by another release, {manifest.release}, with schema {manifest.schema}; this one, "
            f"{release()[0]}, knows schemas up to {schemas[0]}",
            hint="restore it with the release that wrote it, or a newer one",
        )
    return manifest


def _check_members(archive: ZipFile, file: Path) -> None:
    """Refuse names that no backup has, and contents that are larger than the file."""
    members = archive.infolist()
    names = [member.filename for member in members]
    for member in members:
        known = member.filename in (MANIFEST, DUMP) or _INDEX_FILE.fullmatch(member.filename)
        if not known or member.compress_type != ZIP_STORED:
            raise Invalid(f"`{file}` holds {member.filename[:100]!r}, which `mathrag backup` does not write")
    larger = sum(member.file_size for member in members) > file.stat().st_size
    if DUMP not in names or len(set(names)) < len(names) or larger:
        raise Invalid(f"`{file}` is damaged, or not a file that `mathrag backup` wrote: its list of contents is wrong")


def _check_space(archive: ZipFile, manifest: Manifest, data_dir: Path) -> None:
    indexes = sum(member.file_size for member in archive.infolist() if member.filename not in (MANIFEST, DUMP))
    needed = manifest.database_bytes + indexes + CLUSTER_BYTES + disk_space.NEEDED
    free = shutil.disk_usage(data_dir).free
    if free < needed:
        raise OutOfSpace(
            f"the disk of `{data_dir}` has {free >> 20} MiB free, and the backup needs {needed >> 20} MiB",
            hint="free space, or name a folder on another disk: --data-dir DIR",
        )


def _extract(archive: ZipFile, manifest: Manifest, data_dir: Path) -> None:
    folder = data_dir / UNFINISHED
    privacy.create_closed(folder)
    try:
        for member in archive.infolist():
            if _INDEX_FILE.fullmatch(member.filename):
                path = folder / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, path.open("xb") as target:
                    shutil.copyfileobj(source, target, pg.PIECE)
    except OSError as error:
        if error.errno in FULL:
            raise OutOfSpace(f"the disk of `{data_dir}` is full", hint="free space, and try again") from error
        raise
    asyncio.run(_load(archive, manifest, folder, log=data_dir / LOGS / "restore.log"))
    for name in (INDEXES, PASSWORDS, POSTGRES):
        if (folder / name).exists():
            (folder / name).rename(data_dir / name)
    folder.rmdir()


async def _load(archive: ZipFile, manifest: Manifest, folder: Path, *, log: Path) -> None:
    """Create a database server in `folder`, fill it from the dump, and stop it."""
    secret = passwords.load_passwords(folder)
    server = pg.Postgres(folder / POSTGRES, port=ports.find_free_port(), passwords=secret)
    server.prepare()
    running = process.spawn(server.command(), log=log, dies_by=pg.STOP_SIGNAL)
    try:
        await process.wait_ready(POSTGRES, running, server.is_ready, log=log)
        await server.create_database()
        with archive.open(DUMP) as source:
            await asyncio.to_thread(server.load, source)
        found = await _describe(server)
    finally:
        await process.stop(running, by=pg.STOP_SIGNAL, grace_s=30)
    if found.schema != manifest.schema:
        raise Invalid(f"the dump has schema {found.schema}, and {MANIFEST} says {manifest.schema}")
