"""One guard per device: among all guards of this host by the kernel's lock, among all of this database by its lock.

Both end with the process that holds them, however it ends.
"""

import asyncio
import errno
import fcntl
import logging
import os
import pwd
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from shared.settings import Settings

LOOK_S = 2.0
SESSION = {
    "application_name": "mathrag-guard",
    # The server may need a moment to notice that a guard before us is dead.
    "lock_timeout": "5s",
    # A host that lost its power holds the device for half a minute, not for hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
TAKE = "SELECT pg_advisory_lock(hashtextextended('mathrag-guard:' || $1, 0))"

_log = logging.getLogger(__name__)


class DeviceTaken(RuntimeError):
    """Another guard owns the device."""


@contextmanager
def of_host(settings: Settings) -> Iterator[None]:
    """Own the device among the guards of this host; a CPU device, which is only a name, among those of the data folder.

    Raises:
        DeviceTaken: another guard runs, or the lock belongs to another user; the message says whose it is.
    """
    path = lock_of_host(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(path, settings.device.id)
    try:
        yield
    finally:
        # Whoever comes next may be another user, who cannot open this one.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, device: str) -> int:
    """A descriptor that holds the lock of the file that is at `path`."""
    while True:
        try:
            # Only its owner opens it, so nobody else can hold it; a link that somebody put there is not followed.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ELOOP):
                raise
            raise _foreign(path, device) from error
        os.fchmod(descriptor, 0o600)  # earlier releases let everybody read it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise _taken(device) from error
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # its last holder has just removed it


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _foreign(path: Path, device: str) -> DeviceTaken:
    uid = path.lstat().st_uid
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    return DeviceTaken(
        f"device {device!r} belongs to a MathRAG-Gate of another user, {owner}: stop it (`mathrag down` as {owner}), "
        f"or take another `device.id`; where none runs any more it was killed, and {owner} or root removes `{path}`"
    )


def lock_of_host(settings: Settings) -> Path:
    """The file that the device's guard holds: whoever has it, and nobody else, is this guard."""
    device = settings.device.id
    folder = settings.data_dir if device.startswith("cpu") else Path(tempfile.gettempdir())
    return folder.resolve() / f"guard-{device.replace('/', '_')}.lock"


class DatabaseLock:
    """The device among all guards of the database, wherever they run; lost with its connection, then taken again."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.database_url.replace("+asyncpg", "")
        self._device = settings.device.id
        self._connection: asyncpg.Connection | None = None

    async def take(self) -> None:
        """Take it, waiting for a dead guard to be noticed.

        Raises:
            DeviceTaken: another guard holds it.
        """
        connection = await asyncpg.connect(self._url, server_settings=SESSION)
        try:
            await connection.fetchval(TAKE, self._device)
        except asyncpg.LockNotAvailableError as error:
            await connection.close()
            raise _taken(self._device) from error
        self._connection = connection

    async def keep(self) -> None:
        """Return when it is lost to another guard. While the database is away nobody can take it."""
        while True:
            try:
                if self._connection is None or self._connection.is_closed():
                    await self.take()
                else:
                    await self._connection.execute("SELECT 1")
            except DeviceTaken:
                return
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                _log.warning("the lock of %s cannot be looked at, trying again: %r", self._device, error)
            await asyncio.sleep(LOOK_S)

    async def release(self) -> None:
        """Give it back."""
        if self._connection is not None:
            await self._connection.close()


@asynccontextmanager
async def of_database(settings: Settings) -> AsyncIterator[DatabaseLock]:
    """Own the device among the guards of the database.

    Raises:
        DeviceTaken: another guard runs.
    """
    lock = DatabaseLock(settings)
    await lock.take()
    try:
        yield lock
    finally:
        await lock.release()


def _taken(device: str) -> DeviceTaken:
    return DeviceTaken(f"device {device!r} has a guard already; stop it, or give this guard another `device.id`")
