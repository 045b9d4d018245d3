"""OpenAI's client for Node, of the version in package.json, against a running stack."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import REPOSITORY, RunningStack, running_stack

HERE = Path(__file__).parent
INSTALLED = REPOSITORY / "build" / "openai-node"
NPM = ("npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund")
CHECKS = 11


@pytest.fixture(scope="module")
def node() -> str:
    program = shutil.which("node")
    if program is None or shutil.which("npm") is None:
        pytest.skip("OpenAI's Node client: there is no `node` or no `npm`")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "check.mjs"):
        shutil.copy(HERE / name, INSTALLED)
    installed = subprocess.run(NPM, cwd=INSTALLED, capture_output=True, text=True, timeout=300, check=False)
    if installed.returncode:
        pytest.skip(f"OpenAI's Node client: `npm install` failed: {installed.stderr.strip()[-200:]}")
    return program


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("node")
    with running_stack(folder / "data") as running:
        running.furnish(folder / "world", items=20)
        yield running


def test_every_call_of_the_node_client_that_is_promised(node: str, stack: RunningStack) -> None:
    arguments = [f"{stack.url}/openai/v1", "world-generator", "mathrag-gate@world", "static-embeddings"]
    done = subprocess.run(
        [node, "check.mjs", *arguments], cwd=INSTALLED, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == CHECKS
