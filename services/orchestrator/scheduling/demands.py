"""Reads models as a plan needs them: their rows, with learned memory and measured seconds in place of assumptions."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.scheduling.measured_seconds import MeasuredSeconds
from shared.calls import Lane
from shared.lease import memory, residencies
from shared.lease.memory import Estimate, Hardware, LearnedMemory, read_context
from shared.lease.plan import Demand, Room
from shared.settings import Device, Model
from shared.shapes import MIB

MODELS = text("""
    SELECT id, name, device, footprint_mib, estimated, architecture, options FROM models
    WHERE id = ANY(:ids) AND needs_lease ORDER BY id""")


class ModelCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that the work makes of a model."""

    lane: Lane
    calls: int
    tokens: int
    """Tokens of its longest answer."""

    def combine(self, other: "ModelCalls | None") -> "ModelCalls":
        """Return the sum of both: their calls, the longer answers, and the lane that comes first."""
        if other is None:
            return self
        lane = min(self.lane, other.lane, key=list(Lane).index)
        return ModelCalls(lane=lane, calls=self.calls + other.calls, tokens=max(self.tokens, other.tokens))


async def load_demands(
    connection: AsyncConnection,
    models: Mapping[str, Model],
    wanted: Mapping[int, ModelCalls],
    measured: Mapping[str, MeasuredSeconds],
    hardware: Hardware = Hardware(),  # noqa: B008 - frozen
) -> list[Demand]:
    """Return the models of `wanted` that need the lease, pinned to the device that serves them.

    Args:
        models: configuration, for slots that a row does not have.
        wanted: calls by model id.
        measured: seconds by device.
    """
    rows = (await connection.execute(MODELS, {"ids": list(wanted)})).all()
    learned = {
        device: await memory.find_learned(connection, device) for device in sorted({str(row.device) for row in rows})
    }
    return [
        _make_demand(
            row, models.get(row.name), wanted[row.id], measured.get(row.device, MeasuredSeconds()),
            learned[row.device].get(row.id), hardware,
        )
        for row in rows
    ]  # fmt: skip


async def load_rooms(connection: AsyncConnection, devices: Sequence[Device]) -> list[Room]:
    """Return the devices with the models that they hold."""
    newest = {device.id: await residencies.find_newest(connection, device.id) for device in devices}
    return [_make_room(device, newest[device.id]) for device in devices]


def _make_room(device: Device, newest: residencies.ResidencyRow | None) -> Room:
    residents = newest.models if newest is not None and newest.state == "open" else ()
    return Room(device=device.id, budget_mib=device.models_mib, resident=residents)


def _make_demand(
    row: Row[Any],
    model: Model | None,
    wanted: ModelCalls,
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
        memory=memory.estimate_row(row, slots, learned),
        parallel=slots,
        context=model.context if model else read_context(row.options),
        calls=wanted.calls,
        call_s=_to_estimate(measured.call_s.get(row.id), "its last calls here") or call,
        load_s=_to_estimate(measured.load_s.get(row.id), "its last loads here") or hardware.load(weights),
        shared=on_gpu,
        device=row.device,
    )


def _to_estimate(seconds: float | None, detail: str) -> Estimate | None:
    return None if seconds is None else Estimate(value=seconds, source="measured", detail=detail)
