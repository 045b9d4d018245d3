"""A real Elasticsearch node on a free port of this machine."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from mathrag.stack import process
from mathrag.stack.redis import find_free_port
from tests.real.elasticsearch.layout import Layout

HEAP = os.environ.get("ES_HEAP", "512m")
START_S = 300.0
NATIVE = "org.elasticsearch.nativeaccess,org.elasticsearch.foreign,org.apache.lucene.core"


class Node:
    """Its data lie in `folder`, so that it has them again after a kill."""

    def __init__(self, layout: Layout, folder: Path) -> None:
        self.version = layout.version
        self.port = find_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._layout = layout
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it is healthy."""
        log = self._folder / "log"
        self._process = process.spawn(self._command(), log=log)
        asyncio.run(process.wait_ready("Elasticsearch", self._process, self._healthy, log=log, timeout_s=START_S))

    def stop(self) -> None:
        """As an operator does; harmless where it does not run."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            asyncio.run(process.stop(self._process, grace_s=60.0))
            self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def _command(self) -> list[str]:
        home, data = self._layout.home, self._folder / "data"
        java = [
            str(self._layout.java), f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+ExitOnOutOfMemoryError",
            "--module-path", str(home / "lib"), "--add-modules", "ALL-MODULE-PATH,jdk.incubator.vector,jdk.net",
            f"--enable-native-access={NATIVE}", f"-Des.nativelibs.path={home / 'native'}",
            "-Dorg.elasticsearch.nativeaccess.enableVectorLibrary=false",
            "--class-path", str(home / "node"), "SearchNode", str(home),
        ]  # fmt: skip
        settings = {
            "discovery.type": "single-node", "network.host": "127.0.0.1", "http.port": self.port, "transport.port": 0,
            "path.data": data, "path.logs": self._folder / "logs",
        }  # fmt: skip
        return [*java, *(f"{name}={value}" for name, value in settings.items())]

    async def _healthy(self) -> bool:
        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
                found = await client.get(f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=20s")
        except httpx2.TransportError:
            return False
        return found.status_code == 200


def searched_on(node: Node) -> dict[str, object]:
    """Settings `retrieval` of a stack that searches there, and gives up a request that is not answered."""
    backend = {"backend": "elasticsearch"}
    return {"dense": backend, "sparse": backend, "elasticsearch": {"url": node.url, "timeout_s": 5}}


@contextmanager
def running(layout: Layout, folder: Path) -> Iterator[Node]:
    """A node that has started, and has stopped after the block."""
    node = Node(layout, folder)
    try:
        node.start()
        yield node
    finally:
        node.stop()
