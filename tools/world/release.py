"""Turn trained folders into the shipped files: ``python -m tools.world.release``.

Writes GGUF files and ``manifest.json``, which says how they came about."""

import argparse
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from mathrag_gate.demo.world import TRAIN_NAMES, TRAIN_TEMPLATES
from tools.world.relations import TRAIN_PHRASINGS

Json = dict[str, Any]

FILES = {"generator": "world-generator-f16.gguf", "judge": "world-judge-f16.gguf"}
"""The world's two models, which the paper's experiment runs on."""
SHIPPED = {**FILES, "rules": "rules-generator-f16.gguf", "labels": "label-judge-f16.gguf"}
"""All models of the repository, by role."""


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return sha256(path.read_bytes()).hexdigest()


def entry(folders: list[Path], model: Path, shipped: Json | None) -> Json:
    """Write a model's part of the manifest: the file, and the records of its training stages in order.

    If the first stage started from the file of ``shipped``, that file's stages come first.
    """
    records = [json.loads((folder / "training.json").read_text()) for folder in folders]
    if shipped and records[0].get("init") == shipped["sha256"]:
        records = shipped["training"] + records
    return {"file": model.name, "sha256": fingerprint(model), "training": records}


def manifest(folders: dict[str, list[Path]], models: Path, shipped: Json) -> Json:
    """Record the shipped models' training and the names that they have seen; a role without folders is unchanged."""
    parts = {role: entry(stages, models / SHIPPED[role], shipped.get(role)) for role, stages in folders.items()}
    return {
        "models": {**shipped, **parts},
        "names": list(TRAIN_NAMES),
        "templates": list(TRAIN_TEMPLATES),
        "phrasings": [*TRAIN_PHRASINGS.objects, *TRAIN_PHRASINGS.subjects],
    }


def main() -> None:
    from tools.world.models import export  # needs the training packages; the rest does not

    parser = argparse.ArgumentParser(description=__doc__)
    for role in SHIPPED:
        parser.add_argument(f"--{role}", type=Path, nargs="+", help="folders of its stages in order; none: unchanged")
    parser.add_argument("--models", type=Path, default=Path("models"))
    args = parser.parse_args()
    folders: dict[str, list[Path]] = {role: getattr(args, role) for role in SHIPPED if getattr(args, role)}
    for role, stages in folders.items():
        export(stages[-1], args.models / SHIPPED[role], SHIPPED[role].removesuffix("-f16.gguf"))
    file = args.models / "manifest.json"
    shipped = json.loads(file.read_text())["models"] if file.exists() else {}
    file.write_text(json.dumps(manifest(folders, args.models, shipped), indent=2) + "\n")


if __name__ == "__main__":
    main()
