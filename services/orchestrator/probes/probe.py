"""How one thing is checked."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from services.orchestrator.deps import Deps
from shared.checks.check import DEEP_S, Check, checked

PATIENCE_S = 3.0

Run = Callable[[Deps], Awaitable[str]]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """How one thing is checked."""

    name: str
    run: Run
    """Says what it found, or raises."""
    fix: str
    deep: bool = False
    """Reads files or asks much: for the doctor, not for readiness, which is asked every few seconds."""
    alone: bool = False
    """Needs neither the database nor Redis."""
    each_device: bool = False
    """Looks at `device` of the settings: asked for every device, with the settings narrowed to it."""


async def checks(probes: Sequence[Probe], deps: Deps) -> list[Check]:
    """All of them at once, in their order."""
    return await asyncio.gather(*(check(probe, deps) for probe in probes))


async def check(probe: Probe, deps: Deps) -> Check:
    """Run one."""
    patience_s = DEEP_S if probe.deep else PATIENCE_S
    return await checked(probe.name, _within(patience_s, probe, deps), fix=probe.fix)


async def _within(patience_s: float, probe: Probe, deps: Deps) -> str:
    async with asyncio.timeout(patience_s):
        return await probe.run(deps)
