"""I1, I2, I8, I9, I10: one set of models at a time, within the budget; calls inside their epoch; few loads, caused."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from sqlalchemy import Row, text

from shared.audit.finding import AuditedJob, Violation, select_over_job_calls
from shared.lease.policy import DECIDED

PLANNED = ("first", "drained")
"""Causes of residencies in a run without faults."""

# In the order of their opening, intervals overlap if and only if neighbours do.
NEIGHBOURS = """
    devices AS MATERIALIZED (SELECT DISTINCT a.device FROM mine JOIN attempts a ON a.call_id = mine.call_id),
    opened AS (
        SELECT r.epoch, r.opened_at, r.closed_at, lag(r.epoch) OVER w AS before,
            COALESCE(lag(r.closed_at) OVER w, 'infinity') AS before_closed
        FROM residencies r WHERE r.opened_at IS NOT NULL AND r.device IN (SELECT device FROM devices)
        WINDOW w AS (PARTITION BY r.device ORDER BY r.opened_at, r.epoch))"""
OVERLAPPING = select_over_job_calls(
    """
    SELECT DISTINCT 'residencies ' || e FROM opened o, unnest(ARRAY[o.before, o.epoch]) e
    WHERE o.before IS NOT NULL AND o.before_closed > o.opened_at ORDER BY 1""",
    NEIGHBOURS,
)
SHRINKING = select_over_job_calls(
    "SELECT 'residencies ' || o.epoch FROM opened o WHERE o.before > o.epoch ORDER BY o.epoch", NEIGHBOURS
)
BACKWARDS = select_over_job_calls(
    "SELECT 'residencies ' || o.epoch FROM opened o WHERE o.closed_at < o.opened_at ORDER BY o.epoch", NEIGHBOURS
)

OUTSIDE = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM mine JOIN attempts a ON a.call_id = mine.call_id JOIN calls c ON c.id = a.call_id
    LEFT JOIN residencies r ON r.epoch = a.epoch
    WHERE a.epoch IS NOT NULL AND NOT COALESCE(
        r.device = a.device AND c.model_id = ANY(r.models) AND r.opened_at <= a.started_at
        AND a.started_at <= a.ended_at AND a.ended_at <= COALESCE(r.closed_at, 'infinity'), false)
    ORDER BY a.id""")
NEEDLESS = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM mine JOIN attempts a ON a.call_id = mine.call_id JOIN calls c ON c.id = a.call_id
    JOIN models m ON m.id = c.model_id WHERE a.epoch IS NOT NULL AND NOT m.needs_lease ORDER BY a.id""")

LOADS = text("""
    SELECT DISTINCT r.device, a.epoch, c.model_id FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
    JOIN calls c ON c.id = t.call_id JOIN attempts a ON a.call_id = c.id
    JOIN residencies r ON r.epoch = a.epoch AND c.model_id = ANY(r.models) WHERE s.job_id = :job
    ORDER BY r.device, a.epoch, c.model_id""")
SPANNED = text("""
    SELECT r.epoch, r.models, r.cause, r.opened_at FROM residencies r
    WHERE r.device = :device AND r.epoch BETWEEN :first AND :last ORDER BY r.epoch""")
# How the samples' sequences of the device's models look: few distinct rows, however many samples.
SEQUENCES = text("""
    WITH made AS MATERIALIZED (
        SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
        WHERE s.job_id = :job),
    visits AS (
        SELECT s.id, s.kind, t.position, c.model_id, bool_or(c.id IN (SELECT call_id FROM made)) AS made
        FROM samples s JOIN steps t ON t.sample_id = s.id
        JOIN calls c ON c.id = t.call_id
        JOIN models m ON m.id = c.model_id AND m.needs_lease AND (m.device = :device OR m.id = ANY(:loaded))
        WHERE s.job_id = :job GROUP BY s.id, t.position, c.model_id),
    changes AS (
        SELECT v.*, v.model_id <> lag(v.model_id) OVER (PARTITION BY v.id ORDER BY v.position, v.model_id) AS changed
        FROM visits v)
    SELECT DISTINCT kind = 'prepare' AS prepares, array_agg(DISTINCT model_id) AS models,
        (array_agg(model_id ORDER BY position, model_id))[1] AS first,
        (array_agg(model_id ORDER BY position) FILTER (WHERE made))[1] AS begins,
        (array_agg(model_id ORDER BY position DESC, model_id DESC))[1] AS last,
        count(*) FILTER (WHERE changed) AS alternations
    FROM changes GROUP BY id, kind""")

USED = """
    used AS (
        SELECT r.* FROM residencies r
        WHERE r.epoch IN (SELECT a.epoch FROM mine JOIN attempts a ON a.call_id = mine.call_id))"""
OVER_BUDGET = select_over_job_calls(
    """
    SELECT 'residencies ' || epoch FROM used
    WHERE CAST(measured -> 'peak_mib' AS float) > CAST(measured -> 'budget_mib' AS float) ORDER BY epoch""",
    USED,
)
CAUSELESS = select_over_job_calls(
    "SELECT 'residencies ' || epoch FROM used WHERE btrim(cause) = '' ORDER BY epoch", USED
)
UNEXPLAINED = select_over_job_calls(
    """
    SELECT 'residencies ' || u.epoch FROM used u
    WHERE u.state IN ('closed', 'quarantined') AND btrim(COALESCE(u.reason, '')) = '' AND NOT EXISTS (
        SELECT 1 FROM residencies n
        WHERE n.device = u.device AND n.previous_epoch = u.epoch AND n.cause = ANY(:decided))
    ORDER BY u.epoch""",
    USED,
)


async def check_no_overlap(audit: AuditedJob) -> list[Violation]:
    """I1: no two residencies of a device that the job used overlap in time, and epochs grow as they are opened."""
    return [
        *await audit.find("I1", "overlaps with another residency of its device", OVERLAPPING),
        *await audit.find("I1", "opened after a residency with a larger epoch", SHRINKING),
        *await audit.find("I1", "closed before it was opened", BACKWARDS),
    ]


async def check_epochs_of_calls(audit: AuditedJob) -> list[Violation]:
    """I2: every stamped call ran while its epoch was open, on that device, by one of its models; no others have one."""
    return [
        *await audit.find("I2", "ran outside the open interval, device or models of its epoch", OUTSIDE),
        *await audit.find("I2", "has an epoch though its model needs no lease", NEEDLESS),
    ]


async def check_memory(audit: AuditedJob) -> list[Violation]:
    """I8: where the device's memory was measured, no residency that the job used ever held more than its budget."""
    return await audit.find("I8", "its models held more than the device's budget", OVER_BUDGET)


async def check_loads(audit: AuditedJob) -> list[Violation]:
    """I9: of two models of a device the job loads at most once more than any of its samples changes between them.

    Interruptions with a recorded cause, and residencies in between that only others used, come on top.
    """
    loads = (await audit.connection.execute(LOADS, {"job": audit.job["id"]})).all()
    return [
        violation
        for device, rows in groupby(loads, key=lambda row: str(row.device))
        for violation in await _check_device_loads(audit, device, list(rows))
    ]


async def _check_device_loads(
    audit: AuditedJob, device: str, loads: Sequence[Row[tuple[object, ...]]]
) -> list[Violation]:
    """Compare the loads of one device with its bound; models of other devices do not count."""
    used = sorted({row.epoch for row in loads})
    values = {"job": audit.job["id"], "device": device, "loaded": sorted({row.model_id for row in loads})}
    sequences = (await audit.connection.execute(SEQUENCES, values)).all()
    if len({model for row in sequences for model in row.models}) > 2:
        return []
    spanned = {"device": device, "first": used[0], "last": used[-1]}
    bound = _count_planned_loads(sequences) + _count_excused_loads(
        (await audit.connection.execute(SPANNED, spanned)).all(), frozenset(used)
    )
    message = f"{len(loads)} model loads on {device}, at most {bound} are explained"
    rows = tuple(f"residencies {epoch}" for epoch in used)
    return [Violation(invariant="I9", message=message, rows=rows)] if len(loads) > bound else []


def _count_planned_loads(sequences: Sequence[Row[tuple[object, ...]]]) -> int:
    """Count the loads without faults: one more than the model changes of the sample that has most.

    The changes of the preparation are added, unless other jobs made all its calls. Without a preparation, samples that
    begin with different models cost one more load, because some wait for the other model. A sample whose first calls
    were made by another job begins with the first model that this job called.
    """
    prepare = next((row for row in sequences if row.prepares and row.begins is not None), None)
    items = [row for row in sequences if not row.prepares]
    if prepare is None:
        most = max((int(row.alternations) for row in items), default=0)
        return 1 + most + (len({row.begins for row in items} - {None}) > 1)
    after = [row.alternations + (row.first != prepare.last) for row in items]
    return 1 + int(prepare.alternations) + max(after, default=0)


def _count_excused_loads(residencies: Sequence[Row[tuple[object, ...]]], used: frozenset[int]) -> int:
    """Count the loads caused by interruptions and other jobs between the job's first and last residency."""
    excused = 0
    for before, row in pairwise(residencies):
        if row.epoch not in used:
            # An interruption that never opened is followed by its retry, and costs the way back all the same.
            turned = row.cause not in PLANNED and row.models != before.models
            excused += bool(row.models) and (row.opened_at is not None or turned)
        elif row.cause not in PLANNED:
            # Going on with the other model also costs the way back; models that are held together are loaded together.
            excused += max(len(row.models), 1 if row.models == before.models else 2)
    return excused


async def check_causes(audit: AuditedJob) -> list[Violation]:
    """I10: every residency that the job used has a cause, and one that ended otherwise than by a decision a reason."""
    return [
        *await audit.find("I10", "has no cause", CAUSELESS),
        *await audit.find("I10", "ended without a decision and without a reason", UNEXPLAINED, decided=list(DECIDED)),
    ]
