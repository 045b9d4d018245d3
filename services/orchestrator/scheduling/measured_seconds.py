"""What calls and loads took on a device, measured: what the scheduler weighs waiting against."""

import time
from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.lease.policy import DECIDED

TRUSTED_S = 5.0
"""So long figures are used again: they move slowly, and the scheduler looks twenty times a second."""
RECENT = 5
"""Loads of a model whose median counts."""

# The inner limit bounds what is read, however few of the newest attempts were of leased models.
CALLS = text("""
    SELECT c.model_id, avg(extract(epoch FROM a.ended_at - a.started_at) / GREATEST(a.concurrency, 1)) AS seconds
    FROM (SELECT call_id, device, epoch, started_at, ended_at, concurrency FROM attempts ORDER BY id DESC LIMIT 500) a
    JOIN calls c ON c.id = a.call_id WHERE a.epoch IS NOT NULL AND a.device = :device GROUP BY c.model_id""")
# Both times are the guard's: from the close of what was there to the opening.
LOADS = text("""
    SELECT r.servers,
        CASE WHEN r.cause = ANY(:decided) THEN extract(epoch FROM r.opened_at - p.closed_at) END AS apart_s
    FROM residencies r LEFT JOIN residencies p ON p.epoch = r.previous_epoch
    WHERE r.device = :device AND r.opened_at IS NOT NULL ORDER BY r.epoch DESC LIMIT 50""")


class MeasuredSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by model."""

    call_s: dict[int, float] = {}
    """Of the device a call: its own time, divided by how many ran at once."""
    load_s: dict[int, float] = {}
    """A flip to it: unloading what was there and verifying included."""

    def flip_s(self, models: Iterable[int]) -> float:
        """What a flip to these took; 0 for what was never measured."""
        return sum(self.load_s.get(model, 0.0) for model in models)


class MeasuredSecondsReader:
    """The measured seconds of one device, read again every `TRUSTED_S`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._known = MeasuredSeconds()
        self._read_at = float("-inf")

    async def read(self, connection: AsyncConnection) -> MeasuredSeconds:
        """The seconds as they were a moment ago; a model's figure is kept until there is a newer one."""
        if time.monotonic() - self._read_at >= TRUSTED_S:
            values = {"device": self._device}
            calls = {row.model_id: float(row.seconds) for row in await connection.execute(CALLS, values)}
            rows = await connection.execute(LOADS, {**values, "decided": list(DECIDED)})
            loads = load_seconds((row.servers, row.apart_s) for row in rows)
            self._known = MeasuredSeconds(call_s=self._known.call_s | calls, load_s=self._known.load_s | loads)
            self._read_at = time.monotonic()
        return self._known


def load_seconds(flips: Iterable[tuple[list[dict[str, Any]], float | None]]) -> dict[int, float]:
    """Median seconds of the newest flips to each model.

    Args:
        flips: servers that were started (`model`, `seconds`), and the seconds from the last model's close to the
            opening, where there was one; newest first. What they took beyond the starts is shared by the models.
            Servers without both figures, as another release may write them, are left out.
    """
    taken: dict[int, list[float]] = defaultdict(list)
    for servers, apart_s in flips:
        known = [server for server in servers if {"model", "seconds"} <= server.keys()]
        starts = sum(server["seconds"] for server in known)
        rest = max(0.0, float(apart_s or 0.0) - starts) / max(1, len(known))
        for server in known:
            taken[server["model"]].append(server["seconds"] + rest)
    return {model: median(seconds[:RECENT]) for model, seconds in taken.items()}
