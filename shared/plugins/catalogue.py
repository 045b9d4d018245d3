"""Find the installed plug-ins in the metadata of distributions; nothing is imported."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib import metadata

import msgspec

from shared.contracts.plugins import Kind, PluginPin, State
from shared.plugins.files import Texts, UnusableFiles, code_hash, read_texts

NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_VALUE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
FILES = (Kind.TEMPLATE, Kind.RUBRIC)
"""Kinds that are files of a folder, not distributions."""
KINDS = {kind.group: kind for kind in Kind if kind not in FILES}

Shipped = Mapping[Kind, Collection[str]]
"""Names in use by this program, which no plug-in may take."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """An entry point as it is installed now."""

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
        """Return the identity of the plug-in."""
        return PluginPin(
            kind=self.kind.value,
            name=self.name,
            distribution=self.distribution,
            version=self.version,
            hash=code_hash(self.texts) if self.texts else "",
        )

    def with_state(self, state: State, detail: str) -> "Plugin":
        """Return the plug-in with this state and detail."""
        return msgspec.structs.replace(self, state=state, detail=detail)


def find_plugins(shipped: Shipped) -> list[Plugin]:
    """Find every plug-in, sorted by kind and name, including those that cannot be used, as state and detail say."""
    found = [plugin for each in _distributions() for plugin in _plugins_of(each)]
    names = Counter((plugin.kind, plugin.name) for plugin in found)
    checked = [_with_clash(plugin, shipped, names[plugin.kind, plugin.name], found) for plugin in found]
    return sorted(checked, key=lambda plugin: (list(Kind).index(plugin.kind), plugin.name, plugin.distribution))


def _with_clash(plugin: Plugin, shipped: Shipped, count: int, found: list[Plugin]) -> Plugin:
    if plugin.name in shipped.get(plugin.kind, ()):
        problem = f"{plugin.kind.value} {plugin.name!r} is shipped with this program: give the plug-in another name"
        return plugin.with_state(State.SHIPPED, problem)
    if count > 1:
        same = (each for each in found if (each.kind, each.name) == (plugin.kind, plugin.name))
        owners = sorted(f"{each.distribution} {each.version}" for each in same)
        return plugin.with_state(State.DOUBLED, f"named by {' and by '.join(owners)}: uninstall all but one")
    return plugin


def _distributions() -> Iterator[metadata.Distribution]:
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


def _version(distribution: metadata.Distribution) -> str:
    try:
        return str(distribution.metadata["Version"] or "?")
    except (OSError, ValueError, KeyError):
        return "?"


def _plugins_of(distribution: metadata.Distribution) -> Iterator[Plugin]:
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except (OSError, UnicodeDecodeError):
        return
    for kind, name, value in _entries(text):
        yield _plugin(distribution, kind, name, value)


def _entries(text: str) -> Iterator[tuple[Kind, str, str]]:
    """Yield the entry points in the groups of this project; lines of other groups are ignored."""
    kind: Kind | None = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            kind = KINDS.get(line.strip("[] "))
        elif kind is not None and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield kind, name.strip(), value.partition("[")[0].strip()


def _plugin(distribution: metadata.Distribution, kind: Kind, name: str, value: str) -> Plugin:
    plugin = Plugin(
        kind=kind, name=name, value=value, distribution=_name(distribution), version=_version(distribution), texts={}
    )
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
