"""Every probe, in the order in which a person wants to read them."""

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from services.orchestrator.deps import Deps
from services.orchestrator.probes import device, growth, machine, models, outages, retrieval, services, waiting
from services.orchestrator.probes.probe import Probe, Run
from shared.checks.check import EDITED, RESTART
from shared.contracts.calls import Lane
from shared.runtime.placement import narrowed
from shared.settings import Settings


def _restarted(name: str, own: str) -> str:
    """What to do about a process that the supervisor, or Docker, starts again by itself; `own`: where neither does."""
    logs = f"in containers `docker compose up --wait` and `docker compose logs {name}`"
    return f"`mathrag status` shows whether it runs, `logs/{name}.log` of the data folder why not; {logs}; else {own}"


SERVERS = (
    Probe(name="postgres", run=services.postgres, fix=_restarted("postgres", "correct MATHRAG_DATABASE_URL")),
    Probe(name="schema", run=services.schema, fix="`mathrag up` migrates; else docs/scaling.md says how"),
    Probe(name="clock", run=services.clock, fix="timedatectl set-ntp true, here and there", deep=True),
    Probe(name="redis", run=services.redis, fix=_restarted("redis", "correct MATHRAG_REDIS_URL")),
    Probe(name="redis settings", run=services.redis_settings, fix="see its log", deep=True),
    Probe(
        name="retriever",
        run=services.service("retriever_url"),
        fix=_restarted("retriever", "correct MATHRAG_RETRIEVER_URL"),
    ),
    Probe(
        name="indexes",
        run=machine.indexes,
        fix="upload the corpus again: mathrag corpus create NAME --from PATH",
        deep=True,
    ),
    Probe(
        name="guard",
        run=services.service("guard_url"),
        fix=_restarted("guard", "correct MATHRAG_GUARD_URL"),
        each_device=True,
    ),
    Probe(
        name="models",
        run=device.served,
        fix=f"see `model NAME` below; or correct `models` and `roles` in mathrag.yaml, then {RESTART}",
    ),
    Probe(name="waiting jobs", run=waiting.models, fix=RESTART, deep=True),
    Probe(
        name="outages",
        run=outages.none,
        fix="start what is away: the calls go on by themselves, and fail after `workers.outage_s`",
        deep=True,
    ),
)
DEVICE = (
    Probe(
        name="device",
        run=device.state,
        fix=f"mend what the detail names; it is tried again by itself, at once where you {RESTART}",
        each_device=True,
    ),
    Probe(
        name="footprints",
        run=device.footprints,
        fix=f"raise `footprint_mib` of the model in mathrag.yaml to what was measured, then {RESTART}",
        deep=True,
        each_device=True,
    ),
    Probe(
        name="budget",
        run=device.budget,
        fix="raise `device.budget_mib`, or correct `footprint_mib` of the model",
        deep=True,
        alone=True,
        each_device=True,
    ),
    Probe(
        name="driver",
        run=device.driver,
        fix="lower `device.budget_mib` to what the GPU has beside `device.reserve_mib`",
        deep=True,
        alone=True,
        each_device=True,
    ),
    Probe(
        name="scheduler",
        run=services.schedulers,
        fix="see the orchestrator's log and whether PostgreSQL and Redis answer; else restart the orchestrator",
    ),
    Probe(
        name="judge worker",
        run=services.worker(Lane.JUDGE),
        fix=_restarted("judge", "start `python -m services.judge`"),
    ),
    Probe(
        name="generator worker",
        run=services.worker(Lane.GENERATE),
        fix=_restarted("generator", "start `python -m services.generator`"),
    ),
    Probe(name="worker sources", run=services.worker_sources, fix=EDITED, deep=True),
    Probe(name="size of the database", run=growth.database, fix="mathrag purge --help", deep=True),
    Probe(name="size of redis", run=growth.redis_file, fix="redis-cli BGREWRITEAOF", deep=True),
    Probe(name="size of indexes", run=growth.index_files, fix="mathrag corpus list", deep=True),
    Probe(name="size of logs", run=growth.logs, fix="lower `telemetry.log_mib`", deep=True, alone=True),
    Probe(name="privacy", run=machine.privacy, fix="chmod 700 the data folder", deep=True, alone=True),
    Probe(name="disk", run=machine.disk, fix="free some: mathrag purge --help", deep=True, alone=True),
)


def probes(settings: Settings) -> tuple[Probe, ...]:
    """All that there is to look at."""
    return tuple(_for_devices((*SERVERS, *retrieval.probes(settings), *models.probes(settings), *DEVICE), settings))


def readiness(settings: Settings) -> tuple[Probe, ...]:
    """Those that are cheap enough to be asked every few seconds."""
    return tuple(probe for probe in _for_devices((*SERVERS, *DEVICE), settings) if not probe.deep)


def _for_devices(probes: Iterable[Probe], settings: Settings) -> Iterator[Probe]:
    """Those that look at a device once for each; the first one's have no other names than where it is the only one."""
    for probe in probes:
        if not (probe.each_device and settings.devices):
            yield probe
            continue
        for number, each in enumerate(settings.all_devices()):
            name = f"{probe.name} {each.id}" if number else probe.name
            yield replace(probe, name=name, run=partial(_narrowed, probe.run, each.id))


async def _narrowed(run: Run, device: str, deps: Deps) -> str:
    return await run(dataclasses.replace(deps, settings=narrowed(deps.settings, device)))
