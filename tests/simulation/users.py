"""Those who submit jobs, cancel and pause them. A request that fails is made again."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from mathrag.errors import Conflict
from shared.params import JudgeParams, Params
from shared.runtime.lifecycle import cancel, pause, resume
from shared.runtime.submit import Submission, submit
from tests.faults.vocabulary import Subject
from tests.simulation.actor import Actor
from tests.simulation.plan import JobPlan
from tests.simulation.sessions import ActorDatabase

if TYPE_CHECKING:
    from tests.simulation.world import World

NUMBERS = count()
"""Of jobs: schedules that are played one after the other share a database, in which no two jobs share a name."""


class Users(Actor):
    """All of them; as the API does, they wake the scheduler afterwards."""

    def __init__(self, world: "World") -> None:
        super().__init__(world, Subject.JOB)
        self.jobs: list[uuid.UUID] = []
        self._due = 0

    @property
    def busy(self) -> bool:
        """Return whether a user still has work."""
        return self._due > 0

    def submit(self, job: JobPlan) -> None:
        """A job comes."""
        self._do(self._submit(job))

    def cancel(self) -> None:
        """The first job."""
        self._do(self._on_job(cancel))

    def pause(self, seconds: float) -> None:
        """The first job, for a while."""
        self._do(self._paused(seconds))

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        self._due += 1
        self.spawn(self._done(what))

    async def _done(self, what: Coroutine[Any, Any, None]) -> None:
        await what
        self._due -= 1
        orchestrator = self.world.orchestrator
        if orchestrator is not None:
            orchestrator.wake()

    async def _submit(self, job: JobPlan) -> None:
        await asyncio.sleep(job.at_s)
        seed = self.world.plan.seed
        name = f"{seed}-{'poison' if job.poisonous else job.items}"
        self.world.store.dataset(name, seed, job.items, poisonous=job.poisonous)
        # Of their own in every schedule, so that no reply of another one is reused.
        params = Params(judge=JudgeParams(max_tokens=10 + seed))
        asked = partial(
            Submission, dataset=name, pipeline=job.pipeline, corpus="simulated", repeats=job.repeats, params=params
        )
        self.jobs.append(await self._insist(lambda: self._sent(asked)))

    async def _sent(self, asked: Callable[..., Submission]) -> uuid.UUID:
        """Under a new name each time: an answer that was lost may belong to a job that was made."""
        return await submit(ActorDatabase(self), self.world.settings, asked(name=f"job-{next(NUMBERS)}"))

    async def _paused(self, seconds: float) -> None:
        await self._on_job(pause)
        await asyncio.sleep(seconds)
        await self._on_job(resume)

    async def _on_job(self, do: Callable[[ActorDatabase, uuid.UUID], Coroutine[Any, Any, None]]) -> None:
        with suppress(Conflict):
            await self._insist(lambda: do(ActorDatabase(self), self.jobs[0]))

    async def _insist(self, do: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            try:
                return await do()
            except SQLAlchemyError:
                await asyncio.sleep(1.0)
