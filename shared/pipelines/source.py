"""Collect the files that decide what a module does: its source, what it imports of this project, and data files.

Python goes on running the imported text after a file is edited, so a job's hash covers the imported text.
"""

import ast
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

Texts = dict[str, str]
"""Texts by path from the repository's root, such as `shared/rag/fusion.py`."""
Read = Callable[[str], Texts]
"""Reads the files of one module: `read_from_disk` or `read_as_imported`."""

PROJECT = "shared"
"""The package whose imports are followed; pipelines import no other package of this repository."""
TEMPLATES = "shared/rag/templates"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose text on disk differs from the imported one. Hashes are SHA-256 in hex."""

    file: str
    imported: str | None
    """None: the file is new."""
    on_disk: str | None
    """None: the file is gone."""


class _Mentions(NamedTuple):
    """The modules, templates and data files that a source mentions."""

    modules: frozenset[str]
    """Imported modules of the project and the packages around them; names imported from a module may be among them."""
    templates: frozenset[str]
    """Paths, in every language, of templates that it loads by `localised("cot", ...)` or `template("cot")`."""
    beside: frozenset[str]
    """Names of data files in its folder, such as "terms.toml"."""


def read_package(name: str) -> Texts:
    """Read every source file and template of a package and its folders from disk."""
    return dict(_files(resources.files(name), name.replace(".", "/")))


def collect_files(module: str, read: Read) -> Texts:
    """Collect the files of a module and, transitively, of every module of the project that it imports at any place."""
    texts: Texts = {}
    seen, ahead = set[str](), [module]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            found = read(name)
            texts |= found
            for file, text in found.items():
                ahead += _mentions(text).modules if file.endswith(".py") else ()
    return texts


def add_imports(texts: Texts, read: Read) -> Texts:
    """Add to `texts`, files of another project, every module of this project that they import, directly or not."""
    modules = {module for file, text in texts.items() if file.endswith(".py") for module in _imports(text)}
    return {**texts, **{file: text for module in modules for file, text in collect_files(module, read).items()}}


def _imports(text: str) -> frozenset[str]:
    """Return the modules of this project that a file imports; none if it is not valid Python, such as a template."""
    try:
        return _mentions(text).modules
    except SyntaxError:
        return frozenset()


def read_from_disk(module: str) -> Texts:
    """Read the source file of a module and the data files that it names from disk; empty if there is none."""
    top, *below = module.split(".")
    root = next((Path(folder).parent for folder in getattr(sys.modules.get(top), "__path__", ())), None)
    if root is None:
        return {}
    path = "/".join((top, *below))
    file = next((file for file in (f"{path}.py", f"{path}/__init__.py") if (root / file).is_file()), None)
    if file is None:
        return {}
    text = (root / file).read_text("utf-8")
    mentions = _mentions(text)
    named = {*mentions.templates, *(f"{file.rpartition('/')[0]}/{name}" for name in mentions.beside)}
    return {file: text} | {name: (root / name).read_text("utf-8") for name in named if (root / name).is_file()}


@cache
def read_as_imported(module: str) -> Texts:
    """Return the texts as at the first call, which the registry makes while it imports a pipeline."""
    return read_from_disk(module)


def list_changes(imported: Mapping[str, str], on_disk: Mapping[str, str]) -> list[Change]:
    """List the files that differ, sorted by path."""
    differing = sorted(
        file for file in imported.keys() | on_disk.keys() if imported.get(file) != on_disk.get(file)
    )  # fmt: skip
    return [
        Change(file=file, imported=_hash(imported.get(file)), on_disk=_hash(on_disk.get(file))) for file in differing
    ]


@cache
def _mentions(text: str) -> _Mentions:
    imports, templates, beside = set[str](), set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                imports.update(each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                imports.update(f"{module}.{each.name}" for each in names)
            case ast.Call(func=ast.Name(id="localised" | "template"), args=[ast.Constant(value=str(name)), *_]):
                templates.update(f"{TEMPLATES}/{name}{language}.toml" for language in ("", "-zh"))
            case ast.Constant(value=str(name)) if name.endswith(".toml"):
                beside.add(name)
    ours = (name.split(".") for name in imports if name.partition(".")[0] == PROJECT)
    modules = {each for parts in ours for each in accumulate(parts, "{}.{}".format)}
    return _Mentions(frozenset(modules), frozenset(templates), frozenset(beside))


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        elif entry.name.endswith((".py", ".toml")):
            yield f"{path}/{entry.name}", entry.read_text("utf-8")


def _hash(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
