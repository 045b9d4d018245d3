"""Files and models that a configuration names but that do not exist."""

import os
from collections.abc import Iterator
from pathlib import Path

from mathrag.cli.config_findings import ConfigFinding, locate
from shared import suggestions
from shared.places import config_file
from shared.settings import Settings

VARIABLE = "MATHRAG_CONFIG"
RETRIEVAL_FILES = {"embeddings": ("static", "gguf"), "reranker": ("gguf",)}
"""Kinds of a group of `retrieval` that read their `path`; sentence-transformers may take a name on the hub."""


def find_missing_file() -> list[ConfigFinding]:
    """Return a finding if MATHRAG_CONFIG names a missing file: the defaults would apply without a word."""
    if VARIABLE not in os.environ or config_file().exists():
        return []
    message = f"there is no file `{config_file()}`, so the defaults would apply"
    fix = f"correct the path, unset {VARIABLE}, or: cp mathrag.example.yaml {config_file()}"
    return [ConfigFinding(key="", where=VARIABLE, message=message, fix=fix)]


def find_missing(settings: Settings) -> Iterator[ConfigFinding]:
    """Yield a finding for each role whose model is not configured, and for each missing model file."""
    for role, name in settings.roles.items():
        if name not in settings.models:
            listed = f"the models are {', '.join(sorted(settings.models))}; `mathrag config show` prints them"
            fix = suggestions.make_hint(name, settings.models, listed)
            place = ["roles", role]
            yield ConfigFinding(
                key=".".join(place), where=locate(place), message=f"there is no model {name!r}", fix=fix
            )
    for place, path in _list_model_files(settings):
        if not path.exists():
            message = f"there is no file or folder `{path}` (looked for from {Path.cwd()})"
            fix = "correct the path, or put the model there: ls -l " + str(path.parent)
            yield ConfigFinding(key=".".join(place), where=locate(place), message=message, fix=fix)


def _list_model_files(settings: Settings) -> Iterator[tuple[list[str], Path]]:
    """Yield the keys and the path of every file that a service would read."""
    for name, model in settings.models.items():
        if model.driver in ("process", "vllm-sleep") and model.path is not None:
            yield ["models", name, "path"], model.path
    for group, kinds in RETRIEVAL_FILES.items():
        found = getattr(settings.retrieval, group)
        if found.kind in kinds and found.path is not None:
            yield ["retrieval", group, "path"], found.path
