"""What both lanes have to do now, and how fast they have been a moment ago."""

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import CALL_KINDS, Lane

WINDOW_S = 30.0
"""So far back calls are counted for the pace."""
MOST = 20_000
"""Calls that are counted of a lane and model, queued or ended: a longer queue is just long, a faster pace just fast."""

QUEUED = text("""
    SELECT l.lane, m.name AS model, CASE WHEN m.needs_lease THEN m.device END AS device, q.queued, q.running
    FROM models m CROSS JOIN unnest(CAST(:lanes AS text[])) l(lane)
    CROSS JOIN LATERAL (
        SELECT count(*) AS queued, count(token) AS running
        FROM (SELECT token FROM queue WHERE lane = l.lane AND model_id = m.id LIMIT :most) first) q
    WHERE q.queued > 0""")
# The window is bounded twice: by time, and by the newest so many calls, whose span then is the window.
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
    """Where the model must be resident; null: anywhere, at any time."""
    queued: int = 0
    """Pending or claimed, up to 20,000."""
    running: int = 0
    """Of these, claimed by a worker."""
    ended: int = 0
    """In the last `window_s`."""
    window_s: float = WINDOW_S

    @property
    def per_second(self) -> float:
        """Calls that ended."""
        return self.ended / self.window_s if self.window_s > 0 else 0.0


Place = tuple[Lane, str]


async def work(connection: AsyncConnection) -> list[LaneWork]:
    """Every model that has calls in a lane, or had some a moment ago: the judge's lane first."""
    queued = (await connection.execute(QUEUED, {"lanes": list(Lane), "most": MOST})).mappings()
    found: dict[Place, LaneWork] = {(Lane(row["lane"]), row["model"]): _queued(row) for row in queued}
    for row in (await connection.execute(ENDED, {"window": WINDOW_S, "most": MOST})).mappings():
        place = (CALL_KINDS[row["role"]].lane, row["model"])
        known = found.get(place) or LaneWork(lane=place[0], model=place[1], device=row["device"])
        found[place] = msgspec.structs.replace(
            known, ended=known.ended + row["ended"], window_s=max(float(row["seconds"]), 0.001)
        )
    return sorted(found.values(), key=lambda each: (list(Lane).index(each.lane), each.model))


def _queued(row: RowMapping) -> LaneWork:
    return msgspec.convert(dict(row), LaneWork)
