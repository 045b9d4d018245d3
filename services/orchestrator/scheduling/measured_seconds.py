"""Measured durations of calls and loads on a device, which the scheduler weighs against waiting."""

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
"""Seconds for which figures are reused: they change slowly, and the scheduler runs twenty times a second."""
RECENT = 5
"""Number of newest loads of a model over which the median is taken."""

# The inner limit bounds what is read even if few of the newest attempts were of leased models. It goes by time, because
# each session draws a hundred ids ahead. A call that began during others of its model counts what it adds.
CALLS = text("""
    WITH made AS (
        SELECT c.model_id, a.started_at, a.ended_at, max(a.ended_at) OVER (
            PARTITION BY c.model_id ORDER BY a.started_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy
        FROM (SELECT call_id, device, epoch, started_at, ended_at FROM attempts ORDER BY created_at DESC LIMIT 500) a
        JOIN calls c ON c.id = a.call_id WHERE a.epoch IS NOT NULL AND a.device = :device)
    SELECT model_id, sum(GREATEST(0, extract(epoch FROM ended_at - GREATEST(started_at, busy)))) / count(*) AS seconds
    FROM made GROUP BY model_id""")
# Both times come from the guard: from closing the previous residency to opening this one.
LOADS = text("""
    SELECT r.servers,
        CASE WHEN r.cause = ANY(:decided) THEN extract(epoch FROM r.opened_at - p.closed_at) END AS apart_s
    FROM residencies r LEFT JOIN residencies p ON p.epoch = r.previous_epoch
    WHERE r.device = :device AND r.opened_at IS NOT NULL ORDER BY r.epoch DESC LIMIT 50""")


class MeasuredSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the measured seconds of calls and loads, by the model's row id."""

    call_s: dict[int, float] = {}
    """Seconds of the device per call: the time in which at least one call ran, divided by the number of calls."""
    load_s: dict[int, float] = {}
    """Seconds of a flip to the model, including unloading and verification."""

    def flip_s(self, models: Iterable[int]) -> float:
        """Return the seconds of a flip to these models; 0 for models that were never measured."""
        return sum(self.load_s.get(model, 0.0) for model in models)


class MeasuredSecondsReader:
    """Reads the measured seconds of one device, at most every `TRUSTED_S`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._known = MeasuredSeconds()
        self._read_at = float("-inf")

    async def read(self, connection: AsyncConnection) -> MeasuredSeconds:
        """Return the seconds; a model's figure is kept until there is a newer one."""
        if time.monotonic() - self._read_at >= TRUSTED_S:
            values = {"device": self._device}
            calls = {row.model_id: float(row.seconds) for row in await connection.execute(CALLS, values)}
            rows = await connection.execute(LOADS, {**values, "decided": list(DECIDED)})
            loads = load_seconds((row.servers, row.apart_s) for row in rows)
            self._known = MeasuredSeconds(call_s=self._known.call_s | calls, load_s=self._known.load_s | loads)
            self._read_at = time.monotonic()
        return self._known


def load_seconds(flips: Iterable[tuple[list[dict[str, Any]], float | None]]) -> dict[int, float]:
    """Return the median seconds of the newest flips to each model.

    Args:
        flips: started servers (`model`, `seconds`), and the seconds from closing the last model to opening, if there
            was one; newest first. The seconds besides the starts are shared by the models. Servers without both
            figures, as another release may write them, are left out.
    """
    taken: dict[int, list[float]] = defaultdict(list)
    for servers, apart_s in flips:
        known = [server for server in servers if {"model", "seconds"} <= server.keys()]
        starts = sum(server["seconds"] for server in known)
        rest = max(0.0, float(apart_s or 0.0) - starts) / max(1, len(known))
        for server in known:
            taken[server["model"]].append(server["seconds"] + rest)
    return {model: median(seconds[:RECENT]) for model, seconds in taken.items()}
