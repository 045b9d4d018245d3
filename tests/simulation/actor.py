"""A process of the simulation: tasks that share a fate. It can be killed and frozen at every port."""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from tests.faults.vocabulary import Subject

if TYPE_CHECKING:
    from tests.simulation.world import World

_log = logging.getLogger(__name__)

CURRENT: ContextVar["Actor | None"] = ContextVar("actor", default=None)
"""The process that a task belongs to: the port that it uses is this one's."""


class Killed(asyncio.CancelledError):
    """The process is gone: nothing that it still does has an effect."""


def current() -> "Actor":
    """The process that the running task belongs to."""
    actor = CURRENT.get()
    if actor is None:
        raise LookupError("no simulated process runs this")
    return actor


def keep_count(task: "asyncio.Task[Any]", context: Context | None) -> None:
    """Note to which process a new task belongs."""
    actor = CURRENT.get() if context is None else context.get(CURRENT)
    if actor is not None:
        actor.tasks[task] = None
        task.add_done_callback(actor.forget)


class Actor:
    """One life of a process; after its death another one is started."""

    def __init__(self, world: "World", subject: Subject) -> None:
        self.world = world
        self.subject = subject
        self.dead = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.ended = asyncio.Event()
        self.context = copy_context()
        self.context.run(CURRENT.set, self)
        self._thawed = asyncio.Event()
        self._thawed.set()

    async def main(self) -> None:
        """Do the work of the process."""
        raise NotImplementedError

    def died(self) -> None:
        """Apply the effects of its death on kernel and network."""

    def start(self) -> None:
        """Begin its life."""
        self.spawn(self._live())

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Another task of it."""
        return self.world.loop.create_task(coroutine, context=self.context)

    def forget(self, task: "asyncio.Task[Any]") -> None:
        """A task of it has ended."""
        self.tasks.pop(task, None)

    def kill(self) -> None:
        """SIGKILL."""
        if self.dead:
            return
        self.dead = True
        self._thawed.set()
        self.died()
        for task in tuple(self.tasks):
            task.cancel()
        self.ended.set()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after `seconds`."""
        self._thawed.clear()
        self.world.loop.call_later(seconds, self._thawed.set, context=Context())

    async def gate(self) -> None:
        """Pass where it acts on the world: not while it is frozen, never again once it is dead.

        Raises:
            Killed: it is dead.
        """
        await self._thawed.wait()
        if self.dead:
            raise Killed

    async def passes(self, moment: str, session: Any = None) -> None:
        """It comes to a moment at which something may happen to it."""
        self.world.occurs(f"{self.subject}: {moment}", self, session)
        await self.gate()

    async def _live(self) -> None:
        try:
            await self.main()
        except Exception:  # noqa: BLE001 - a process that fails is started again
            _log.warning("%s ended", self.subject, exc_info=True)
        finally:
            self.kill()
