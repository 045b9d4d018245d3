"""Audit a job: check the invariants on its rows. It only reads the database and changes nothing.

The invariants are listed in docs/reference/invariants.md. Every check is one statement over the whole job, except
replays and records, which are streamed.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from mathrag.errors import NotFound
from shared.audit import replays, rows
from shared.audit.finding import AuditedJob, Violation, add_items, make_unchecked_violation
from shared.pipelines import registry
from shared.storage.archive import show_archived
from shared.storage.database import Database, try_decode_params

__all__ = ["Invariant", "Violation", "check", "check_in_thread", "describe_changed_pipeline", "list_invariants"]

JOB = text("""
    SELECT id, pipeline, pipeline_hash, params, state, prepared, code FROM jobs WHERE public_id = :public_id""")
# The audit reads whole jobs: the index walks that the hot path is pinned to would take it ten times as long.
PLANS = text("""
    SELECT set_config(name, 'on', true) FROM unnest(ARRAY[
        'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin']) name
    UNION ALL SELECT set_config('plan_cache_mode', 'auto', true)""")
# A statement that fails would otherwise take the rest of its transaction with it.
SAVE, RESTORE = text("SAVEPOINT one_check"), text("ROLLBACK TO SAVEPOINT one_check")
Check = Callable[[AuditedJob], Awaitable[list[Violation]]]
CHECKS: tuple[Check, ...] = (
    rows.check_no_overlap,
    rows.check_epochs_of_calls,
    rows.check_accepted_replies,
    rows.check_memory,
    rows.check_loads,
    rows.check_causes,
    rows.check_expansion,
    rows.check_endings,
    rows.check_no_calls_after_reply,
    rows.check_quiet_after_end,
    replays.check_replays,
    rows.check_idempotency_keys,
    rows.check_page_keys,
    rows.check_events,
    rows.check_records,
    rows.check_archive,
    rows.check_protection,
    replays.check_hashes,
)
"""The docstring of each check begins with the number of its invariant and is shown to users."""


class Invariant(NamedTuple):
    """An invariant that an audit checks."""

    name: str
    """The invariant's number, such as "I1"."""
    words: str


def list_invariants() -> list[Invariant]:
    """List the invariants in order; the descriptions of several checks of one invariant are joined."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    for each in CHECKS:
        name, _, words = " ".join((each.__doc__ or "").split()).partition(": ")
        said[name].append(f"{words[:1].upper()}{words[1:]}")
    return [Invariant(name, " ".join(words)) for name, words in said.items()]


async def check(database: Database, public_id: uuid.UUID) -> list[Violation]:
    """Return every violation in the job's rows, read from one snapshot; an empty list means a clean audit.

    Raises:
        NotFound: the job does not exist.
    """
    async with database.snapshot() as connection:
        await connection.execute(PLANS)
        job = (await connection.execute(JOB, {"public_id": public_id})).mappings().first()
        if job is None:
            raise NotFound(f"no job {public_id}", hint="mathrag job list")
        damaged: list[str] = []
        async with show_archived(connection, job["id"], damaged=damaged):
            audit = AuditedJob(connection, job, damaged)
            found = [violation for each in CHECKS for violation in await _run_check(audit, each)]
            return await add_items(audit, found)


async def describe_changed_pipeline(database: Database, public_id: uuid.UUID) -> str | None:
    """Tell, with both hashes, that the job's pipeline has another version by now; None if it has not.

    If no replay is among the violations, the new version gives the same outcomes.
    """
    async with database.snapshot() as connection:
        job = (await connection.execute(JOB, {"public_id": public_id})).mappings().one()
    if not replays.has_changed_pipeline(job):
        return None
    params, _ = try_decode_params(job["params"], "")
    ran, here = job["pipeline_hash"].hex(), registry.pipeline_hash(job["pipeline"], params)
    return f"pipeline changed: the job ran version {ran[:12]} of `{job['pipeline']}`, this program has {here[:12]}"


async def _run_check(audit: AuditedJob, check: Check) -> list[Violation]:
    """Run one check; a check that fails is a violation as well, and the others continue."""
    await audit.connection.execute(SAVE)
    try:
        return await check(audit)
    except Exception as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        await audit.connection.execute(RESTORE)
        return [make_unchecked_violation((check.__doc__ or "").partition(":")[0], error, f"jobs {audit.job['id']}")]


async def check_in_thread(database: Database, public_id: uuid.UUID) -> list[Violation]:
    """Run `check` in a thread with its own connection, because replays would block the caller's event loop.

    Raises:
        NotFound: the job does not exist.
    """
    url = database.engine.url.render_as_string(hide_password=False)

    async def check_alone() -> list[Violation]:
        own = Database(url, pinned=False, size=1)
        try:
            return await check(own, public_id)
        finally:
            await own.close()

    return await asyncio.to_thread(asyncio.run, check_alone())
