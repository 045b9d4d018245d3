"""Probes of everything that a job needs: `/readyz` runs the cheap ones, `mathrag doctor` all."""

import asyncio
import dataclasses
import hashlib
import shlex
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote

import httpx2
import msgspec
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from sqlalchemy import text

from mathrag.check import DEEP_S, EDITED, RESTART, Check, NotReady, advise_setting
from mathrag.messages import format_count
from mathrag.places import find_existing_folder
from services.orchestrator.deps import Deps
from shared import model_checks
from shared.calls import Lane
from shared.headers import authorization
from shared.lease import residencies
from shared.lease.policy import retry_wait_s
from shared.model_checks import run_check
from shared.models import commands
from shared.pipelines import registry
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.runtime.placement import estimate_all, settings_for_device
from shared.settings import REPOSITORY, Device, Settings, load
from shared.shapes import State
from shared.storage import devices, jobs
from shared.storage.database import Database
from shared.storage.jobs import list_unserved

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
    return await run_check(probe.name, asyncio.wait_for(probe.run(deps), patience_s), fix=probe.fix)


async def ask_check(deps: Deps, url: str, name: str) -> str:
    """Return the detail of the check `name`, which the service at `url` runs with its settings and on its machine.

    Raises:
        NotReady: the check fails, or the service does not answer.
    """
    try:
        reply = await deps.http.get(f"{url}/checks/{quote(name, safe='')}", timeout=DEEP_S)
    except httpx2.TransportError as error:
        message = f"not checked: {url} does not answer ({error or type(error).__name__})"
        raise NotReady(message, fix="first fix the service that does not answer") from error
    if reply.status_code != httpx2.codes.OK:
        raise NotReady(f"not checked: {url} answers with status {reply.status_code}")
    try:
        found = msgspec.json.decode(reply.content, type=Check)
    except msgspec.MsgspecError as error:
        raise NotReady(
            f"not checked: {url} sent an answer that is not a check",
            fix=f"check that the address is that of a MathRAG service; {RESTART}",
        ) from error
    if not found.ok:
        raise NotReady(found.detail, fix=found.fix)
    return found.detail


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
        since = newest.closed_at or datetime.now(UTC)
        when = since + timedelta(seconds=retry_wait_s(failures))
        left = (when - datetime.now(UTC)).total_seconds()
        next_try = f"tried again in {left:.0f} s" if left > 0 else "tried again as soon as a call needs it"
        raise NotReady(f"{device} is quarantined: {newest.reason}; {next_try}")
    return f"{device}: {newest.state if newest else 'nothing loaded yet'}"


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
        raise NotReady(f"{', '.join(large)} exceed the {most} MiB that models may use")
    return f"{most} MiB; the largest model takes {max(needed.values(), default=0)} MiB"


async def check_footprints(deps: Deps) -> str:
    """Check that no model uses far more than it declares: the budget would then not limit memory."""
    async with deps.database.transaction() as connection:
        rows = (await connection.execute(MEASURED, {"device": deps.settings.device.id})).all()
    large = [
        f"{row.name} used {row.mib:.0f} MiB, but its `footprint_mib` is {row.footprint_mib}"
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
        limits = f"`budget_mib` {device.budget_mib} plus `reserve_mib` {device.reserve_mib}"
        raise NotReady(f"{limits} is {needed - total} MiB more than {device.id} has ({total} MiB)")
    return f"driver {version}; {memory.free // MIB} of {total} MiB free"


DATABASE = text("SELECT pg_database_size(current_database())")
LARGEST = text("""
    SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class WHERE relkind = 'r'
    ORDER BY size DESC, relname LIMIT 1""")
CHATS = text("SELECT count(*) FROM jobs WHERE online AND ended_at IS NOT NULL")
INDEXES = text("""
    SELECT i.path, EXISTS (SELECT 1 FROM corpora c WHERE i.id IN (c.dense_index, c.sparse_index)) AS used
    FROM indexes i""")


async def report_database(deps: Deps) -> str:
    """Report the size of the database, its largest table, and the number of ended chats."""
    async with deps.database.transaction() as connection:
        size = (await connection.execute(DATABASE)).scalar_one()
        largest = (await connection.execute(LARGEST)).one()
        chats = (await connection.execute(CHATS)).scalar_one()
    most = f"`{largest.relname}` {_format_mib(largest.size)}"
    return (
        f"{_format_mib(size)}, most of it {most}; {chats} ended chats; reduce it: mathrag purge --keep-last 20, --chat"
    )


async def report_redis_file(deps: Deps) -> str:
    """Report the size of Redis' append-only file, which Redis itself rewrites when it has doubled."""
    info = await deps.redis.info("persistence")
    try:
        percentage = (await deps.redis.config_get("auto-aof-rewrite-percentage"))["auto-aof-rewrite-percentage"]
    except ResponseError:
        percentage = "unknown"
    if percentage == "0":
        fix = "redis-cli CONFIG SET auto-aof-rewrite-percentage 100"
        raise NotReady("its append-only file is never rewritten", fix=fix)
    now, then = (_format_mib(int(info.get(f"aof_{name}_size", 0))) for name in ("current", "base"))
    return f"append-only file {now}, {then} after its last rewrite; redis-cli BGREWRITEAOF rewrites it"


async def report_logs(deps: Deps) -> str:
    """Report the size of the log files of `mathrag up`, which rotates them."""
    files = list((deps.settings.data_dir / "logs").glob("*.log*"))
    size = await asyncio.to_thread(_sum_sizes, files)
    return f"{_format_mib(size)} in {len(files)} files, rotated at {deps.settings.telemetry.log_mib} MiB each"


async def index_files(deps: Deps) -> str:
    """Report the size of the index folders, and which of them belong to no corpus or are unknown to the database."""
    async with deps.database.transaction() as connection:
        known = {Path(row.path).name: row.used for row in await connection.execute(INDEXES)}
    folders = [folder for folder in (deps.settings.data_dir / "indexes").glob("*") if folder.is_dir()]
    idle = [folder for folder in folders if not known.get(folder.name, True)]
    lost = [folder for folder in folders if folder.name not in known]
    sizes = await asyncio.to_thread(
        lambda: [
            _format_mib(_sum_sizes(file for folder in each for file in folder.rglob("*")))
            for each in (folders, idle, lost)
        ]
    )
    detail = (
        f"{sizes[0]} in {len(folders)} folders; {sizes[1]} in {len(idle)} folders without a corpus,"
        " kept for the next upload of it"
    )
    if lost:
        # An index that is being built is among them until it is registered.
        raise NotReady(
            f"{detail}; {sizes[2]} in {len(lost)} folders that the database does not know",
            fix=f"while no corpus is uploaded: rm -r {' '.join(str(folder) for folder in lost)}",
        )
    return detail


def _sum_sizes(files: Iterable[Path]) -> int:
    return sum(file.lstat().st_size for file in files if file.is_file())


def _format_mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


GIB = 1 << 30
LEAST_FREE = GIB
"""Bytes that must be free; PostgreSQL stops when the disk is full."""
OPEN_TO_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
MANIFEST = "manifest.json"
READY = text("SELECT encode(signature, 'hex') AS name, path, file_hash FROM indexes WHERE state = 'ready' ORDER BY id")


class Manifest(msgspec.Struct, frozen=True):
    """The part of an index's manifest that is checked here."""

    files: dict[str, str]
    """SHA-256 in hex by file name."""


async def check_disk(deps: Deps) -> str:
    """Check that the disk has free space."""
    folder = find_existing_folder(deps.settings.data_dir)
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        raise NotReady(f"only {free / GIB:.1f} GiB are free at {folder}; {LEAST_FREE / GIB:.0f} GiB are needed")
    return f"{free / GIB:.1f} GiB free at {folder}"


async def check_privacy(deps: Deps) -> str:
    """Check that other users of the machine can neither list nor write the data folder."""
    folder = find_existing_folder(deps.settings.data_dir)
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Others may pass through: a PostgreSQL that runs as `nobody` needs it.
    if folder == deps.settings.data_dir.absolute() and mode & OPEN_TO_OTHERS:
        raise NotReady(f"other users may read {folder} (mode {mode:o})", fix=f"chmod 700 {folder}")
    return ""


async def check_indexes(deps: Deps) -> str:
    """Check that the files of every index are those that were built."""
    async with deps.database.transaction() as connection:
        rows = (await connection.execute(READY)).all()
    root = deps.settings.data_dir
    for row in rows:
        if reason := await asyncio.to_thread(_find_defect, root / row.path, row.file_hash):
            raise NotReady(f"index {row.name[:12]}: {reason}")
    return f"{len(rows)} unchanged"


def _find_defect(folder: Path, file_hash: bytes) -> str | None:
    try:
        manifest = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(manifest).digest() != file_hash:
            return f"{MANIFEST} is not the one that was registered"
        for name, expected in msgspec.json.decode(manifest, type=Manifest).files.items():
            with (folder / name).open("rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() != expected:
                    return f"{name} was changed"
    except OSError as error:
        return f"{error.filename} cannot be read"
    return None


def list_model_probes(settings: Settings) -> list[Probe]:
    """Return one probe for each model: its guard checks it; without a guard, the configuration is checked."""
    fix = {name: advise_setting(f"models.{name}") for name in settings.models}
    return [
        Probe(name=f"model {name}", run=partial(_check_model, name), fix=fix[name], deep=True, alone=True)
        for name in settings.models
    ]


async def _check_model(name: str, deps: Deps) -> str:
    for device in deps.settings.all_devices():
        own = settings_for_device(deps.settings, device.id)
        if name in own.models and own.guard_url:
            return await ask_check(deps, own.guard_url, name)
    return await model_checks.check_model(name, deps.settings)


async def check_outages(deps: Deps) -> str:
    """Check that no call waits for an unavailable server, or for a device that cannot be loaded."""
    async with deps.database.transaction() as connection:
        found = await jobs.find_all_waiting(connection)
    if found:
        now = datetime.now(UTC)
        raise NotReady(
            "; ".join(
                f"calls wait for {each.what} since {each.since.astimezone(UTC):%H:%M} UTC, next try in"
                f" {max(0.0, ((each.next_try or each.since) - now).total_seconds()):.0f} s: {each.said}"
                for each in found
            )
        )
    return ""


MEND = {
    State.SHIPPED: "pip uninstall {distribution}",
    State.DOUBLED: "pip uninstall {distribution}",
    State.CHANGED: RESTART,
}
"""Fix for a plug-in in each state; for other states: repair or uninstall it."""


async def check_usable(deps: Deps) -> str:
    """Check that every installed plug-in can be imported, and is the version that this process has imported."""
    found = await asyncio.to_thread(loading.list_present, deps.settings.plugins)
    bad = [plugin for plugin in found if plugin.state is not State.READY]
    if bad:
        defects = (
            f"{each.kind.value} {each.name} ({each.distribution} {each.version}): {each.state.value}: {each.detail}"
            for each in bad
        )
        raise NotReady("; ".join(defects), fix=get_fix(bad[0]))
    return f"{len(found)} installed" if found else "none is installed"


async def check_needed(deps: Deps) -> str:
    """Check that no job waits for a plug-in."""
    async with deps.database.transaction() as connection:
        lacking = await jobs.list_lacking_plugins(connection)
    if lacking:
        first = lacking[0]
        again = f"pip install {first.pin.distribution}=={first.pin.version}, then {RESTART}"
        fix = f"{again}; or mathrag job cancel {shlex.quote(first.name)}"
        raise NotReady("; ".join(f"job {each.name} waits for {each.pin}: {each.said}" for each in lacking), fix=fix)
    return "no job waits for one"


def get_fix(plugin: Plugin) -> str:
    """Return the command that fixes the plug-in."""
    other = f"repair it and install it again, or pip uninstall {{distribution}}; then {RESTART}"
    return MEND.get(plugin.state, other).format(distribution=plugin.distribution)


PROGRAM = "services.retriever.checks"


def list_retrieval_probes(settings: Settings) -> list[Probe]:
    """Return the probes that the settings call for: the retriever runs the checks, or a program if none runs."""
    chosen = settings.retrieval
    names = ["embeddings"]
    if chosen.reranker.kind != "none":
        names.append("reranker")
    if "elasticsearch" in (chosen.dense.backend, chosen.sparse.backend):
        names.append("elasticsearch")
    fix = {name: advise_setting(f"retrieval.{name}") for name in names}
    return [
        Probe(name=name, run=partial(_check_retrieval, name), fix=fix[name], deep=True, alone=True) for name in names
    ]


async def _check_retrieval(name: str, deps: Deps) -> str:
    if deps.settings.retriever_url:
        return await ask_check(deps, deps.settings.retriever_url, name)
    if name == "elasticsearch":
        # Run the retriever's own check of this folder's configuration in a process.
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-m", PROGRAM, name, stdout=pipe)
        said, _ = await process.communicate()
        if process.returncode:
            raise NotReady(f"{PROGRAM} ended with {process.returncode}", fix="see its output above")
        [found] = msgspec.json.decode(said, type=list[Check])
        if not found.ok:
            raise NotReady(found.detail, fix=found.fix)
        return found.detail
    return await asyncio.to_thread(model_checks.check_retrieval_model, name, deps.settings.retrieval)


MOST_SKEW_S = 2.0
"""Tolerated difference of clocks in seconds. Claims and heartbeats live for 15 s, and times in reports should agree
to the second.
"""
SILENT_S = 10.0
"""Seconds after which a scheduler counts as hanging: it observes the work every second at least."""
REVISION = text("SELECT version_num FROM alembic_version")
NOW = text("SELECT clock_timestamp()")


async def check_postgres(deps: Deps) -> str:
    """Check that PostgreSQL answers."""
    async with deps.database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
    return ""


async def check_schema(deps: Deps) -> str:
    """Check that the database has the schema of this code."""
    async with deps.database.transaction() as connection:
        revision = (await connection.execute(REVISION)).scalar()
    if revision != find_head():
        raise NotReady(f"the database has schema {revision}, but this release needs {find_head()}")
    return f"at {revision}"


@cache
def find_head() -> str:
    """Return the newest migration of this code."""
    # Their files are named after them, in order: Alembic would import 9 MiB to read them.
    return max(file.name.partition("_")[0] for file in (REPOSITORY / "migrations" / "versions").glob("[0-9]*.py"))


async def check_clock(deps: Deps) -> str:
    """Check that the clocks of this machine and of the database agree."""
    async with deps.database.transaction() as connection:
        before = datetime.now(UTC)
        theirs: datetime = (await connection.execute(NOW)).scalar_one()
        after = datetime.now(UTC)
    ahead = (theirs - (before + (after - before) / 2)).total_seconds()
    if abs(ahead) > MOST_SKEW_S:
        raise NotReady(f"the database's clock is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}")
    return f"within {max(abs(ahead), 0.1):.1f} s"


async def check_redis(deps: Deps) -> str:
    """Check that Redis answers."""
    await deps.redis.ping()
    return ""


async def check_redis_settings(deps: Deps) -> str:
    """Check that Redis evicts nothing and persists its data."""
    try:
        policy = (await deps.redis.config_get("maxmemory-policy"))["maxmemory-policy"]
        appending = (await deps.redis.config_get("appendonly"))["appendonly"]
    except ResponseError:
        return "its settings cannot be read"
    if policy != "noeviction":
        raise NotReady(
            f"`maxmemory-policy` is {policy}, so Redis may drop data",
            fix="redis-cli CONFIG SET maxmemory-policy noeviction",
        )
    if appending != "yes":
        raise NotReady(
            "`appendonly` is no, so Redis may lose data when it stops", fix="redis-cli CONFIG SET appendonly yes"
        )
    return "noeviction, append-only file"


def make_service_check(url_of: str) -> Run:
    """Return the check that a service answers at the address in the setting `url_of`."""

    async def run(deps: Deps) -> str:
        if not (url := getattr(deps.settings, url_of)):
            raise NotReady(f"the service is not started, or `{url_of}` is not set")
        reply = await deps.http.get(f"{url}/healthz")
        if reply.status_code != httpx2.codes.OK:
            raise NotReady(f"answers with status {reply.status_code}")
        return ""

    return run


async def check_schedulers(deps: Deps) -> str:
    """Check that each scheduler of this process has observed the work recently; only these schedulers decide flips."""
    silent = [each for each in deps.schedulers if each.silent_s > SILENT_S]
    if silent:
        heartbeats = ", ".join(f"{each.device} for {each.silent_s:.0f} s" for each in silent)
        raise NotReady(f"the scheduler has not read the queue of {heartbeats}")
    return "" if deps.schedulers else "only the orchestrator's /readyz knows"


def make_worker_check(lane: Lane) -> Run:
    """Return the check that a worker of this lane has a heartbeat, on any host."""

    async def run(deps: Deps) -> str:
        pattern = f"mathrag:worker:{lane.value}:*"
        alive = [key async for key in deps.redis.scan_iter(match=pattern, count=1000)]
        if not alive:
            raise NotReady(f"no {lane.value} worker has sent a heartbeat")
        return f"{len(alive)} alive"

    return run


async def check_worker_sources(deps: Deps) -> str:
    """Check that every worker has imported the pipelines that this process has; workers of older releases do not
    report them.
    """
    keys = [key async for key in deps.redis.scan_iter(match="mathrag:worker:*", count=1000)]
    here = registry.source_hash().encode()
    sources = dict(zip(keys, await deps.redis.mget(keys), strict=True)) if keys else {}
    reported = {key: source for key, source in sources.items() if source is not None and len(source) == len(here)}
    others = sorted(key.decode() for key, source in reported.items() if source != here)
    if others:
        names = ", ".join(key.removeprefix("mathrag:worker:") for key in others)
        raise NotReady(f"some workers run source files that differ from those on disk: {names}", fix=EDITED)
    return "as on disk"


async def check_models(deps: Deps) -> str:
    """Check that no job waits for a model that no guard serves any more."""
    async with deps.database.transaction() as connection:
        found = await list_unserved(connection)
    if not found:
        return "none waits for a model that is not served"
    waits = []
    for row in found:
        served = "none of that name" if row.now is None else row.now[:12]
        if row.now is not None and row.now == row.digest:
            served = "the same with other settings"
        waits.append(f"{', '.join(row.jobs)} for {row.name} ({(row.digest or 'none')[:12]}; served is {served})")
    names = sorted({job for row in found for job in row.jobs})
    cancel = " && ".join(f"mathrag job cancel {shlex.quote(name)}" for name in names)
    fix = f"restore the earlier model, then {RESTART}; or {cancel}, and submit again"
    raise NotReady(f"jobs wait for models that no guard serves: {'; '.join(waits)}", fix=fix)


def _explain_restart(name: str, own: str) -> str:
    """Return the fix for a process that the supervisor or Docker restarts by itself; `own` is the fix without
    either.
    """
    logs = f"in containers `docker compose up --wait` and `docker compose logs {name}`"
    return f"`mathrag status` shows whether it runs, `logs/{name}.log` in the data folder why not; {logs}; else {own}"


SERVERS = (
    Probe(name="postgres", run=check_postgres, fix=_explain_restart("postgres", "correct MATHRAG_DATABASE_URL")),
    Probe(name="schema", run=check_schema, fix="run `mathrag up`, or migrate by hand: docs/how-to/scaling.md"),
    Probe(name="clock", run=check_clock, fix="run timedatectl set-ntp true on both machines", deep=True),
    Probe(name="redis", run=check_redis, fix=_explain_restart("redis", "correct MATHRAG_REDIS_URL")),
    Probe(name="redis settings", run=check_redis_settings, fix="see the log of Redis", deep=True),
    Probe(name="retriever", run=make_service_check("retriever_url"),
          fix=_explain_restart("retriever", "correct MATHRAG_RETRIEVER_URL")),
    Probe(name="indexes", run=check_indexes, deep=True,
          fix="upload the corpus again: mathrag corpus create NAME --from PATH"),
    Probe(name="guard", run=make_service_check("guard_url"), each_device=True,
          fix=_explain_restart("guard", "correct MATHRAG_GUARD_URL")),
    Probe(name="models", run=check_served,
          fix=f"see `model NAME` below; or correct `models` and `roles` in mathrag.yaml, then {RESTART}"),
    Probe(name="waiting jobs", run=check_models, fix=RESTART, deep=True),
    Probe(name="plugins", run=check_usable, fix="mathrag plugin list", deep=True, alone=True),
    Probe(name="plugins of jobs", run=check_needed, fix="mathrag plugin list", deep=True),
    Probe(name="outages", run=check_outages, deep=True,
          fix="start the unavailable server: its calls then continue; they fail after `workers.outage_s`"),
)  # fmt: skip
DEVICE = (
    Probe(name="device", run=check_state, each_device=True,
          fix="fix the cause in the detail; the device is then tried again, at once by `mathrag gpu retry`"),
    Probe(name="footprints", run=check_footprints, deep=True, each_device=True,
          fix=f"raise `footprint_mib` of the model in mathrag.yaml to the measured value, then {RESTART}"),
    Probe(name="budget", run=check_budget, deep=True, alone=True, each_device=True,
          fix="raise `device.budget_mib`, or correct `footprint_mib` of the model"),
    Probe(name="driver", run=check_driver, deep=True, alone=True, each_device=True,
          fix="lower `device.budget_mib` to the GPU's memory less `device.reserve_mib`"),
    Probe(name="scheduler", run=check_schedulers,
          fix="see the orchestrator's log and whether PostgreSQL and Redis answer; else restart the orchestrator"),
    Probe(name="judge worker", run=make_worker_check(Lane.JUDGE),
          fix=_explain_restart("judge", "start `python -m services.judge`")),
    Probe(name="generator worker", run=make_worker_check(Lane.GENERATE),
          fix=_explain_restart("generator", "start `python -m services.generator`")),
    Probe(name="worker sources", run=check_worker_sources, fix=EDITED, deep=True),
    Probe(name="size of the database", run=report_database, fix="mathrag purge --help", deep=True),
    Probe(name="size of redis", run=report_redis_file, fix="redis-cli BGREWRITEAOF", deep=True),
    Probe(name="size of indexes", run=index_files, fix="mathrag corpus list", deep=True),
    Probe(name="size of logs", run=report_logs, fix="lower `telemetry.log_mib`", deep=True, alone=True),
    Probe(name="privacy", run=check_privacy, fix="chmod 700 the data folder", deep=True, alone=True),
    Probe(name="disk", run=check_disk, fix="free space: mathrag purge --help", deep=True, alone=True),
)  # fmt: skip
"""All probes are shown in this order, with those of retrieval and of the models between the two lists."""


def probes(settings: Settings) -> tuple[Probe, ...]:
    every = (*SERVERS, *list_retrieval_probes(settings), *list_model_probes(settings), *DEVICE)
    return tuple(_repeat_for_devices(every, settings))


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


NOWHERE = "postgresql+asyncpg://"
"""Address that is never connected to: probes that need the database are left out if none is configured."""


async def look(settings: Settings) -> list[Check]:
    """Run all checks; without a database or Redis, only those that need neither."""
    runs = bool(settings.database_url and settings.redis_url)
    chosen = [probe for probe in probes(settings) if probe.alone or runs]
    database = Database(settings.database_url or NOWHERE, pinned=False)
    known = authorization(settings.service_key)
    try:
        async with (
            Redis.from_url(settings.redis_url or "redis://") as redis,
            httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False, headers=known) as http,
        ):
            deps = Deps(
                settings=settings, database=database, admission=database, redis=redis, http=http, wake=lambda: None
            )
            return await checks(chosen, deps)
    finally:
        await database.close()


def main() -> None:
    """Run the checks with the settings of the environment and print the results.

    `mathrag doctor` runs this program if no service answers.
    """
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(look(load()))))


if __name__ == "__main__":
    main()
