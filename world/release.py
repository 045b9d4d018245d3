"""Turn two trained folders into the shipped files: ``python -m world.release``.

Writes both GGUF files and ``manifest.json``, which says how they came about.
"""

import argparse
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from world.problems import TRAIN_NAMES, TRAIN_TEMPLATES

GENERATOR_FILE = "world-generator-f16.gguf"
JUDGE_FILE = "world-judge-f16.gguf"
FILES = {"generator": GENERATOR_FILE, "judge": JUDGE_FILE}


def fingerprint(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    return sha256(path.read_bytes()).hexdigest()


def entry(folders: list[Path], model: Path) -> dict[str, Any]:
    """A model's part of the manifest: the file, and the records of its training stages in order."""
    records = [json.loads((folder / "training.json").read_text()) for folder in folders]
    return {"file": model.name, "sha256": fingerprint(model), "training": records}


def manifest(folders: dict[str, list[Path]], models: Path) -> dict[str, Any]:
    """How the shipped models came about, and all that they have seen by name."""
    parts = {role: entry(stages, models / FILES[role]) for role, stages in folders.items()}
    return {"models": parts, "names": list(TRAIN_NAMES), "templates": list(TRAIN_TEMPLATES)}


def main() -> None:
    """Parse the command line, export both models and write the manifest."""
    from world.gguf import export  # needs the training packages; the rest does not

    parser = argparse.ArgumentParser(description=__doc__)
    for role in FILES:
        parser.add_argument(f"--{role}", type=Path, nargs="+", required=True, help="folders of its stages in order")
    parser.add_argument("--models", type=Path, default=Path("models"))
    args = parser.parse_args()
    folders: dict[str, list[Path]] = {role: getattr(args, role) for role in FILES}
    for role, stages in folders.items():
        export(stages[-1], args.models / FILES[role], f"world-{role}")
    text = json.dumps(manifest(folders, args.models), indent=2)
    (args.models / "manifest.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
