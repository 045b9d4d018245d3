"""Drivers of plug-ins, and the scripted driver."""

import asyncio
import logging
import zlib
from collections.abc import Sequence

from mathrag.errors import MathragError
from services.guard.drivers.ports import Driver, DriverError, ModelServer
from shared.calls import Decoding, ModelAnswer, Prompt, text_of
from shared.plugins.catalogue import Plugin
from shared.plugins.loading import open_plugin
from shared.replies import Token
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model, Settings
from shared.shapes import Architecture, Kind

_log = logging.getLogger(__name__)


class PluginDriver:
    """The driver that the plug-in's entry point makes from (name, model, device), opened when the model is first
    needed.

    The plug-in is another distribution, and its code is part of the identity of its models.
    One that cannot be opened makes its own model unavailable; the guard and its other models continue.
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
        """Have the plug-in free leftovers of earlier loads; its errors do not prevent the start."""
        try:
            await self._open()[1].take_over()
        except Exception as error:  # noqa: BLE001 - best effort, and code of others
            _log.warning("model %s: nothing was taken over: %s", self._name, error)

    async def architecture(self) -> Architecture | None:
        """Return the plug-in's result, or None if it cannot be used."""
        plugin, driver = self._open()
        try:
            return await driver.architecture()
        except Exception as error:
            raise _make_error(plugin, error) from error

    async def warm(self) -> None:
        """Have the plug-in read the files of the next load."""
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


RATING = "Rating:"
YES_OR_NO = "<Document>:"


class ScriptedDriver(Driver):
    """Drives a fake model for tests and benchmarks, which needs no files and no memory, through every real service.

    It answers a rating prompt with a rating and any other with a number, both computed from the prompt alone, so that
    two runs agree. Each answer is one token of probability 1.
    """

    def __init__(self, name: str, model: Model, device: Device) -> None:
        self._name = name
        self._model = model
        self._device = device

    async def identify(self) -> ModelIdentity:
        """Identify the model by its name; the version is that of the rule that makes the answers."""
        return ModelIdentity(
            name=self._name, backend="scripted", digest="scripted", version="1", device=self._device.id,
            options={"constrain_labels": True} if self._model.constrain_labels else {},
            needs_lease=True, footprint_mib=self._model.footprint_mib,
        )  # fmt: skip

    async def start(self, parallel: int | None = None) -> "ScriptedServer":  # noqa: ARG002 - its slots are not ours
        """Return a server that answers at once."""
        return ScriptedServer()


class ScriptedServer:
    """A fake server that computes its answers."""

    pid = None
    exit_status = None
    died = False

    def __init__(self) -> None:
        self.alive = True

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        """Answer with one of `choices` if there are any, with a rating if the prompt asks for one, otherwise with a
        boxed number."""
        prompt_text = text_of(prompt)
        number = zlib.crc32(f"{prompt_text}{seed if decoding.temperature else 0}".encode())
        text = f"The answer is \\boxed{{{number % 10}}}."
        if prompt_text.endswith(RATING):
            text = f"[[{number % 5 + 1}]]"
        elif YES_OR_NO in prompt_text:
            text = "yes" if number % 2 else "no"
        if choices:
            text = choices[number % len(choices)]
        tokens = (Token(text=text, logprob=0.0, top={text: 0.0}),) if logprobs else ()
        return ModelAnswer(
            text=text, finish_reason="stop", tokens=tokens, prompt_tokens=len(prompt_text.split()), completion_tokens=1
        )

    async def confirm(self) -> bool:
        """Return true: only the guard can change it."""
        return True

    async def wait_exited(self) -> None:
        """Wait for ever: it never ends by itself."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.alive = False

    def memory_mib(self) -> float | None:
        """Return 0: it takes no memory."""
        return 0.0
