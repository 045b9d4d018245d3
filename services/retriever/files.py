"""An index on disk: a folder named by its signature, whose manifest holds the hash of every file."""

import hashlib
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from services.retriever.ports import Index
from shared.contracts import canonical
from shared.errors import Refused, Unavailable

MANIFEST = "manifest.json"
REBUILD = "Build the corpus's indexes again: `mathrag corpus index NAME`"


LONGEST = 40
"""Characters of a value that a message repeats whole."""


class Unsound(Refused):
    """An index that must not be searched; to build it again mends it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=REBUILD)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds."""

    recipe: dict[str, Any]
    """How it was built; its digest is the signature."""
    documents: int
    files: dict[str, str]
    """File name -> SHA-256 in hex."""

    @property
    def signature(self) -> str:
        """SHA-256 of the recipe, in hex."""
        return canonical.digest(self.recipe).hex()


def write(root: Path, recipe: dict[str, Any], index: Index) -> tuple[Path, bytes]:
    """Save `index` below `root`, all or nothing; a folder of the same signature is replaced.

    Returns:
        The folder, and the SHA-256 of its manifest.

    Raises:
        Unavailable: there is no room for it, or another reason of the file system.
    """
    try:
        return _write(root, recipe, index)
    except OSError as error:
        said = error.strerror or str(error)
        hint = "make room there, then `mathrag corpus index NAME`, or upload the same corpus again: it goes on here"
        raise Unavailable(f"the index cannot be written below {root}: {said}", hint=hint) from error


def _write(root: Path, recipe: dict[str, Any], index: Index) -> tuple[Path, bytes]:
    root.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=".building-", dir=root))
    try:
        index.save(unfinished)
        files = {file.name: _sha256(file).hex() for file in sorted(unfinished.iterdir())}
        manifest = Manifest(recipe=recipe, documents=len(index.documents), files=files)
        (unfinished / MANIFEST).write_bytes(canonical.encode(manifest))
        folder = _publish(unfinished, root / manifest.signature)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder, _sha256(folder / MANIFEST)


def verify(folder: Path, recipe: dict[str, Any], file_hash: bytes) -> Manifest:
    """The manifest of `folder`, if the folder is what was registered and what this code would build.

    Raises:
        Unsound: a file is missing or changed, or the index was built by another recipe.
    """
    try:
        found = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(found).digest() != file_hash:
            raise refusal(folder, f"{MANIFEST} is not the one that was registered")
        manifest = msgspec.json.decode(found, type=Manifest)
        _check(folder, manifest, recipe)
    except OSError as error:
        raise refusal(folder, f"{error.filename} cannot be read") from error
    return manifest


def _check(folder: Path, manifest: Manifest, recipe: dict[str, Any]) -> None:
    differing = sorted(key for key in manifest.recipe | recipe if manifest.recipe.get(key) != recipe.get(key))
    if differing:
        said = (f"{key} ({_brief(manifest.recipe.get(key))}, now {_brief(recipe.get(key))})" for key in differing)
        raise refusal(folder, f"it was built with another {', '.join(said)}")
    for name, expected in manifest.files.items():
        if _sha256(folder / name).hex() != expected:
            raise refusal(folder, f"{name} is not the file that was built")


def _publish(unfinished: Path, folder: Path) -> Path:
    """Move a finished folder to its place in one step; whoever has the old one open keeps it."""
    if folder.exists():
        folder.rename(unfinished.with_name(unfinished.name + "-replaced"))
        shutil.rmtree(unfinished.with_name(unfinished.name + "-replaced"))
    return unfinished.rename(folder)


def refusal(folder: Path, reason: str) -> Unsound:
    """Why the index in `folder` is not searched."""
    return Unsound(f"Index {folder.name[:12]} cannot be used: {reason}")


def _brief(value: object) -> str:
    """A value of a recipe, of a digest the beginning."""
    said = "none" if value is None else str(value)
    return said if len(said) <= LONGEST else f"{said[:12]}…"


def _sha256(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()
