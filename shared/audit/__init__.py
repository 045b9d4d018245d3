"""The audit: replay a job's rows and say which invariants they break. From the database alone; it changes nothing.

The invariants are those of docs/architecture.md. Every check is one statement over the whole job, except replays and
records, which are streamed.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.audit import calls, events, protection, records, replays, requests, residencies, samples, sources
from shared.audit.finding import Audit, Violation, unchecked
from shared.audit.places import with_items
from shared.errors import NotFound
from shared.pipelines import registry
from shared.storage.database import Database

__all__ = ["Invariant", "Violation", "changed_source", "check", "check_apart", "invariants"]

JOB = text("""
    SELECT id, pipeline, pipeline_hash, state, prepared FROM jobs WHERE public_id = :public_id""")
# The audit reads whole jobs: the index walks that the hot path is pinned to would take it ten times as long.
PLANS = text("""
    SELECT set_config(name, 'on', true) FROM unnest(ARRAY[
        'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin']) name
    UNION ALL SELECT set_config('plan_cache_mode', 'auto', true)""")
# A statement that fails would otherwise take the rest of its transaction with it.
SAVE, RESTORE = text("SAVEPOINT one_check"), text("ROLLBACK TO SAVEPOINT one_check")
Check = Callable[[Audit], Awaitable[list[Violation]]]
CHECKS: tuple[Check, ...] = (
    residencies.apart_in_time,
    residencies.calls_inside_their_epoch,
    calls.accepted_with_claim_and_receipt,
    residencies.memory_within_the_budget,
    residencies.loads_within_the_bound,
    residencies.with_their_causes,
    samples.all_expanded,
    samples.each_ended_once,
    calls.never_again_after_a_reply,
    samples.nothing_after_the_end,
    replays.reproduced_bit_for_bit,
    requests.one_job_per_key,
    requests.one_row_per_page_key,
    events.never_less,
    records.complete_and_chained,
    protection.in_place,
    sources.as_hashed,
)
"""Each says in its first words which invariant it checks."""


class Invariant(NamedTuple):
    """What an audit checks."""

    name: str
    """Its number, such as "I1"."""
    words: str


def invariants() -> list[Invariant]:
    """All that is checked, one after another; an invariant with two checks says both."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    for each in CHECKS:
        name, _, words = " ".join((each.__doc__ or "").split()).partition(": ")
        said[name].append(f"{words[:1].upper()}{words[1:]}")
    return [Invariant(name, " ".join(words)) for name, words in said.items()]


async def check(database: Database, public_id: uuid.UUID) -> list[Violation]:
    """Every violation in the job's rows as one instant shows them; none: the audit is clean.

    Raises:
        NotFound: no such job.
    """
    async with database.snapshot() as connection:
        await connection.execute(PLANS)
        job = (await connection.execute(JOB, {"public_id": public_id})).mappings().first()
        if job is None:
            raise NotFound(f"no job {public_id}", hint="mathrag job list")
        audit = Audit(connection, job)
        found = [violation for each in CHECKS for violation in await _found(audit, each)]
        return await with_items(audit, found)


async def changed_source(database: Database, public_id: uuid.UUID) -> str | None:
    """That the job's pipeline has another source by now, with both hashes; None where it has not.

    Its replays tell whether that changes anything: where none is among the violations, they give the same outcomes.
    """
    async with database.snapshot() as connection:
        job = (await connection.execute(JOB, {"public_id": public_id})).mappings().one()
    if not replays.has_changed_source(job):
        return None
    ran, here = job["pipeline_hash"].hex(), registry.pipeline_hash(job["pipeline"])
    return f"source changed: the job ran `{job['pipeline']}` from source {ran[:12]}, this version has {here[:12]}"


async def _found(audit: Audit, check: Check) -> list[Violation]:
    """What one check finds; that it cannot be done is a finding, too, and the others go on."""
    await audit.connection.execute(SAVE)
    try:
        return await check(audit)
    except Exception as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        await audit.connection.execute(RESTORE)
        return [unchecked((check.__doc__ or "").partition(":")[0], error, f"jobs {audit.job['id']}")]


async def check_apart(database: Database, public_id: uuid.UUID) -> list[Violation]:
    """The same in a thread, over a connection of its own: replays are work, and the caller's loop serves others.

    Raises:
        NotFound: no such job.
    """
    url = database.engine.url.render_as_string(hide_password=False)
    return await asyncio.to_thread(asyncio.run, _check_alone(url, public_id))


async def _check_alone(url: str, public_id: uuid.UUID) -> list[Violation]:
    database = Database(url, pinned=False, size=1)
    try:
        return await check(database, public_id)
    finally:
        await database.close()
