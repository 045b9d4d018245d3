"""What a configuration names and is not there: its own file, the files of models, the models of roles."""

import os
from collections.abc import Iterator
from pathlib import Path

from mathrag.cli.config_findings import Finding, where
from shared import suggestions
from shared.places import config_file
from shared.settings import Settings

NAMED = "MATHRAG_CONFIG"
RETRIEVAL_FILES = {"embeddings": ("static", "gguf"), "reranker": ("gguf",)}
"""Kinds of a group of `retrieval` that read their `path`; sentence-transformers may take a name on the hub."""


def missing_file() -> list[Finding]:
    """That the variable names a file that is not there, so that the defaults would hold in silence."""
    if NAMED not in os.environ or config_file().exists():
        return []
    message = f"there is no file `{config_file()}`, so the defaults would hold"
    fix = f"correct the path, unset {NAMED}, or: cp mathrag.example.yaml {config_file()}"
    return [Finding(key="", where=NAMED, message=message, fix=fix)]


def missing(settings: Settings) -> Iterator[Finding]:
    """Roles that no model answers, and files of models that are not there."""
    for role, name in settings.roles.items():
        if name not in settings.models:
            listed = f"the models are {', '.join(sorted(settings.models))}; `mathrag config show` prints them"
            fix = suggestions.hint(name, settings.models, listed)
            place = ["roles", role]
            yield Finding(key=".".join(place), where=where(place), message=f"there is no model {name!r}", fix=fix)
    for place, path in _files(settings):
        if not path.exists():
            message = f"there is no file or folder `{path}` (looked for from {Path.cwd()})"
            fix = "correct the path, or put the model there: ls -l " + str(path.parent)
            yield Finding(key=".".join(place), where=where(place), message=message, fix=fix)


def _files(settings: Settings) -> Iterator[tuple[list[str], Path]]:
    """(keys, path) of every file that a service would read."""
    for name, model in settings.models.items():
        if model.driver in ("process", "vllm-sleep") and model.path is not None:
            yield ["models", name, "path"], model.path
    for group, kinds in RETRIEVAL_FILES.items():
        found = getattr(settings.retrieval, group)
        if found.kind in kinds and found.path is not None:
            yield ["retrieval", group, "path"], found.path
