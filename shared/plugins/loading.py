"""The plug-ins of this process: found and tried once at its start, and those that replays need imported.

A process keeps what it has imported. What is installed, upgraded or uninstalled later is known after a restart.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec

from shared.contracts import canonical
from shared.contracts.grading import Rules
from shared.contracts.plugins import Kind, PluginPin, State
from shared.model_settings import Model
from shared.pipelines import registry
from shared.plugins.catalogue import FILES, Plugin, find_plugins
from shared.plugins.files import Texts, UnusableFiles, read_texts
from shared.plugins.folders import find_in_folder, read_template
from shared.plugins.trial import TrialResult, try_all
from shared.rag import graders, prompts
from shared.rag.prompts import list_packaged_ids
from shared.retrieval_settings import Embeddings, Reranker
from shared.settings import Plugins

REPLAYED = (Kind.PIPELINE, Kind.GRADER, Kind.TEMPLATE, Kind.RUBRIC)
"""Kinds that a process needs to advance samples."""
PINNED = (Kind.PIPELINE, Kind.GRADER, Kind.TEMPLATE)
"""Kinds whose identity a job stores; of a rubric it stores the text."""


class Loaded(NamedTuple):
    """The plug-ins that a process has found and imported."""

    plugins: tuple[Plugin, ...] = ()
    at: datetime = datetime.min.replace(tzinfo=UTC)


_loaded = Loaded()


def load_plugins(settings: Plugins) -> None:
    """Find all plug-ins, and import those that this process needs; a problem with one becomes its state."""
    global _loaded
    found = try_plugins(find(settings), settings.import_s, REPLAYED)
    _loaded = Loaded(tuple(_adopt(plugin) for plugin in found), datetime.now(UTC))


def get_loaded() -> Loaded:
    """Return what `load_plugins` has found in this process; empty before its first call."""
    return _loaded


def list_usable_pins() -> list[PluginPin]:
    """Return the identities of the plug-ins that replays in this process may use."""
    return [each.pin for each in _loaded.plugins if each.kind in PINNED and each.state is State.READY]


def encode_usable_pins() -> str:
    """Return `list_usable_pins` as JSON, which SQL statements compare with the plug-ins that a job has pinned."""
    return canonical.encode(list_usable_pins()).decode()


def explain_unusable(kind: Kind, name: str) -> str | None:
    """Return why the plug-in of this name cannot be used, as a sentence; None if there is no such plug-in."""
    for each in _loaded.plugins:
        if (each.kind, each.name) == (kind, name) and each.state is not State.READY:
            return f"plug-in {name!r} of {each.distribution} {each.version} cannot be used: {each.state}: {each.detail}"
    return None


def get_usable(kind: Kind, name: str) -> Plugin | None:
    """Return the plug-in of this name; None if there is none that can be used."""
    found = (each for each in _loaded.plugins if (each.kind, each.name, each.state) == (kind, name, State.READY))
    return next(found, None)


def has_changed(plugin: Plugin) -> bool:
    """Tell whether the files on disk differ from those that this process knows."""
    return _texts_now(plugin) != plugin.texts


def explain_absence(pin: PluginPin) -> str | None:
    """Return why a job that has pinned `pin` cannot continue in this process, and what to do; None if it can."""
    here = next((each for each in _loaded.plugins if (each.kind, each.name) == (pin.kind, pin.name)), None)
    back = f"install {pin.distribution} {pin.version} again, then restart the stack; or cancel the job"
    if pin.kind in FILES:
        back = f"put the file back as it was in `{pin.distribution}`, then restart the stack; or cancel the job"
    if here is None:
        return f"it is not installed: {back}"
    if here.pin != pin:
        return f"installed is {here.distribution} {here.version}, with the code {here.pin.hash[:12]}: {back}"
    return None if here.state is State.READY else f"{here.state}: {here.detail}"


def find(settings: Plugins) -> list[Plugin]:
    """Find what is installed now, and what the configured folders hold."""
    return [
        *find_plugins(list_shipped_names()),
        *find_in_folder(Kind.TEMPLATE, settings.templates, list_packaged_ids()),
        *find_in_folder(Kind.RUBRIC, settings.rubrics, ()),
    ]


def try_plugins(plugins: Sequence[Plugin], limit_s: float, kinds: Collection[Kind]) -> list[Plugin]:
    """Try the plug-ins of these kinds against which nothing is known, and return all with their states."""
    untried = [
        plugin
        for plugin in plugins
        if plugin.kind in kinds and plugin.kind not in FILES and plugin.state is State.READY
    ]
    verdicts = dict(zip(map(id, untried), try_all(untried, limit_s), strict=True))
    return [_apply_verdict(plugin, verdicts.get(id(plugin))) for plugin in plugins]


def _apply_verdict(plugin: Plugin, verdict: TrialResult | None) -> Plugin:
    if verdict is None:
        return plugin
    return msgspec.structs.replace(plugin, state=verdict.state, detail=verdict.detail, declares=verdict.declares)


def list_shipped_names() -> dict[Kind, Collection[str]]:
    """Return the names that no plug-in may take."""
    return {
        Kind.PIPELINE: [name for name in registry.names() if registry.get(name).plugin is None],
        Kind.GRADER: graders.GRADERS.keys(),
        Kind.DRIVER: _choices(Model, "driver"),
        Kind.EMBEDDER: _choices(Embeddings, "kind"),
        Kind.RERANKER: _choices(Reranker, "kind"),
    }


def _choices(settings: Any, field: str) -> tuple[str, ...]:
    return get_args(settings.model_fields[field].annotation)


def import_plugin(plugin: Plugin) -> Any:
    """Import the object of the entry point; only call this after a successful trial."""
    return metadata.EntryPoint(name=plugin.name, value=plugin.value, group=plugin.kind.group).load()


def _adopt(plugin: Plugin) -> Plugin:
    """Register the plug-in if it can be used. A grader is not imported: it runs in processes of its own."""
    if plugin.kind not in REPLAYED or plugin.state is not State.READY:
        return plugin
    try:
        if plugin.kind is Kind.PIPELINE:
            found = registry.get_declared(plugin.name, import_plugin(plugin))
            registry.adopt(found, plugin.pin, plugin.texts, partial(_texts_now, plugin))
        elif plugin.kind is Kind.GRADER:
            graders.adopt(_grader(plugin))
        elif plugin.kind is Kind.TEMPLATE:
            prompts.adopt(read_template(*plugin.texts.values()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a plug-in may raise anything, and the others go on
        return plugin.with_state(State.FAILED, f"{type(error).__name__}: {error}")
    return plugin


def _grader(plugin: Plugin) -> graders.Grader:
    said: dict[str, Any] = {**plugin.declares}
    extract = graders.EXTRACTS[said.pop("extract")]
    return graders.Grader(name=plugin.name, extract=extract, mark=_mark_elsewhere, plugin=plugin.pin, **said)


def _mark_elsewhere(_answer: str, _gold: str, _rules: Rules) -> NoReturn:
    raise RuntimeError("a plug-in's grader only runs in a process that can be killed")


def _texts_now(plugin: Plugin) -> Texts:
    """Read the plug-in's files on disk; empty if it is no longer installed."""
    try:
        return read_texts(metadata.distribution(plugin.distribution), plugin.value)
    except (metadata.PackageNotFoundError, UnusableFiles, OSError):
        return {}


def list_present(settings: Plugins) -> list[Plugin]:
    """Return what is installed now, and what this process has beside it, each with its state."""
    before = {(each.kind, each.name): each for each in _loaded.plugins}
    now = try_plugins(find(settings), settings.import_s, list(Kind))
    present = {(each.kind, each.name) for each in now}
    gone = [_mark_uninstalled(each) for key, each in before.items() if key not in present]
    return [*(_compare_with_imported(each, before.get((each.kind, each.name))) for each in now), *gone]


def _compare_with_imported(now: Plugin, before: Plugin | None) -> Plugin:
    """Return the plug-in on disk, with its state if this process has imported another version."""
    if now.state is not State.READY or now.kind not in REPLAYED:
        return now
    if before is None:
        return now.with_state(State.CHANGED, "it was installed after the service had started")
    if before.pin != now.pin:
        return now.with_state(State.CHANGED, f"the service has imported {before.pin}")
    return before


def _mark_uninstalled(plugin: Plugin) -> Plugin:
    return plugin.with_state(State.CHANGED, "it was uninstalled, and runs until the service is restarted")
