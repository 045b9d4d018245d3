"""Every probe, in the order in which results are shown."""

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from services.orchestrator.deps import Deps
from services.orchestrator.probes import (
    device,
    growth,
    machine,
    models,
    outages,
    plugins,
    retrieval,
    services,
    unserved_models,
)
from services.orchestrator.probes.probe import Probe, Run
from shared.calls import Lane
from shared.checks import EDITED, RESTART
from shared.runtime.price import settings_for_device
from shared.settings import Settings


def _explain_restart(name: str, own: str) -> str:
    """Return the fix for a process that the supervisor or Docker restarts by itself; `own` is the fix without
    either.
    """
    logs = f"in containers `docker compose up --wait` and `docker compose logs {name}`"
    return f"`mathrag status` shows whether it runs, `logs/{name}.log` in the data folder why not; {logs}; else {own}"


SERVERS = (
    Probe(
        name="postgres", run=services.check_postgres, fix=_explain_restart("postgres", "correct MATHRAG_DATABASE_URL")
    ),
    Probe(name="schema", run=services.check_schema, fix="`mathrag up` migrates; else docs/how-to/scaling.md says how"),
    Probe(name="clock", run=services.check_clock, fix="run timedatectl set-ntp true on both machines", deep=True),
    Probe(name="redis", run=services.check_redis, fix=_explain_restart("redis", "correct MATHRAG_REDIS_URL")),
    Probe(name="redis settings", run=services.check_redis_settings, fix="see its log", deep=True),
    Probe(
        name="retriever",
        run=services.make_service_check("retriever_url"),
        fix=_explain_restart("retriever", "correct MATHRAG_RETRIEVER_URL"),
    ),
    Probe(
        name="indexes",
        run=machine.check_indexes,
        fix="upload the corpus again: mathrag corpus create NAME --from PATH",
        deep=True,
    ),
    Probe(
        name="guard",
        run=services.make_service_check("guard_url"),
        fix=_explain_restart("guard", "correct MATHRAG_GUARD_URL"),
        each_device=True,
    ),
    Probe(
        name="models",
        run=device.check_served,
        fix=f"see `model NAME` below; or correct `models` and `roles` in mathrag.yaml, then {RESTART}",
    ),
    Probe(name="waiting jobs", run=unserved_models.check_models, fix=RESTART, deep=True),
    Probe(name="plugins", run=plugins.check_usable, fix="mathrag plugin list", deep=True, alone=True),
    Probe(name="plugins of jobs", run=plugins.check_needed, fix="mathrag plugin list", deep=True),
    Probe(
        name="outages",
        run=outages.check_outages,
        fix="start what is unavailable: the calls then continue by themselves; they fail after `workers.outage_s`",
        deep=True,
    ),
)
DEVICE = (
    Probe(
        name="device",
        run=device.check_state,
        fix="fix what the detail names; the device is then tried again, at once by `mathrag gpu retry`",
        each_device=True,
    ),
    Probe(
        name="footprints",
        run=device.check_footprints,
        fix=f"raise `footprint_mib` of the model in mathrag.yaml to what was measured, then {RESTART}",
        deep=True,
        each_device=True,
    ),
    Probe(
        name="budget",
        run=device.check_budget,
        fix="raise `device.budget_mib`, or correct `footprint_mib` of the model",
        deep=True,
        alone=True,
        each_device=True,
    ),
    Probe(
        name="driver",
        run=device.check_driver,
        fix="lower `device.budget_mib` to the GPU's memory less `device.reserve_mib`",
        deep=True,
        alone=True,
        each_device=True,
    ),
    Probe(
        name="scheduler",
        run=services.check_schedulers,
        fix="see the orchestrator's log and whether PostgreSQL and Redis answer; else restart the orchestrator",
    ),
    Probe(
        name="judge worker",
        run=services.make_worker_check(Lane.JUDGE),
        fix=_explain_restart("judge", "start `python -m services.judge`"),
    ),
    Probe(
        name="generator worker",
        run=services.make_worker_check(Lane.GENERATE),
        fix=_explain_restart("generator", "start `python -m services.generator`"),
    ),
    Probe(name="worker sources", run=services.check_worker_sources, fix=EDITED, deep=True),
    Probe(name="size of the database", run=growth.report_database, fix="mathrag purge --help", deep=True),
    Probe(name="size of redis", run=growth.report_redis_file, fix="redis-cli BGREWRITEAOF", deep=True),
    Probe(name="size of indexes", run=growth.index_files, fix="mathrag corpus list", deep=True),
    Probe(name="size of logs", run=growth.report_logs, fix="lower `telemetry.log_mib`", deep=True, alone=True),
    Probe(name="privacy", run=machine.check_privacy, fix="chmod 700 the data folder", deep=True, alone=True),
    Probe(name="disk", run=machine.check_disk, fix="free space: mathrag purge --help", deep=True, alone=True),
)


def probes(settings: Settings) -> tuple[Probe, ...]:
    """Return all probes."""
    return tuple(
        _repeat_for_devices(
            (*SERVERS, *retrieval.list_probes(settings), *models.list_probes(settings), *DEVICE), settings
        )
    )


def list_readiness_probes(settings: Settings) -> tuple[Probe, ...]:
    """Return the probes that are cheap enough to run every few seconds."""
    return tuple(probe for probe in _repeat_for_devices((*SERVERS, *DEVICE), settings) if not probe.deep)


def _repeat_for_devices(probes: Iterable[Probe], settings: Settings) -> Iterator[Probe]:
    """Repeat device probes for each device. Those of the first device keep their names, as if it were the only one."""
    for probe in probes:
        if not (probe.each_device and settings.devices):
            yield probe
            continue
        for number, each in enumerate(settings.all_devices()):
            name = f"{probe.name} {each.id}" if number else probe.name
            yield replace(probe, name=name, run=partial(_run_narrowed, probe.run, each.id))


async def _run_narrowed(run: Run, device: str, deps: Deps) -> str:
    return await run(dataclasses.replace(deps, settings=settings_for_device(deps.settings, device)))
