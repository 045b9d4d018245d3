"""The resources of a request: settings, database, Redis, the schedulers, and a client for the other services."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import httpx2
from fastapi import Depends, Request
from redis.asyncio import Redis

from services.orchestrator.polling import EndedCounts, JobViewCache, Polls
from shared.settings import Settings
from shared.storage.database import Database
from shared.storage.jobs import count_extractions, count_verdicts


class DeviceScheduler(Protocol):
    """Declares the state of a device's scheduler that readiness checks."""

    @property
    def device(self) -> str:
        """Return the id of the device."""

    @property
    def silent_s(self) -> float:
        """Return the seconds since its last complete observation of the work."""


@dataclass(frozen=True, kw_only=True)
class Deps:
    """The resources that the application opens at its start and closes at its end."""

    settings: Settings
    database: Database
    admission: Database
    """Connections for keys and readiness alone, so that no number of slow requests keeps others from being admitted."""
    redis: Redis
    http: httpx2.AsyncClient
    wake: Callable[[], None]
    """Tells the scheduler that a job was submitted or has ended."""
    schedulers: Sequence[DeviceScheduler] = ()
    """Schedulers of this process; empty in the doctor, which is another process."""
    graph_reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a graph is in memory, several hundred MiB of it: one at a time."""
    drafting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while an experiment is drafted, which takes seconds of processor time and a transaction for a thousand
    jobs: one at a time.
    """
    polls: Polls = field(default_factory=Polls)
    job_views: JobViewCache = field(default_factory=JobViewCache)
    verdicts: EndedCounts[tuple[int, int]] = field(default_factory=lambda: EndedCounts(count_verdicts))
    """Items of ended jobs by (correct answers, graded answers)."""
    extractions: EndedCounts[str] = field(default_factory=lambda: EndedCounts(count_extractions))
    """Answers of ended jobs by how the final answer was found in them."""


def _get_deps(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps


RequestDeps = Annotated[Deps, Depends(_get_deps)]
"""Type of the parameter of a route that needs the resources."""
