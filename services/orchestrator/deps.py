"""What a request needs: settings, database, Redis, the scheduler to wake, a client for the other services."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import httpx2
from fastapi import Depends, Request
from redis.asyncio import Redis

from services.orchestrator.polling.ended_verdicts import EndedVerdicts
from services.orchestrator.polling.job_view_cache import JobViewCache
from services.orchestrator.polling.polls import Polls
from shared.settings import Settings
from shared.storage.database import Database


class DeviceScheduler(Protocol):
    """The scheduler of one device, as readiness asks for it."""

    @property
    def device(self) -> str:
        """Whose flips it decides."""

    @property
    def silent_s(self) -> float:
        """Seconds since its last complete look at the work."""


@dataclass(frozen=True, kw_only=True)
class Deps:
    """What the application opens at its start and closes at its end."""

    settings: Settings
    database: Database
    redis: Redis
    http: httpx2.AsyncClient
    wake: Callable[[], None]
    """Tells the scheduler that a job came or went."""
    schedulers: Sequence[DeviceScheduler] = ()
    """Those of this process; the doctor, which is another one, has none."""
    polls: Polls = field(default_factory=Polls)
    job_views: JobViewCache = field(default_factory=JobViewCache)
    verdicts: EndedVerdicts = field(default_factory=EndedVerdicts)


def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps


RequestDeps = Annotated[Deps, Depends(_deps)]
"""The parameter of a route that needs them."""
