"""Source files as this process has read them, and which of them have changed on disk since.

Python goes on running what it has imported when a file is edited, so a job's hash is taken over the imported text.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

Texts = dict[str, str]
"""By path from the repository's root, such as `shared/rag/fusion.py`."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose text on disk is not what this process has imported. Hashes are SHA-256 in hex."""

    file: str
    imported: str | None
    """None: the file is new."""
    on_disk: str | None
    """None: the file is gone."""


def package(name: str) -> Texts:
    """Every source file and template of a package and its folders, as they are on disk now."""
    return dict(_files(resources.files(name), name.replace(".", "/")))


def module(name: str) -> Texts:
    """The source file of a module as it is on disk now; empty if there is none."""
    parent, _, stem = name.rpartition(".")
    if not parent:
        return {}
    file = resources.files(parent).joinpath(f"{stem}.py")
    return {f"{name.replace('.', '/')}.py": file.read_text("utf-8")} if file.is_file() else {}


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        elif entry.name.endswith((".py", ".toml")):
            yield f"{path}/{entry.name}", entry.read_text("utf-8")


def changes(imported: Mapping[str, str], on_disk: Mapping[str, str]) -> list[Change]:
    """The files that differ, by path."""
    differing = sorted(
        file for file in imported.keys() | on_disk.keys() if imported.get(file) != on_disk.get(file)
    )  # fmt: skip
    return [
        Change(file=file, imported=_hash(imported.get(file)), on_disk=_hash(on_disk.get(file))) for file in differing
    ]


def _hash(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
