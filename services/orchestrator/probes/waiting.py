"""What jobs wait for in vain: models that nobody serves any more."""

import shlex

from sqlalchemy import text

from services.orchestrator.deps import Deps
from shared.checks.check import RESTART, NotReady
from shared.contracts.calls import Lane

UNSERVED = text("""
    SELECT m.id, m.name, m.digest, now.digest AS now,
        (SELECT array_agg(DISTINCT j.name ORDER BY j.name) FROM (
            SELECT call_id FROM queue WHERE lane = ANY(:lanes) AND model_id = m.id LIMIT :most) AS waiting
            JOIN steps USING (call_id) JOIN samples s ON s.id = steps.sample_id AND s.state = 1
            JOIN jobs j ON j.id = s.job_id) AS jobs
    FROM models m LEFT JOIN LATERAL (
        SELECT digest FROM models n WHERE n.name = m.name AND n.served ORDER BY n.registered_at DESC LIMIT 1
    ) now ON true
    WHERE NOT m.served AND m.device IS NOT NULL ORDER BY m.name""")
MOST = 1000
"""Waiting calls whose jobs are looked up."""


async def models(deps: Deps) -> str:
    """Nobody waits for a model that no guard serves any more."""
    async with deps.database.transaction() as connection:
        rows = (await connection.execute(UNSERVED, {"lanes": [lane.value for lane in Lane], "most": MOST})).all()
    forsaken = [row for row in rows if row.jobs]
    if not forsaken:
        return "none waits for a model that is not served"
    jobs = sorted({job for row in forsaken for job in row.jobs})
    named = "; ".join(f"{', '.join(row.jobs)} for {row.name} {_changed(row.digest, row.now)}" for row in forsaken)
    back = f"put the model back as it was, then {RESTART}"
    cancel = " && ".join(f"mathrag job cancel {shlex.quote(job)}" for job in jobs)
    raise NotReady(f"waiting for models that nobody serves: {named}", fix=f"{back}; or {cancel}, and submit again")


def _changed(before: str | None, now: str | None) -> str:
    was = (before or "none")[:12]
    if now is None:
        return f"({was}; served is none of that name)"
    return f"({was}; served is {'the same with other settings' if now == before else now[:12]})"
