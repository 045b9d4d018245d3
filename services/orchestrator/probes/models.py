"""The models: each guard looks at its own, with its own settings; where none runs, the configuration is looked at."""

from functools import partial

from services.orchestrator.deps import Deps
from services.orchestrator.probes.asking import asked
from services.orchestrator.probes.probe import Probe
from shared.checks import models
from shared.checks.check import correct
from shared.runtime.placement import narrowed
from shared.settings import Settings


def probes(settings: Settings) -> list[Probe]:
    """One for each model of the settings."""
    return [
        Probe(name=f"model {name}", run=partial(_look, name), fix=correct(f"models.{name}"), deep=True, alone=True)
        for name in settings.models
    ]


async def _look(name: str, deps: Deps) -> str:
    for device in deps.settings.all_devices():
        own = narrowed(deps.settings, device.id)
        if name in own.models and own.guard_url:
            return await asked(deps, own.guard_url, name)
    return await models.look(name, deps.settings)
