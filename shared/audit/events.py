"""I21: what was counted stays counted: versions and times only grow, and an end is an end."""

from sqlalchemy import text

from shared.audit.finding import Audit, Violation
from shared.audit.samples import TERMINAL

MISSING = text("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) AS events, min(version) AS first, max(version) AS last FROM job_events e
        WHERE e.job_id = j.id) e
    WHERE j.id = :job AND (e.last IS DISTINCT FROM j.version OR e.events <> e.last - e.first + 1)""")
LAST = text("""
    SELECT format('job_events %s/%s', e.job_id, e.version) FROM job_events e JOIN jobs j ON j.id = e.job_id
    WHERE j.id = :job AND e.version = j.version AND e.state <> j.state""")
BACKWARDS = text("""
    SELECT format('job_events %s/%s', job_id, version) FROM (
        SELECT *, lag(at) OVER (ORDER BY version) AS before FROM job_events WHERE job_id = :job) e
    WHERE at < before ORDER BY version""")
AFTER_AN_END = text("""
    SELECT format('job_events %s/%s', e.job_id, e.version) FROM job_events e
    WHERE e.job_id = :job AND EXISTS (
        SELECT 1 FROM job_events b WHERE b.job_id = e.job_id AND b.version < e.version AND b.state = ANY(:terminal)
            AND b.state <> e.state)
    ORDER BY e.version""")
# A sample reads its replies before it ends; the database's clock stamps both.
LATE = text("""
    SELECT DISTINCT 'attempts ' || a.id FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN attempts a ON a.call_id = t.call_id AND a.accepted
    WHERE s.job_id = :job AND s.state IN (2, 3) AND a.created_at > s.ended_at ORDER BY 1""")


async def never_less(audit: Audit) -> list[Violation]:
    """I21: every version has its event, in the order of time; replies are older than the ends that they led to."""
    return [
        *await audit.find("I21", "a change of its state has no event", MISSING),
        *await audit.find("I21", "says another state than the job", LAST),
        *await audit.find("I21", "is older than the event before it", BACKWARDS),
        *await audit.find("I21", "came after an end", AFTER_AN_END, terminal=TERMINAL),
        *await audit.find("I21", "was stored after the sample that consumed it had ended", LATE),
    ]
