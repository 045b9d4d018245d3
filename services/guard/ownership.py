"""Two locks that allow one guard per device: a file lock among the guards of this host, and an advisory lock of
PostgreSQL among those of this database. Both are released when their process ends, however it ends.
"""

import asyncio
import errno
import fcntl
import logging
import os
import pwd
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import asyncpg

from shared import keepalive
from shared.settings import Settings

POLL_S = 2.0
CLOSE_S = 5.0
SESSION = {
    "application_name": "mathrag-guard",
    # PostgreSQL may need a moment to notice that the previous guard is dead.
    "lock_timeout": "5s",
    # A host that lost its power then holds the device for half a minute instead of hours.
    **keepalive.make_session(),
}
# Exceptions of asyncpg when the connection is lost; the last one is about the library's state.
LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
TAKE = "SELECT pg_advisory_lock(hashtextextended('mathrag-guard:' || $1, 0))"

_log = logging.getLogger(__name__)


class DeviceTaken(RuntimeError):
    """Another guard owns the device."""


@contextmanager
def own_on_host(settings: Settings) -> Iterator[None]:
    """Hold the lock of the device among the guards of this host inside the block.

    A CPU device is only a name, so its lock is shared only with guards of the same data folder.

    Raises:
        DeviceTaken: another guard runs, or the lock belongs to another user, whom the message names.
    """
    path = host_lock_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _lock_file(path, settings.device.id)
    try:
        yield
    finally:
        # The next guard may run as another user, who cannot open this file.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock_file(path: Path, device: str) -> int:
    """Lock the file at `path` and return the descriptor that holds the lock."""
    while True:
        try:
            # Mode 0600: only its owner can open and hold it. A link that another user put there is not followed.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ELOOP):
                raise
            raise _make_foreign_error(path, device) from error
        os.fchmod(descriptor, 0o600)  # earlier releases created it readable for all
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise _make_taken_error(device) from error
        try:
            is_at = os.path.samestat(path.lstat(), os.fstat(descriptor))
        except FileNotFoundError:
            is_at = False
        if is_at:
            return descriptor
        os.close(descriptor)  # its last holder has just removed the file


def _make_foreign_error(path: Path, device: str) -> DeviceTaken:
    uid = path.lstat().st_uid
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    return DeviceTaken(
        f"device {device!r} belongs to a MathRAG-Gate of another user, {owner}: stop it (`mathrag down` as {owner}), "
        f"or set another `device.id`; if it was killed, have {owner} or root remove `{path}`"
    )


def host_lock_path(settings: Settings) -> Path:
    """Return the path of the file that the device's guard holds locked."""
    device = settings.device.id
    folder = settings.data_dir if device.startswith("cpu") else Path(tempfile.gettempdir())
    return folder.resolve() / f"guard-{device.replace('/', '_')}.lock"


class DatabaseLock:
    """The lock of the device among all guards of the database, on any host; lost with its connection, then retaken."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.database_url.replace("+asyncpg", "")
        self._device = settings.device.id
        self._connection: asyncpg.Connection | None = None

    async def take(self) -> None:
        """Take the lock, after waiting up to 5 s for PostgreSQL to notice that its last holder is dead.

        Raises:
            DeviceTaken: another guard holds it.
        """
        connection = await asyncpg.connect(self._url, server_settings=SESSION)
        keepalive.watch(connection)
        try:
            await connection.fetchval(TAKE, self._device)
        except BaseException as error:
            # Also of a cancelled call: the session may hold the lock already.
            await _close(connection)
            if isinstance(error, asyncpg.LockNotAvailableError):
                raise _make_taken_error(self._device) from error
            raise
        self._connection = connection

    async def keep(self) -> None:
        """Keep the lock and return when another guard has taken it. While the database is away, none can."""
        while True:
            try:
                if self._connection is None or self._connection.is_closed():
                    await self.take()
                else:
                    await self._connection.execute("SELECT 1")
            except DeviceTaken:
                return
            except LOST as error:
                _log.warning("cannot check the lock of %s, trying again: %r", self._device, error)
            await asyncio.sleep(POLL_S)

    async def release(self) -> None:
        if self._connection is not None:
            await _close(self._connection)


async def _close(connection: asyncpg.Connection) -> None:
    """Close a connection; where the database does not answer, drop it after 5 s."""
    with suppress(*LOST):
        await connection.close(timeout=CLOSE_S)


@asynccontextmanager
async def own_in_database(settings: Settings) -> AsyncIterator[DatabaseLock]:
    """Hold the lock of the device among the guards of the database inside the block.

    Raises:
        DeviceTaken: another guard runs.
    """
    lock = DatabaseLock(settings)
    await lock.take()
    try:
        yield lock
    finally:
        await lock.release()


def _make_taken_error(device: str) -> DeviceTaken:
    return DeviceTaken(f"device {device!r} has a guard already; stop it, or set another `device.id` for this one")
