"""A probe is one check, with the conditions under which it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from services.orchestrator.deps import Deps
from shared.checks import DEEP_S, Check, run_check

PATIENCE_S = 3.0

Run = Callable[[Deps], Awaitable[str]]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A check, with the conditions under which it runs."""

    name: str
    run: Run
    """Returns what it found; raises if the check fails."""
    fix: str
    deep: bool = False
    """Whether it is expensive: the doctor runs it, but readiness, which is requested every few seconds, does not."""
    alone: bool = False
    """Whether it needs neither the database nor Redis."""
    each_device: bool = False
    """Whether it checks one device: it runs for every device, with the settings narrowed to it."""


async def checks(probes: Sequence[Probe], deps: Deps) -> list[Check]:
    """Run all probes concurrently, and return their results in order."""
    return await asyncio.gather(*(check(probe, deps) for probe in probes))


async def check(probe: Probe, deps: Deps) -> Check:
    """Run one probe."""
    patience_s = DEEP_S if probe.deep else PATIENCE_S
    return await run_check(probe.name, _run_within(patience_s, probe, deps), fix=probe.fix)


async def _run_within(patience_s: float, probe: Probe, deps: Deps) -> str:
    async with asyncio.timeout(patience_s):
        return await probe.run(deps)
