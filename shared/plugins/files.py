"""Read the files of a plug-in: those of the package or module that its entry point names. Nothing is imported."""

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.contracts import canonical

Texts = dict[str, str]
"""Files by path below the package's parent, such as `best_of_three/__init__.py`: the text of Python and TOML files, and
the SHA-256 of all others."""

MOST_FILES = 10_000
READ_AS_TEXT = (".py", ".toml")
SKIPPED = ("__pycache__",)
OURS = ("mathrag", "migrations", "models", "services", "shared", "world")
"""Packages of this program."""


class UnusableFiles(ValueError):
    """The files of a plug-in cannot be used; the message says which ones, and what to do."""


def read_texts(distribution: Distribution, value: str) -> Texts:
    """Read the files of the top-level package or module that an entry point's `value` names, as they are on disk now.

    Raises:
        UnusableFiles: there is none, or a file of it lies outside the distribution's folder.
    """
    top = value.partition(":")[0].partition(".")[0]
    where = _place(top)
    _check_owner(distribution, top, where)
    files = [where] if where.is_file() else list(_list_inside(where))
    return {file.relative_to(where.parent).as_posix(): _text(file) for file in sorted(files)}


def code_hash(texts: Texts) -> str:
    """Return the SHA-256, in hex, over all files."""
    return canonical.digest(sorted(texts.items())).hex()


def _place(top: str) -> Path:
    """Find the package's folder, or the module's file."""
    if top in sys.stdlib_module_names:
        raise UnusableFiles(f"its entry point names `{top}`, which is a module of Python: name a module of its own")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError) as error:
        raise UnusableFiles(f"its module `{top}` cannot be looked up: {error}") from error
    if spec is None:
        raise UnusableFiles(f"its module `{top}` is not there; install it again")
    if spec.origin is None or not Path(spec.origin).is_file():
        raise UnusableFiles(f"its package `{top}` has no __init__.py: add one, so that its files can be found")
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _check_owner(distribution: Distribution, top: str, where: Path) -> None:
    """Return if `where` is part of the distribution: of its record, or of the folder that it was installed from."""
    home = _editable_folder(distribution) or Path(str(distribution.locate_file(""))).resolve()
    if not where.resolve().is_relative_to(home):
        raise UnusableFiles(f"its module `{top}` is {where}, outside its folder {home}: keep all of it there")
    recorded = {file.parts[0] for file in distribution.files or () if file.suffix == ".py"}
    own = recorded and not _editable_folder(distribution)
    if _is_ours(where) or (own and top not in recorded and f"{top}.py" not in recorded):
        raise UnusableFiles(f"its module `{top}` is part of another distribution: name a module of its own")


def _is_ours(where: Path) -> bool:
    """Tell whether the name is that of a package of this program."""
    return where.resolve().parent == Path(__file__).resolve().parents[2] and where.name in OURS


def _editable_folder(distribution: Distribution) -> Path | None:
    """Return the folder of an editable installation."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path)).resolve()


def _list_inside(folder: Path) -> Iterator[Path]:
    root, count = folder.resolve(), 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise UnusableFiles(f"`{path}` leads to {path.resolve()}, outside its folder: copy the file into it")
            count += path.is_file()
        if count > MOST_FILES:
            raise UnusableFiles(f"its package has more than {MOST_FILES} files: keep data elsewhere")
        yield from (Path(parent, name) for name in files)


def _text(file: Path) -> str:
    if file.suffix in READ_AS_TEXT:
        try:
            return file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise UnusableFiles(f"`{file}` is not UTF-8: write it as UTF-8") from error
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
