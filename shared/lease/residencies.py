"""Rows of `residencies`: which models a device holds in which epoch. The orchestrator inserts wanted residencies, the
guard carries them out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.messages import redact
from shared import canonical

COLUMNS = "epoch, device, previous_epoch, models, cause, state, reason, servers, wanted_at, opened_at, closed_at, plan"
NEWEST = text(f"SELECT {COLUMNS} FROM residencies WHERE device = :device ORDER BY epoch DESC LIMIT 1")  # noqa: S608
# Compare-and-set: the device's previous epoch is unique, so of two decisions on the same snapshot one wins.
WANT = text("""
    INSERT INTO residencies (device, previous_epoch, models, cause, state, plan)
    VALUES (:device, :previous, :models, :cause, 'wanted', CAST(:plan AS jsonb))
    ON CONFLICT (device, previous_epoch) DO NOTHING RETURNING epoch""")
MOVE = text("""
    UPDATE residencies SET state = :state, reason = COALESCE(:reason, reason),
        opened_at = CASE WHEN :state = 'open' THEN CAST(:at AS timestamptz) ELSE opened_at END,
        closed_at = CASE WHEN :state IN ('closed', 'quarantined') AND closed_at IS NULL
                         THEN CAST(:at AS timestamptz) ELSE closed_at END
    WHERE epoch = :epoch AND state NOT IN ('closed', 'quarantined')""")
STARTED = text("""
    UPDATE residencies SET servers = servers || CAST(:server AS jsonb)
    WHERE epoch = :epoch AND closed_at IS NULL AND NOT servers @> CAST(:server AS jsonb)""")
MEASURED = text("""
    UPDATE residencies SET measured = measured || CAST(:measured AS jsonb)
    WHERE epoch = :epoch AND closed_at IS NULL""")
FORGIVE = text("UPDATE residencies SET state = 'closed' WHERE device = :device AND state = 'quarantined'")
FAILURES = text("""
    SELECT count(*) FROM residencies WHERE device = :device AND state = 'quarantined' AND epoch > COALESCE(
        (SELECT max(epoch) FROM residencies WHERE device = :device AND opened_at IS NOT NULL), 0)""")
UNCLOSED = text(f"""
    SELECT {COLUMNS} FROM residencies WHERE device = :device AND state NOT IN ('closed', 'quarantined', 'wanted')
    ORDER BY epoch""")  # noqa: S608
# Not before any stamp of an earlier guard; among its receipts the last ones are enough.
NOW = text("""
    SELECT GREATEST(clock_timestamp(), max(opened_at), max(closed_at), (
        SELECT max(ended_at) FROM (SELECT ended_at, epoch FROM attempts ORDER BY id DESC LIMIT 1000) a
        WHERE epoch IS NOT NULL))
    FROM residencies WHERE device = :device""")


class ResidencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `residencies`."""

    epoch: int
    device: str
    previous_epoch: int
    models: tuple[int, ...]
    cause: str
    state: str
    reason: str | None = None
    servers: list[dict[str, Any]] = []
    wanted_at: datetime | None = None
    opened_at: datetime | None = None
    closed_at: datetime | None = None
    plan: dict[str, Any] = {}
    """`parallel` by model id, if it is not the configured one; the rest explains the decision."""

    @property
    def memory_mib(self) -> int:
        """Memory of all its models as the plan estimates it; 0 if the plan has no estimate."""
        return int(self.plan.get("predicted_mib", 0))

    def parallel(self, model_id: int) -> int | None:
        """Return the slots that the plan gives this model; None for the configured ones."""
        given: dict[str, int] = self.plan.get("parallel", {})
        return given.get(str(model_id))


async def find_newest(connection: AsyncConnection, device: str) -> ResidencyRow | None:
    """Find the device's newest residency, in any state; None if it never had one."""
    row = (await connection.execute(NEWEST, {"device": device})).mappings().first()
    return _make_residency(row) if row else None


async def find_unclosed(connection: AsyncConnection, device: str) -> list[ResidencyRow]:
    """Find residencies that a guard began and, since it died, never closed."""
    rows = await connection.execute(UNCLOSED, {"device": device})
    return [_make_residency(row) for row in rows.mappings()]


async def count_failures(connection: AsyncConnection, device: str) -> int:
    """Count the quarantined residencies since the last one that was open."""
    found: int = (await connection.execute(FAILURES, {"device": device})).scalar_one()
    return found


async def close_quarantined(connection: AsyncConnection, device: str) -> None:
    """Mark quarantined residencies as closed; their reasons stay."""
    await connection.execute(FORGIVE, {"device": device})


async def read_clock(connection: AsyncConnection, device: str) -> datetime:
    """Return the time at which a guard's clock starts: the database's, or the device's last stamp if that is later."""
    found: datetime = (await connection.execute(NOW, {"device": device})).scalar_one()
    return found


async def insert_wanted(
    connection: AsyncConnection,
    device: str,
    previous: int,
    models: Sequence[int],
    cause: str,
    plan: Mapping[str, Any] | None = None,
) -> int | None:
    """Insert a wanted residency and return its epoch, or None if another decision came first."""
    values = {"device": device, "previous": previous, "models": sorted(models), "cause": cause}
    values["plan"] = canonical.encode(plan or {}).decode()
    epoch: int | None = (await connection.execute(WANT, values)).scalar()
    return epoch


async def set_state(
    connection: AsyncConnection, epoch: int, state: str, at: datetime, reason: str | None = None
) -> None:
    """Set a residency's state at the guard's time `at`; closed and quarantined rows are not changed."""
    safe_reason = None if reason is None else redact(reason)
    await connection.execute(MOVE, {"epoch": epoch, "state": state, "at": at, "reason": safe_reason})


async def record_server(connection: AsyncConnection, epoch: int, server: dict[str, Any]) -> None:
    """Record a model server process that was started for this residency, unless the residency has ended."""
    await connection.execute(STARTED, {"epoch": epoch, "server": canonical.encode([server]).decode()})


async def record_figures(connection: AsyncConnection, epoch: int, figures: Mapping[str, Any]) -> None:
    """Record measured memory and times of a residency that has not ended."""
    await connection.execute(MEASURED, {"epoch": epoch, "measured": canonical.encode(figures).decode()})


def _make_residency(row: RowMapping) -> ResidencyRow:
    return ResidencyRow(**{**row, "models": tuple(row["models"])})
