"""What jobs wait for in vain: models that nobody serves any more."""

import shlex

from services.orchestrator.deps import Deps
from shared.checks.check import RESTART, NotReady
from shared.storage import unserved


async def models(deps: Deps) -> str:
    """Nobody waits for a model that no guard serves any more."""
    async with deps.database.transaction() as connection:
        forsaken = await unserved.of_all(connection)
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
