"""Find the dataset items that a violation affects."""

import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec
from sqlalchemy import text

from shared.audit.finding import AuditedJob, Violation

MAX_NAMED_ITEMS = 5
"""The most items that a violation lists."""
# A record has the id of its sample. All rows of one violation at once.
ITEMS = text("""
    WITH touched AS (
        SELECT id FROM unnest(CAST(:samples AS bigint[])) u(id)
        UNION SELECT t.sample_id FROM steps t WHERE t.call_id = ANY(CAST(:calls AS bigint[]))
        UNION SELECT t.sample_id FROM attempts a JOIN steps t ON t.call_id = a.call_id
            WHERE a.id = ANY(CAST(:attempts AS bigint[])))
    SELECT s.ordinal FROM samples s JOIN touched u ON u.id = s.id WHERE s.job_id = :job AND s.kind = 'item'
    UNION SELECT ordinal FROM unnest(CAST(:items AS integer[])) i(ordinal) ORDER BY ordinal""")
_ROW = re.compile(r"(?P<table>samples|records|steps|calls|attempts|items) (?P<id>\d+)")
_KEPT_AS = {"records": "samples", "steps": "samples"}


async def add_items(audit: AuditedJob, found: Sequence[Violation]) -> list[Violation]:
    """Add to each violation the items that its rows belong to; a violation of no sample has none."""
    return [await _add_items(audit, violation) for violation in found]


async def _add_items(audit: AuditedJob, violation: Violation) -> Violation:
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for found in filter(None, map(_ROW.match, violation.rows)):
        ids[_KEPT_AS.get(found["table"], found["table"])].append(int(found["id"]))
    if not ids:
        return violation
    values = {table: ids[table] for table in ("samples", "calls", "attempts", "items")}
    items = (await audit.connection.execute(ITEMS, {"job": audit.job["id"], **values})).scalars().all()
    return msgspec.structs.replace(violation, items=tuple(items[:MAX_NAMED_ITEMS]), item_count=len(items))
