"""What a request needs: settings, database, Redis, the scheduler to wake, a client for the other services."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import httpx2
import msgspec
from fastapi import Depends, Query, Request, Response
from redis.asyncio import Redis

from services.orchestrator.api.glances import Glances
from services.orchestrator.api.watches import Watches
from shared.settings import Settings
from shared.storage import pages
from shared.storage.database import Database


class Looking(Protocol):
    """The scheduler of one device, as readiness asks for it."""

    @property
    def device(self) -> str:
        """Whose flips it decides."""

    @property
    def silent_s(self) -> float:
        """Seconds since its last complete look at the work."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Held by the application from start to stop."""

    settings: Settings
    database: Database
    redis: Redis
    http: httpx2.AsyncClient
    wake: Callable[[], None]
    """Tells the scheduler that a job came or went."""
    schedulers: Sequence[Looking] = ()
    """Those of this process; the doctor, which is another one, has none."""
    watches: Watches = field(default_factory=Watches)
    glances: Glances = field(default_factory=Glances)


def _resources(request: Request) -> Resources:
    resources: Resources = request.app.state.resources
    return resources


Held = Annotated[Resources, Depends(_resources)]
Limit = Annotated[int, Query(ge=1, le=pages.LARGEST, description="Rows of a page.")]


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`value` as msgspec writes it."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
