"""Every probe, in the order in which a person wants to read them."""

from services.orchestrator.probes import device, machine, models, services
from services.orchestrator.probes.probe import Probe
from shared.contracts.calls import Lane
from shared.settings import Settings

SERVERS = (
    Probe(name="postgres", run=services.postgres, fix="start it (`mathrag up`), or correct MATHRAG_DATABASE_URL"),
    Probe(name="schema", run=services.schema, fix="`mathrag up` migrates; else `alembic upgrade head` as the owner"),
    Probe(name="clock", run=services.clock, fix="timedatectl set-ntp true, here and there", deep=True),
    Probe(name="redis", run=services.redis, fix="start it (`mathrag up`), or correct MATHRAG_REDIS_URL"),
    Probe(name="redis settings", run=services.redis_settings, fix="see its log", deep=True),
    Probe(
        name="retriever",
        run=services.service("retriever_url"),
        fix="see the retriever's log, or correct MATHRAG_RETRIEVER_URL",
    ),
    Probe(
        name="indexes",
        run=machine.indexes,
        fix="upload the corpus again: mathrag corpus create NAME --from PATH",
        deep=True,
    ),
    Probe(name="guard", run=services.service("guard_url"), fix="see the guard's log, or correct MATHRAG_GUARD_URL"),
    Probe(
        name="models",
        run=device.served,
        fix="correct `models` and `roles` in mathrag.yaml, then restart the guard; its log says more",
    ),
    Probe(name="model files", run=models.digests, fix="restart the guard (`mathrag down`, `mathrag up`)", deep=True),
)
DEVICE = (
    Probe(
        name="device",
        run=device.state,
        fix="mend what the detail names; it is tried again, and at once when the guard is restarted",
    ),
    Probe(
        name="budget",
        run=device.budget,
        fix="raise `device.budget_mib`, or correct `footprint_mib` of the model",
        deep=True,
        alone=True,
    ),
    Probe(name="driver", run=device.driver, fix="lower `device.budget_mib` to what the GPU has", deep=True, alone=True),
    Probe(name="judge worker", run=services.worker(Lane.JUDGE), fix="start `python -m services.judge`, or see its log"),
    Probe(
        name="generator worker",
        run=services.worker(Lane.GENERATE),
        fix="start `python -m services.generator`, or see its log",
    ),
    Probe(name="disk", run=machine.disk, fix="free some: mathrag purge --help", deep=True, alone=True),
)


def probes(settings: Settings) -> tuple[Probe, ...]:
    """All that there is to look at."""
    return *SERVERS, *models.probes(settings), *DEVICE


READINESS = tuple(probe for probe in (*SERVERS, *DEVICE) if not probe.deep)
"""Cheap enough to be asked every few seconds."""
