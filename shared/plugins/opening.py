"""Open the plug-ins that a setting or a request names, in the process that needs them."""

from functools import cache
from typing import Any

from shared.contracts.plugins import Kind, State
from shared.errors import Unavailable
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.settings import load


def open_plugin(kind: Kind, name: str) -> tuple[Plugin, Any]:
    """Return the plug-in and the object of its entry point, which is imported once per process, after a trial.

    Raises:
        Unavailable: there is none, or it cannot be used; the message says why.
    """
    plugin = find_usable(kind, name)
    try:
        return plugin, _import(kind, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Unavailable(f"{_words(plugin)} cannot be imported: {type(error).__name__}: {error}", hint=HINT) from error


HINT = "mathrag plugin list"


@cache
def find_usable(kind: Kind, name: str) -> Plugin:
    """Return the plug-in as it was first found, which is the version that this process runs.

    Raises:
        Unavailable: as `open_plugin`; what is not usable is looked for again the next time.
    """
    settings = load().plugins
    installed = [each for each in loading.find(settings) if (each.kind, each.name) == (kind, name)]
    if not installed:
        raise Unavailable(f"no plug-in is installed that adds the {kind.value} {name!r}", hint=HINT)
    [plugin] = loading.try_plugins(installed[:1], settings.import_s, [kind])
    if plugin.state is not State.READY:
        raise Unavailable(f"{_words(plugin)} cannot be used: {plugin.state}: {plugin.detail}", hint=HINT)
    return plugin


@cache
def _import(kind: Kind, name: str) -> Any:
    return loading.import_plugin(find_usable(kind, name))


def _words(plugin: Plugin) -> str:
    return f"plug-in {plugin.name!r} of {plugin.distribution} {plugin.version}"
