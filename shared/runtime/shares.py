"""Limits on new jobs, in all and for each API key; how keys share the service; and what each one uses."""

from collections import Counter
from collections.abc import Sequence
from math import ceil

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import TooLarge, TooMany
from mathrag.messages import format_count
from shared.settings import Limits
from shared.storage.database import TURN_UNITS, fill_names, sql
from shared.storage.keys import VALID
from shared.storage.quota import MIB, STORED

Asked = tuple[str | None, int]
"""Name of the key that submits a job, if any, and the job's number of samples."""

LIVE = text("SELECT count(*) FROM (SELECT FROM jobs WHERE ended_at IS NULL LIMIT :most) live")
LIVE_SAMPLES = text("""
    SELECT COALESCE(sum(total), 0) FROM jobs WHERE ended_at IS NULL AND code ->> 'submitted_by' = :key""")
# The time in which at least one call was under way: a call that began during another one counts the time that it adds.
_GPU_TIMES = fill_names("""
    SELECT key, sum(extract(epoch FROM ended_at - GREATEST(started_at, busy))) AS seconds FROM (
        SELECT j.code ->> 'submitted_by' AS key, a.started_at, a.ended_at, max(a.ended_at) OVER (
            PARTITION BY j.code ->> 'submitted_by', a.device
            ORDER BY a.started_at, a.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy
        FROM jobs j,
            LATERAL (SELECT s.id FROM samples s WHERE s.job_id = j.id OFFSET 0) s,
            LATERAL (SELECT t.call_id FROM steps t WHERE t.sample_id = s.id AND t.created OFFSET 0) t,
            LATERAL (SELECT a.* FROM attempts a WHERE {ACCEPTED_FOR} t.call_id OFFSET 0) a
        WHERE j.code ->> 'submitted_by' IN ({{keys}})
          AND (j.ended_at IS NULL OR j.ended_at > now() - interval '24 hours')
          AND a.epoch IS NOT NULL AND a.ended_at > now() - interval '24 hours') made
    WHERE busy IS NULL OR ended_at > busy GROUP BY key""")
GPU_TIME = text(_GPU_TIMES.format(keys=":key"))
# A key whose last job is older than every live one has waited for no other key, so its turns begin where the others'
# began. Jobs without a key count as those of one more key; jobs of earlier releases have no turn and begin at 0. During
# a rotation several keys of a name are valid, all of the same weight.
NEXT_TURN = sql(f"""
    WITH live AS (SELECT min(id) AS oldest, min({{TURN}}) AS turn FROM jobs j WHERE ended_at IS NULL)
    SELECT GREATEST(COALESCE(live.turn, 0), COALESCE(
            (SELECT {{TURN}} + (CAST({TURN_UNITS} AS bigint) * total + {{WEIGHT}} - 1) / {{WEIGHT}} FROM jobs j
             WHERE code ->> 'submitted_by' IS NOT DISTINCT FROM :key AND id >= live.oldest ORDER BY id DESC LIMIT 1),
            0)) AS turn,
        COALESCE((SELECT weight FROM api_keys WHERE name = :key ORDER BY ({VALID}) DESC, id DESC LIMIT 1), 1) AS weight
    FROM live""")  # noqa: S608 - constants
# Materialized, so that none is computed again for each key.
SHARES = text(f"""
    WITH named AS (
        SELECT DISTINCT ON (name) name AS key, weight, project FROM api_keys
        WHERE {VALID} AND (CAST(:key AS text) IS NULL OR name = :key) ORDER BY name, id DESC),
    live AS MATERIALIZED (
        SELECT code ->> 'submitted_by' AS key, sum(total) AS samples FROM jobs WHERE ended_at IS NULL GROUP BY key),
    ended AS MATERIALIZED (
        SELECT j.code ->> 'submitted_by' AS key, count(*) AS samples FROM samples s JOIN jobs j ON j.id = s.job_id
        WHERE s.kind = 'item' AND s.ended_at > now() - interval '24 hours' AND s.state IN {fill_names("{DONE}")}
        GROUP BY key),
    used AS MATERIALIZED ({_GPU_TIMES.format(keys="SELECT key FROM named")}),
    stored AS MATERIALIZED ({STORED})
    SELECT key, weight, project, COALESCE(live.samples, 0) AS live_samples,
        COALESCE(ended.samples, 0) AS ended_samples, COALESCE(CAST(used.seconds AS double precision), 0) AS gpu_s,
        CAST(COALESCE(stored.bytes, 0) AS double precision) / {MIB} AS storage_mib
    FROM named LEFT JOIN live USING (key) LEFT JOIN ended USING (key) LEFT JOIN used USING (key)
        LEFT JOIN stored USING (key)
    ORDER BY key""")  # noqa: S608 - constants


async def admit(connection: AsyncConnection, limits: Limits, asked: Sequence[Asked]) -> None:
    """Check that these jobs may be inserted.

    Concurrent submissions may exceed the limits slightly. They protect the service and its users from each other's
    mistakes: an exact count would make every submission wait for a concurrent large one.

    Raises:
        TooLarge: a job has too many samples, or these jobs alone are more than may ever live at once, or more than
            their key may ever have.
        TooMany: too many jobs are live already, or a key has reached one of its limits.
    """
    largest = max(samples for _, samples in asked)
    if largest > limits.samples:
        raise TooLarge(
            f"items times repeats are {largest} samples, more than `limits.samples` allows ({limits.samples})",
            hint="choose fewer repeats, or submit several datasets",
        )
    if len(asked) > limits.live_jobs:
        raise TooLarge(
            f"{len(asked)} jobs at once are more than `limits.live_jobs` allows ({limits.live_jobs})",
            hint="choose a smaller grid, or submit several experiments one after the other",
        )
    live = (await connection.execute(LIVE, {"most": limits.live_jobs})).scalar_one()
    if live + len(asked) > limits.live_jobs:
        raise TooMany(
            f"{format_count(live, 'job has', 'jobs have')} not ended;"
            f" {format_count(len(asked), 'more is', 'more are')} too many for `limits.live_jobs` ({limits.live_jobs})",
            hint="wait until one ends, or cancel one: mathrag job list --state running",
        )
    new: Counter[str] = Counter()
    for key, samples in asked:
        if key is not None:
            new[key] += samples
    for key, samples in new.items():
        await _check_key(connection, limits, key, samples)


async def _check_key(connection: AsyncConnection, limits: Limits, key: str, samples: int) -> None:
    if limits.samples_per_key:
        if samples > limits.samples_per_key:
            raise TooLarge(
                f"{samples} samples at once are more than `limits.samples_per_key` allows the key {key!r}"
                f" ({limits.samples_per_key})",
                hint="submit fewer items or repeats, or several parts one after the other",
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
        row = (await connection.execute(GPU_TIME, {"key": key})).first()
        used = 0 if row is None else row.seconds
        if used >= limits.gpu_s_per_key:
            raise TooMany(
                f"the jobs of the key {key!r} have used {used:.0f} s of GPU time in the last 24 hours;"
                f" `limits.gpu_s_per_key` allows {limits.gpu_s_per_key:.0f} s",
                hint="submit again later, or ask the operator for more",
            )


async def take_turns(connection: AsyncConnection, asked: Sequence[Asked]) -> list[dict[str, int]]:
    """Return the part of `jobs.code` that places each job's samples in the queue: the turn of the first one, and its
    key's weight if it is not 1.

    At equal rank, calls are claimed in the order of their samples' turns. A sample's turn is about the number of
    samples that its key was served since the oldest live job was submitted, divided by the key's weight. So the key
    that was served less of its share goes first (start-time fair queueing: Goyal, Vin and Cheng, 1996; with the oldest
    live job's start as the virtual time). Jobs of one key follow each other; of two that are submitted at the same
    moment, the samples alternate, or three of one follow one of the other if their weights are 3 and 1. Jobs without a
    key share as if they had one more, of weight 1.
    """
    following: dict[str | None, tuple[int, int]] = {}
    turns = []
    for key, samples in asked:
        if key not in following:
            row = (await connection.execute(NEXT_TURN, {"key": key})).one()
            following[key] = (row.turn, row.weight)
        turn, weight = following[key]
        whole, part = divmod(turn, TURN_UNITS)
        # Only what is not the default of `PLACE` in shared/storage/database.py.
        turns.append(
            {"turn": whole} | ({"turn_part": part} if part else {}) | ({"weight": weight} if weight != 1 else {})
        )
        following[key] = (turn + ceil(samples * TURN_UNITS / weight), weight)
    return turns


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """An API key's share of the service, and what it used."""

    key: str
    """Name of the key."""
    weight: int
    """A key of weight 3 gets three times as many samples as one of weight 1 while both wait."""
    project: str | None
    """The key's project; null for none."""
    live_samples: int
    """Samples of its jobs that have not ended, as `samples_per_key` counts them."""
    ended_samples: int
    """Samples that completed or failed in the last 24 hours."""
    gpu_s: float
    """GPU time of the last 24 hours in seconds, as `gpu_s_per_key` counts it."""
    storage_mib: float
    """Size of its uploads in MiB, as `storage_mib_per_key` counts it."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The keys' shares, and the limits of every key."""

    samples_per_key: int
    """`limits.samples_per_key`; 0: no limit."""
    gpu_s_per_key: float
    """`limits.gpu_s_per_key`; 0: no limit."""
    storage_mib_per_key: int
    """`limits.storage_mib_per_key`; 0: no limit."""
    keys: list[Share]
    """The valid keys by name."""


async def load_shares(connection: AsyncConnection, limits: Limits, key: str | None = None) -> Shares:
    """Load the shares of all valid keys, or of the one with this name."""
    rows = (await connection.execute(SHARES, {"key": key})).mappings()
    return Shares(
        samples_per_key=limits.samples_per_key, gpu_s_per_key=limits.gpu_s_per_key,
        storage_mib_per_key=limits.storage_mib_per_key, keys=[Share(**row) for row in rows],
    )  # fmt: skip
