"""I5, I14: replies count under a claim and with a receipt only, and what has a reply is not executed again."""

from collections.abc import AsyncIterator, Sequence

import msgspec
from sqlalchemy import Row

from shared.audit.finding import AuditedJob, Violation, select_over_job_calls
from shared.contracts.calls import CALL_KINDS
from shared.contracts.replies import INFRASTRUCTURE, Failure, FailureKind, Reply
from shared.runtime.queue import outcome_name
from shared.storage.database import fill_names

BATCH = 5000
RETRIED = sorted(kind.value for kind in INFRASTRUCTURE)
UNSTAMPED = [FailureKind.POISONED.value, *RETRIED]
"""Outcomes that come from no model and therefore have no receipt."""

ACCEPTED = fill_names("FROM mine JOIN attempts a ON {ACCEPTED_FOR} mine.call_id")
UNCLAIMED = select_over_job_calls(f"""
    SELECT 'attempts ' || a.id {ACCEPTED} WHERE a.token IS NULL AND a.outcome <> :poisoned ORDER BY a.id""")
WITHOUT_RECEIPT = select_over_job_calls(f"""
    SELECT 'attempts ' || a.id {ACCEPTED} JOIN calls c ON c.id = a.call_id
    JOIN models m ON m.id = c.model_id AND m.needs_lease
    WHERE a.outcome <> ALL(:unstamped) AND num_nulls(a.epoch, a.device, a.started_at, a.ended_at) > 0 ORDER BY a.id""")
TWICE_ACCEPTED = select_over_job_calls(f"""
    SELECT 'calls ' || a.call_id {ACCEPTED} GROUP BY a.call_id HAVING count(*) > 1 ORDER BY a.call_id""")
REPLIES = select_over_job_calls(f"""
    SELECT a.id, a.call_id, c.role, a.outcome, a.reply {ACCEPTED} JOIN calls c ON c.id = a.call_id
    WHERE a.call_id > :after ORDER BY a.call_id, a.id LIMIT :n""")

AFTER_THE_REPLY = select_over_job_calls(f"""
    SELECT 'attempts ' || b.id {ACCEPTED}
    JOIN attempts b ON b.call_id = a.call_id AND NOT b.accepted AND b.created_at > a.created_at ORDER BY b.id""")
AGAIN_WITHOUT_CAUSE = select_over_job_calls("""
    SELECT 'attempts ' || a.id FROM mine JOIN attempts a ON a.call_id = mine.call_id
    WHERE NOT a.accepted AND a.outcome <> ALL(:causes) ORDER BY a.id""")
FREED = select_over_job_calls(f"""
    SELECT 'calls ' || c.id {ACCEPTED} JOIN calls c ON c.id = a.call_id
    WHERE c.failed <> (a.outcome = ANY(:retried)) ORDER BY c.id""")

_DECODER: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


async def check_accepted_replies(audit: AuditedJob) -> list[Violation]:
    """I5: a reply counts once, under a claim, from a leased model with a receipt, and is what its outcome says."""
    unlike = tuple([f"attempts {row.id}" async for row in _replies(audit) if not _matches_outcome(row)])
    message = "the reply does not match its call's role or its `outcome`"
    return [
        *await audit.find("I5", "accepted without a claim's token", UNCLAIMED, poisoned=FailureKind.POISONED.value),
        *await audit.find("I5", "accepted from a leased model without a receipt", WITHOUT_RECEIPT, unstamped=UNSTAMPED),
        *await audit.find("I5", "has two accepted attempts", TWICE_ACCEPTED),
        *([Violation(invariant="I5", message=message, rows=unlike)] if unlike else []),
    ]


async def _replies(audit: AuditedJob) -> AsyncIterator[Row[tuple[object, ...]]]:
    """Yield the accepted attempts of the job's calls, read in batches."""
    rows: Sequence[Row[tuple[object, ...]]] = ()
    after = 0
    while True:
        values = {"job": audit.job["id"], "after": after, "n": BATCH}
        rows = (await audit.connection.execute(REPLIES, values)).all()
        for row in rows:
            yield row
        if len(rows) < BATCH:
            return
        after = rows[-1].call_id


def _matches_outcome(row: Row[tuple[object, ...]]) -> bool:
    try:
        reply = _DECODER.decode(row.reply)
    except ValueError:
        return False
    return isinstance(reply, CALL_KINDS[row.role].value | Failure) and outcome_name(reply) == row.outcome


async def check_no_calls_after_reply(audit: AuditedJob) -> list[Violation]:
    """I14: a call is executed again only after a lapse or an infrastructure failure, and never after its reply."""
    causes = ["lapsed", *RETRIED]
    message = "`failed` does not match the accepted reply"
    return [
        *await audit.find("I14", "attempted after the accepted reply", AFTER_THE_REPLY),
        *await audit.find("I14", "not accepted, yet neither a lapse nor a failure", AGAIN_WITHOUT_CAUSE, causes=causes),
        *await audit.find("I14", message, FREED, retried=RETRIED),
    ]
