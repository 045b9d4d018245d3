"""Back up and restore a stack, find the addresses of a running stack, and delete data as the database owner."""

import asyncio
import errno
import getpass
import json
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

from mathrag.client import address
from mathrag.client.address import LOCK
from mathrag.client.errors import Failed
from mathrag.errors import Conflict, Invalid, OutOfSpace, Unavailable
from mathrag_gate.stack import control, postgres, privacy, process, redis
from mathrag_gate.stack.postgres import Postgres, list_schemas
from mathrag_gate.stack.redis import Redis
from mathrag_gate.stack.supervisor import LOGS
from shared.runtime import purge
from shared.settings import Settings, load, release
from shared.storage.database import Database

ADDRESSES = ("database_url", "redis_url", "retriever_url", "guard_url", "service_key")
HTTP = {"retriever": "retriever_url", "guard": "guard_url"}
"""Settings with addresses, by the name of the child that listens there."""


def find_database_url(data_dir: Path | None) -> str:
    """Return MATHRAG_DATABASE_URL, or the URL of the embedded database in `data_dir`, for the application's role.

    Raises:
        Failed: no database is configured, and no database runs on the data directory.
    """
    settings = load()
    return settings.database_url or find_embedded(data_dir or settings.data_dir).url()


def find_embedded(data_dir: Path) -> Postgres:
    """Return the PostgreSQL server that runs on `data_dir`.

    Raises:
        Failed: no server runs there.
    """
    port = _read_ports(data_dir).get("postgres")
    if port is None:
        hint = "start it with `mathrag up`, or set MATHRAG_DATABASE_URL"
        raise Failed("unreachable", f"no PostgreSQL server is running in {data_dir.absolute()}", hint=hint)
    return Postgres(data_dir / "postgres", port=port, passwords=postgres.load_passwords(data_dir))


def add_running_addresses(settings: Settings, data_dir: Path | None) -> Settings:
    """Return `settings` with missing addresses filled in from a stack that runs on the data directory."""
    directory = data_dir or settings.data_dir
    ports = _read_ports(directory)
    addresses = {key: f"http://127.0.0.1:{ports[name]}" for name, key in HTTP.items() if name in ports}
    if ports:
        secret = postgres.load_passwords(directory)
        addresses["service_key"] = secret.service
        if port := ports.get("postgres"):
            addresses["database_url"] = Postgres(directory / "postgres", port=port, passwords=secret).url()
        if port := ports.get("redis"):
            addresses["redis_url"] = Redis(directory / "redis", port=port, passwords=secret).url()
    missing = {key: value for key, value in addresses.items() if not getattr(settings, key)}
    devices = []
    for name, device in list(settings.guards().items())[1:]:
        # A further device gets the address of its local guard, unless the settings name one.
        url = device.guard_url or (f"http://127.0.0.1:{ports[name]}" if name in ports else "")
        devices.append(device.model_copy(update={"guard_url": url}))
    return settings.model_copy(update={**missing, "devices": tuple(devices), "data_dir": directory})


def _read_ports(data_dir: Path) -> dict[str, int]:
    """Return the ports of the stack on the data directory, by child; empty if no stack runs there."""
    running = address.read_state(data_dir) if control.find_holder(data_dir) is not None else None
    return {child.name: child.port for child in running.children if child.port} if running else {}


def list_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that pass the addresses in `settings` to a program of a service."""
    found = {"DATA_DIR": str(settings.data_dir), **{name.upper(): getattr(settings, name) for name in ADDRESSES}}
    if settings.devices:
        found["DEVICES"] = json.dumps([device.model_dump(mode="json") for device in settings.devices])
    return {f"MATHRAG_{name}": value for name, value in found.items()}


def owner_url(settings: Settings, data_dir: Path | None) -> str:
    """Return the configured URL of the database's owner, or the owner's URL of the embedded database.

    Raises:
        Failed: a database is configured without its owner, or no embedded database runs.
    """
    if settings.owner_url:
        return settings.owner_url
    if settings.database_url:
        raise Failed(
            "usage",
            "deleting requires the database owner, but MATHRAG_OWNER_URL is not set",
            hint="set MATHRAG_OWNER_URL to the owner's URL of the database in MATHRAG_DATABASE_URL",
        )
    return find_embedded(data_dir or settings.data_dir).owner_url()


def delete(owner_url: str, kind: purge.Kind, name: str) -> None:
    """Delete a corpus or dataset that no job uses.

    Raises:
        MathragError: the corpus or dataset does not exist, or a job uses it.
    """

    async def run() -> None:
        owner = Database(owner_url, pinned=False)
        try:
            await purge.delete(owner, kind, name, getpass.getuser())
        finally:
            await owner.close()

    asyncio.run(run())


# The backup is one zip file. It is written while the stack runs, and restored into an empty data folder.
#
# It contains a manifest, a dump of the database, and the indexes, which jobs in flight need for searches.
# Redis and the passwords of the servers are created again. zip compresses nothing: `pg_dump` compresses the dump, and
# an uncompressed archive cannot expand to more than its size.

FORMAT = 1
MANIFEST = "backup.json"
DUMP = "database.dump"
INDEXES = "indexes"
POSTGRES = "postgres"
PASSWORDS = "passwords.json"
UNFINISHED = "restoring"
"""Folder in the data folder into which everything is restored before it is moved to its final place."""
MANIFEST_BYTES = 1 << 16
CLUSTER_BYTES = 64 << 20
"""Disk space of a cluster with an empty database (measured: 55 MiB)."""
FULL = (errno.ENOSPC, errno.EDQUOT)
SIZES = text("SELECT version_num, pg_database_size(current_database()) FROM alembic_version")

_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_INDEX_FILE = re.compile(INDEXES + r"/[0-9a-f]{64}/\w[\w.-]{0,99}", re.ASCII)
# zipfile raises all of these for bytes that it cannot read as a zip archive.
_NO_ARCHIVE = (BadZipFile, NotImplementedError, EOFError, ValueError)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a backup, and the release that wrote it."""

    format: int
    release: str
    commit: str | None
    schema: str
    """Newest migration of the database."""
    created: datetime
    database_bytes: int
    """Size of the database on disk; the dump is smaller."""


def back_up(data_dir: Path, file: Path, *, replace: bool) -> Manifest:
    """Write a backup of the stack that runs on `data_dir`; `file` appears when it is complete.

    Raises:
        Failed: no stack runs there.
        Conflict: the file exists and may not be replaced, or an index was replaced during the backup.
        Unavailable: the database cannot be read.
        OutOfSpace: the disk of the file is full.
    """
    if file.is_dir():
        raise Invalid(f"`{file}` is a folder", hint="name a file")
    if file.exists() and not replace:
        raise Conflict(f"`{file}` already exists", hint="name another file, or add --force to replace it")
    if not file.absolute().parent.is_dir():
        raise Invalid(f"the folder `{file.parent}` does not exist", hint=f"create it: mkdir -p {file.parent}")
    server = find_embedded(data_dir)
    with _write_complete(file) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        manifest = asyncio.run(_describe(server))
        archive.writestr(_make_member(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)))
        with archive.open(_make_member(DUMP), "w", force_zip64=True) as dump:
            server.dump(dump)
        # Read after the dump, so every index that the dump refers to exists.
        # Files of finished indexes; folders with other names are unfinished, or do not belong to the retriever.
        folders = (folder for folder in (data_dir / INDEXES).glob("*") if _SIGNATURE.fullmatch(folder.name))
        for path in sorted(path for folder in folders for path in folder.iterdir()):
            member = _make_member(path.relative_to(data_dir).as_posix())
            try:
                with path.open("rb") as source, archive.open(member, "w", force_zip64=True) as copy:
                    shutil.copyfileobj(source, copy, postgres.PIECE)
            except FileNotFoundError as error:
                raise Conflict("an index was replaced while it was read", hint="run the backup again") from error
    return manifest


@contextmanager
def _write_complete(file: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that only its owner can read; at the end rename it to `file`; after an error delete it."""
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
            message = f"the disk of `{file}` is full; no backup was written"
            raise OutOfSpace(message, hint="free disk space, or name a file on another disk") from error
        raise
    finally:
        draft.unlink(missing_ok=True)


async def _describe(server: postgres.Postgres) -> Manifest:
    database = Database(server.owner_url(), pinned=False, size=1)
    try:
        async with database.transaction() as connection:
            schema, size = (await connection.execute(SIZES)).one()
    except SQLAlchemyError as error:
        message = f"the database cannot be read: {str(error).partition(chr(10))[0]}"
        raise Unavailable(message, hint="try again when `mathrag status` shows that the stack runs") from error
    finally:
        await database.close()
    version, commit = release()
    return Manifest(
        format=FORMAT, release=version, commit=commit, schema=schema, created=datetime.now(UTC), database_bytes=size
    )


def _make_member(name: str) -> ZipInfo:
    member = ZipInfo(name, datetime.now(UTC).timetuple()[:6])
    member.external_attr = 0o600 << 16
    return member


def restore(file: Path, data_dir: Path) -> Manifest:
    """Restore a backup into a new or empty data folder; a failed attempt leaves no data there.

    Raises:
        Conflict: the folder is in use or has data, or a newer release wrote the file.
        Invalid: the file is not a backup, or is damaged.
        OutOfSpace: the disk of the folder is full.
        Unavailable: PostgreSQL does not start, or rejects the dump.
    """
    before = os.umask(privacy.UMASK)
    try:
        return _restore(file, data_dir)
    finally:
        os.umask(before)


def _restore(file: Path, data_dir: Path) -> Manifest:
    if control.find_holder(data_dir) is not None:
        raise Conflict(f"a stack is running in `{data_dir}`", hint="restore into a new folder: --data-dir DIR")
    _refuse_data(data_dir)
    with _open_archive(file) as archive:
        manifest = _read_manifest(archive, file)
        _check_members(archive, file)
        privacy.create_closed(data_dir)
        with control.hold(data_dir):
            _refuse_data(data_dir)  # another restore may have ended since the first check
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
        raise Conflict(
            f"`{data_dir}` is not empty: it contains {shown}", hint="restore into a new folder: --data-dir DIR"
        )


def _remove_unfinished(data_dir: Path) -> None:
    """Remove the files of an interrupted restore. A restore moves the database last; then it is complete."""
    if not (data_dir / POSTGRES).exists():
        for name in (INDEXES, UNFINISHED):
            shutil.rmtree(data_dir / name, ignore_errors=True)
        (data_dir / PASSWORDS).unlink(missing_ok=True)


ANOTHER_FILE = "restore another backup"


@contextmanager
def _open_archive(file: Path) -> Iterator[ZipFile]:
    try:
        archive = ZipFile(file)
    except _NO_ARCHIVE as error:
        message = f"`{file}` is damaged, or not a backup: {error}"
        raise Invalid(message, hint=ANOTHER_FILE) from error
    with archive:
        try:
            yield archive
        except BadZipFile as error:
            raise Invalid(f"`{file}` is damaged: {error}", hint=ANOTHER_FILE) from error


def _read_manifest(archive: ZipFile, file: Path) -> Manifest:
    """Read the manifest of a backup that this release can restore."""
    try:
        with archive.open(MANIFEST) as member:
            manifest = msgspec.json.decode(member.read(MANIFEST_BYTES), type=Manifest)
    except (KeyError, msgspec.DecodeError, RuntimeError) as error:
        message = f"`{file}` is not a backup: it has no readable {MANIFEST}"
        raise Invalid(message, hint=ANOTHER_FILE) from error
    schemas = list_schemas()
    if manifest.format != FORMAT or manifest.schema not in schemas:
        raise Conflict(
            f"`{file}` was written by release {manifest.release} with schema {manifest.schema}; this release, "
            f"{release()[0]}, reads schemas up to {schemas[0]}",
            hint="restore it with the release that wrote it, or with a newer one",
        )
    return manifest


def _check_members(archive: ZipFile, file: Path) -> None:
    """Reject names that no backup has, and contents that are larger than the file."""
    members = archive.infolist()
    names = [member.filename for member in members]
    for member in members:
        known = member.filename in (MANIFEST, DUMP) or _INDEX_FILE.fullmatch(member.filename)
        if not known or member.compress_type != ZIP_STORED:
            message = f"`{file}` contains {member.filename[:100]!r}, which `mathrag backup` does not write"
            raise Invalid(message, hint=ANOTHER_FILE)
    larger = sum(member.file_size for member in members) > file.stat().st_size
    if DUMP not in names or len(set(names)) < len(names) or larger:
        message = f"`{file}` is damaged, or not a backup: its list of contents is wrong"
        raise Invalid(message, hint=ANOTHER_FILE)


def _check_space(archive: ZipFile, manifest: Manifest, data_dir: Path) -> None:
    indexes = sum(member.file_size for member in archive.infolist() if member.filename not in (MANIFEST, DUMP))
    needed = manifest.database_bytes + indexes + CLUSTER_BYTES + control.NEEDED
    free = shutil.disk_usage(data_dir).free
    if free < needed:
        raise OutOfSpace(
            f"the disk of `{data_dir}` has {free >> 20} MiB free, but the backup needs {needed >> 20} MiB",
            hint="free disk space, or name a folder on another disk: --data-dir DIR",
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
                    shutil.copyfileobj(source, target, postgres.PIECE)
    except OSError as error:
        if error.errno in FULL:
            raise OutOfSpace(f"the disk of `{data_dir}` is full", hint="free disk space, and try again") from error
        raise
    asyncio.run(_load(archive, manifest, folder, log=data_dir / LOGS / "restore.log"))
    for name in (INDEXES, PASSWORDS, POSTGRES):
        if (folder / name).exists():
            (folder / name).rename(data_dir / name)
    folder.rmdir()


async def _load(archive: ZipFile, manifest: Manifest, folder: Path, *, log: Path) -> None:
    """Create a database server in `folder`, fill it from the dump, and stop it."""
    secret = postgres.load_passwords(folder)
    server = postgres.Postgres(folder / POSTGRES, port=redis.find_free_port(), passwords=secret)
    server.prepare()
    running = process.spawn(server.command(), log=log, dies_by=postgres.STOP_SIGNAL)
    try:
        await process.wait_ready(POSTGRES, running, server.is_ready, log=log)
        await server.create_database()
        with archive.open(DUMP) as source:
            await asyncio.to_thread(server.load, source)
        found = await _describe(server)
    finally:
        await process.stop(running, by=postgres.STOP_SIGNAL, grace_s=30)
    if found.schema != manifest.schema:
        raise Invalid(
            f"the backup is damaged: its dump has schema {found.schema}, but {MANIFEST} says {manifest.schema}"
        )
