"""Checks of the models: each guard checks its own with its settings; without a guard, the configuration is checked."""

from functools import partial

from services.orchestrator.deps import Deps
from services.orchestrator.probes.probe import Probe
from services.orchestrator.probes.remote_checks import ask_check
from shared import checks
from shared.checks import advise_setting
from shared.runtime.price import settings_for_device
from shared.settings import Settings


def list_probes(settings: Settings) -> list[Probe]:
    """Return one probe for each configured model."""
    return [
        Probe(
            name=f"model {name}", run=partial(_look, name), fix=advise_setting(f"models.{name}"), deep=True, alone=True
        )
        for name in settings.models
    ]


async def _look(name: str, deps: Deps) -> str:
    for device in deps.settings.all_devices():
        own = settings_for_device(deps.settings, device.id)
        if name in own.models and own.guard_url:
            return await ask_check(deps, own.guard_url, name)
    return await checks.check_model(name, deps.settings)
