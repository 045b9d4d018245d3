"""I19, I20: a key of a request stands for one job, and a page's key for one row."""

from sqlalchemy import text

from shared.audit.finding import AuditedJob, Violation

# Both times are the transaction's.
NOT_WITH_ITS_JOB = text("""
    SELECT format('idempotency %s/%s', i.operation, i.key) FROM idempotency i JOIN jobs j ON j.id = i.job_id
    WHERE j.id = :job AND i.created_at <> j.created_at ORDER BY 1""")
NO_HASH = text("""
    SELECT format('idempotency %s/%s', operation, key) FROM idempotency
    WHERE job_id = :job AND octet_length(body_hash) <> 32 ORDER BY 1""")
SEVERAL_KEYS = text("""
    SELECT format('idempotency %s/%s', operation, key) FROM idempotency
    WHERE job_id = :job AND (SELECT count(*) FROM idempotency o WHERE o.job_id = :job) > 1 ORDER BY 1""")
SHARED_KEY = text("""
    SELECT 'samples ' || id FROM (
        SELECT id, count(*) OVER (PARTITION BY kind, ordinal, repeat) AS rows FROM samples WHERE job_id = :job) s
    WHERE s.rows > 1 ORDER BY id""")


async def check_idempotency_keys(audit: AuditedJob) -> list[Violation]:
    """I19: a job was made by one request, whose key and hash were stored in the job's own transaction."""
    return [
        *await audit.find("I19", "not stored in the transaction of its job", NOT_WITH_ITS_JOB),
        *await audit.find("I19", "its request is not stored as a SHA-256", NO_HASH),
        *await audit.find("I19", "several requests made this job", SEVERAL_KEYS),
    ]


async def check_page_keys(audit: AuditedJob) -> list[Violation]:
    """I20: pages and streams go by (item, repeat): no two samples have the same, so none is skipped or shown twice."""
    return await audit.find("I20", "shares item and repeat with another sample", SHARED_KEY)
