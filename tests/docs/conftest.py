"""What a reader has in front of the how-to pages: the stack that the tutorial started, and what it made there."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import TUTORIAL, blocks_of, files_of
from tests.running import DEADLINE_S

FILES = Path(__file__).parent / "files"
"""What readers have that no page shows."""
BASH = shutil.which("bash") or "bash"
PORT = "18080"


def _own_packages(folder: Path) -> dict[str, str]:
    options = {"PIP_TARGET": str(folder), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    return {**options, "PYTHONPATH": str(folder)}


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = Path(sys.prefix) / "bin"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "MATHRAG_DATA_DIR": str(folder / ".mathrag"),
            "MATHRAG_PORT": PORT,
            "MATHRAG_URL": f"http://127.0.0.1:{PORT}",
            "BROWSER": "true",
            **_own_packages(folder / "packages"),
        }

    def read(self, page: Path) -> None:
        folder = self.folder / page.stem
        folder.mkdir()
        shutil.copytree(FILES, folder, dirs_exist_ok=True)
        for name, text in files_of(page).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        script = [
            f"echo '--- {page.name}, line {each.line}'\n{each.commands}" for each in blocks_of(page) if not each.excuse
        ]
        self.run("".join(script), folder)

    def run(self, script: str, folder: Path | None = None) -> None:
        done = subprocess.run(
            [BASH, "-c", f"set -euo pipefail\n{script}"], cwd=folder or self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:]


@pytest.fixture(scope="session")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("reader"))
    yield reader
    reader.run("mathrag down")


@pytest.fixture(scope="session")
def read_tutorial(newcomer: Reader) -> Callable[[], None]:
    read: list[Path] = []

    def read_once() -> None:
        if not read:
            read.extend(TUTORIAL)
            for page in TUTORIAL:
                newcomer.read(page)

    return read_once


@pytest.fixture
def reader(newcomer: Reader, read_tutorial: Callable[[], None]) -> Reader:
    read_tutorial()
    newcomer.run("mathrag status >/dev/null || mathrag up --detach")
    return newcomer
