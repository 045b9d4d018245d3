"""Checks of a device: its state, the models that must fit, and its driver."""

import asyncio
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from services.orchestrator.deps import Deps
from shared.checks import NotReady
from shared.lease import residencies
from shared.lease.policy import retry_wait_s
from shared.lease.residencies import ResidencyRow
from shared.models import commands
from shared.plurals import format_count
from shared.runtime.price import estimate_all
from shared.settings import Device
from shared.storage import devices

SERVED = text("""
    SELECT DISTINCT ON (name) name, backend, version FROM models WHERE served AND name = ANY(:names)
    ORDER BY name, registered_at DESC""")
MEASURED = text("""
    SELECT m.name, m.footprint_mib, max(f.most_mib) AS mib FROM footprints f JOIN models m ON m.id = f.model_id
    WHERE m.served AND f.device = :device GROUP BY m.id ORDER BY m.name""")
MIB = 1 << 20
TOLERATED = 1.25
"""Measured memory, as a multiple of the declared footprint, up to which the check passes."""


async def check_state(deps: Deps) -> str:
    """Check that the device is neither quarantined nor drained."""
    device = deps.settings.device.id
    async with deps.database.transaction() as connection:
        newest = await residencies.find_newest(connection, device)
        drain = await devices.find_drain(connection, device)
        failures = await residencies.count_failures(connection, device)
    if drain is not None:
        reason = drain.reason or "no reason given"
        raise NotReady(f"{device} is drained by an operator: {reason}; jobs wait", fix=f"mathrag gpu release {device}")
    if newest is not None and newest.state == "quarantined":
        raise NotReady(f"{device} is quarantined: {newest.reason}; {_describe_next_try(newest, failures)}")
    return f"{device}: {newest.state if newest else 'nothing loaded yet'}"


def _describe_next_try(quarantined: ResidencyRow, failures: int) -> str:
    since = quarantined.closed_at or datetime.now(UTC)
    when = since + timedelta(seconds=retry_wait_s(failures))
    left = (when - datetime.now(UTC)).total_seconds()
    return f"tried again in {left:.0f} s" if left > 0 else "tried again as soon as a call needs it"


async def check_served(deps: Deps) -> str:
    """Check that guards serve the models that roles name."""
    names = sorted(set(deps.settings.roles.values()))
    async with deps.database.transaction() as connection:
        found = {row.name: row for row in await connection.execute(SERVED, {"names": names})}
    missing = [name for name in names if name not in found]
    if missing:
        raise NotReady(f"no guard serves {', '.join(missing)}")
    warnings = (commands.find_warning(row.backend, row.version) for row in found.values())
    return "; ".join([", ".join(names), *(f"warning: {each}" for each in warnings if each)])


async def check_budget(deps: Deps) -> str:
    """Check that each model fits the budget by itself: otherwise it could never be loaded."""
    most = deps.settings.device.models_mib
    needed = await asyncio.to_thread(estimate_all, deps.settings.models, [deps.settings.device])
    large = [f"{name} ({mib} MiB)" for name, mib in needed.items() if mib > most]
    if large:
        raise NotReady(f"{', '.join(large)} can never be loaded within {most} MiB")
    return f"{most} MiB; the largest model takes {max(needed.values(), default=0)} MiB"


async def check_footprints(deps: Deps) -> str:
    """Check that no model uses far more than it declares: the budget would then not limit memory."""
    async with deps.database.transaction() as connection:
        rows = (await connection.execute(MEASURED, {"device": deps.settings.device.id})).all()
    large = [
        f"{row.name} used {row.mib:.0f} MiB, but {row.footprint_mib} MiB are declared"
        for row in rows
        if row.footprint_mib and row.mib > TOLERATED * row.footprint_mib
    ]
    if large:
        raise NotReady(", ".join(large))
    return f"{format_count(len(rows), 'model was', 'models were')} measured, none uses far more than it declares"


async def check_driver(deps: Deps) -> str:
    """Check that the GPU has a driver, and memory for the budget and the reserve."""
    device = deps.settings.device
    if not device.measured:
        return "memory is declared, so no driver is queried"
    return await asyncio.to_thread(_describe_nvidia, device)


def _describe_nvidia(device: Device) -> str:
    try:
        import pynvml
    except ImportError as error:
        raise NotReady("nvidia-ml-py is not installed", fix="pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(device.id))
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise NotReady(f"NVML: {error}", fix="nvidia-smi -L") from error
    total, needed = memory.total // MIB, device.budget_mib + device.reserve_mib
    if needed > total:
        limits = f"{device.budget_mib} MiB of budget and a reserve of {device.reserve_mib}"
        raise NotReady(f"{limits} are {needed - total} MiB more than the {total} MiB of {device.id}")
    return f"driver {version}; {memory.free // MIB} of {total} MiB free"
