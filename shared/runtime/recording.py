"""Record what a batch of samples waits for: calls, queue rows, steps, and the samples' new positions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.pipelines.binding import Bound
from shared.runtime.progress import NewStep, SampleProgress, StoredAnswer
from shared.storage.sql import sql

# Sorted by key, so that two processes that insert the same keys cannot deadlock.
INSERT_CALLS = text("""
    INSERT INTO calls (key, lane, role, model_id, request)
    SELECT * FROM unnest(CAST(:keys AS bytea[]), CAST(:lanes AS text[]), CAST(:roles AS text[]),
                         CAST(:models AS integer[]), CAST(:requests AS bytea[]))
    ON CONFLICT (key) WHERE NOT failed DO NOTHING RETURNING id, key""")
ENQUEUE = text("""
    INSERT INTO queue (lane, model_id, place, call_id)
    SELECT * FROM unnest(CAST(:lanes AS text[]), CAST(:models AS integer[]), CAST(:places AS bigint[]),
                         CAST(:calls AS bigint[]))""")
EXISTING = text("SELECT id, key FROM calls WHERE key = ANY(:keys) AND NOT failed")
ATTACHED = sql("""
    SELECT u.id, q.call_id IS NULL AS parked
    FROM unnest(CAST(:calls AS bigint[]), CAST(:places AS bigint[])) u(id, place) LEFT JOIN queue q ON q.call_id = u.id
    WHERE q.place > u.place
       OR q.call_id IS NULL AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} u.id)""")
# A call is as urgent as the most urgent sample that waits for it. Rows that are being claimed need no place any more.
HASTEN = text("""
    WITH pending AS MATERIALIZED (
        SELECT q.call_id, u.place FROM unnest(CAST(:calls AS bigint[]), CAST(:places AS bigint[])) u(call_id, place)
        JOIN queue q ON q.call_id = u.call_id AND q.token IS NULL AND q.place > u.place
        ORDER BY q.call_id FOR UPDATE OF q SKIP LOCKED)
    UPDATE queue q SET place = p.place FROM pending p WHERE q.call_id = p.call_id""")
INSERT_STEPS = text("""
    INSERT INTO steps (sample_id, position, slot, call_id, created)
    SELECT * FROM unnest(CAST(:samples AS bigint[]), CAST(:positions AS smallint[]), CAST(:slots AS smallint[]),
                         CAST(:calls AS bigint[]), CAST(:created AS boolean[]))""")
WAIT = sql("""
    UPDATE samples s SET state = {WAITING}, position = u.position
    FROM unnest(CAST(:samples AS bigint[]), CAST(:positions AS smallint[])) u(id, position)
    WHERE s.id = u.id AND s.state = {READY}""")


NO_SUCH_CALL = "23503"
"""Foreign key violation: a call of a step was deleted."""


class CallVanished(Exception):
    """A call failed for good, or was purged, after this batch had found it."""


class RecordedBatch(NamedTuple):
    """The rows that `record` wrote."""

    lanes: frozenset[Lane]
    attached: list[int]
    """Calls without a reply that existed before this batch."""


async def record(
    connection: AsyncConnection, batch: Sequence[SampleProgress], known: Mapping[bytes, StoredAnswer]
) -> RecordedBatch:
    """Insert the calls and steps of `batch` and set its samples to waiting.

    Raises:
        CallVanished: roll back and do the batch again.
    """
    steps = [(progress, step) for progress in batch for step in progress.steps]
    # Later entries win, so each call gets the place of the most urgent sample.
    urgent_last = sorted(steps, key=lambda pair: -pair[0].place)
    wanted = {step.bound.key: (progress.place, step.bound) for progress, step in urgent_last}
    created = await _insert_calls(connection, [wanted[key] for key in sorted(wanted.keys() - known.keys())])
    ids = {key: found.call_id for key, found in known.items()} | created
    ids |= await _find_existing(connection, sorted(wanted.keys() - ids.keys()))
    answered = {found.call_id for found in known.values() if found.raw}
    attached = sorted({ids[key] for key in wanted} - answered - set(created.values()))
    places = {ids[key]: place for key, (place, _) in wanted.items()}
    fresh = set(created.values()) | await _attach(connection, attached, [places[call] for call in attached])
    await _insert_steps(connection, steps, ids, fresh)
    waiting = [progress for progress in batch if progress.waits]
    if waiting:
        positions = [progress.replay.position + 1 for progress in waiting]
        await connection.execute(WAIT, {"samples": [p.sample_id for p in waiting], "positions": positions})
    return RecordedBatch(frozenset(bound.lane for key, (_, bound) in wanted.items() if ids[key] in fresh), attached)


async def _insert_calls(connection: AsyncConnection, wanted: Sequence[tuple[int, Bound]]) -> dict[bytes, int]:
    """Insert and enqueue calls sorted by key; return the ids of the new ones."""
    if not wanted:
        return {}
    rows = await connection.execute(
        INSERT_CALLS,
        {
            "keys": [bound.key for _, bound in wanted],
            "lanes": [bound.lane.value for _, bound in wanted],
            "roles": [bound.role for _, bound in wanted],
            "models": [bound.model_id for _, bound in wanted],
            "requests": [bound.body for _, bound in wanted],
        },
    )
    ids = {row.key: row.id for row in rows}
    queued = [(place, bound, ids[bound.key]) for place, bound in wanted if bound.key in ids]
    if queued:
        await connection.execute(
            ENQUEUE,
            {
                "lanes": [bound.lane.value for _, bound, _ in queued],
                "models": [bound.model_id for _, bound, _ in queued],
                "places": [place for place, _, _ in queued],
                "calls": [call_id for _, _, call_id in queued],
            },
        )
    return ids


async def _find_existing(connection: AsyncConnection, keys: Sequence[bytes]) -> dict[bytes, int]:
    if not keys:
        return {}
    ids = {row.key: row.id for row in await connection.execute(EXISTING, {"keys": keys})}
    if len(ids) < len(keys):
        raise CallVanished
    return ids


async def _attach(connection: AsyncConnection, attached: Sequence[int], places: Sequence[int]) -> set[int]:
    """Return those of `attached` that are parked: this batch revives them, so they count as its own.

    Calls that less urgent samples have queued get this batch's places.
    """
    if not attached:
        return set()
    values = {"calls": attached, "places": places}
    rows = (await connection.execute(ATTACHED, values)).all()
    if not all(row.parked for row in rows):
        await connection.execute(HASTEN, values)
    return {row.id for row in rows if row.parked}


async def _insert_steps(
    connection: AsyncConnection,
    steps: Sequence[tuple[SampleProgress, NewStep]],
    ids: Mapping[bytes, int],
    fresh: set[int],
) -> None:
    if not steps:
        return
    calls = [ids[step.bound.key] for _, step in steps]
    first = {call: number for number, call in reversed(list(enumerate(calls)))}
    created = [call in fresh and first[call] == number for number, call in enumerate(calls)]
    values = {
        "samples": [progress.sample_id for progress, _ in steps],
        "positions": [step.position for _, step in steps],
        "slots": [step.slot for _, step in steps],
        "calls": calls,
        "created": created,
    }
    try:
        await connection.execute(INSERT_STEPS, values)
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", "") == NO_SUCH_CALL:
            raise CallVanished from error
        raise
