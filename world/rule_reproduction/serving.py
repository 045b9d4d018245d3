"""Run a stack for each graph, configured for the available models; environment variables lead commands to it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mathrag.cli.up import own_stack
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from shared.settings import REPOSITORY

MODELS = REPOSITORY / "models"
GENERATORS = {"shipped": "rules-generator", "tuned": "rules-generator-tuned"}
"""Names of models by the arm's choice."""
FILE = MODELS / "rules-generator-f16.gguf"
EMBEDDINGS = MODELS / "static-embeddings"
ANSWER_S = 600.0
"""Long, because a comparison reads every sample of its jobs."""


@contextmanager
def serve_stack(folder: Path, tuned: Mapping[str, Path], embeddings: str = "shipped") -> Iterator[Client]:
    """Run the folder's stack, and stop it at the end.

    Args:
        tuned: places of what is tuned, by `generator` (a file) and `embeddings` (a folder).
        embeddings: "shipped" or "tuned", by which questions are searched for.
    """
    with own_stack(folder, configuration(tuned, embeddings), keep=False), Client(timeout_s=ANSWER_S) as client:
        yield client


def configuration(tuned: Mapping[str, Path], embeddings: str) -> dict[str, Any]:
    """Write a stack's settings; models are identified by their bytes, so that no reply is reused for another model."""
    files = {GENERATORS["shipped"]: FILE}
    if "generator" in tuned:
        files[GENERATORS["tuned"]] = tuned["generator"]
    models = {"world-judge": MODELS / "world-judge-f16.gguf", **files}
    return {
        "models": {
            name: {"driver": "process", "path": str(path), "footprint_mib": 96} for name, path in models.items()
        },
        "roles": {"judge": "world-judge", "generate": GENERATORS["shipped"]},
        "retrieval": {"embeddings": {"kind": "static", "path": str(searched_with(tuned, embeddings))}},
    }


def searched_with(tuned: Mapping[str, Path], embeddings: str) -> Path:
    """Return the folder of the embeddings to search with."""
    return tuned["embeddings"] if embeddings == "tuned" else EMBEDDINGS


def command(*arguments: str, python: str = sys.executable, module: str = "mathrag.cli.main") -> None:
    """Print and run a command.

    Raises:
        Failed: it did; its words are on the terminal.
    """
    command_line = " ".join(arguments)
    print(f"  $ {'mathrag' if module == 'mathrag.cli.main' else f'python -m {module}'} {command_line}", flush=True)
    ended = subprocess.run([python, "-m", module, *arguments], cwd=REPOSITORY, check=False)  # noqa: S603 - our own
    if ended.returncode:
        raise Failed("unavailable", f"`{arguments[0]}` ended with {ended.returncode}", hint="its output is above")
