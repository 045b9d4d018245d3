"""Checks whether jobs wait for models that no guard serves any more."""

import shlex

from services.orchestrator.deps import Deps
from shared.checks import RESTART, NotReady
from shared.storage import jobs as stored_jobs


async def check_models(deps: Deps) -> str:
    """Check that no job waits for a model that no guard serves any more."""
    async with deps.database.transaction() as connection:
        found = await stored_jobs.list_unserved(connection)
    if not found:
        return "none waits for a model that is not served"
    jobs = sorted({job for row in found for job in row.jobs})
    waits = "; ".join(f"{', '.join(row.jobs)} for {row.name} {_describe_change(row.digest, row.now)}" for row in found)
    back = f"restore the model as it was, then {RESTART}"
    cancel = " && ".join(f"mathrag job cancel {shlex.quote(job)}" for job in jobs)
    raise NotReady(f"waiting for models that nobody serves: {waits}", fix=f"{back}; or {cancel}, and submit again")


def _describe_change(before: str | None, now: str | None) -> str:
    was = (before or "none")[:12]
    if now is None:
        return f"({was}; served is none of that name)"
    return f"({was}; served is {'the same with other settings' if now == before else now[:12]})"
