"""Pages that keep themselves up to date: what changed is drawn here, once for all who watch, and sent as an event.

Every event holds whole fragments, so a browser that lost the connection is right again with the next one. A fragment is
the same for everybody who watches: buttons, which depend on the key, stand outside of it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import NamedTuple

from fastapi import Response
from fastapi.responses import StreamingResponse

from services.orchestrator.deps import Deps
from services.orchestrator.polling.polls import POLL_S

SILENT_POLLS = int(15 / POLL_S)
"""Polls without a change after which a comment keeps the connection."""
REST = 9
"""Times as long as a drawing took there is none: what is large is read a tenth of the time at most."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Fragment(NamedTuple):
    """What a poll drew."""

    html: str
    """`<hx-partial>` elements, each with its target."""
    last: bool = False
    """Nothing will change any more."""


Draw = Callable[[], Awaitable[Fragment]]


def stream(deps: Deps, key: Hashable, draw: Draw) -> Response:
    """Events with what `draw` returns, whenever it changed.

    All streams of one `key` share its calls: one a second at most, and fewer where they take long.
    """
    return StreamingResponse(_events(deps, key, _resting(draw)), media_type="text/event-stream", headers=HEADERS)


def _resting(draw: Draw) -> Draw:
    rest_s = 0.0

    async def rested() -> Fragment:
        nonlocal rest_s
        await asyncio.sleep(rest_s)
        began = time.monotonic()
        drawn = await draw()
        rest_s = max(REST * (time.monotonic() - began) - POLL_S, 0.0)
        return drawn

    return rested


async def _events(deps: Deps, key: Hashable, draw: Draw) -> AsyncIterator[str]:
    shown, silent = "", 0
    while True:
        fragment = await deps.polls.following(("page", key), draw)
        silent += 1
        if fragment.html != shown:
            shown, silent = fragment.html, 0
            yield _event(fragment.html)
        elif silent >= SILENT_POLLS:
            silent = 0
            yield ": still here\n\n"
        if fragment.last:
            yield "event: end\ndata: \n\n"
            return


def _event(html: str) -> str:
    return "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
