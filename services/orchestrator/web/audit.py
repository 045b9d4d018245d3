"""Serves `/jobs/{job}/audit`: whether the stored rows can be trusted."""

import shlex
from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Response

from services.orchestrator.api.jobs import audit_job
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, page
from shared.audit import Violation, list_invariants
from shared.plurals import format_count
from shared.storage import jobs

router = APIRouter()
SHOWN_ROWS = 5
"""Rows of a violation that are shown at first; the others are folded."""


@page(router, "/jobs/{job}/audit")
async def audit(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Audits the job's rows at every visit."""
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
        found = (await jobs.load_without_stages(connection, [row]))[row]
    report = await audit_job(deps, found.id)
    return visit.show(
        "audit/audit.html", title=f"Audit of {found.name}", json=f"/v1/jobs/{found.id}/audit", job=found, audit=report,
        headline=write_headline(report.violations), checks=list_invariants(), most=SHOWN_ROWS,
        found=Counter(each.invariant for each in report.violations),
        commands=[f"mathrag audit {shlex.quote(found.name)}"],
    )  # fmt: skip


def write_headline(violations: Sequence[Violation]) -> str:
    """Return a title such as "Clean" or "2 violations: I2 and I13". Outcomes that a changed source cannot replay are
    counted separately, since they may still be right.
    """
    broken = sorted({each.invariant for each in violations if not each.source_changed}, key=lambda name: int(name[1:]))
    unreplayed = sum(each.source_changed for each in violations)
    count = len(violations) - unreplayed
    parts = [f"{format_count(count, 'violation')}: {' and '.join(broken)}"] if broken else []
    if unreplayed:
        parts.append(f"{format_count(unreplayed, 'outcome')} could not be replayed: the source has changed")
    return "; ".join(parts) or "Clean: the rows satisfy every invariant"
