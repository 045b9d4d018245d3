"""Limits the number of concurrent long requests."""

import re
from collections import Counter
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from shared.access.filters import refuse
from shared.errors import MathragError, TooMany, Unavailable
from shared.settings import Limits

UPLOADS = re.compile(r"/v1/(corpora|datasets|datasets/from-graph|graphs|rules/import|jobs/import)|/openai/v1/files")
TRAINING = re.compile(r"/v1/datasets/[^/]+/training")
EVENTS = re.compile(r"/v1/jobs/[^/]+/events")
LIVE_PAGES = re.compile(r"/live/.+")


class RequestKind(NamedTuple):
    """A kind of requests with a limit on their concurrent number."""

    setting: str
    words: str
    method: str
    path: re.Pattern[str]
    error: type[MathragError] = TooMany


KINDS = (
    RequestKind("uploads", "uploads run", "POST", UPLOADS),
    RequestKind("training_exports", "exports of training data run", "GET", TRAINING),
    RequestKind("event_streams", "streams of events are open", "GET", EVENTS),
    RequestKind("page_streams", "live pages are open", "GET", LIVE_PAGES, Unavailable),
)


class ConcurrencyLimit:
    """Counts concurrent long requests, and refuses those beyond the limit."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = _find_kind(scope)
        if kind is None:
            return await self._app(scope, receive, send)
        most: int = getattr(self._limits, kind.setting)
        if self._running[kind.setting] >= most:
            error = kind.error(
                f"{most} {kind.words}, which is the limit (`limits.{kind.setting}`)", hint="wait until one of them ends"
            )
            return await refuse(error, scope, receive, send)
        self._running[kind.setting] += 1
        try:
            return await self._app(scope, receive, send)
        finally:
            self._running[kind.setting] -= 1


def _find_kind(scope: Scope) -> RequestKind | None:
    if scope["type"] != "http":
        return None
    return next((kind for kind in KINDS if scope["method"] == kind.method and kind.path.fullmatch(scope["path"])), None)
