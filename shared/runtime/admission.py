"""Limits on new jobs, in all and for each API key, and the turns that give keys equal shares of the service."""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import TooLarge, TooMany
from shared.limits import Limits
from shared.plurals import format_count
from shared.runtime.drafting import Draft
from shared.storage.sql import sql

LIVE = text("SELECT count(*) FROM (SELECT FROM jobs WHERE ended_at IS NULL LIMIT :most) live")
LIVE_SAMPLES = text("""
    SELECT COALESCE(sum(total), 0) FROM jobs WHERE ended_at IS NULL AND code ->> 'submitted_by' = :key""")
# The time in which at least one call was under way: a call that began during another one counts what it adds.
GPU_TIME = sql("""
    WITH made AS (
        SELECT a.started_at, a.ended_at, max(a.ended_at) OVER (
            PARTITION BY a.device ORDER BY a.started_at, a.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy
        FROM jobs j,
            LATERAL (SELECT s.id FROM samples s WHERE s.job_id = j.id OFFSET 0) s,
            LATERAL (SELECT t.call_id FROM steps t WHERE t.sample_id = s.id AND t.created OFFSET 0) t,
            LATERAL (SELECT a.* FROM attempts a WHERE {ACCEPTED_FOR} t.call_id OFFSET 0) a
        WHERE j.code ->> 'submitted_by' = :key AND (j.ended_at IS NULL OR j.ended_at > now() - interval '24 hours')
          AND a.epoch IS NOT NULL AND a.ended_at > now() - interval '24 hours')
    SELECT COALESCE(sum(extract(epoch FROM ended_at - GREATEST(started_at, busy))) FILTER (
        WHERE busy IS NULL OR ended_at > busy), 0) FROM made""")
# A key whose last job is older than every live one has waited for nobody, so its turns begin where the others' began.
# Jobs without a key count as those of one more key; jobs of earlier releases have no turn and begin at 0.
NEXT_TURN = text("""
    WITH live AS (
        SELECT min(id) AS oldest, min(COALESCE(CAST(code ->> 'turn' AS bigint), 0)) AS turn FROM jobs
        WHERE ended_at IS NULL)
    SELECT GREATEST(COALESCE(live.turn, 0), COALESCE(
        (SELECT COALESCE(CAST(code ->> 'turn' AS bigint), 0) + total FROM jobs
         WHERE code ->> 'submitted_by' IS NOT DISTINCT FROM :key AND id >= live.oldest ORDER BY id DESC LIMIT 1), 0))
    FROM live""")


async def admit(connection: AsyncConnection, limits: Limits, drafts: Sequence[Draft]) -> None:
    """Check that these jobs may be inserted.

    Concurrent submissions may exceed the limits slightly. They protect the service and its users from each other's
    mistakes: an exact count would make every submission wait for a large one beside it.

    Raises:
        TooLarge: a job has too many samples, or these jobs alone are more than may ever live at once, or more than
            their key may ever have.
        TooMany: too many jobs are live already, or a key has reached one of its limits.
    """
    largest = max(draft.samples for draft in drafts)
    if largest > limits.samples:
        raise TooLarge(
            f"items times repeats are {largest} samples, more than `limits.samples` allows ({limits.samples})",
            hint="fewer repeats, or several datasets",
        )
    if len(drafts) > limits.live_jobs:
        raise TooLarge(
            f"{len(drafts)} jobs at once are more than `limits.live_jobs` allows ({limits.live_jobs})",
            hint="a smaller grid, or several experiments one after the other",
        )
    live = (await connection.execute(LIVE, {"most": limits.live_jobs})).scalar_one()
    if live + len(drafts) > limits.live_jobs:
        raise TooMany(
            f"{format_count(live, 'job has', 'jobs have')} not ended;"
            f" {format_count(len(drafts), 'more is', 'more are')} too many for `limits.live_jobs` ({limits.live_jobs})",
            hint="wait until one ends, or cancel one: mathrag job list --state running",
        )
    new: Counter[str] = Counter()
    for draft in drafts:
        if draft.submission.submitted_by is not None:
            new[draft.submission.submitted_by] += draft.samples
    for key, samples in new.items():
        await _check_key(connection, limits, key, samples)


async def _check_key(connection: AsyncConnection, limits: Limits, key: str, samples: int) -> None:
    if limits.samples_per_key:
        if samples > limits.samples_per_key:
            raise TooLarge(
                f"{samples} samples at once are more than `limits.samples_per_key` allows the key {key!r}"
                f" ({limits.samples_per_key})",
                hint="fewer items or repeats, or several parts one after the other",
            )
        live = (await connection.execute(LIVE_SAMPLES, {"key": key})).scalar_one()
        if live + samples > limits.samples_per_key:
            raise TooMany(
                f"the live jobs of the key {key!r} have {format_count(live, 'sample')};"
                f" {format_count(samples, 'more is', 'more are')} too many for `limits.samples_per_key`"
                f" ({limits.samples_per_key})",
                hint="wait until one ends, cancel one, or ask for fewer items: mathrag job list --state running",
            )
    if limits.gpu_s_per_key:
        used = (await connection.execute(GPU_TIME, {"key": key})).scalar_one()
        if used >= limits.gpu_s_per_key:
            raise TooMany(
                f"the jobs of the key {key!r} have used {used:.0f} s of GPU time in the last 24 hours;"
                f" `limits.gpu_s_per_key` allows {limits.gpu_s_per_key:.0f} s",
                hint="submit again later, or ask the operator for more",
            )


async def take_turns(connection: AsyncConnection, drafts: Sequence[Draft]) -> list[int]:
    """Return the turn of each job's first sample.

    At equal rank, calls are claimed in the order of their samples' turns. A sample's turn is about the number of
    samples that its key was served since the oldest live job was submitted, so the key that was served less goes first
    (start-time fair queueing: Goyal, Vin and Cheng, 1996; with the oldest live job's start as the virtual time). Jobs
    of one key follow each other; of two that are submitted at the same moment, the samples alternate. Jobs without a
    key share as if they had one more.
    """
    following: dict[str | None, int] = {}
    turns: list[int] = []
    for draft in drafts:
        key = draft.submission.submitted_by
        if key not in following:
            following[key] = (await connection.execute(NEXT_TURN, {"key": key})).scalar_one()
        turns.append(following[key])
        following[key] += draft.samples
    return turns
