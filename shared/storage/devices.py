"""Devices as operators see them: resident models, measured memory, recent flips, and drains."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import operations
from shared.storage.database import Database

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
    """One residency: when and why it was opened, and how long its models took to load."""

    epoch: int
    models: list[str]
    cause: str
    state: str
    reason: str | None
    """Why it was quarantined, or closed without a decision of the scheduler."""
    wanted_at: datetime
    opened_at: datetime | None
    closed_at: datetime | None
    load_s: float | None
    """Total start time of its model servers; null if none was started."""
    declared_mib: int = 0
    """Sum of its models' footprints."""


class ResidentModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the device holds."""

    name: str
    digest: str | None
    footprint_mib: int
    """Declared size, which counts against the budget."""
    measured_mib: float | None
    """Measured when its residency was opened."""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request to keep the device empty."""

    reason: str | None
    since: datetime


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """A device's state according to the database."""

    state: str
    """State of the newest residency; `unused` if there never was one."""
    epoch: int | None
    models: list[ResidentModel]
    """Resident models; empty unless the newest residency is open."""
    drain: Drain | None
    flips: list[Flip]
    """Recent flips, newest first."""


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
            await operations.record_operation(
                connection, actor, action, device, **({"reason": reason} if reason else {})
            )


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
            flips=[_flip(each) for each in rows],
        )


async def _load_resident_models(connection: AsyncConnection, residency: RowMapping) -> list[ResidentModel]:
    measured = residency["measured"].get("memory_mib", {})
    return [
        ResidentModel(
            name=row.name, digest=row.digest, footprint_mib=row.footprint_mib, measured_mib=measured.get(str(row.id))
        )
        for row in await connection.execute(RESIDENT, {"ids": residency["models"]})
    ]


def _flip(row: RowMapping) -> Flip:
    copied = ("epoch", "cause", "state", "reason", "wanted_at", "opened_at", "closed_at", "declared_mib")
    return Flip(models=row["names"], load_s=_load_s(row["servers"]), **{field: row[field] for field in copied})


def _load_s(servers: Sequence[dict[str, Any]]) -> float | None:
    return round(sum(server["seconds"] for server in servers), 3) if servers else None


async def list_model_names(connection: AsyncConnection, ids: Sequence[int]) -> list[str]:
    """List the names of the models with these ids, sorted."""
    return [row.name for row in await connection.execute(RESIDENT, {"ids": list(ids)})]
