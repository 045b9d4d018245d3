"""Driver `plugin`: a driver that another distribution brings; its code is part of the identity of its models."""

import logging

from services.guard.drivers.ports import Driver, DriverError, ModelServer
from shared.errors import MathragError
from shared.plugins.catalogue import Plugin
from shared.plugins.loading import open_plugin
from shared.runtime.pins import ModelIdentity
from shared.settings import Model, Settings
from shared.shapes import Architecture, Kind

_log = logging.getLogger(__name__)


class PluginDriver:
    """What the plug-in's entry point makes of (name, model, device), opened when the model is first asked for.

    One that cannot be opened makes its own model unavailable; the guard and its other models go on.
    """

    def __init__(self, name: str, model: Model, settings: Settings) -> None:
        self._name = name
        self._model = model
        self._device = settings.device
        self._opened: tuple[Plugin, Driver] | None = None

    async def identify(self) -> ModelIdentity:
        """Identify the model as the plug-in does, with the plug-in's own version and code.

        Raises:
            DriverError: the plug-in cannot be used, or the model is not there.
        """
        plugin, driver = self._open()
        try:
            found = await driver.identify()
            own = {"plugin": {"distribution": plugin.distribution, "version": plugin.version, "hash": plugin.pin.hash}}
            return ModelIdentity(
                name=self._name, backend=f"plugin {plugin.name}", digest=found.digest, version=found.version,
                options={**found.options, **own}, device=self._device.id, needs_lease=found.needs_lease,
                footprint_mib=self._model.footprint_mib or found.footprint_mib,
            )  # fmt: skip
        except DriverError:
            raise
        except Exception as error:
            raise _make_error(plugin, error) from error

    async def take_over(self) -> None:
        """Have the plug-in free what may be left; what it raises is no reason not to start."""
        try:
            await self._open()[1].take_over()
        except Exception as error:  # noqa: BLE001 - best effort, and code of others
            _log.warning("model %s: nothing was taken over: %s", self._name, error)

    async def architecture(self) -> Architecture | None:
        """Return what the plug-in says, or None where it says nothing that can be used."""
        plugin, driver = self._open()
        try:
            return await driver.architecture()
        except Exception as error:
            raise _make_error(plugin, error) from error

    async def warm(self) -> None:
        """Have the plug-in read what the next load will read."""
        try:
            await self._open()[1].warm()
        except Exception as error:  # noqa: BLE001 - best effort, and code of others
            _log.warning("model %s: not warmed: %s", self._name, error)

    async def start(self, parallel: int | None = None) -> ModelServer:
        """Bring the model up.

        Raises:
            DriverError: it did not come up, and why.
        """
        plugin, driver = self._open()
        try:
            return await driver.start(parallel)
        except DriverError:
            raise
        except Exception as error:
            raise _make_error(plugin, error) from error

    def _open(self) -> tuple[Plugin, Driver]:
        if self._opened is None:
            try:
                plugin, make = open_plugin(Kind.DRIVER, self._model.plugin)
            except MathragError as error:
                raise DriverError(f"{error.message}; fix: {error.hint}") from error
            try:
                self._opened = plugin, make(self._name, self._model, self._device)
            except Exception as error:
                raise _make_error(plugin, error) from error
        return self._opened


def _make_error(plugin: Plugin, error: Exception) -> DriverError:
    return DriverError(f"{plugin.pin} raised {type(error).__name__}: {error}")
