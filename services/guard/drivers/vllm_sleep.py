"""Driver `vllm-sleep`: a vLLM server that stays up, and whose weights move to the host's memory and back.

Only level 1 is used: level 2 drops the weights, and without a reload its answers are gibberish (vllm#29341). A sleep
under load crashes the GPU's kernels (vllm#28714), and a failed wake holds memory that is not listed (vllm#34600): in
doubt the program is ended, and the next residency starts it again. The memory that a sleeping server has freed is
measured before the next load, as after any unload; one that holds memory is ended then.
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import suppress

import httpx2
import psutil

from services.guard.drivers.launched import ExternalProgramDriver, ExternalProgramServer
from services.guard.drivers.ports import DriverError, ModelServer
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.settings import Device, Model

SLEEP_S = 120.0
"""For the weights to move to the host's memory."""
IDLE_S = 10.0
"""For the server to notice that requests were aborted."""
POLL_S = 0.1
BUSY = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", re.MULTILINE)

_log = logging.getLogger(__name__)


class VllmSleepDriver(ExternalProgramDriver):
    """Drives one model whose server is kept when the model is unloaded, asleep instead of ended."""

    def __init__(self, name: str, model: Model, device: Device, owner: str) -> None:
        super().__init__(name, model, device, owner)
        self._sleeper: ExternalProgramServer | None = None

    async def start(self, parallel: int | None = None) -> ModelServer:
        """Wake the server; start it if it does not run, or has another number of slots."""
        slots = parallel or self._model.parallel
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and sleeper.alive and sleeper.request.parallel == slots:
            try:
                async with asyncio.timeout(self._device.load_timeout_of(self._model)):
                    await _switch_sleep(sleeper, "/wake_up", asleep=False)
                    await self._verify(sleeper)
            except (DriverError, httpx2.HTTPError, TimeoutError) as error:
                await sleeper.stop()
                raise DriverError(f"model {self._name!r}: its server did not wake and was ended: {error!r}") from error
        else:
            if sleeper is not None:
                await sleeper.stop()
            sleeper = await self.launch(slots)
        return AwakeServer(sleeper, self)

    async def take_over(self) -> None:
        """End the sleeping server and the servers that a killed guard has left: one of them holds memory that should be
        free."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            await sleeper.stop()
        await super().take_over()

    async def warm(self) -> None:
        """Read the weights ahead unless the server sleeps: then they are already in the host's memory."""
        if self._sleeper is None or not self._sleeper.alive:
            await super().warm()

    async def put_to_sleep(self, server: ExternalProgramServer) -> None:
        """Put the server to sleep, or end it if that fails or the host has too little memory."""
        try:
            self._require_room()
            async with asyncio.timeout(SLEEP_S):
                await _wait_until_idle(server)
                await _switch_sleep(server, "/sleep?level=1", asleep=True)
        except (DriverError, httpx2.HTTPError, TimeoutError) as error:
            _log.warning("model %r: its server is ended instead of sleeping: %r", self._name, error)
            await server.stop()
        else:
            self._sleeper = server

    def _require_room(self) -> None:
        free = psutil.virtual_memory().available >> 20
        if free < self._model.asleep_mib:
            raise DriverError(f"the host has {free} MiB free, but a sleeping server takes {self._model.asleep_mib} MiB")


class AwakeServer:
    """The server during one residency, which ends when the server is put to sleep."""

    def __init__(self, server: ExternalProgramServer, driver: VllmSleepDriver) -> None:
        self._server = server
        self._driver = driver
        self._asleep = False

    @property
    def pid(self) -> int | None:
        return self._server.pid

    @property
    def alive(self) -> bool:
        """Return whether the program runs and is awake."""
        return not self._asleep and self._server.alive

    @property
    def died(self) -> bool:
        """Return whether the program has exited; a sleeping one has not."""
        return self._server.died

    @property
    def exit_status(self) -> int | None:
        return self._server.exit_status

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        return await self._server.complete(prompt, decoding, seed, logprobs, choices)

    async def confirm(self) -> bool:
        return await self._server.confirm()

    async def wait_exited(self) -> None:
        await self._server.wait_exited()

    async def stop(self) -> None:
        """Put the server to sleep; if it has died, end the processes that it has left."""
        if self._asleep:
            return
        await (self._driver.put_to_sleep(self._server) if self._server.alive else self._server.stop())
        self._asleep = True

    def memory_mib(self) -> float | None:
        """Return the host memory of all its processes."""
        return self._server.memory_mib()


async def _switch_sleep(server: ExternalProgramServer, path: str, *, asleep: bool) -> None:
    """Put the server to sleep or wake it.

    Raises:
        DriverError: it refuses, or reports afterwards that nothing has changed.
    """
    await server.post(path)
    if (await server.read_page(["/is_sleeping"])).get("is_sleeping") is not asleep:
        raise DriverError("did not wake up" if not asleep else "did not go to sleep")


async def _wait_until_idle(server: ExternalProgramServer) -> None:
    """Return when the server runs no request.

    Raises:
        DriverError: it is still busy after `IDLE_S`.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(IDLE_S):
            while any(float(count) for count in BUSY.findall(await server.read_text("/metrics"))):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            return
    raise DriverError("is still busy")
