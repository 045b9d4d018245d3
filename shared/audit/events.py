"""I21: what was counted stays counted: versions and times only grow, an end is an end, no version is rewritten."""

from sqlalchemy import text

from shared.audit.finding import AuditedJob, Violation
from shared.storage.database import sql

MISSING = text("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) AS events, min(version) AS first, max(version) AS last FROM job_events e
        WHERE e.job_id = j.id) e
    WHERE j.id = :job AND (e.last IS DISTINCT FROM j.version OR e.events <> e.last - e.first + 1)""")
LAST = text("""
    SELECT format('job_events %s/%s', e.job_id, e.version) FROM job_events e JOIN jobs j ON j.id = e.job_id
    WHERE j.id = :job AND e.version = j.version AND (e.state, e.reason) IS DISTINCT FROM (j.state, j.reason)""")
# An event without the row was written before versions were kept: it has the state, the reason and the time alone.
UNNOTED = text("""
    SELECT 'jobs ' || j.id FROM jobs j JOIN job_events e ON e.job_id = j.id AND e.version = j.version
    WHERE j.id = :job AND e.job <> version_of(j)""")
REWRITTEN = sql("""
    SELECT format('job_events %s/%s', job_id, version) FROM (
        SELECT *, lag(job) OVER (ORDER BY version) AS before, bool_or(state IN {TERMINAL}) OVER (
            ORDER BY version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ended
        FROM job_events WHERE job_id = :job) e
    WHERE job - CAST(:changing AS text[]) <> before - CAST(:changing AS text[])
        OR (ended AND job - CAST(:amended AS text[]) <> before - CAST(:amended AS text[])) ORDER BY version""")
# The end is stamped in the statement whose trigger writes the event, after the event before it.
STAMPED = sql("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT e.at, (SELECT max(b.at) FROM job_events b WHERE b.job_id = j.id AND b.version < e.version) AS before
        FROM job_events e WHERE e.job_id = j.id AND e.state IN {TERMINAL} ORDER BY e.version LIMIT 1) e
    WHERE j.id = :job AND (j.ended_at > e.at OR j.ended_at < e.before)""")
BACKWARDS = text("""
    SELECT format('job_events %s/%s', job_id, version) FROM (
        SELECT *, lag(at) OVER (ORDER BY version) AS before FROM job_events WHERE job_id = :job) e
    WHERE at < before ORDER BY version""")
AFTER_AN_END = sql("""
    SELECT format('job_events %s/%s', e.job_id, e.version) FROM job_events e
    WHERE e.job_id = :job AND EXISTS (
        SELECT 1 FROM job_events b WHERE b.job_id = e.job_id AND b.version < e.version AND b.state IN {TERMINAL}
            AND b.state <> e.state)
    ORDER BY e.version""")
# A sample reads its replies before it ends; the database's clock stamps both.
LATE = sql("""
    SELECT DISTINCT 'attempts ' || a.id FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN attempts a ON {ACCEPTED_FOR} t.call_id
    WHERE s.job_id = :job AND s.state IN {DONE} AND a.created_at > s.ended_at ORDER BY 1""")


AMENDED = ["name", "rank", "metadata", "version"]
"""Fields of a job that may change at any time."""
CHANGING = [*AMENDED, "state", "prepared", "reason", "running_at", "ended_at", "chain"]
"""Fields of a job that may change until its end."""


async def check_events(audit: AuditedJob) -> list[Violation]:
    """I21: every version has its event, in the order of time, and is what it says; replies are older than the ends."""
    return [
        *await audit.find("I21", "a change of its state has no event", MISSING),
        *await audit.find("I21", "has another state or reason than the job", LAST),
        *await audit.find("I21", "differs from its last event", UNNOTED),
        *await audit.find("I21", "changed a final value", REWRITTEN, changing=CHANGING, amended=AMENDED),
        *await audit.find("I21", "did not end at the time of its events", STAMPED),
        *await audit.find("I21", "is older than the event before it", BACKWARDS),
        *await audit.find("I21", "came after an end", AFTER_AN_END),
        *await audit.find("I21", "was stored after the sample that consumed it had ended", LATE),
    ]
