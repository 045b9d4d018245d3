"""A folder from which Elasticsearch runs, made once from its jars on Maven Central.

Against a distribution it lacks x-pack (security, TLS, API keys, index lifecycle), painless, the language analysers and
the native vector library.
"""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.real.lacking import Lacking

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
