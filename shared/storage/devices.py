"""Rows of devices and of the models that they serve."""

import uuid
from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage.database import Database, record_operation, sql

FLIPS = 20
"""Number of recent flips that are shown."""
KNOWN = text("""
    SELECT device FROM residencies UNION SELECT device FROM devices
    UNION SELECT device FROM models WHERE served AND device IS NOT NULL""")
# Draining a drained device changes nothing, so the first drain's reason and time stay.
SET = text("""
    INSERT INTO devices (device, drained, reason) VALUES (:device, :drained, :reason)
    ON CONFLICT (device) DO UPDATE SET drained = EXCLUDED.drained, reason = EXCLUDED.reason, changed_at = now()
        WHERE devices.drained <> EXCLUDED.drained
    RETURNING drained""")
DRAINED = text("SELECT reason, changed_at AS since FROM devices WHERE device = :device AND drained")
RECENT = text("""
    SELECT r.epoch, r.models, r.cause, r.state, r.reason, r.servers, r.measured, r.wanted_at, r.opened_at, r.closed_at,
        ARRAY(SELECT m.name FROM models m WHERE m.id = ANY(r.models) ORDER BY m.name) AS names,
        (SELECT COALESCE(sum(m.footprint_mib), 0) FROM models m WHERE m.id = ANY(r.models)) AS declared_mib
    FROM residencies r WHERE r.device = :device ORDER BY r.epoch DESC LIMIT :n""")
RESIDENT = text("SELECT id, name, digest, footprint_mib FROM models WHERE id = ANY(:ids) ORDER BY name")


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One residency: its models, its cause and its times."""

    epoch: int
    """Number of the residency; it grows with every change of the resident models."""
    models: list[str]
    """Names of the models."""
    cause: str
    """Why the scheduler loaded these models, such as `first` or `drained`."""
    state: str
    """State of the residency."""
    reason: str | None
    """Why the residency was quarantined, or closed without a decision of the scheduler; null otherwise."""
    wanted_at: datetime
    """Time at which the scheduler decided to load the models."""
    opened_at: datetime | None
    """Time from which the models answered calls; null if they never did."""
    closed_at: datetime | None
    """Time at which the residency ended; null if it has not."""
    load_s: float | None
    """Time that the starts of the model servers took together, in seconds; null if none was started."""
    declared_mib: int = 0
    """Sum of the models' declared footprints in MiB."""


class ResidentModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the device holds."""

    name: str
    """Name of the model."""
    digest: str | None
    """Digest of the model's files; null if the server has none."""
    footprint_mib: int
    """Declared memory in MiB, which counts against the budget."""
    measured_mib: float | None
    """Memory in MiB, measured when the residency was opened; null if it was not measured."""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request to keep the device empty."""

    reason: str | None
    """Reason that the operator gave; null if none was given."""
    since: datetime
    """Time of the request."""


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """A device's state according to the database."""

    state: str
    """State of the newest residency; `unused` if there never was one."""
    epoch: int | None
    """Number of the newest residency; null if there never was one."""
    models: list[ResidentModel]
    """Resident models; empty unless the newest residency is open."""
    drain: Drain | None
    """The drain request; null if the device is not drained."""
    flips: list[Flip]
    """The newest residencies, newest first."""


async def list_devices(database: Database) -> set[str]:
    """List all devices that ever held a model or may hold one."""
    async with database.transaction() as connection:
        return set((await connection.execute(KNOWN)).scalars())


async def find_drain(connection: AsyncConnection, device: str) -> Drain | None:
    """Find the device's drain; None if it is not drained."""
    row = (await connection.execute(DRAINED, {"device": device})).first()
    return None if row is None else Drain(reason=row.reason, since=row.since)


async def drain_device(database: Database, device: str, reason: str | None, actor: str) -> None:
    """Drain the device: it is emptied and stays unused until released. Repeating this has no effect."""
    await _set_drained(database, device, actor, drained=True, reason=reason)


async def release_device(database: Database, device: str, actor: str) -> None:
    """Release the device after a drain. Repeating this has no effect."""
    await _set_drained(database, device, actor, drained=False, reason=None)


async def _set_drained(database: Database, device: str, actor: str, *, drained: bool, reason: str | None) -> None:
    values = {"device": device, "drained": drained, "reason": reason}
    async with database.transaction() as connection:
        if (await connection.execute(SET, values)).first() is not None:
            action = "gpu.drain" if drained else "gpu.release"
            await record_operation(connection, actor, action, device, **({"reason": reason} if reason else {}))


async def load_device(database: Database, device: str) -> DeviceState:
    """Load the device's state from one snapshot."""
    async with database.snapshot() as connection:
        rows = (await connection.execute(RECENT, {"device": device, "n": FLIPS})).mappings().all()
        newest = rows[0] if rows else None
        return DeviceState(
            state=newest["state"] if newest else "unused",
            epoch=newest["epoch"] if newest else None,
            models=await _load_resident_models(connection, newest) if newest and newest["state"] == "open" else [],
            drain=await find_drain(connection, device),
            flips=[_make_flip(each) for each in rows],
        )


async def _load_resident_models(connection: AsyncConnection, residency: RowMapping) -> list[ResidentModel]:
    measured = residency["measured"].get("memory_mib", {})
    return [
        ResidentModel(
            name=row.name, digest=row.digest, footprint_mib=row.footprint_mib, measured_mib=measured.get(str(row.id))
        )
        for row in await connection.execute(RESIDENT, {"ids": residency["models"]})
    ]


def _make_flip(row: RowMapping) -> Flip:
    copied = ("epoch", "cause", "state", "reason", "wanted_at", "opened_at", "closed_at", "declared_mib")
    servers = row["servers"]
    return Flip(
        models=row["names"],
        load_s=round(sum(server["seconds"] for server in servers), 3) if servers else None,
        **{field: row[field] for field in copied},
    )


async def list_model_names(connection: AsyncConnection, ids: Sequence[int]) -> list[str]:
    """List the names of the models with these ids, sorted."""
    return [row.name for row in await connection.execute(RESIDENT, {"ids": list(ids)})]


VERSIONS = 20
"""Number of registered versions that are shown."""
MOST_JOBS = 20
SERVED = text("""
    WITH open AS MATERIALIZED (SELECT device, models FROM residencies WHERE state = 'open')
    SELECT DISTINCT ON (m.name) m.name, m.backend, m.version, m.digest, m.device,
        ARRAY(SELECT o.device FROM open o WHERE m.id = ANY(o.models) ORDER BY o.device) AS resident
    FROM models m WHERE m.served AND m.name = ANY(:names) ORDER BY m.name, m.registered_at DESC""")
REGISTERED = text("""
    SELECT id, backend, digest, version, device, footprint_mib, estimated, registered_at, served
    FROM models WHERE name = :name ORDER BY served DESC, registered_at DESC LIMIT :n""")
LEARNED = text("""
    SELECT f.device, f.driver, f.parallel, f.least_mib, f.most_mib, f.loads, f.measured_at, m.digest
    FROM footprints f JOIN models m ON m.id = f.model_id WHERE m.id = ANY(:ids)
    ORDER BY f.measured_at DESC, f.device, f.parallel LIMIT 50""")
LOADS = text("""
    SELECT count(*) AS loads, percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(s ->> 'seconds' AS float8)) AS median_s,
        max(CAST(s ->> 'seconds' AS float8)) AS longest_s
    FROM (SELECT servers FROM residencies ORDER BY epoch DESC LIMIT 1000) r
    CROSS JOIN LATERAL jsonb_array_elements(r.servers) s WHERE CAST(s ->> 'model' AS integer) = ANY(:ids)""")
# Calls have no index by model; the newest ones suffice for the current speed.
SPEED = sql("""
    SELECT count(*) AS calls,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY EXTRACT(epoch FROM a.ended_at - a.started_at)) AS median_s,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY EXTRACT(epoch FROM a.ended_at - a.started_at)) AS p95_s,
        1000 * sum(a.prompt_tokens - COALESCE(a.cached_tokens, 0)) FILTER (WHERE a.prompt_ms > 0)
            / NULLIF(sum(a.prompt_ms) FILTER (WHERE a.prompt_ms > 0), 0) AS read_tokens_s,
        1000 * sum(a.completion_tokens) FILTER (WHERE a.completion_ms > 0)
            / NULLIF(sum(a.completion_ms) FILTER (WHERE a.completion_ms > 0), 0) AS written_tokens_s,
        min(a.started_at) AS since, max(a.ended_at) AS until
    FROM (SELECT id, model_id FROM calls ORDER BY id DESC LIMIT 20000) c
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE c.model_id = ANY(:ids) AND a.started_at IS NOT NULL AND a.ended_at IS NOT NULL""")
JOBS = text("""
    SELECT j.public_id AS id, j.name, j.state, j.pipeline, j.created_at, r.roles
    FROM (SELECT * FROM jobs WHERE NOT online ORDER BY id DESC LIMIT 1000) j
    CROSS JOIN LATERAL (SELECT array_agg(pin.key ORDER BY pin.key) AS roles FROM jsonb_each(j.pins) pin
        WHERE CAST(pin.value ->> 'model_id' AS integer) = ANY(:ids)) r
    WHERE r.roles IS NOT NULL ORDER BY j.id DESC LIMIT :n""")


class RegisteredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a model as a guard registered it."""

    backend: str
    """Program that serves the model, such as `llama.cpp` or `ollama`."""
    digest: str | None
    """Digest of the model's files; null if the server has none."""
    version: str
    """Version of the model's server; empty if the server reports none."""
    device: str | None
    """Device on which the guard loads the model; null if it needs none."""
    footprint_mib: int
    """Memory in MiB that counts against the budget."""
    estimated: bool
    """Whether `footprint_mib` was estimated from the model's metadata instead of declared."""
    registered_at: datetime
    """Time of the registration."""
    served: bool
    """Whether a guard serves it now."""


class LearnedFootprint(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that verified loads took on a device, in MiB."""

    device: str
    """Id of the device."""
    driver: str
    """Version of the device's driver."""
    parallel: int
    """Number of parallel slots."""
    least_mib: float
    """Smallest measured memory in MiB."""
    most_mib: float
    """Largest measured memory in MiB."""
    loads: int
    """Number of measured loads."""
    measured_at: datetime
    """Time of the last measurement."""
    digest: str | None
    """Digest of the model's files; null if the server has none."""


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """How long the model's server took to start, in the newest 1,000 residencies."""

    loads: int
    """Number of starts."""
    median_s: float | None
    """Median duration of a start in seconds; null without starts."""
    longest_s: float | None
    """Longest duration of a start in seconds; null without starts."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of the model's calls among the newest 20,000 calls of all models."""

    calls: int
    """Number of calls."""
    median_s: float
    """Median of the seconds from the start of a call to its reply."""
    p95_s: float
    """95th percentile of these seconds."""
    read_tokens_s: float | None
    """Prompt tokens computed per second in one slot, as measured by the model's server; null if it reports none."""
    written_tokens_s: float | None
    """Reply tokens per second in one slot, as measured by the model's server; null if it reports none."""
    since: datetime
    """Start of the first of these calls."""
    until: datetime
    """End of the last of these calls."""


class ModelJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that names the model."""

    id: uuid.UUID
    """Id of the job."""
    name: str
    """Name of the job."""
    state: str
    """State of the job."""
    pipeline: str
    """Pipeline of the job."""
    created_at: datetime
    """Time of submission."""
    roles: list[str]
    """Roles for which the job names the model."""


class ModelRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Registered versions, measurements and jobs of a model."""

    versions: list[RegisteredModel]
    """Registered versions: the served version first, then the newest ones."""
    learned: list[LearnedFootprint]
    """Measured footprints, latest first."""
    loads: Loads
    """How long the model's server took to start."""
    speed: Speed | None
    """Speed of the model's calls; null if none of the newest calls were made to this model."""
    jobs: list[ModelJob]
    """The newest jobs that name the model, including those whose pipelines do not use it."""


async def find_served(connection: AsyncConnection, names: Sequence[str]) -> dict[str, RowMapping]:
    """Find the versions that guards serve now, by name, with the devices that hold them."""
    rows = (await connection.execute(SERVED, {"names": list(names)})).mappings()
    return {row["name"]: row for row in rows}


async def load_records(connection: AsyncConnection, name: str) -> ModelRecords:
    """Load everything known of the model called `name`, with five statements."""
    rows = (await connection.execute(REGISTERED, {"name": name, "n": VERSIONS})).mappings().all()
    ids = [row["id"] for row in rows]
    learned = (await connection.execute(LEARNED, {"ids": ids})).mappings()
    loads = (await connection.execute(LOADS, {"ids": ids})).mappings().one()
    speed = (await connection.execute(SPEED, {"ids": ids})).mappings().one()
    return ModelRecords(
        versions=[RegisteredModel(**{name: row[name] for name in RegisteredModel.__struct_fields__}) for row in rows],
        learned=[LearnedFootprint(**row) for row in learned],
        loads=Loads(**loads),
        speed=Speed(**speed) if speed["calls"] else None,
        jobs=await list_jobs_naming(connection, ids),
    )


async def list_jobs_naming(connection: AsyncConnection, ids: Sequence[int]) -> list[ModelJob]:
    """List the newest jobs that name one of these rows of `models`, even if their pipelines do not ask it."""
    return [ModelJob(**row) for row in (await connection.execute(JOBS, {"ids": ids, "n": MOST_JOBS})).mappings()]
