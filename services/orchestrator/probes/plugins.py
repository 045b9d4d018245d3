"""Checks that no installed plug-in is broken, and that every live job has the plug-ins that it needs."""

import asyncio
import shlex

from services.orchestrator.deps import Deps
from shared.checks import RESTART, NotReady
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.shapes import State
from shared.storage import jobs

MEND = {
    State.SHIPPED: "pip uninstall {distribution}",
    State.DOUBLED: "pip uninstall {distribution}",
    State.CHANGED: RESTART,
}
"""Fix for a plug-in in each state; for other states: repair or uninstall it."""


async def check_usable(deps: Deps) -> str:
    """Check that every installed plug-in can be imported, and is the version that this process has imported."""
    found = await asyncio.to_thread(loading.list_present, deps.settings.plugins)
    bad = [plugin for plugin in found if plugin.state is not State.READY]
    if bad:
        raise NotReady("; ".join(map(_describe_plugin, bad)), fix=get_fix(bad[0]))
    return f"{len(found)} installed" if found else "none is installed"


async def check_needed(deps: Deps) -> str:
    """Check that no job waits for a plug-in."""
    async with deps.database.transaction() as connection:
        lacking = await jobs.list_lacking_plugins(connection)
    if lacking:
        first = lacking[0]
        again = f"pip install {first.pin.distribution}=={first.pin.version}, then {RESTART}"
        fix = f"{again}; or mathrag job cancel {shlex.quote(first.name)}"
        raise NotReady("; ".join(f"job {each.name} waits for {each.pin}: {each.said}" for each in lacking), fix=fix)
    return "no job waits for one"


def get_fix(plugin: Plugin) -> str:
    """Return the command that fixes the plug-in."""
    other = f"repair it and install it again, or pip uninstall {{distribution}}; then {RESTART}"
    return MEND.get(plugin.state, other).format(distribution=plugin.distribution)


def _describe_plugin(plugin: Plugin) -> str:
    description = f"{plugin.kind.value} {plugin.name} ({plugin.distribution} {plugin.version})"
    return f"{description}: {plugin.state.value}: {plugin.detail}"
