"""A driver and a server behind the guard's ports whose every move the test makes."""

import asyncio
from datetime import UTC, datetime, timedelta

from services.guard.drivers.ports import DriverError
from shared.calls import Decoding, ModelAnswer
from shared.models.chat import ChatFailed
from shared.replies import FailureKind, Token
from shared.runtime.pins import ModelIdentity
from shared.shapes import Architecture


class PuppetServer:
    """Holds every prompt until the test answers it."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self.exit_status: int | None = None
        self.immortal = False
        """A stop does not end it."""
        self.started: list[str] = []
        self.alternatives: dict[str, int] = {}
        """Of each token, that every prompt asked for."""
        self.choices: dict[str, tuple[str, ...]] = {}
        """The only replies that were allowed, by prompt."""
        self.aborted: list[str] = []
        self.finished: list[str] = []
        self.running: dict[str, asyncio.Future[ModelAnswer]] = {}
        self.most = 0
        """Prompts at once, at most."""
        self.stops = 0
        self.died = False
        self.unchanged = True
        """What a look finds."""
        self.looks = asyncio.Event()
        """Set while looks are answered."""
        self.looks.set()
        self._gone = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Until it dies or is stopped."""
        return not self._gone.is_set()

    async def complete(
        self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0, choices: tuple[str, ...] = ()
    ) -> ModelAnswer:
        """Whatever the test decides, when it decides."""
        self.started.append(prompt)
        self.choices[prompt] = choices
        self.alternatives[prompt] = logprobs
        self.running[prompt] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.running))
        self._changed.set()
        try:
            return await self.running[prompt]
        except asyncio.CancelledError:
            self.aborted.append(prompt)
            raise
        finally:
            del self.running[prompt]
            self.finished.append(prompt)
            self._changed.set()

    async def has(self, count: int) -> None:
        """Return when `count` prompts run."""
        while len(self.running) != count:
            self._changed.clear()
            await self._changed.wait()

    def answer(self, *prompts: str) -> None:
        """Answer these prompts, or all that run."""
        for prompt in prompts or tuple(self.running):
            text = f"re: {prompt}"
            reply = ModelAnswer(
                text=text, finish_reason="stop", prompt_tokens=3, cached_tokens=1, completion_tokens=2, prompt_ms=1.5,
                completion_ms=0.5, tokens=(Token(text=text, logprob=-0.5),) if self.alternatives[prompt] else (),
            )  # fmt: skip
            self.running[prompt].set_result(reply)

    def fail(self, prompt: str, error: Exception) -> None:
        """Let a prompt fail."""
        self.running[prompt].set_exception(error)

    def lose(self) -> None:
        """It must not answer any more, and nothing has died."""
        self._gone.set()

    def die(self) -> None:
        """The process is gone, and with it every connection."""
        self.died = True
        self._gone.set()
        for waiting in self.running.values():
            if not waiting.done():
                waiting.set_exception(ChatFailed(FailureKind.CONNECTION, "connection reset"))

    async def confirm(self) -> bool:
        """Whatever the test says, once it lets looks through."""
        await self.looks.wait()
        return self.unchanged

    async def wait_exited(self) -> None:
        """Return when it is gone."""
        await self._gone.wait()

    async def stop(self) -> None:
        """Stop on request, unless it is immortal."""
        self.stops += 1
        if not self.immortal:
            self.die()

    def memory_mib(self) -> float | None:
        """A figure that a test can recognise."""
        return 42.0


class PuppetDriver:
    """Starts puppets; `refuses` is what it says instead, `digest` what its file holds."""

    def __init__(self, name: str, footprint_mib: int = 0, digest: str = "v1") -> None:
        self.name = name
        self.footprint_mib = footprint_mib
        self.digest = digest
        self.refuses: str | None = None
        self.missing = False
        """Nothing is there to identify."""
        self.needs_lease = True
        self.stillborn = False
        """Its servers die as soon as they are up."""
        self.taken_over = 0
        self.servers: list[PuppetServer] = []

    async def identify(self) -> ModelIdentity:
        """What the driver would serve now."""
        if self.missing:
            raise DriverError(f"no model file of {self.name}")
        return ModelIdentity(
            name=self.name,
            backend="puppet",
            digest=self.digest,
            device="cpu:0",
            needs_lease=self.needs_lease,
            footprint_mib=self.footprint_mib,
        )

    async def take_over(self) -> None:
        """Count the call; a puppet holds nothing that could be released."""
        self.taken_over += 1

    async def architecture(self) -> Architecture | None:
        return None

    async def warm(self) -> None:
        """Do nothing: a puppet has no files to read ahead."""

    async def start(self, parallel: int | None = None) -> PuppetServer:
        """Start a new puppet; its process id is a running number."""
        if self.refuses is not None:
            raise DriverError(self.refuses)
        self.servers.append(PuppetServer(pid=len(self.servers) + 1))
        if self.stillborn:
            self.servers[-1].die()
        return self.servers[-1]


class StepClock:
    """A second passes at every look: stamps are ordered by what happened, not by how fast the machine is."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def set(self, at: datetime) -> None:
        """It is `at` now."""
        self._now = at

    def now(self) -> datetime:
        """Return a later time at each call."""
        self._now += timedelta(seconds=1)
        return self._now
