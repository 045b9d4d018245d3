"""A TCP proxy that breaks its traffic: connections, time, or a single message of PostgreSQL or Redis."""

import asyncio
import re
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, Self, TypeVar

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
WRITES = re.compile(r"(?<!FOR )(?<!KEY )(?<!DO )\b(INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)")
"""Verb and table of a data-modifying statement; row locks and upserts are not separate statements."""
TICKS = b"mathrag:celery:"
"""Prefix of the lists that ticks are pushed to."""


class Cut(Exception):
    """The connection ends here, on both sides."""


class Wire(Protocol):
    """One connection, seen from the middle. It forwards only complete messages and holds back incomplete ones."""

    def up(self, data: bytes) -> bytes:
        """Take bytes from the client and return the bytes for the server."""
        ...

    def down(self, data: bytes) -> bytes:
        """Take bytes from the server and return the bytes for the client."""
        ...


class Passing:
    """Understands nothing."""

    def up(self, data: bytes) -> bytes:
        """Take bytes from the client and return the bytes for the server."""
        return data

    down = up


class Hit(NamedTuple):
    """A commit whose answer never came."""

    wrote: str
    """Verbs and tables: "delete queue, insert attempts"."""
    happened: bool
    """Whether the server had committed before the connection was cut."""


class Cuts:
    """Which commits are cut: of every kind each `every`-th, `most` times, in turn after and before it happened."""

    def __init__(self, every: int = 0, most: int = 0) -> None:
        self.every, self.most = every, most
        self.seen: Counter[str] = Counter()
        """Commits by their writes."""
        self.hits: Counter[Hit] = Counter()
        self._next: dict[str, Hit] = {}

    def cut_next(self, wrote: str, *, happened: bool) -> None:
        """Cut the next commit of this kind."""
        self._next[wrote] = Hit(wrote, happened)

    def arm(self, every: int, most: int) -> None:
        """Begin to count and to cut; 0 ends it."""
        self.every, self.most = every, most
        self.seen.clear()
        self.hits.clear()

    def hit(self, wrote: str) -> Hit | None:
        """The next commit of its kind: how it is to be cut, or None where it passes."""
        self.seen[wrote] += 1
        hit = self._next.pop(wrote, None) or self._due(wrote)
        if hit:
            self.hits[hit] += 1
        return hit

    def _due(self, wrote: str) -> Hit | None:
        done = sum(count for hit, count in self.hits.items() if hit.wrote == wrote)
        if not self.every or self.seen[wrote] % self.every or done >= self.most:
            return None
        return Hit(wrote, happened=done % 2 == 0)


class PostgresWire:
    """Sees which statements a connection commits: `COMMIT` by itself, or a single statement that writes."""

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts
        self._front, self._back = bytearray(), bytearray()
        self._starting = True
        self._plain_answer = False
        self._in_transaction = False
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._wrote: set[str] = set()
        self._cutting = False

    def up(self, data: bytes) -> bytes:
        """Take bytes from the client and return the bytes for the server."""
        self._front += data
        return b"".join(self._read_message(kind, message) for kind, message in self._requests())

    def _requests(self) -> Iterator[tuple[bytes, bytes]]:
        while message := _take(self._front, start=0 if self._starting else 1):
            yield (b"", message) if self._starting else (message[:1], message)

    def _read_message(self, kind: bytes, message: bytes) -> bytes:
        if not kind:
            code = struct.unpack("!I", message[4:8])[0]
            self._plain_answer = self._starting = code in (SSL_REQUEST, GSS_REQUEST)
            return message
        body = message[5:]
        if kind == b"P":
            name, query = body.split(b"\0", 2)[:2]
            self._statements[name] = query.decode()
        elif kind == b"B":
            portal, name = body.split(b"\0", 2)[:2]
            self._portals[portal] = self._statements.get(name, "")
        elif kind == b"E":
            self._wrote |= list_writes(self._portals.get(body.split(b"\0", 1)[0], ""))
        elif kind == b"Q":
            self._query(body.rstrip(b"\0").decode())
        elif kind == b"S" and not self._in_transaction:
            self._commit()
        return message

    def _query(self, sql: str) -> None:
        if sql.upper().startswith(("COMMIT", "END")):
            self._commit()
        else:
            self._wrote |= list_writes(sql)
            self._in_transaction |= sql.upper().startswith(("BEGIN", "START"))

    def _commit(self) -> None:
        wrote, self._wrote = ", ".join(sorted(self._wrote)), set()
        if wrote and (hit := self._cuts.hit(wrote)):
            self._cutting = hit.happened
            if not hit.happened:
                raise Cut

    def down(self, data: bytes) -> bytes:
        """Take bytes from the server and return the bytes for the client."""
        if self._plain_answer:
            self._plain_answer = False
            return data
        self._back += data
        passed = b""
        while message := _take(self._back, start=1):
            passed += message
            if message[:1] == b"Z":
                self._idle(message[5:6])
        return b"" if self._cutting else passed

    def _idle(self, status: bytes) -> None:
        self._in_transaction = status != b"I"
        if not self._in_transaction:
            self._wrote.clear()
        if self._cutting:
            raise Cut


def list_writes(sql: str) -> set[str]:
    """List the writes of a statement, for example {"insert attempts", "delete queue"}."""
    return {f"{verb.split()[0].lower()} {table}" for verb, table in WRITES.findall(sql)}


def _take(buffer: bytearray, start: int) -> bytes:
    """Remove the first whole message: a type of `start` bytes, a length that counts itself, the rest."""
    if len(buffer) < start + 4:
        return b""
    size = start + int(struct.unpack_from("!I", buffer, start)[0])
    if len(buffer) < size:
        return b""
    message = bytes(buffer[:size])
    del buffer[:size]
    return message


Command = list[bytes]


class Ticks:
    """What becomes of every tick that is sent. An answer has to come for each command, so a tick that is lost becomes
    a question for the length of its list."""

    def __init__(self) -> None:
        self.drop_every, self.copies, self.swaps = 0, 1, 0
        self.sent = self.dropped = 0
        self._held: list[Command] = []

    def relieve(self) -> None:
        """Let ticks pass from now on."""
        self.drop_every, self.copies, self.swaps = 0, 1, 0
        self._held.clear()

    def command(self, command: Command) -> Command:
        """Return the command that reaches Redis in place of this one."""
        if command[0].upper() != b"LPUSH" or not command[1].startswith(TICKS):
            return command
        self.sent += 1
        if self.drop_every and self.sent % self.drop_every == 0:
            self.dropped += 1
            return [b"LLEN", command[1]]
        if self.swaps or self._find_waiting(command):
            return self._swap_ticks(command)
        return [*command[:2], *command[2:] * self.copies]

    def _swap_ticks(self, command: Command) -> Command:
        """Hold a tick until the next one of its lane, and send it after that one."""
        held = self._find_waiting(command)
        if held is None:
            self._held.append(command)
            return [b"LLEN", command[1]]
        self.swaps = max(0, self.swaps - 1)
        self._held.remove(held)
        return [*command, *held[2:]]

    def _find_waiting(self, command: Command) -> Command | None:
        return next((each for each in self._held if each[1] == command[1]), None)


class RedisWire:
    """Commands that are arrays of strings, as every client library sends them, each replaced by `rewrite`'s."""

    def __init__(self, rewrite: Callable[[Command], Command]) -> None:
        self._rewrite = rewrite
        self._front = bytearray()

    def up(self, data: bytes) -> bytes:
        """Take bytes from the client and return the bytes for the server."""
        self._front += data
        passed = b""
        while found := _command(bytes(self._front)):
            command, size = found
            del self._front[:size]
            passed += _pack(self._rewrite(command))
        return passed

    def down(self, data: bytes) -> bytes:
        """Take bytes from the server and return the bytes for the client."""
        return data


def _command(data: bytes) -> tuple[Command, int] | None:
    """Return the first whole command and its size in bytes; None if no command is complete."""
    end = data.find(b"\r\n")
    if end < 0:
        return None
    command, at = [], end + 2
    for _ in range(int(data[1:end])):
        if (end := data.find(b"\r\n", at)) < 0:
            return None
        start, size = end + 2, int(data[at + 1 : end])
        if len(data) < start + size + 2:
            return None
        command.append(data[start : start + size])
        at = start + size + 2
    return command, at


def _pack(command: Command) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in command)


HOST = "127.0.0.1"
CHUNK = 65536

T = TypeVar("T")


class Proxy:
    """In front of the server at `upstream` on this machine; runs on a separate thread, so a test may block."""

    def __init__(self, upstream: int, wire: Callable[[], Wire] = Passing) -> None:
        self.port = 0
        self.delay_s = 0.0
        """How much longer every piece takes, in each direction."""
        self._home = self._upstream = upstream
        self._wire = wire
        self._parted = False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._heard = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._do(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def sever(self) -> int:
        """Reset every connection now; how many there were. New ones are welcome."""
        return self._do(self._sever)

    def part(self) -> None:
        """Reset all connections, and new ones at once."""
        self._parted = True
        self.sever()

    def silence(self) -> None:
        """Keep connections open but pass no byte on, as behind a dead cable."""
        self._loop.call_soon_threadsafe(self._heard.clear)

    def heal(self) -> None:
        """Undo `part`, `silence`, `switch` and `delay_s`."""
        self._parted, self.delay_s = False, 0.0
        self._loop.call_soon_threadsafe(self._heard.set)
        if self._upstream != self._home:
            self.switch(self._home)

    @contextmanager
    def heal_afterwards(self) -> Iterator[None]:
        """Undo all changes to the proxy at the end of the block."""
        try:
            yield
        finally:
            self.heal()

    def repair(self) -> list[str]:
        """Repair the proxy, and return its defects."""
        wrong = {
            "was cut": self._parted,
            "was silent": not self._heard.is_set(),
            "was slow": self.delay_s > 0,
            "led to another server": self._upstream != self._home,
        }
        self.heal()
        return [f"the cable to port {self._home} {said}" for said, holds in wrong.items() if holds]

    def switch(self, upstream: int) -> None:
        """Connect to another server from now on, and end connections to the old one."""
        self._upstream = upstream
        self.sever()

    def _do(self, what: Callable[[], Awaitable[T]]) -> T:
        async def done() -> T:
            return await what()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(60)

    async def _listen(self) -> asyncio.Server:
        self._heard.set()
        server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _end(self) -> None:
        self._server.close()
        self._heard.set()
        await self._sever()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _sever(self) -> int:
        severed = len(self._open)
        for writer in self._open:
            writer.transport.abort()
        return severed // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._parted:
                raise ConnectionRefusedError
            server = await asyncio.open_connection(HOST, self._upstream)
        except OSError:
            writer.transport.abort()
            return
        await self._join((reader, writer), server)

    async def _join(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Carry both ways until one side ends or is cut; then both end."""
        wire, writers = self._wire(), {client[1], server[1]}
        self._open |= writers
        pumps = [
            asyncio.create_task(self._pump(client[0], server[1], wire.up)),
            asyncio.create_task(self._pump(server[0], client[1], wire.down)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open -= writers
            for writer in writers:
                writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turn: Callable[[bytes], bytes]
    ) -> None:
        try:
            while data := await reader.read(CHUNK):
                await self._heard.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(turn(data))
                await writer.drain()
        except (Cut, OSError):
            return
