"""The vocabulary on real processes: signals, gates in the database, proxies, clocks."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack

import httpx2
import redis

from mathrag_gate.stack import postgres
from shared.headers import authorization
from shared.lease.policy import FlipState
from tests.faults.clocks import Clocks
from tests.faults.gates import flip_held
from tests.faults.processes import Processes, resume
from tests.faults.proxy import Proxy
from tests.faults.vocabulary import Action, Moment, Scenario, Subject
from tests.running import Document, RunningStack, ended


class TooLate(Exception):
    """The job had ended before its moment was seen, as happens on a busy machine."""


class RealBackEnd:
    """One job on a running stack; `whole` is how many calls each of its stages makes when nothing goes wrong."""

    name = "real processes"

    def __init__(
        self,
        stack: RunningStack,
        job: str,
        whole: Mapping[str, int],
        *,
        proxies: Mapping[Subject, Proxy] | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        self.stack = stack
        self.job = job
        self.processes = Processes(stack)
        self._whole = whole
        self._proxies = proxies or {}
        self._clocks = clocks
        self._held: AbstractContextManager[None] | None = None
        self._later: list[asyncio.Task[None]] = []
        self._repairs = AsyncExitStack()
        """Ends started actions if the rest of the scenario cannot be played."""

    async def play(self, scenario: Scenario) -> None:
        """Play all events at their moments; return after temporary actions have ended."""
        async with AsyncExitStack() as self._repairs:
            for event in scenario.events:
                await self.wait_until_reached(event.moment)
                await self.perform(event.action)
            await asyncio.gather(*self._later)
            self._repairs.pop_all()  # longer actions last until the test ends them

    async def wait_until_reached(self, moment: Moment) -> None:
        """Return when the job has come so far; in a state of the flip the guard stays until the action is done."""
        if moment.stage in tuple(FlipState):
            self._held = flip_held(self.stack, FlipState(moment.stage))
            await asyncio.to_thread(self._held.__enter__)
            self._repairs.push_async_callback(self._release)
            assert guard_state(self.stack)["state"] == moment.stage
        else:
            goal = int(self._whole[moment.stage] * moment.share)
            document = await asyncio.to_thread(self.stack.wait, self.job, lambda now: done(now, moment.stage) >= goal)
            if ended(document):
                raise TooLate

    async def perform(self, action: Action) -> None:
        """Perform the action now; a lasting action continues during later ones."""
        verbs: dict[str, Callable[[Action], Awaitable[None]]] = {
            "kill": self._kill,
            "terminate": self._terminate,
            "restart": self._restart,
            "freeze": self._freeze,
            "flush": self._flush,
            "sever": self._sever,
            "part": self._part,
            "slow": self._slow,
            "jump": self._jump,
        }
        try:
            await verbs[action.verb](action)
        finally:
            await self._release()

    async def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await asyncio.to_thread(held.__exit__, None, None, None)

    async def _kill(self, action: Action) -> None:
        self.processes.kill(action.subject)

    async def _terminate(self, action: Action) -> None:
        # Only to the service, as its supervisor would do.
        self.processes.of(action.subject)[0].terminate()

    async def _restart(self, action: Action) -> None:
        await asyncio.to_thread(self.processes.restart, action.subject)

    async def _freeze(self, action: Action) -> None:
        stopped = self.processes.signal(action.subject, signal.SIGSTOP)
        self._repairs.callback(resume, stopped)
        self._after(float(action.amount), lambda: resume(stopped))

    async def _flush(self, action: Action) -> None:
        assert action.subject is Subject.REDIS
        with redis.Redis.from_url(self.stack.redis_url()) as client:
            client.flushall()

    async def _sever(self, action: Action) -> None:
        self._proxies[action.subject].sever()

    async def _part(self, action: Action) -> None:
        self._repairs.callback(self._proxies[action.subject].heal)
        self._proxies[action.subject].part()
        self._after(float(action.amount), self._proxies[action.subject].heal)

    async def _slow(self, action: Action) -> None:
        self._repairs.callback(self._proxies[action.subject].heal)
        self._proxies[action.subject].delay_s = float(action.amount)

    async def _jump(self, action: Action) -> None:
        assert self._clocks is not None, "the stack was started without separate clocks"
        self._clocks.jump(action.subject, float(action.amount))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            do()

        self._later.append(asyncio.create_task(later()))


def done(document: Document, stage: str) -> int:
    """How many calls of a stage are answered."""
    found: int = document["stages"].get(stage, {}).get("done", 0)
    return found


def guard_state(stack: RunningStack) -> Document:
    """Return the device's state as the guard reports it."""
    known = authorization(postgres.load_passwords(stack.data_dir).service)
    found: Document = httpx2.get(
        f"{stack.service_url('guard')}/state", headers=known, timeout=60, trust_env=False
    ).json()
    return found
