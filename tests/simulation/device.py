"""The device and its model servers: memory with a limit, loads and calls that take virtual time, and the truth of both.

The simulated servers record events here, independent of the guard's receipts.
"""

import asyncio
import zlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from services.guard.drivers.ports import DriverError
from services.guard.memory import DeviceProcess, MemoryReading, NotMeasured
from shared.calls import Decoding, ModelAnswer
from shared.models.chat import ChatFailed, ServerAway
from shared.replies import FailureKind, Token
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model, Settings
from shared.shapes import Architecture
from tests.faults.vocabulary import Subject
from tests.simulation.actor import current
from tests.simulation.pipelines import POISON

if TYPE_CHECKING:
    from tests.simulation.world import World

RATING = "Rating:"
AWAY = "simulated: away"
"""The message of an outage; no attempt may contain it."""
STRANGER = 10_000_000
"""A process id that no process has."""


class Opened(NamedTuple):
    """A residency as the database has committed it."""

    models: tuple[int, ...]
    state: str


class Machine:
    """The GPU: its memory by holder, and the executed calls."""

    def __init__(self, world: "World", capacity_mib: float) -> None:
        self._world = world
        self.capacity_mib = capacity_mib
        self.servers: list[ModelServer] = []
        self.foreign_mib = 0.0
        """Memory taken by another process."""
        self.kept_mib = 0.0
        """Memory kept by ended servers."""
        self.lag_s = 0.0
        """Delay after which freed memory shows as free."""
        self.hidden = False
        """Its memory cannot be measured."""
        self.keeps = False
        """What ends stays taken."""
        self.stubborn = False
        """A stop ends no server."""
        self.refuses = False
        """Its servers answer no request for now."""
        self.failures: list[FailureKind] = []
        """How the next calls fail."""
        self.slowness_s = 0.0
        """Additional seconds of each call."""
        self.hangs = False
        """Calls do not end."""
        self.executed: Counter[int] = Counter()
        """Calls that ran to their end, by seed."""

    async def read(self) -> MemoryReading:
        """What NVML says.

        Raises:
            NotMeasured: it says nothing.
        """
        await current().gate()
        if self.hidden:
            raise NotMeasured("simulated: no NVML")
        strangers = (DeviceProcess(STRANGER, "stranger", self.foreign_mib),) if self.foreign_mib else ()
        return MemoryReading(self.capacity_mib, self.capacity_mib - self.free_mib, self.free_mib, strangers)

    @property
    def ours_mib(self) -> float:
        """Memory taken by the guard's servers, or kept after them."""
        return self.kept_mib + sum(server.mib for server in self.servers)

    @property
    def free_mib(self) -> float:
        """What NVML would say."""
        return self.capacity_mib - self.ours_mib - self.foreign_mib

    def occupy(self, server: "ModelServer") -> None:
        """Load its weights.

        Raises:
            DriverError: out of memory.
        """
        if self.ours_mib + server.mib > self.capacity_mib:
            self._world.violated(f"memory: {self.ours_mib + server.mib:.0f} MiB on {self.capacity_mib:.0f}")
        if server.mib > self.free_mib:
            raise DriverError("out of memory")
        self.servers.append(server)

    def vacate(self, server: "ModelServer") -> None:
        """Its process has ended."""
        if server not in self.servers:
            return
        self.servers.remove(server)
        if self.keeps or self.lag_s:
            self.kept_mib += server.mib
            self._world.hit("memory")
        if self.lag_s and not self.keeps:
            self._world.later(self.lag_s, lambda: self.free(server.mib))

    def free(self, mib: float) -> None:
        """Free the kept memory."""
        self.kept_mib = max(0.0, self.kept_mib - mib)

    def relieve(self) -> None:
        """As before."""
        self.foreign_mib = self.kept_mib = self.lag_s = 0.0
        self.keeps = self.stubborn = self.hangs = self.hidden = False
        self.failures.clear()


class ModelServer:
    """A model server's process."""

    exit_status: int | None = None

    def __init__(self, world: "World", name: str, mib: float, pid: int) -> None:
        self._world = world
        self._guard = current()
        self.name = name
        self.mib = mib
        self.pid = pid
        self._gone = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Until it dies or is stopped."""
        return not self._gone.is_set()

    @property
    def died(self) -> bool:
        """Whether the process is gone."""
        return not self.alive

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Take a while, then answer by rule."""
        await self._guard.passes("sends a call")
        self._world.begins(self.name)
        if self._world.machine.refuses:
            raise ServerAway(AWAY)
        failure = self._world.machine.failures.pop() if self._world.machine.failures else None
        if failure is not None:
            self._world.hit("failure")
            raise ChatFailed(failure, "simulated")
        self._world.occurs(f"{Subject.SERVER}: in a call", self._guard, self)
        if POISON in prompt:
            self._world.later(0.05, self.die)
        await self._work(self._world.rng.uniform(0.02, 0.6) + self._world.machine.slowness_s)
        self._world.machine.executed[seed] += 1
        await self._guard.gate()
        number = zlib.crc32(f"{prompt}{seed if decoding.temperature else 0}".encode())
        text = f"[[{number % 5 + 1}]]" if prompt.endswith(RATING) else f"So \\boxed{{{number % 10}}}."
        return ModelAnswer(
            text=text,
            finish_reason="stop",
            tokens=(Token(text=text, logprob=0.0, top={text: 0.0}),) if logprobs else (),
            prompt_tokens=len(prompt.split()),
            completion_tokens=1,
        )

    async def _work(self, seconds: float) -> None:
        if self._world.machine.hangs:
            self._world.hit("hangs")
            seconds = 3600.0
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return
        await self._guard.gate()
        raise ChatFailed(FailureKind.CONNECTION, "simulated: the server is gone")

    def die(self) -> None:
        """The process ends, and its memory is free unless something is wrong."""
        if self.alive:
            self._gone.set()
            self._world.machine.vacate(self)

    async def confirm(self) -> bool:
        """Return True, because only the guard changes it."""
        return True

    async def wait_exited(self) -> None:
        """Return when it is gone."""
        await self._gone.wait()
        await self._guard.gate()

    async def stop(self) -> None:
        """Ask it to end, and wait for that."""
        await self._guard.gate()
        await asyncio.sleep(self._world.rng.uniform(0.01, 0.2))
        await self._guard.gate()
        if self._world.machine.stubborn:
            self._world.hit("stubborn")
            return
        self.die()

    def memory_mib(self) -> float | None:
        """Return the memory that it takes."""
        return self.mib if self.alive else 0.0


class ModelDriver:
    """How the guard brings a server up."""

    def __init__(self, name: str, model: Model, settings: Settings) -> None:
        self._world = current().world
        self._guard = current()
        self._name = name
        self._model = model
        self._device: Device = settings.device

    async def identify(self) -> ModelIdentity:
        """Its name."""
        await self._guard.gate()
        return ModelIdentity(
            name=self._name,
            backend="simulated",
            digest=self._name,
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )

    async def take_over(self) -> None:
        """End servers that outlived a dead guard."""
        await self._guard.gate()
        for server in tuple(self._world.machine.servers):
            if server.name == self._name:
                server.die()

    async def architecture(self) -> Architecture | None:
        """Not told."""
        return None

    async def warm(self) -> None:
        """Nothing to read ahead."""

    async def start(self, parallel: int | None = None) -> ModelServer:
        """Load for a while."""
        machine = self._world.machine
        await self._guard.gate()
        server = ModelServer(self._world, self._name, self._model.footprint_mib, self._world.next_pid())
        machine.occupy(server)
        self._world.occurs(f"{Subject.SERVER}: in a load", self._guard, server)
        try:
            async with asyncio.timeout(self._world.rng.uniform(0.1, 0.8)):
                await server.wait_exited()
        except TimeoutError:
            pass
        await self._guard.gate()
        if not server.alive:
            raise DriverError(f"the server of {self._name} did not come up")
        return server
