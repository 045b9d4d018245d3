"""Find, try and load plug-ins: from installed distributions and from folders."""

import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, get_args

import msgspec

from mathrag.errors import Unavailable
from mathrag.messages import redact
from shared import canonical
from shared.calls import Rules
from shared.pipelines import registry
from shared.plugins.catalogue import FILES, NAME, Plugin, Texts, UnusableFiles, find_plugins, read_texts
from shared.rag import answer_metrics, grading, prompts
from shared.rag.prompts import Template, TemplateError, list_packaged_ids
from shared.settings import Embeddings, Model, Plugins, Reranker, load
from shared.shapes import Kind, PluginPin, State

# Read the prompt templates and rubrics in the configured folders, once at a process's start.

LONGEST = 65_536
"""Maximum size of a file, in bytes."""
MOST_FILES = 200
"""Maximum number of files in a folder: each query for ready samples lists all prompts."""
SUFFIXES = {Kind.TEMPLATE: ".toml", Kind.RUBRIC: ".txt"}


class UnusableFile(ValueError):
    """A file of such a folder cannot be used; the message says why."""


def find_in_folder(kind: Kind, folder: Path | None, shipped: Collection[str]) -> list[Plugin]:
    """Find every file of the folder with the kind's suffix, sorted by name; the state reports unusable ones."""
    if folder is None:
        return []
    try:
        names = sorted(each.name for each in os.scandir(folder) if each.name.endswith(SUFFIXES[kind]))
    except OSError as error:
        problem = f"the folder cannot be read: {error.strerror}; correct `plugins.{kind.value}s` in mathrag.yaml"
        return [_plugin(kind, folder, str(folder.name), {}).with_state(State.REFUSED, problem)]
    found = [_read_plugin(kind, folder, name, shipped) for name in names[:MOST_FILES]]
    if len(names) > MOST_FILES:
        problem = f"the folder holds {len(names)} files and may hold {MOST_FILES}: the last ones are left out"
        found.append(_plugin(kind, folder, names[MOST_FILES].rpartition(".")[0], {}).with_state(State.REFUSED, problem))
    return found


def _read_plugin(kind: Kind, folder: Path, name: str, shipped: Collection[str]) -> Plugin:
    stem = name.removesuffix(SUFFIXES[kind])
    try:
        text = _read_file(folder, name)
        _check(kind, stem, text)
    except (UnusableFile, OSError) as error:
        return _plugin(kind, folder, stem, {}).with_state(State.REFUSED, f"`{folder / name}`: {error}")
    plugin = _plugin(kind, folder, stem, {name: text})
    if stem in shipped:
        problem = f"{kind.value} {stem!r} is shipped with this program: give the file another name"
        return plugin.with_state(State.SHIPPED, problem)
    return plugin


def _plugin(kind: Kind, folder: Path, name: str, texts: dict[str, str]) -> Plugin:
    return Plugin(
        kind=kind, name=name, value=str(folder), distribution=f"plugins.{kind.value}s", version="file", texts=texts
    )


def _read_file(folder: Path, name: str) -> str:
    if not NAME.fullmatch(name.rpartition(".")[0]):
        raise UnusableFile("its name is not valid: use up to 41 lower-case letters, digits and hyphens, first a letter")
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise UnusableFile(f"leads to {file}, outside its folder: copy the file into it")
    if not file.is_file():
        raise UnusableFile("is not a file: remove it")
    with file.open("rb") as opened:
        content = opened.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise UnusableFile(f"has more than {LONGEST} bytes: shorten it")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableFile("is not UTF-8: save it as UTF-8") from error


def _check(kind: Kind, stem: str, text: str) -> None:
    if kind is Kind.RUBRIC:
        if not text.strip():
            raise UnusableFile("is empty: describe a right answer")
        return
    if (found := read_template(text)).id != stem:
        raise UnusableFile(f"says `id = {found.id!r}`: the id must be the file's name, {stem!r}")


def read_template(text: str) -> Template:
    """Read the template in a file.

    Raises:
        UnusableFile: it is not a template, or uses a placeholder that it does not declare.
    """
    try:
        return msgspec.convert(tomllib.loads(text), Template)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, TemplateError) as error:
        raise UnusableFile(f"is not a template: {error}; see shared/rag/templates/cot.toml for an example") from error


# Try to import a plug-in in its own process, which is killed when it takes too long.
#
# An import cannot be undone, and code that hangs in it cannot be stopped: no service imports a plug-in that has
# not passed here.

PROGRAM = "shared.runtime.plugin_trial"
AT_ONCE = 2
LONGEST_DETAIL = 500


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a trial, which its process prints as JSON."""

    state: State
    detail: str = ""
    declares: dict[str, str | float | bool | None] = {}
    """What the plug-in declares about itself, for services that do not import it."""


_verdicts: dict[PluginPin, TrialResult] = {}
"""Verdicts by code, so that a process tries each once."""


def try_all(plugins: Iterable[Plugin], limit_s: float) -> list[TrialResult]:
    """Return the verdict on each, in order; at most two run at once, each for up to `limit_s` seconds."""

    def find_verdict(plugin: Plugin) -> TrialResult:
        if plugin.pin not in _verdicts:
            _verdicts[plugin.pin] = _try(plugin, limit_s)
        return _verdicts[plugin.pin]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(find_verdict, plugins))


def _try(plugin: Plugin, limit_s: float) -> TrialResult:
    words = [sys.executable, "-P", "-m", PROGRAM, str(os.getpid()), plugin.kind.value, plugin.name, plugin.value]
    # A file instead of a pipe: a process that the import forks may hold a pipe open for ever.
    with tempfile.TemporaryFile() as said:
        # Its output is ignored, and its whole session is killed.
        child = subprocess.Popen(  # noqa: S603 - the name of an entry point, which is an identifier
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            detail = f"its import took longer than {limit_s:g} s (`plugins.import_s`): do less while it is imported"
            return TrialResult(state=State.TIMED_OUT, detail=detail)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return _read_verdict(said, status)


def _read_verdict(said: IO[bytes], status: int) -> TrialResult:
    said.seek(0)
    try:
        verdict = msgspec.json.decode(said.read(LONGEST), type=TrialResult)
    except ValueError:
        detail = f"its import ended the process with status {status}: a module must not exit on import"
        return TrialResult(state=State.FAILED, detail=detail)
    words = "".join(char if char.isprintable() else " " for char in redact(verdict.detail))
    return msgspec.structs.replace(verdict, detail=words[:LONGEST_DETAIL])


# The plug-ins of this process: found and tried once at its start, and those that replays need imported.
#
# A process keeps its imports. Plug-ins that are installed, upgraded or uninstalled later count after a restart.

REPLAYED = (Kind.PIPELINE, Kind.GRADER, Kind.METRIC, Kind.TEMPLATE, Kind.RUBRIC)
"""Kinds that a process needs to advance samples."""
PINNED = (Kind.PIPELINE, Kind.GRADER, Kind.METRIC, Kind.TEMPLATE)
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
    """Return why the plug-in of this name cannot be used, as a sentence; None if the plug-in does not exist."""
    found = _find_loaded(kind, name)
    if found is None or found.state is State.READY:
        return None
    return f"{_words(found)} cannot be used: {found.state}: {found.detail}"


def get_usable(kind: Kind, name: str) -> Plugin | None:
    """Return the plug-in of this name; None if no usable one exists."""
    found = _find_loaded(kind, name)
    return found if found is not None and found.state is State.READY else None


def _find_loaded(kind: str, name: str) -> Plugin | None:
    return next((each for each in _loaded.plugins if (each.kind, each.name) == (kind, name)), None)


def has_changed(plugin: Plugin) -> bool:
    """Tell whether the files on disk differ from those that this process knows."""
    return _texts_now(plugin) != plugin.texts


def explain_absence(pin: PluginPin) -> str | None:
    """Return why a job that has pinned `pin` cannot continue in this process, and what to do; None if it can."""
    here = _find_loaded(pin.kind, pin.name)
    back = f"install {pin.distribution} {pin.version} again, then restart the stack; or cancel the job"
    if pin.kind in FILES:
        back = f"restore the file from `{pin.distribution}`, then restart the stack; or cancel the job"
    if here is None:
        return f"it is not installed: {back}"
    if here.pin != pin:
        return f"installed is {here.distribution} {here.version}, with the code {here.pin.hash[:12]}: {back}"
    return None if here.state is State.READY else f"{here.state}: {here.detail}"


def find(settings: Plugins) -> list[Plugin]:
    """Find the installed plug-ins, and the files in the configured folders."""
    return [
        *find_plugins(list_shipped_names()),
        *find_in_folder(Kind.TEMPLATE, settings.templates, list_packaged_ids()),
        *find_in_folder(Kind.RUBRIC, settings.rubrics, ()),
    ]


def try_plugins(plugins: Sequence[Plugin], limit_s: float, kinds: Collection[Kind]) -> list[Plugin]:
    """Try the plug-ins of these kinds against which nothing is known, and return all with their states."""
    found = list(plugins)
    untried = [
        place
        for place, plugin in enumerate(found)
        if plugin.kind in kinds and plugin.kind not in FILES and plugin.state is State.READY
    ]
    for place, verdict in zip(untried, try_all([found[each] for each in untried], limit_s), strict=True):
        found[place] = msgspec.structs.replace(found[place], **msgspec.structs.asdict(verdict))
    return found


def list_shipped_names() -> dict[Kind, Collection[str]]:
    return {
        Kind.PIPELINE: [name for name in registry.names() if registry.get(name).plugin is None],
        Kind.GRADER: grading.GRADERS.keys(),
        Kind.METRIC: answer_metrics.METRICS.keys(),
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
    """Register the plug-in if it can be used. A grader is not imported: it runs in separate processes."""
    if plugin.kind not in REPLAYED or plugin.state is not State.READY:
        return plugin
    try:
        if plugin.kind is Kind.PIPELINE:
            found = registry.get_declared(plugin.name, import_plugin(plugin))
            registry.adopt(found, plugin.pin, plugin.texts, partial(_texts_now, plugin))
        elif plugin.kind is Kind.GRADER:
            said: dict[str, Any] = {**plugin.declares}
            extract = grading.EXTRACTS[said.pop("extract")]
            grader = grading.Grader(name=plugin.name, extract=extract, mark=_mark_elsewhere, plugin=plugin.pin, **said)
            grading.adopt(grader)
        elif plugin.kind is Kind.METRIC:
            answer_metrics.adopt(import_plugin(plugin)._replace(plugin=plugin.pin))
        elif plugin.kind is Kind.TEMPLATE:
            prompts.adopt(read_template(*plugin.texts.values()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a plug-in may raise anything, and the others continue
        return plugin.with_state(State.FAILED, f"{type(error).__name__}: {error}")
    return plugin


def _mark_elsewhere(_answer: str, _gold: str, _rules: Rules) -> NoReturn:
    raise RuntimeError("a plug-in's grader only runs in a process that can be killed")


def _texts_now(plugin: Plugin) -> Texts:
    """Read the plug-in's files on disk; empty if it is no longer installed."""
    try:
        return read_texts(metadata.distribution(plugin.distribution), plugin.value)
    except (metadata.PackageNotFoundError, UnusableFiles, OSError):
        return {}


def list_present(settings: Plugins) -> list[Plugin]:
    """Return the installed plug-ins and those that this process has imported, each with its state."""
    before = {(each.kind, each.name): each for each in _loaded.plugins}
    now = try_plugins(find(settings), settings.import_s, list(Kind))
    present = {(each.kind, each.name) for each in now}
    was_uninstalled = "it was uninstalled, and runs until the service is restarted"
    gone = [each.with_state(State.CHANGED, was_uninstalled) for key, each in before.items() if key not in present]
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


# Open the plug-ins that a setting or a request names, in the process that needs them.


def open_plugin(kind: Kind, name: str) -> tuple[Plugin, Any]:
    """Return the plug-in and the object of its entry point, which is imported once per process, after a trial.

    Raises:
        Unavailable: it does not exist or cannot be used; the message has the reason.
    """
    plugin = find_usable(kind, name)
    try:
        return plugin, import_once(kind, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Unavailable(f"{_words(plugin)} cannot be imported: {type(error).__name__}: {error}", hint=HINT) from error


HINT = "mathrag plugin list"


@cache
def find_usable(kind: Kind, name: str) -> Plugin:
    """Return the plug-in in the version that this process first found and runs.

    Raises:
        Unavailable: as `open_plugin`; an unusable plug-in is looked up again the next time.
    """
    settings = load().plugins
    installed = [each for each in find(settings) if (each.kind, each.name) == (kind, name)]
    if not installed:
        raise Unavailable(f"no plug-in is installed that adds the {kind.value} {name!r}", hint=HINT)
    [plugin] = try_plugins(installed[:1], settings.import_s, [kind])
    if plugin.state is not State.READY:
        raise Unavailable(f"{_words(plugin)} cannot be used: {plugin.state}: {plugin.detail}", hint=HINT)
    return plugin


@cache
def import_once(kind: Kind, name: str) -> Any:
    return import_plugin(find_usable(kind, name))


def _words(plugin: Plugin) -> str:
    return f"plug-in {plugin.name!r} of {plugin.distribution} {plugin.version}"
