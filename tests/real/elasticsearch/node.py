"""A folder from which Elasticsearch runs, made once from its jars on Maven Central.

Against a distribution it lacks x-pack (security, TLS, API keys, index lifecycle), painless, the language analysers and
the native vector library.
"""

import asyncio
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from mathrag_gate.stack import process
from mathrag_gate.stack.redis import find_free_port
from tests.real.environments import Lacking

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
CACHE = Path.home() / ".cache" / "mathrag-tests"
NEWEST_BYTECODE = 21
"""What Elasticsearch 9 is compiled for."""
FETCH_S = 300
OF_TRANSPORT = ("netty-*", "transport-netty4-*", "elasticsearch-ssl-config-*")
"""Jars of the transport, which is a module with a class loader of its own."""
PLUGIN = """\
name=root-page
description=GET /
version=1
elasticsearch.version={version}
java.version={java}
classname=RootPage
"""
LOGGING = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""


class Layout(NamedTuple):
    """Where everything lies that a node needs."""

    version: str
    java: Path
    home: Path


def laid_out() -> Layout:
    """The folder of this version, made if it is not there.

    Raises:
        Lacking: a program or a library that it needs, or the download.
    """
    (version,) = re.findall(r"<elasticsearch>(.*)</elasticsearch>", POM.read_text())
    jdk, home = _jdk(), CACHE / f"elasticsearch-{version}"
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder) / "made"
            _make(made, version, jdk)
            made.rename(home)
    return Layout(version, jdk / "bin" / "java", home)


def _make(made: Path, version: str, jdk: Path) -> None:
    zstd = _zstd()
    _fetch(made / "lib")
    netty = made / "modules" / "transport-netty4"
    netty.mkdir(parents=True)
    for pattern in OF_TRANSPORT:
        for jar in (made / "lib").glob(pattern):
            jar.rename(netty / jar.name)
    # The description of the module lies in its jar, and is looked for beside it.
    _run(jdk / "bin" / "jar", "xf", next(netty.glob("transport-netty4-*.jar")), "META-INF/es-plugins", folder=netty)
    for file in netty.glob("META-INF/es-plugins/*/*"):
        file.rename(netty / file.name)
    _compile(made, version, jdk)
    (made / "config").mkdir()
    (made / "config" / "log4j2.properties").write_text(LOGGING)
    (made / "native").mkdir()
    (made / "native" / "libzstd.so").symlink_to(zstd)


def _compile(made: Path, version: str, jdk: Path) -> None:
    compiled = {"SearchNode": made / "node", "RootPage": made / "modules" / "root-page" / "classes"}
    for name, folder in compiled.items():
        modules = ("--module-path", made / "lib", "--add-modules", "ALL-MODULE-PATH")
        _run(jdk / "bin" / "javac", "-d", folder, *modules, HERE / f"{name}.java", folder=made)
    plugin = compiled["RootPage"].parent
    _run(jdk / "bin" / "jar", "cf", plugin / "root-page.jar", "-C", compiled["RootPage"], ".", folder=made)
    shutil.rmtree(compiled["RootPage"])
    described = PLUGIN.format(version=version, java=NEWEST_BYTECODE)
    (plugin / "plugin-descriptor.properties").write_text(described)


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Lacking("Maven (`mvn`) is not installed")
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}")
    command = [maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(POM), *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Lacking(f"Maven had not fetched its jars after {FETCH_S} s") from error
    if done.returncode:
        raise Lacking(f"Maven cannot fetch its jars: {(done.stdout.strip().splitlines() or ['no output'])[0][:300]}")


def _jdk() -> Path:
    """JAVA_HOME, the JDK on the path, or the newest of the system's.

    Raises:
        Lacking: none of them is new enough.
    """
    compiler = shutil.which("javac")
    homes = [Path(home) for home in [os.environ.get("JAVA_HOME")] if home]
    homes += [Path(compiler).resolve().parents[1]] if compiler else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"), key=_major, reverse=True)
    for home in homes:
        if _major(home) >= NEWEST_BYTECODE:
            return home
    raise Lacking(f"no JDK of version {NEWEST_BYTECODE} or newer: set JAVA_HOME")


def _major(home: Path) -> int:
    """The version of a JDK; 0 where none lies there."""
    compiler = home / "bin" / "javac"
    if not compiler.exists():
        return 0
    said = subprocess.run([str(compiler), "-version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"javac (\d+)", said)
    return int(found[1]) if found else 0


def _zstd() -> Path:
    for pattern in (f"{platform.machine()}-linux-gnu/libzstd.so.1", "../lib64/libzstd.so.1"):
        if (found := Path("/usr/lib") / pattern).exists():
            return found
    raise Lacking("libzstd is not installed")


def _run(program: Path, *arguments: object, folder: Path) -> None:
    subprocess.run([str(program), *map(str, arguments)], cwd=folder, check=True, capture_output=True)


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
            # On a disk that is more than 85 % full, no shard would be allocated, and every index would wait for one.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
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
