"""Driver `vllm-sleep`: a vLLM server that stays up, and whose weights move to the host's memory and back.

Level 1 only: level 2 forgets the weights, and without a reload its answers are gibberish (vllm#29341). A sleep under
load crashes the GPU's kernels (vllm#28714), a wake that failed holds memory that nobody lists (vllm#34600): whatever is
in doubt ends the program, and the next residency starts it anew. That it sleeps is only its word; what is free is
measured before the next load, as after any unload, and a sleeper that holds memory is ended then.
"""

import asyncio
import logging
import re
from contextlib import suppress

import httpx2
import psutil

from services.guard.drivers.launched import LaunchedDriver, LaunchedServer
from services.guard.drivers.ports import DriverError, Server
from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.device_settings import Device
from shared.model_settings import Model

SLEEP_S = 120.0
"""For the weights to be moved."""
IDLE_S = 10.0
"""For requests that were broken off to be gone from the server, too."""
LOOK_S = 0.1
BUSY = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", re.MULTILINE)

_log = logging.getLogger(__name__)


class VllmSleepDriver(LaunchedDriver):
    """One model, and the server that holds it, awake or asleep."""

    def __init__(self, name: str, model: Model, device: Device, owner: str) -> None:
        super().__init__(name, model, device, owner)
        self._sleeper: LaunchedServer | None = None

    async def start(self, parallel: int | None = None) -> Server:
        """Wake the server, or start it: the first time, after its end, and where it has another number of slots."""
        slots = parallel or self._model.parallel
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and sleeper.alive and sleeper.asked.parallel == slots:
            await self._wake(sleeper)
        else:
            if sleeper is not None:
                await sleeper.stop()
            sleeper = await self.launched(slots)
        return AwakeServer(sleeper, self)

    async def take_over(self) -> None:
        """End what a guard that was killed has left, and what sleeps: something holds memory that should be free."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            await sleeper.stop()
        await super().take_over()

    async def warm(self) -> None:
        """Nothing of one that sleeps: its weights are in memory, and would be there twice."""
        if self._sleeper is None or not self._sleeper.alive:
            await super().warm()

    async def _wake(self, sleeper: LaunchedServer) -> None:
        try:
            async with asyncio.timeout(self._device.load_timeout_of(self._model)):
                await _turn(sleeper, "/wake_up", asleep=False)
                await self._verify(sleeper)
        except (DriverError, httpx2.HTTPError, TimeoutError) as error:
            await sleeper.stop()
            raise DriverError(f"model {self._name!r}: its server did not wake and was ended: {error!r}") from error

    async def lay_down(self, server: LaunchedServer) -> None:
        """Let it sleep if it can; else end it."""
        try:
            self._has_room()
            async with asyncio.timeout(SLEEP_S):
                await _idle(server)
                await _turn(server, "/sleep?level=1", asleep=True)
        except (DriverError, httpx2.HTTPError, TimeoutError) as error:
            _log.warning("model %r: its server is ended instead of sleeping: %r", self._name, error)
            await server.stop()
        else:
            self._sleeper = server

    def _has_room(self) -> None:
        free = psutil.virtual_memory().available >> 20
        if free < self._model.asleep_mib:
            raise DriverError(f"the host has {free} MiB free, its sleep takes {self._model.asleep_mib}")


class AwakeServer:
    """The server for one residency: it ends when the model falls asleep."""

    def __init__(self, server: LaunchedServer, driver: VllmSleepDriver) -> None:
        self._server = server
        self._driver = driver
        self._asleep = False

    @property
    def pid(self) -> int | None:
        """The program."""
        return self._server.pid

    @property
    def alive(self) -> bool:
        """Whether it runs and is awake."""
        return not self._asleep and self._server.alive

    @property
    def died(self) -> bool:
        """Whether the program is gone; asleep it is not."""
        return self._server.died

    @property
    def exit_status(self) -> int | None:
        """The program's return code."""
        return self._server.exit_status

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one prompt."""
        return await self._server.complete(prompt, decoding, seed, logprobs)

    async def confirm(self) -> bool:
        """As of any program that the guard has started."""
        return await self._server.confirm()

    async def exited(self) -> None:
        """Return when the program is gone."""
        await self._server.exited()

    async def stop(self) -> None:
        """Have it sleep; of one that died, end what it has left."""
        if self._asleep:
            return
        await (self._driver.lay_down(self._server) if self._server.alive else self._server.stop())
        self._asleep = True

    def memory_mib(self) -> float | None:
        """Of all its processes, on the host."""
        return self._server.memory_mib()


async def _turn(server: LaunchedServer, path: str, *, asleep: bool) -> None:
    """Send it to sleep or wake it.

    Raises:
        DriverError: it refuses, or says afterwards that nothing has changed.
    """
    await server.post(path)
    if (await server.page(["/is_sleeping"])).get("is_sleeping") is not asleep:
        raise DriverError("sleeps on" if not asleep else "stays awake")


async def _idle(server: LaunchedServer) -> None:
    """Return when the server has nothing to do.

    Raises:
        DriverError: it goes on with something.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(IDLE_S):
            while any(float(count) for count in BUSY.findall(await server.text("/metrics"))):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
            return
    raise DriverError("is still busy")
