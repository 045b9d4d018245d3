"""Pages that update themselves: a change is drawn here once for all viewers, and sent to them as an event.

Every event holds whole fragments, so a browser that missed events is up to date after the next one. A fragment is
the same for every viewer; buttons, which depend on the key, are outside of it.
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
"""Polls without a change after which a comment keeps the connection open."""
REST = 9
"""Pause after a drawing, as a multiple of the time that it took: an expensive page is read a tenth of the time at
most.
"""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Fragment(NamedTuple):
    """Holds the parts of a page that one poll has drawn."""

    html: str
    """`<hx-partial>` elements, each with its target."""
    last: bool = False
    """Whether this is final: nothing will change any more."""


Draw = Callable[[], Awaitable[Fragment]]


def stream(deps: Deps, key: Hashable, draw: Draw) -> Response:
    """Stream events with the fragments that `draw` returns, whenever they change.

    All streams of one `key` share the calls of `draw`: at most one per second, fewer if a call takes long.
    """
    return StreamingResponse(
        _stream_events(deps, key, _add_pauses(draw)), media_type="text/event-stream", headers=HEADERS
    )


def _add_pauses(draw: Draw) -> Draw:
    rest_s = 0.0

    async def draw_and_rest() -> Fragment:
        nonlocal rest_s
        await asyncio.sleep(rest_s)
        began = time.monotonic()
        drawn = await draw()
        rest_s = max(REST * (time.monotonic() - began) - POLL_S, 0.0)
        return drawn

    return draw_and_rest


async def _stream_events(deps: Deps, key: Hashable, draw: Draw) -> AsyncIterator[str]:
    last_html, silent = "", 0
    while True:
        fragment = await deps.polls.wait_for_next(("page", key), draw)
        silent += 1
        if fragment.html != last_html:
            last_html, silent = fragment.html, 0
            yield _encode_event(fragment.html)
        elif silent >= SILENT_POLLS:
            silent = 0
            yield ": still here\n\n"
        if fragment.last:
            yield "event: end\ndata: \n\n"
            return


def _encode_event(html: str) -> str:
    return "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
