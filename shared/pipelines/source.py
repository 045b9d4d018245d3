"""Read source files, and tell which were edited after this process had imported them; Python runs the imported text."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

Texts = dict[str, str]
"""Texts by path from the repository's root, such as `shared/rag/fusion.py`."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose text on disk differs from the imported one. Hashes are SHA-256 in hex."""

    file: str
    """Path of the file."""
    imported: str | None
    """Hash of the imported file; null if the file is new."""
    on_disk: str | None
    """Hash of the file on disk; null if the file was deleted."""


def read_packages(names: Iterable[str]) -> Texts:
    """Read every source file and template of these packages and their folders from disk."""
    return {path: text for name in names for path, text in _files(resources.files(name), name.replace(".", "/"))}


def list_changes(imported: Mapping[str, str], on_disk: Mapping[str, str]) -> list[Change]:
    """List the files that differ, sorted by path."""
    files = sorted(imported.keys() | on_disk.keys())
    return [
        Change(file=file, imported=_hash(imported.get(file)), on_disk=_hash(on_disk.get(file)))
        for file in files
        if imported.get(file) != on_disk.get(file)
    ]


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        elif entry.name.endswith((".py", ".toml")):
            yield f"{path}/{entry.name}", entry.read_text("utf-8")


def _hash(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
