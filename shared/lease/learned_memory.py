"""What verified loads of a model took on a device, kept to estimate the next one.

It is kept by model row, device, driver version and slots: with another of these a load is another load. A load far from
what was learned is reported, and learning begins anew: two regimes have no mean.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.architecture import Architecture
from shared.lease import residencies
from shared.lease.estimates import MemoryEstimate
from shared.lease.memory import LearnedMemory, context_of, estimate_memory

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
# What an older driver took says nothing of the one that is there now.
LEARNED = text("""
    SELECT model_id, parallel, least_mib, most_mib, loads FROM footprints WHERE device = :device AND driver =
        (SELECT driver FROM footprints WHERE device = :device ORDER BY measured_at DESC, driver LIMIT 1)""")

_log = logging.getLogger(__name__)


async def learned(connection: AsyncConnection, device: str) -> dict[int, dict[int, LearnedMemory]]:
    """By model and slots, with the driver that the device has now."""
    found: dict[int, dict[int, LearnedMemory]] = {}
    for row in await connection.execute(LEARNED, {"device": device}):
        memory = LearnedMemory(least_mib=row.least_mib, most_mib=row.most_mib, loads=row.loads)
        found.setdefault(row.model_id, {})[row.parallel] = memory
    return found


async def learn(connection: AsyncConnection, epoch: int, driver: str) -> list[str]:
    """Add what a verified residency took to what was learned of its models; returns in words what was far from it.

    What the device itself measured is a model's only where it was loaded alone: of several at once it says nothing of
    each. Where nothing measures the device, it is a process's own memory on a CPU, and what Ollama says of a GPU. What
    is reported is logged, too, and stands with the residency's figures as `astray`.
    """
    rows = (await connection.execute(LOADED, {"epoch": epoch})).all()
    astray: list[str] = []
    for row in rows:
        mib = _measured(row, len(rows))
        if mib:
            astray += await _learn(connection, row, mib, driver)
    for said in astray:
        _log.warning("epoch %d: %s", epoch, said)
    if astray:
        await residencies.measured(connection, epoch, {"astray": astray})
    return astray


def _measured(row: Row[Any], models: int) -> float | None:
    loaded: float | None = row.measured.get("loaded_mib")
    if loaded is not None:
        return loaded if models == 1 else None
    said = row.device.startswith("cpu") or row.backend == "ollama"
    by_model: dict[str, float | None] = row.measured.get("memory_mib", {})
    return by_model.get(str(row.id)) if said else None


async def _learn(connection: AsyncConnection, row: Row[Any], mib: float, driver: str) -> list[str]:
    slots = row.parallel or row.options.get("parallel", 1)
    values = {"model": row.id, "device": row.device, "driver": driver, "parallel": slots}
    kept = (await connection.execute(KEPT, values)).mappings().first()
    known = LearnedMemory(**kept) if kept else None
    astray = known is not None and known.far(mib)
    new = known.widened(mib) if known and not astray else LearnedMemory(least_mib=mib, most_mib=mib)
    await connection.execute(KEEP, {**values, **msgspec.structs.asdict(new)})
    if known and astray:
        seen = f"{known.loads} loads took {known.least_mib:.0f} to {known.most_mib:.0f} MiB"
        return [f"{row.name} took {mib:.0f} MiB, where {seen}; what is learned begins anew"]
    return [] if known else _far_from_estimate(row, slots, mib)


def _far_from_estimate(row: Row[Any], slots: int, mib: float) -> list[str]:
    """A first load, held against what was estimated; on a CPU a process always takes more."""
    estimate = estimate_row(row, slots)
    if row.device.startswith("cpu") or estimate.source is None:
        return []
    at = estimate.at(slots)
    far = LearnedMemory(least_mib=at, most_mib=at).far(mib)
    return [f"{row.name} took {mib:.0f} MiB, where {at} were {estimate.basis}"] if far else []


def estimate_row(row: Any, slots: int, learned: Mapping[int, LearnedMemory] | None = None) -> MemoryEstimate:
    """The memory of a row of `models`; `slots`: as configured, `learned`: by slots."""
    return estimate_memory(
        declared_mib=0 if row.estimated else row.footprint_mib,
        architecture=msgspec.convert(row.architecture, Architecture) if row.architecture else None,
        context=context_of(row.options),
        parallel=slots,
        on_gpu=not str(row.device).startswith("cpu"),
        learned=learned,
    )
