"""A TCP proxy that breaks what goes through it: connections, time, or a single message of a protocol that it knows."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from tests.faults.wire import Cut, Passing, Wire

HOST = "127.0.0.1"
CHUNK = 65536

T = TypeVar("T")


class Proxy:
    """In front of the server at `upstream` on this machine; runs on a thread of its own, so a test may block."""

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
        """Undo at the end of the block whatever was done to the proxy in it."""
        try:
            yield
        finally:
            self.heal()

    def repair(self) -> list[str]:
        """Heal it, and return what was wrong with it."""
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
