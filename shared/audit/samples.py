"""I12, I13, I17: what was promised is there, each sample ends once, and after the end nothing happens."""

from sqlalchemy import text

from shared.audit.finding import AuditedJob, Violation, select_over_job_calls
from shared.pipelines import registry
from shared.storage.database import fill_names, sql

REQUIRED_SAMPLES = fill_names("""
    SELECT i.ordinal, r FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
        AND i.ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), i.ordinal + 1)
    CROSS JOIN generate_series(0, j.repeats - 1) r WHERE j.id = :job AND j.running_at IS NOT NULL
        AND ({GIVEN_FOR_ITEM})""")
MISSING = text(f"""
    WITH owed(ordinal, repeat) AS ({REQUIRED_SAMPLES})
    SELECT format('items %s repeat %s', o.ordinal, o.repeat) FROM owed o
    LEFT JOIN samples s ON s.job_id = :job AND s.kind = 'item' AND s.ordinal = o.ordinal AND s.repeat = o.repeat
    WHERE s.id IS NULL ORDER BY o.repeat, o.ordinal""")  # noqa: S608 - constants
NOT_ASKED_FOR = text(f"""
    WITH owed(ordinal, repeat) AS ({REQUIRED_SAMPLES})
    SELECT 'samples ' || s.id FROM samples s LEFT JOIN owed o ON o.ordinal = s.ordinal AND o.repeat = s.repeat
    WHERE s.job_id = :job AND s.kind = 'item' AND o.ordinal IS NULL ORDER BY s.id""")  # noqa: S608 - constants
MISCOUNTED = text("""
    SELECT 'jobs ' || j.id FROM jobs j WHERE j.id = :job AND (
        j.total <> CASE j.pipeline WHEN 'imported' THEN (SELECT count(*) FROM given g WHERE g.job = j.public_id)
            ELSE j.repeats * (SELECT LEAST(count(*), CAST(j.code ->> 'limit' AS integer))
                FROM items i WHERE i.dataset_id = j.dataset_id) END
        OR (j.state IN ('running', 'finalizing', 'completed')) AND j.running_at IS NULL)""")
UNPREPARED = text("""
    SELECT 'jobs ' || j.id FROM jobs j WHERE j.id = :job
    AND (SELECT count(*) FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare') <> :prepares""")

UNANSWERED = sql("""
    SELECT format('steps %s/%s/%s', t.sample_id, t.position, t.slot) FROM samples s JOIN steps t ON t.sample_id = s.id
    WHERE s.job_id = :job AND s.state = {COMPLETED}
        AND 1 <> (SELECT count(*) FROM attempts a WHERE {ACCEPTED_FOR} t.call_id)
    ORDER BY t.sample_id, t.position, t.slot""")
GAPS = sql("""
    WITH slots AS (
        SELECT s.id, s.position AS yields, t.position, count(t.slot) AS slots, max(t.slot) AS last
        FROM samples s LEFT JOIN steps t ON t.sample_id = s.id
        WHERE s.job_id = :job AND s.state = {COMPLETED} GROUP BY 1, 2, 3)
    SELECT 'samples ' || id FROM slots GROUP BY id, yields
    HAVING count(position) <> yields OR COALESCE(max(position), -1) <> yields - 1 OR bool_or(slots <> last + 1)
    ORDER BY id""")
WRONG_SUM = sql("""
    SELECT 'jobs ' || j.id FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE s.state IN {DONE}) AS done,
            count(*) FILTER (WHERE s.state = {CANCELLED}) AS cancelled
        FROM samples s WHERE s.job_id = j.id AND s.kind = 'item') n
    WHERE j.id = :job AND j.state IN {TERMINAL} AND j.running_at IS NOT NULL
        AND (n.done + n.cancelled <> j.total OR (j.state = 'completed' AND n.cancelled > 0))""")
LIVE = sql("""
    SELECT 'samples ' || s.id FROM jobs j JOIN samples s ON s.job_id = j.id
    WHERE j.id = :job AND j.state IN {TERMINAL} AND s.state IN {LIVE} ORDER BY s.id""")
OUTCOMES = sql("""
    SELECT 'samples ' || s.id FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND (s.state = {COMPLETED}) <> (o.sample_id IS NOT NULL) ORDER BY s.id""")

# By the database's clock alone: a reply is stored after its call has ended, so all of them are older than the end.
CALLED_AFTER = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM jobs j CROSS JOIN mine JOIN attempts a ON a.call_id = mine.call_id
    WHERE j.id = :job AND j.state = 'cancelled' AND a.created_at > j.ended_at AND NOT EXISTS (
        SELECT 1 FROM steps t JOIN samples s ON s.id = t.sample_id AND s.job_id <> j.id WHERE t.call_id = a.call_id)
    ORDER BY a.id""")
UNDATED = sql("""
    SELECT 'jobs ' || j.id FROM jobs j
    WHERE j.id = :job AND (j.state IN {TERMINAL}) <> (j.ended_at IS NOT NULL)""")
UNDATED_SAMPLES = sql("""
    SELECT 'samples ' || s.id FROM samples s
    WHERE s.job_id = :job AND (s.state IN {ENDED}) <> (s.ended_at IS NOT NULL) ORDER BY s.id""")
CHANGED_AFTER = text("""
    SELECT 'samples ' || s.id FROM jobs j JOIN samples s ON s.job_id = j.id
    WHERE j.id = :job AND s.ended_at > j.ended_at ORDER BY s.id""")


async def check_expansion(audit: AuditedJob) -> list[Violation]:
    """I12: a job that was accepted has its preparation, and once it runs, a sample for every item and repeat."""
    prepares = int(
        audit.job["pipeline"] in registry.names() and registry.get(audit.job["pipeline"]).prepare is not None
    )
    return [
        *await audit.find("I12", "has no sample", MISSING),
        *await audit.find("I12", "the job has no such item or repeat", NOT_ASKED_FOR),
        *await audit.find("I12", "`total` is not items times repeats, or it runs without its samples", MISCOUNTED),
        *await audit.find("I12", f"does not have its {prepares} preparation(s)", UNPREPARED, prepares=prepares),
    ]


async def check_endings(audit: AuditedJob) -> list[Violation]:
    """I13: a completed sample has one accepted reply a step and one outcome, and an ended job's samples sum up."""
    return [
        *await audit.find("I13", "a completed sample's step has not exactly one accepted reply", UNANSWERED),
        *await audit.find("I13", "completed with a step missing or too many", GAPS),
        *await audit.find("I13", "completed + failed + cancelled is not its total", WRONG_SUM),
        *await audit.find("I13", "live in a job that has ended", LIVE),
        *await audit.find("I13", "completed without an outcome, or not completed with one", OUTCOMES),
    ]


async def check_quiet_after_end(audit: AuditedJob) -> list[Violation]:
    """I17: an end has its time; after it no sample changes and no call is made that a cancelled job alone wanted."""
    return [
        *await audit.find("I17", "made for the cancelled job alone after its end", CALLED_AFTER),
        *await audit.find("I17", "ended without a time, or a time without an end", UNDATED),
        *await audit.find("I17", "ended without a time, or a time without an end", UNDATED_SAMPLES),
        *await audit.find("I17", "ended after its job had", CHANGED_AFTER),
    ]
