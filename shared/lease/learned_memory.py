"""Learn the memory of a model on a device from verified loads, to estimate the next load.

It is kept by model row, device, driver version and slots, since each of them changes the memory of a load. A load far
from the learned value is reported, and learning starts over from it, since older and newer figures must not be mixed.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.messages import format_count
from shared.lease import residencies
from shared.lease.memory import LearnedMemory, MemoryEstimate, estimate_memory, read_context
from shared.shapes import Architecture

LOADED = text("""
    SELECT r.device, r.measured, m.id, m.name, m.backend, m.footprint_mib, m.estimated, m.architecture, m.options,
        CAST(r.plan -> 'parallel' ->> CAST(m.id AS text) AS integer) AS parallel
    FROM residencies r JOIN models m ON m.id = ANY(r.models) WHERE r.epoch = :epoch ORDER BY m.id""")
KEPT = text("""
    SELECT least_mib, most_mib, loads FROM footprints
    WHERE model_id = :model AND device = :device AND driver = :driver AND parallel = :parallel FOR UPDATE""")
KEEP = text("""
    INSERT INTO footprints (model_id, device, driver, parallel, least_mib, most_mib, loads)
    VALUES (:model, :device, :driver, :parallel, :least_mib, :most_mib, :loads)
    ON CONFLICT (model_id, device, driver, parallel) DO UPDATE SET least_mib = EXCLUDED.least_mib,
        most_mib = EXCLUDED.most_mib, loads = EXCLUDED.loads, measured_at = clock_timestamp()""")
# Only the newest driver counts: the memory of loads with an older one no longer applies.
LEARNED = text("""
    SELECT model_id, parallel, least_mib, most_mib, loads FROM footprints WHERE device = :device AND driver =
        (SELECT driver FROM footprints WHERE device = :device ORDER BY measured_at DESC, driver LIMIT 1)""")

_log = logging.getLogger(__name__)


async def find_learned(connection: AsyncConnection, device: str) -> dict[int, dict[int, LearnedMemory]]:
    """Return the learned memory by model id and slots, for the newest driver that was seen on the device."""
    found: dict[int, dict[int, LearnedMemory]] = {}
    for row in await connection.execute(LEARNED, {"device": device}):
        memory = LearnedMemory(least_mib=row.least_mib, most_mib=row.most_mib, loads=row.loads)
        found.setdefault(row.model_id, {})[row.parallel] = memory
    return found


async def learn(connection: AsyncConnection, epoch: int, driver: str) -> list[str]:
    """Learn from the memory of a verified residency, and return a message for each model that was far from its
    estimate.

    The device's own measurement counts only for a model that was loaded alone: for several it cannot be divided. If the
    device is not measured, the process's memory counts on a CPU, and Ollama's report on a GPU. The messages are logged,
    too, and stored with the residency's figures as `astray`.
    """
    rows = (await connection.execute(LOADED, {"epoch": epoch})).all()
    astray: list[str] = []
    for row in rows:
        models = len(rows)
        loaded: float | None = row.measured.get("loaded_mib")
        if loaded is not None:
            mib = loaded if models == 1 else None
        else:
            is_reliable = row.device.startswith("cpu") or row.backend == "ollama"
            by_model: dict[str, float | None] = row.measured.get("memory_mib", {})
            mib = by_model.get(str(row.id)) if is_reliable else None
        if mib:
            astray += await _learn_model(connection, row, mib, driver)
    for message in astray:
        _log.warning("epoch %d: %s", epoch, message)
    if astray:
        await residencies.record_figures(connection, epoch, {"astray": astray})
    return astray


async def _learn_model(connection: AsyncConnection, row: Row[Any], mib: float, driver: str) -> list[str]:
    slots = row.parallel or row.options.get("parallel", 1)
    values = {"model": row.id, "device": row.device, "driver": driver, "parallel": slots}
    kept = (await connection.execute(KEPT, values)).mappings().first()
    known = LearnedMemory(**kept) if kept else None
    astray = known is not None and known.is_far(mib)
    new = known.include(mib) if known and not astray else LearnedMemory(least_mib=mib, most_mib=mib)
    await connection.execute(KEEP, {**values, **msgspec.structs.asdict(new)})
    if known and astray:
        seen = f"{format_count(known.loads, 'load')} took {known.least_mib:.0f} to {known.most_mib:.0f} MiB"
        return [f"{row.name} took {mib:.0f} MiB, where {seen}; learning starts over from it"]
    if known:
        return []
    # Report a first load that was far from its estimate, except on a CPU, where a process always takes more.
    estimate = estimate_row(row, slots)
    if row.device.startswith("cpu") or estimate.source is None:
        return []
    at = estimate.at(slots)
    far = LearnedMemory(least_mib=at, most_mib=at).is_far(mib)
    return [f"{row.name} took {mib:.0f} MiB, where {at} were {estimate.basis}"] if far else []


def estimate_row(row: Any, slots: int, learned: Mapping[int, LearnedMemory] | None = None) -> MemoryEstimate:
    """Estimate the memory of a row of `models` with `slots` configured slots; `learned` is by slots."""
    return estimate_memory(
        declared_mib=0 if row.estimated else row.footprint_mib,
        architecture=msgspec.convert(row.architecture, Architecture) if row.architecture else None,
        context=read_context(row.options),
        parallel=slots,
        on_gpu=not str(row.device).startswith("cpu"),
        learned=learned,
    )
