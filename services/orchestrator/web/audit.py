"""`/jobs/{job}/audit`: whether what is stored can be believed."""

import shlex
from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Response

from services.orchestrator.api.jobs import audited
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, page
from shared.audit import Violation, invariants
from shared.storage import jobs

router = APIRouter()
SHOWN_ROWS = 5
"""Of a violation; the others are folded."""


@page(router, "/jobs/{job}/audit")
async def audit(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Checked anew with every visit, from the rows alone."""
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
        found = (await jobs.without_stages(connection, [row]))[row]
    seen = await audited(deps, found.id)
    return visit.show(
        "audit/audit.html", title=f"Audit of {found.name}", json=f"/v1/jobs/{found.id}/audit", job=found, audit=seen,
        headline=headline(seen.violations), checks=invariants(), most=SHOWN_ROWS,
        found=Counter(each.invariant for each in seen.violations),
        commands=[f"mathrag audit {shlex.quote(found.name)}"],
    )  # fmt: skip


def headline(violations: Sequence[Violation]) -> str:
    """Such as "Clean", or "2 violations: I2 and I13"; what a changed source does not replay may still be right."""
    broken = sorted({each.invariant for each in violations if not each.source_changed}, key=lambda name: int(name[1:]))
    unreplayed = sum(each.source_changed for each in violations)
    count = len(violations) - unreplayed
    parts = [f"{count} violation{'s' * (count > 1)}: {' and '.join(broken)}"] if broken else []
    parts += [f"{unreplayed} outcomes could not be replayed: the source has changed"] if unreplayed else []
    return "; ".join(parts) or "Clean: the rows keep every invariant"
