"""Models as a plan wants them: their rows with what was learned and measured of them, and what was not assumed."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling.measures import Measures
from shared.contracts.calls import Lane
from shared.lease import bands, residencies
from shared.lease.assumed import Assumptions
from shared.lease.demand import Demand, Room, Seconds
from shared.lease.footprint import MIB
from shared.lease.prediction import Band, context_of
from shared.settings import Device, Model

MODELS = text("""
    SELECT id, name, device, footprint_mib, estimated, architecture, options FROM models
    WHERE id = ANY(:ids) AND needs_lease ORDER BY id""")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model, what the work asks."""

    lane: Lane
    calls: int
    tokens: int
    """Of its longest answer."""


async def demands(
    connection: AsyncConnection,
    models: Mapping[str, Model],
    wanted: Mapping[int, Wanted],
    measures: Mapping[str, Measures],
    assumptions: Assumptions = Assumptions(),  # noqa: B008 - frozen
) -> list[Demand]:
    """The models of `wanted` that need the lease, pinned to the device that serves them.

    Args:
        models: as configured, for slots that a row does not name.
        wanted: by model id.
        measures: by device.
    """
    rows = (await connection.execute(MODELS, {"ids": list(wanted)})).all()
    learned = {device: await bands.learned(connection, device) for device in sorted({str(row.device) for row in rows})}
    return [
        _demand(
            row, models.get(row.name), wanted[row.id], measures.get(row.device, Measures()),
            learned[row.device].get(row.id), assumptions,
        )
        for row in rows
    ]  # fmt: skip


async def rooms(connection: AsyncConnection, devices: Sequence[Device]) -> list[Room]:
    """The devices with what they hold."""
    newest = {device.id: await residencies.newest(connection, device.id) for device in devices}
    return [_room(device, newest[device.id]) for device in devices]


def _room(device: Device, newest: residencies.Residency | None) -> Room:
    held = newest.models if newest is not None and newest.state == "open" else ()
    return Room(device=device.id, budget_mib=device.models_mib, resident=held)


def _demand(
    row: Row[Any],
    model: Model | None,
    wanted: Wanted,
    measures: Measures,
    learned: Mapping[int, Band] | None,
    assumptions: Assumptions,
) -> Demand:
    slots = row.options.get("parallel") or (model.parallel if model else 1)
    on_gpu = not row.device.startswith("cpu")
    weights = row.architecture["weights_bytes"] / MIB if row.architecture else float(row.footprint_mib)
    call = assumptions.call(weights, tokens=wanted.tokens, parallel=slots, on_gpu=on_gpu)
    return Demand(
        model_id=row.id,
        name=row.name,
        lane=wanted.lane,
        predicted=bands.foreseen(row, slots, learned),
        parallel=slots,
        context=model.context if model else context_of(row.options),
        calls=wanted.calls,
        call_s=_measured(measures.call_s.get(row.id), "its last calls here") or call,
        load_s=_measured(measures.load_s.get(row.id), "its last loads here") or assumptions.load(weights),
        shared=on_gpu,
        device=row.device,
    )


def _measured(seconds: float | None, source: str) -> Seconds | None:
    return None if seconds is None else Seconds(value=seconds, basis="measured", source=source)
