"""Write and verify an index on disk: a folder named by its signature, whose manifest has the hash of every file."""

import hashlib
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from services.retriever.ports import SearchIndex
from shared import canonical
from shared.errors import Refused, Unavailable

MANIFEST = "manifest.json"
REBUILD = "Build the corpus's indexes again: `mathrag corpus index NAME`"


LONGEST = 40
"""Longest value, in characters, that messages do not shorten."""


class UnsoundIndex(Refused):
    """An index is damaged or outdated and must be built again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=REBUILD)


class IndexManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of an index's folder."""

    recipe: dict[str, Any]
    """How it was built; its digest is the signature."""
    documents: int
    files: dict[str, str]
    """File name -> SHA-256 in hex."""

    @property
    def signature(self) -> str:
        """Return the SHA-256 of the recipe, in hex."""
        return canonical.digest(self.recipe).hex()


def write(root: Path, recipe: dict[str, Any], index: SearchIndex) -> tuple[Path, bytes]:
    """Save `index` below `root`, all or nothing; a folder of the same signature is replaced.

    Returns:
        The folder, and the SHA-256 of its manifest.

    Raises:
        Unavailable: there is no room for it, or another reason of the file system.
    """
    try:
        return _write(root, recipe, index)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "make room there, then `mathrag corpus index NAME`, or upload the same corpus again: it goes on here"
        raise Unavailable(f"the index cannot be written below {root}: {reason}", hint=hint) from error


def _write(root: Path, recipe: dict[str, Any], index: SearchIndex) -> tuple[Path, bytes]:
    root.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=".building-", dir=root))
    try:
        index.save(unfinished)
        files = {file.name: _compute_sha256(file).hex() for file in sorted(unfinished.iterdir())}
        manifest = IndexManifest(recipe=recipe, documents=len(index.documents), files=files)
        (unfinished / MANIFEST).write_bytes(canonical.encode(manifest))
        folder = _publish(unfinished, root / manifest.signature)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder, _compute_sha256(folder / MANIFEST)


def verify(folder: Path, recipe: dict[str, Any], file_hash: bytes) -> IndexManifest:
    """Verify that `folder` is what was registered and what this code would build, and return its manifest.

    Raises:
        UnsoundIndex: a file is missing or changed, or the index was built by another recipe.
    """
    try:
        found = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(found).digest() != file_hash:
            raise make_refusal(folder, f"{MANIFEST} is not the one that was registered")
        manifest = msgspec.json.decode(found, type=IndexManifest)
        _check(folder, manifest, recipe)
    except OSError as error:
        raise make_refusal(folder, f"{error.filename} cannot be read") from error
    return manifest


def _check(folder: Path, manifest: IndexManifest, recipe: dict[str, Any]) -> None:
    differing = sorted(key for key in manifest.recipe | recipe if manifest.recipe.get(key) != recipe.get(key))
    if differing:
        differences = (
            f"{key} ({_shorten(manifest.recipe.get(key))}, now {_shorten(recipe.get(key))})" for key in differing
        )
        raise make_refusal(folder, f"it was built with another {', '.join(differences)}")
    for name, expected in manifest.files.items():
        if _compute_sha256(folder / name).hex() != expected:
            raise make_refusal(folder, f"{name} is not the file that was built")


def _publish(unfinished: Path, folder: Path) -> Path:
    """Move a finished folder to its place in one step; processes with the old one open keep it."""
    if folder.exists():
        folder.rename(unfinished.with_name(unfinished.name + "-replaced"))
        shutil.rmtree(unfinished.with_name(unfinished.name + "-replaced"))
    return unfinished.rename(folder)


def make_refusal(folder: Path, reason: str) -> UnsoundIndex:
    """Make the error of an index that cannot be searched."""
    return UnsoundIndex(f"Index {folder.name[:12]} cannot be used: {reason}")


def _shorten(value: object) -> str:
    """Format a recipe's value, and only the beginning of a digest."""
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:12]}…"


def _compute_sha256(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()
