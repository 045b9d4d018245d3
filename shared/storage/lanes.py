"""The work of both lanes now, and their recent pace."""

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import CALL_KINDS, Lane

WINDOW_S = 30.0
"""Time window of the pace, in seconds."""
MOST = 20_000
"""Largest number of queued or ended calls that are counted per lane and model."""

QUEUED = text("""
    SELECT l.lane, m.name AS model, CASE WHEN m.needs_lease THEN m.device END AS device, q.queued, q.running
    FROM models m CROSS JOIN unnest(CAST(:lanes AS text[])) l(lane)
    CROSS JOIN LATERAL (
        SELECT count(*) AS queued, count(token) AS running
        FROM (SELECT token FROM queue WHERE lane = l.lane AND model_id = m.id LIMIT :most) first) q
    WHERE q.queued > 0""")
# The window is limited by time and by number of calls; in the second case, their span is the window.
ENDED = text("""
    SELECT c.role, m.name AS model, CASE WHEN m.needs_lease THEN m.device END AS device, count(*) AS ended,
        CASE WHEN sum(count(*)) OVER () < :most THEN :window
            ELSE extract(epoch FROM now() - min(min(a.created_at)) OVER ()) END AS seconds
    FROM (SELECT call_id, created_at FROM attempts
          WHERE accepted AND created_at > now() - make_interval(secs => :window) ORDER BY created_at DESC LIMIT :most) a
    JOIN calls c ON c.id = a.call_id JOIN models m ON m.id = c.model_id
    GROUP BY c.role, m.name, m.device, m.needs_lease""")


class LaneWork(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model in one lane."""

    lane: Lane
    model: str
    device: str | None
    """Device on which the model must be resident; null if it needs none."""
    queued: int = 0
    """Pending and claimed calls, at most 20,000."""
    running: int = 0
    """Calls that a worker has claimed."""
    ended: int = 0
    """Calls that ended in the last `window_s` seconds."""
    window_s: float = WINDOW_S


Place = tuple[Lane, str]


async def load_work(connection: AsyncConnection) -> list[LaneWork]:
    """Load the work of each model with queued or recently ended calls, the judge's lane first."""
    queued = (await connection.execute(QUEUED, {"lanes": list(Lane), "most": MOST})).mappings()
    found: dict[Place, LaneWork] = {(Lane(row["lane"]), row["model"]): _read_lane_work(row) for row in queued}
    for row in (await connection.execute(ENDED, {"window": WINDOW_S, "most": MOST})).mappings():
        place = (CALL_KINDS[row["role"]].lane, row["model"])
        known = found.get(place) or LaneWork(lane=place[0], model=place[1], device=row["device"])
        found[place] = msgspec.structs.replace(
            known, ended=known.ended + row["ended"], window_s=max(float(row["seconds"]), 0.001)
        )
    return sorted(found.values(), key=lambda each: (list(Lane).index(each.lane), each.model))


def _read_lane_work(row: RowMapping) -> LaneWork:
    return msgspec.convert(dict(row), LaneWork)
