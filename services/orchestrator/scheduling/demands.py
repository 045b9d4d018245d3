"""Models as a plan wants them: their rows with what was learned and measured of them, and what was not assumed."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling.measured_seconds import MeasuredSeconds
from shared.contracts.architecture import MIB
from shared.contracts.calls import Lane
from shared.device_settings import Device
from shared.lease import learned_memory, residencies
from shared.lease.demand import Demand, Room
from shared.lease.estimates import Estimate
from shared.lease.hardware import Hardware
from shared.lease.memory import LearnedMemory, context_of
from shared.model_settings import Model

MODELS = text("""
    SELECT id, name, device, footprint_mib, estimated, architecture, options FROM models
    WHERE id = ANY(:ids) AND needs_lease ORDER BY id""")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model, what the work asks."""

    lane: Lane
    calls: int
    tokens: int
    """Of its longest answer."""

    def beside(self, other: "Wanted | None") -> "Wanted":
        """Both: the calls of both, with the longer answers, in the lane that comes first."""
        if other is None:
            return self
        lane = min(self.lane, other.lane, key=list(Lane).index)
        return Wanted(lane=lane, calls=self.calls + other.calls, tokens=max(self.tokens, other.tokens))


async def demands(
    connection: AsyncConnection,
    models: Mapping[str, Model],
    wanted: Mapping[int, Wanted],
    measured: Mapping[str, MeasuredSeconds],
    hardware: Hardware = Hardware(),  # noqa: B008 - frozen
) -> list[Demand]:
    """The models of `wanted` that need the lease, pinned to the device that serves them.

    Args:
        models: as configured, for slots that a row does not name.
        wanted: by model id.
        measured: by device.
    """
    rows = (await connection.execute(MODELS, {"ids": list(wanted)})).all()
    learned = {
        device: await learned_memory.learned(connection, device) for device in sorted({str(row.device) for row in rows})
    }
    return [
        _demand(
            row, models.get(row.name), wanted[row.id], measured.get(row.device, MeasuredSeconds()),
            learned[row.device].get(row.id), hardware,
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
    measured: MeasuredSeconds,
    learned: Mapping[int, LearnedMemory] | None,
    hardware: Hardware,
) -> Demand:
    slots = row.options.get("parallel") or (model.parallel if model else 1)
    on_gpu = not row.device.startswith("cpu")
    weights = row.architecture["weights_bytes"] / MIB if row.architecture else float(row.footprint_mib)
    call = hardware.call(weights, tokens=wanted.tokens, parallel=slots, on_gpu=on_gpu)
    return Demand(
        model_id=row.id,
        name=row.name,
        lane=wanted.lane,
        memory=learned_memory.estimate_row(row, slots, learned),
        parallel=slots,
        context=model.context if model else context_of(row.options),
        calls=wanted.calls,
        call_s=_measured(measured.call_s.get(row.id), "its last calls here") or call,
        load_s=_measured(measured.load_s.get(row.id), "its last loads here") or hardware.load(weights),
        shared=on_gpu,
        device=row.device,
    )


def _measured(seconds: float | None, detail: str) -> Estimate | None:
    return None if seconds is None else Estimate(value=seconds, source="measured", detail=detail)
