"""The catalogue of plug-ins: installed plug-ins, their files, and the hash of their code."""

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from shared import canonical
from shared.shapes import Kind, PluginPin, State

Texts = dict[str, str]
"""Files by path below the package's parent, such as `best_of_three/__init__.py`: the text of Python and TOML files, and
the SHA-256 of all others."""
MOST_FILES = 10_000
READ_AS_TEXT = (".py", ".toml")
SKIPPED = ("__pycache__",)
OURS = ("mathrag", "migrations", "models", "services", "shared", "tools")
"""Packages of this program."""


class UnusableFiles(ValueError):
    """The files of a plug-in cannot be used; the message says which ones, and what to do."""


def read_texts(distribution: Distribution, value: str) -> Texts:
    """Read the files of the top-level package or module that an entry point's `value` names, from disk.

    Raises:
        UnusableFiles: it does not exist, or one of its files is outside the distribution's folder.
    """
    top = value.partition(":")[0].partition(".")[0]
    if top in sys.stdlib_module_names:
        raise UnusableFiles(f"its entry point names `{top}`, which is a module of Python: use another module name")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError) as error:
        raise UnusableFiles(f"its module `{top}` cannot be looked up: {error}") from error
    if spec is None:
        raise UnusableFiles(f"its module `{top}` is missing; install the package again")
    if spec.origin is None or not Path(spec.origin).is_file():
        raise UnusableFiles(f"its package `{top}` has no __init__.py: add one, so that its files can be found")
    where = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
    home = _editable_folder(distribution) or Path(str(distribution.locate_file(""))).resolve()
    if not where.resolve().is_relative_to(home):
        raise UnusableFiles(f"its module `{top}` is {where}, outside its folder {home}: keep all files in that folder")
    recorded = {file.parts[0] for file in distribution.files or () if file.suffix == ".py"}
    own = recorded and not _editable_folder(distribution)
    is_ours = where.resolve().parent == Path(__file__).resolve().parents[2] and where.name in OURS
    if is_ours or (own and top not in recorded and f"{top}.py" not in recorded):
        raise UnusableFiles(f"its module `{top}` is part of another distribution: use another module name")
    files = [where] if where.is_file() else list(_list_inside(where))
    return {file.relative_to(where.parent).as_posix(): _read_text(file) for file in sorted(files)}


def code_hash(texts: Texts) -> str:
    """Return the SHA-256, in hex, over all files."""
    return canonical.digest(sorted(texts.items())).hex()


def _editable_folder(distribution: Distribution) -> Path | None:
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


def _read_text(file: Path) -> str:
    if file.suffix in READ_AS_TEXT:
        try:
            return file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise UnusableFiles(f"`{file}` is not UTF-8: write it as UTF-8") from error
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_VALUE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
FILES = (Kind.TEMPLATE, Kind.RUBRIC)
"""Kinds that are files of a folder, not distributions."""
KINDS = {kind.group: kind for kind in Kind if kind not in FILES}
Shipped = Mapping[Kind, Collection[str]]
"""Names in use by this program, which no plug-in may take."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """An installed entry point."""

    kind: Kind
    name: str
    value: str
    """Value of the entry point, such as `best_of_three:best_of_three`."""
    distribution: str
    version: str
    texts: Texts
    """Files of the plug-in; empty if they cannot be read."""
    state: State = State.READY
    """State; `READY` if no problem is known, which does not mean that it was imported."""
    detail: str = ""
    declares: dict[str, str | float | bool | None] = {}
    """What the plug-in declares about itself, as its trial found."""

    @cached_property
    def pin(self) -> PluginPin:
        code = code_hash(self.texts) if self.texts else ""
        return PluginPin(
            kind=self.kind.value, name=self.name, distribution=self.distribution, version=self.version, hash=code
        )

    def with_state(self, state: State, detail: str) -> "Plugin":
        return msgspec.structs.replace(self, state=state, detail=detail)


def find_plugins(shipped: Shipped) -> list[Plugin]:
    """Find every plug-in, sorted by kind and name, including those that cannot be used, as state and detail say."""
    found = [
        _read_plugin(distribution, *entry)
        for distribution in _list_distributions()
        for entry in _list_entry_points(distribution)
    ]
    owners: dict[tuple[Kind, str], list[str]] = {}
    for plugin in found:
        owners.setdefault((plugin.kind, plugin.name), []).append(f"{plugin.distribution} {plugin.version}")
    checked = []
    for plugin in found:
        kind, name, same = plugin.kind, plugin.name, sorted(owners[plugin.kind, plugin.name])
        if name in shipped.get(kind, ()):
            problem = f"{kind.value} {name!r} is shipped with this program: give the plug-in another name"
            checked.append(plugin.with_state(State.SHIPPED, problem))
        elif len(same) > 1:
            problem = f"named by {' and by '.join(same)}: uninstall all but one"
            checked.append(plugin.with_state(State.DOUBLED, problem))
        else:
            checked.append(plugin)
    return sorted(checked, key=lambda plugin: (list(Kind).index(plugin.kind), plugin.name, plugin.distribution))


def _list_distributions() -> Iterator[metadata.Distribution]:
    """Yield each distribution once; if several folders of the path have it, the first one, which Python would
    import."""
    folders: dict[str, str] = {}
    for distribution in metadata.distributions():
        folder = str(distribution.locate_file(""))
        if folders.setdefault(_name(distribution).lower().replace("_", "-"), folder) == folder:
            yield distribution


def _name(distribution: metadata.Distribution) -> str:
    """Return the distribution's name; without metadata, that of its folder."""
    try:
        named = distribution.metadata["Name"]
    except (OSError, ValueError, KeyError):
        named = None
    path = getattr(distribution, "_path", None)
    return named or (path.name.partition("-")[0] if path is not None else "?")


def _list_entry_points(distribution: metadata.Distribution) -> Iterator[tuple[Kind, str, str]]:
    """Yield the entry points in the groups of this project; lines of other groups are ignored."""
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except (OSError, UnicodeDecodeError):
        return
    kind: Kind | None = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            kind = KINDS.get(line.strip("[] "))
        elif kind is not None and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield kind, name.strip(), value.partition("[")[0].strip()


def _read_plugin(distribution: metadata.Distribution, kind: Kind, name: str, value: str) -> Plugin:
    try:
        version = str(distribution.metadata["Version"] or "?")
    except (OSError, ValueError, KeyError):
        version = "?"
    plugin = Plugin(kind=kind, name=name, value=value, distribution=_name(distribution), version=version, texts={})
    if not NAME.fullmatch(name):
        problem = f"{name!r} is not a valid name: use up to 41 small letters, digits and hyphens, a letter first"
        return plugin.with_state(State.REFUSED, problem)
    if not _VALUE.fullmatch(value):
        return plugin.with_state(State.REFUSED, f"its entry point {value!r} is not valid: write `module:attribute`")
    try:
        texts = read_texts(distribution, value)
    except (UnusableFiles, OSError, ValueError) as error:
        return plugin.with_state(State.REFUSED, str(error))
    return msgspec.structs.replace(plugin, texts=texts)
