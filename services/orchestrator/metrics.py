"""Metrics for Prometheus, and spans of ended jobs.

Metrics are derived from the rows of the database at each request, so that they survive restarts and cost nothing in
between.
"""

import asyncio
import logging
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Literal, NamedTuple

import httpx2
import msgspec
import psutil
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.registry import Collector
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import QueuePool, TextClause, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mathrag.places import find_existing_folder
from services.orchestrator.deps import Deps
from shared.calls import Lane
from shared.storage.database import Database, SampleState, fill_names, try_decode
from shared.storage.keys import VALID
from shared.storage.quota import STORED
from shared.telemetry import row_spans

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric; durations are in seconds, memory in bytes."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Metric("mathrag_jobs", "gauge", "Live jobs by state.", ("state",)),
    Metric("mathrag_jobs_ended_total", "counter", "Jobs that ended, by outcome.", ("state",)),
    Metric("mathrag_samples_ended_total", "counter", "Samples that ended, by outcome.", ("state", "failure")),
    Metric("mathrag_steps_total", "counter", "Steps of ended samples: computed for them, or reused.", ("source",)),
    Metric(
        "mathrag_queue_calls", "gauge", "Calls in the queue; at most 20000 are counted per lane and model.",
        ("lane", "model", "state"),
    ),
    Metric("mathrag_outage_seconds", "gauge", "Duration of the outage that calls of a model wait for.", ("model",)),
    Metric("mathrag_call_duration_seconds", "histogram", "Execution of a call that was answered.", ("lane", "role")),
    Metric("mathrag_attempts_total", "counter", "Executions of calls, by outcome.", ("lane", "role", "outcome")),
    Metric("mathrag_tokens_total", "counter", "Tokens that models read and wrote.", ("role", "direction")),
    Metric("mathrag_gate_decisions_total", "counter", "Decisions of the confidence gate.", ("strategy",)),
    Metric("mathrag_extractions_total", "counter", "Samples by whether their answer was found.", ("extraction",)),
    Metric("mathrag_decisions_total", "counter", "Decisions of methods for samples.", ("stage", "action")),
    Metric("mathrag_fallbacks_total", "counter", "Parts of methods that were left out, by reason.", ("stage", "kind")),
    Metric("mathrag_question_vectors_total", "counter", "Vectors of questions, by source.", ("source",)),
    Metric("mathrag_device_state", "gauge", "1 for the state of the device's newest residency.", ("device", "state")),
    Metric("mathrag_device_epoch", "gauge", "Epoch of the device's newest residency.", ("device",)),
    Metric("mathrag_device_budget_bytes", "gauge", "Sum of footprints that may be resident.", ("device",)),
    Metric("mathrag_resident_model_memory_bytes", "gauge", "Measured memory of a resident model.", ("device", "model")),
    Metric("mathrag_flips_total", "counter", "Flips that opened or failed, by cause.", ("device", "cause", "outcome")),
    Metric("mathrag_model_loads_total", "counter", "Model servers that were started.", ("device", "model")),
    Metric("mathrag_model_load_seconds_total", "counter", "Time that their starts took.", ("device", "model")),
    Metric("mathrag_key_weight", "gauge", "Weight of a valid API key.", ("key",)),
    Metric("mathrag_key_live_samples", "gauge", "Samples of a valid key's jobs that have not ended.", ("key",)),
    Metric("mathrag_key_storage_bytes", "gauge", "Size of what a valid key has uploaded.", ("key",)),
    Metric("mathrag_key_samples_ended_total", "counter", "Samples of a key that completed or failed.", ("key",)),
    Metric(
        "mathrag_key_gpu_seconds_total", "counter", "Time in which models worked on a call of the key.", ("key",),
    ),
    Metric("mathrag_workers", "gauge", "Workers with a heartbeat.", ("lane",)),
    Metric("mathrag_service_up", "gauge", "1 if the service answers.", ("service",)),
    Metric("mathrag_database_connections", "gauge", "Connections of the API's pool.", ("state",)),
    Metric("mathrag_database_bytes", "gauge", "Size of the database."),
    Metric("mathrag_disk_free_bytes", "gauge", "Free space on the disk of the data folder."),
    Metric("mathrag_memory_available_bytes", "gauge", "Memory of the API's host that programs can still use."),
    Metric("mathrag_http_requests_total", "counter", "Requests to the API.", ("method", "route", "status")),
    Metric(
        "mathrag_http_request_duration_seconds", "histogram", "Time until a response begins.", ("method", "route"),
    ),
    Metric("mathrag_metrics_duration_seconds", "gauge", "Time that it took to derive these metrics."),
)  # fmt: skip
"""Every metric. Tests compare the code, the documentation and the dashboard with it."""

BY_NAME = {metric.name: metric for metric in CATALOGUE}

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0)
"""Upper bounds of the histograms' buckets in seconds, from a search to the longest model call."""

Labels = tuple[str, ...]


class Distribution:
    """Counts a histogram's values by bucket, not cumulated, and sums them up."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, bucket: int, count: int, total: float) -> None:
        """Add `count` values that fell into `bucket` and sum up to `total`."""
        self.buckets[bucket] += count
        self.total += total

    def cumulate(self) -> list[tuple[str, float]]:
        """Return pairs of an upper bound and the number of values up to it, as Prometheus requires."""
        return list(zip((*map(str, BOUNDS), "+Inf"), map(float, accumulate(self.buckets)), strict=True))


class MetricValues(Collector):
    """Values by metric and labels. Counters only grow; gauges are set again each time."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._gauges: dict[tuple[str, Labels], float] = {}
        self._distributions: dict[tuple[str, Labels], Distribution] = {}

    def count(self, name: str, labels: Sequence[str], by: float) -> None:
        """Add to a counter."""
        self._counters[name, tuple(labels)] += by

    def observe(self, name: str, labels: Sequence[str], bucket: int, count: int, total: float) -> None:
        """Add to a histogram."""
        self._distributions.setdefault((name, tuple(labels)), Distribution()).add(bucket, count, total)

    def show(self, gauges: Iterable[tuple[str, Sequence[str], float]]) -> None:
        """Replace all gauges; those that are missing are no longer reported."""
        self._gauges = {(name, tuple(labels)): value for name, labels, value in gauges}

    def collect(self) -> Iterator[PrometheusMetric]:
        """Yield all metrics for prometheus_client."""
        for metric in CATALOGUE:
            if metric.kind == "counter":
                yield self._make_family(CounterMetricFamily, metric, self._counters)
            elif metric.kind == "gauge":
                yield self._make_family(GaugeMetricFamily, metric, self._gauges)
            else:
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                for (name, labels), found in self._distributions.items():
                    if name == metric.name:
                        histogram.add_metric(labels, found.cumulate(), found.total)
                if histogram.samples:
                    yield histogram

    def _make_family(
        self,
        family: type[CounterMetricFamily] | type[GaugeMetricFamily],
        metric: Metric,
        values: Mapping[tuple[str, Labels], float],
    ) -> PrometheusMetric:
        metric_family = family(metric.name, metric.help, labels=metric.labels)
        for (name, labels), value in values.items():
            if name == metric.name:
                metric_family.add_metric(labels, value)
        return metric_family


# A row that is not visible yet belongs to a running transaction, and its stamp is later than that began. So all rows
# with a stamp before the oldest running transaction are visible. (Row ids do not order commits: sequences are cached.)
HORIZON = text("""
    SELECT LEAST(clock_timestamp(), min(xact_start)) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()""")


class Window:
    """Yields the rows of a table that only grows, by a column that the database's clock stamps: each row is read once,
    none is missed, and each read is bounded.

    `table` includes its alias ("samples s"), and so does `column` ("s.ended_at").
    """

    def __init__(self, table: str, column: str, *, most: int) -> None:
        self.condition = f"{column} >= :since AND {column} < :until"
        """For the WHERE of a statement that reads the window."""
        self._since: datetime | None = None
        self._most = most
        self._next: TextClause = text(
            f"SELECT {column} FROM {table} WHERE {column} >= :since AND {column} < :until"  # noqa: S608
            f" ORDER BY {column} OFFSET :most LIMIT 1"
        )

    async def advance(self, connection: AsyncConnection, horizon: datetime) -> dict[str, datetime] | None:
        """Return the values of `condition`: from the last read to `horizon`, or to where `most` rows are reached.

        The first call only begins to watch and returns no rows.
        """
        since, self._since = self._since, self._since or horizon
        if since is None or since >= horizon:
            return None
        values = {"since": since, "until": horizon}
        further = (await connection.execute(self._next, {**values, "most": self._most})).scalar()
        self._since = values["until"] = further or horizon
        return values


async def horizon(connection: AsyncConnection) -> datetime:
    """Return the time up to which the rows are complete, for later statements, whose snapshots are younger."""
    found: datetime = (await connection.execute(HORIZON)).scalar_one()
    return found


MIB = 1 << 20
PATIENCE_S = 0.5
"""Longest wait for another service in seconds: a scrape must not hang with it."""
MOST_CALLS = 20_000
"""Upper bound of the calls that are counted per lane and model."""

Gauge = tuple[str, list[str], float]

COUNT_JOBS = text("SELECT state, count(*) AS n FROM jobs WHERE ended_at IS NULL GROUP BY state")
QUEUE = text("""
    SELECT l.lane, m.name, q.state, count(*) AS n
    FROM models m CROSS JOIN (VALUES ('judge'), ('generate')) l(lane)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN q.token IS NOT NULL THEN 'claimed' WHEN q.lapses > 0 THEN 'suspect'
                    WHEN q.not_before > now() THEN 'delayed' ELSE 'pending' END AS state
        FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id LIMIT :most) q
    GROUP BY l.lane, m.name, q.state""")
DEVICES = text("""
    SELECT d.device, r.epoch, r.state, m.name, CAST(r.measured -> 'memory_mib' ->> CAST(m.id AS text) AS float) AS mib
    FROM (SELECT DISTINCT device FROM models WHERE device IS NOT NULL AND needs_lease) d
    CROSS JOIN LATERAL (
        SELECT * FROM residencies r WHERE r.device = d.device ORDER BY r.epoch DESC LIMIT 1) r
    LEFT JOIN models m ON m.id = ANY(r.models) AND r.state = 'open' ORDER BY d.device, m.id""")
OUTAGES = text("""
    SELECT m.name, max(EXTRACT(EPOCH FROM now() - o.since)) AS seconds
    FROM outages o JOIN models m ON m.id = o.model_id GROUP BY m.name""")
KEYS = text(f"""
    SELECT DISTINCT ON (k.name) k.name, k.weight, (SELECT COALESCE(sum(j.total), 0) FROM jobs j
        WHERE j.ended_at IS NULL AND j.code ->> 'submitted_by' = k.name) AS live_samples,
        COALESCE(stored.bytes, 0) AS stored_bytes
    FROM api_keys k LEFT JOIN ({STORED}) stored ON stored.key = k.name
    WHERE {VALID} ORDER BY k.name, k.id DESC""")  # noqa: S608 - a constant
SIZE = text("SELECT pg_database_size(current_database())")


async def read_rows(connection: AsyncConnection) -> list[Gauge]:
    """Return the gauges of jobs, queue, outages, keys and devices, and the size of the database."""
    gauges: list[Gauge] = [("mathrag_database_bytes", [], (await connection.execute(SIZE)).scalar_one())]
    gauges += [("mathrag_jobs", [row.state], row.n) for row in await connection.execute(COUNT_JOBS)]
    queued = await connection.execute(QUEUE, {"most": MOST_CALLS})
    gauges += [("mathrag_queue_calls", [row.lane, row.name, row.state], row.n) for row in queued]
    outages = await connection.execute(OUTAGES)
    gauges += [("mathrag_outage_seconds", [row.name], float(row.seconds)) for row in outages]
    for row in await connection.execute(KEYS):
        gauges.append(("mathrag_key_weight", [row.name], row.weight))
        gauges.append(("mathrag_key_live_samples", [row.name], row.live_samples))
        gauges.append(("mathrag_key_storage_bytes", [row.name], float(row.stored_bytes)))
    for row in await connection.execute(DEVICES):
        gauges.append(("mathrag_device_state", [row.device, row.state], 1))
        gauges.append(("mathrag_device_epoch", [row.device], row.epoch))
        if row.name is not None:
            gauges.append(("mathrag_resident_model_memory_bytes", [row.device, row.name], (row.mib or 0) * MIB))
    return gauges


def read_process(deps: Deps) -> Iterator[Gauge]:
    """Yield the gauges of this process's pool, of its host, and of the budgets in its settings."""
    yield "mathrag_disk_free_bytes", [], shutil.disk_usage(find_existing_folder(deps.settings.data_dir)).free
    yield "mathrag_memory_available_bytes", [], psutil.virtual_memory().available
    for device in deps.settings.all_devices():
        yield "mathrag_device_budget_bytes", [device.id], device.models_mib * MIB
    pool = deps.database.engine.pool
    if isinstance(pool, QueuePool):
        yield "mathrag_database_connections", ["in_use"], pool.checkedout()
        yield "mathrag_database_connections", ["idle"], pool.checkedin()


async def read_services(deps: Deps) -> list[Gauge]:
    """Return the gauges of Redis, of the workers' heartbeats in it, and of the services that answer HTTP."""
    urls = {name: device.guard_url for name, device in deps.settings.guards().items()}
    urls["retriever"] = deps.settings.retriever_url
    answer = asyncio.gather(*(_is_up(deps, url) for url in urls.values()))
    up, workers = await asyncio.gather(answer, _count_workers(deps))
    return [
        *(("mathrag_service_up", [name], is_up) for name, is_up in zip(urls, up, strict=True)),
        ("mathrag_service_up", ["redis"], workers is not None),
        *(workers or ()),
    ]


async def _is_up(deps: Deps, url: str) -> bool:
    try:
        reply = await deps.http.get(f"{url}/healthz", timeout=PATIENCE_S)
    except httpx2.HTTPError:
        return False
    return reply.status_code == httpx2.codes.OK


async def _count_workers(deps: Deps) -> list[Gauge] | None:
    """Return the number of heartbeats by lane; None if Redis does not answer."""
    found: list[Gauge] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            for lane in Lane:
                keys = [key async for key in deps.redis.scan_iter(match=f"mathrag:worker:{lane.value}:*", count=1000)]
                found.append(("mathrag_workers", [lane.value], len(keys)))
    except (RedisError, OSError, TimeoutError):
        return None
    return found


class _Decision(msgspec.Struct):
    stage: str
    action: str
    fallback: str | None = None


class _Trace(msgspec.Struct):
    decisions: tuple[_Decision, ...]


class _Outcome(msgspec.Struct):
    trace: _Trace


_log = logging.getLogger(__name__)


NEWEST = text("SELECT COALESCE(max(epoch), 0) FROM residencies")
# Wait for a minute: by then the insert of a residency is visible, even if a younger one has already ended.
YOUNGER = text("""
    SELECT epoch, device, cause, servers, opened_at IS NOT NULL AS opened,
           COALESCE(opened_at, closed_at) IS NOT NULL AS known,
           COALESCE(closed_at < now() - interval '1 minute', false) AS over
    FROM residencies WHERE epoch > :settled ORDER BY epoch""")


class Flips:
    """Counts flips and model loads since this process began to watch: each once, when its residency has opened or
    failed.
    """

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._settled: int | None = None
        """Residencies up to this epoch are not looked at again."""
        self._counted: set[int] = set()

    async def update(self, connection: AsyncConnection) -> None:
        """Count the residencies that have opened or failed since the last call."""
        if self._settled is None:
            self._settled = (await connection.execute(NEWEST)).scalar_one()
            return
        rows = (await connection.execute(YOUNGER, {"settled": self._settled})).all()
        for row in rows:
            if row.known and row.epoch not in self._counted:
                self._counted.add(row.epoch)
                labels = [row.device, row.cause, "opened" if row.opened else "failed"]
                self._values.count("mathrag_flips_total", labels, 1)
                for server in row.servers:
                    of_model = [row.device, server["name"]]
                    self._values.count("mathrag_model_loads_total", of_model, 1)
                    self._values.count("mathrag_model_load_seconds_total", of_model, float(server["seconds"]))
        for row in rows:
            if not row.over:
                break
            self._settled = row.epoch
            self._counted.discard(row.epoch)


class VectorHits(msgspec.Struct, frozen=True):
    """Holds the retriever's counters since its start: question vectors needed, and those found in the cache."""

    asked: int
    hits: int


class _Health(msgspec.Struct):
    embeddings: VectorHits


class Vectors:
    """Counts questions to dense indexes since this process began to watch, from the retriever's counters."""

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._seen: VectorHits | None = None

    async def update(self, deps: Deps) -> None:
        """Count the questions since the last call; if the retriever is unavailable, they are counted by the next
        one.
        """
        try:
            reply = await deps.http.get(f"{deps.settings.retriever_url}/healthz", timeout=PATIENCE_S)
            now = msgspec.json.decode(reply.content, type=_Health).embeddings
        except (httpx2.HTTPError, msgspec.MsgspecError):
            return
        before = self._seen or now
        if now.asked < before.asked:  # it was started again
            before = VectorHits(0, 0)
        self._seen, hits = now, now.hits - before.hits
        self._values.count("mathrag_question_vectors_total", ["cache"], hits)
        self._values.count("mathrag_question_vectors_total", ["embedder"], now.asked - before.asked - hits)


# Drop the `_created` series: there would be one more for each metric, and they are not used.
disable_created_metrics()  # type: ignore[no-untyped-call]

UNKNOWN = "unknown"
"""Label for requests that match no route: their paths are arbitrary and must not become labels."""


class Requests:
    """The two metrics about requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        made = BY_NAME["mathrag_http_requests_total"]
        self.total = PrometheusCounter(made.name, made.help, made.labels, registry=registry)
        timed = BY_NAME["mathrag_http_request_duration_seconds"]
        self.duration = Histogram(timed.name, timed.help, timed.labels, registry=registry)


class CountRequests:
    """Counts each request when its response begins, because a stream may last for hours."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds, route = time.perf_counter() - began, getattr(scope.get("route"), "path", UNKNOWN)
                self._requests.total.labels(scope["method"], route, str(message["status"])).inc()
                self._requests.duration.labels(scope["method"], route).observe(seconds)
            await send(message)

        await self._app(scope, receive, send_and_count)


ATTEMPTS, SAMPLES, JOBS = 10_000, 1_000, 1_000
"""Most rows per read, about 10 ms of the database's time; the next reads count the rest."""
UNSCORED = b'"unscored":true'
SOME = b'"decisions":[{'
"""Bytes to find in an outcome. It is canonical JSON, in which text cannot look like a field, because its quotes are
escaped.
"""

# Use the planner settings of the hot path: with old statistics a hash join would read every call ever made. Starting
# parallel workers takes longer than the rest of the statement.
PLANS = text("""
    SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
           set_config('enable_mergejoin', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)""")


def _read(statement: str, window: Window) -> TextClause:
    return text(statement.replace("$window", window.condition))


class RowCounters:
    """Counts rows from the first update in this process on; older rows are never counted."""

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._attempts = Window("attempts a", "a.created_at", most=ATTEMPTS)
        self._samples = Window("samples s", "s.ended_at", most=SAMPLES)
        self._jobs = Window("jobs j", "j.ended_at", most=JOBS)
        self._busy: dict[tuple[str, str], datetime] = {}
        """By key and device, the end of the last call that was counted."""

    async def update(self, connection: AsyncConnection) -> None:
        """Count the rows that were added since the last call."""
        await connection.execute(PLANS)
        until = await horizon(connection)
        if window := await self._attempts.advance(connection, until):
            await self._count_attempts(connection, window)
        if window := await self._samples.advance(connection, until):
            await self._count_samples(connection, window)
            await self._count_decisions(connection, window)
        if window := await self._jobs.advance(connection, until):
            for row in await connection.execute(_read(JOBS_ENDED, self._jobs), window):
                self._values.count("mathrag_jobs_ended_total", [row.state], row.n)

    async def _count_attempts(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        rows = await connection.execute(_read(ATTEMPTED, self._attempts), {**window, "bounds": list(BOUNDS)})
        for row in rows:
            self._values.count("mathrag_attempts_total", [row.lane, row.role, row.outcome], row.n)
            if row.bucket is not None:
                labels = [row.lane, row.role]
                self._values.observe("mathrag_call_duration_seconds", labels, row.bucket, row.n, float(row.seconds))
            if row.read or row.written:
                self._values.count("mathrag_tokens_total", [row.role, "read"], row.read)
                self._values.count("mathrag_tokens_total", [row.role, "written"], row.written)
        for row in await connection.execute(_read(WORKED, self._attempts), window):
            # As `limits.gpu_s_per_key`: of a call that began during others, the time that it adds.
            busy = self._busy.get((row.key, row.device), row.started_at)
            if row.ended_at > busy:
                seconds = (row.ended_at - max(row.started_at, busy)).total_seconds()
                self._values.count("mathrag_key_gpu_seconds_total", [row.key], seconds)
                self._busy[row.key, row.device] = row.ended_at

    async def _count_samples(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        for row in await connection.execute(_read(ENDED, self._samples), {**window, "unscored": UNSCORED}):
            labels = [SampleState(row.state).word, row.failure or ""]
            self._values.count("mathrag_samples_ended_total", labels, row.n)
            if row.extraction:
                self._values.count("mathrag_extractions_total", [row.extraction], row.n)
            if row.unscored:
                self._values.count("mathrag_fallbacks_total", ["quality", "unscored"], row.n)
        for row in await connection.execute(_read(SERVED, self._samples), window):
            self._values.count("mathrag_key_samples_ended_total", [row.key], row.n)
        for row in await connection.execute(_read(STEPS, self._samples), window):
            self._values.count("mathrag_steps_total", ["computed" if row.created else "reused"], row.n)
        for row in await connection.execute(_read(GATES, self._samples), window):
            self._values.count("mathrag_gate_decisions_total", [row.strategy], row.n)
            if row.unusable:
                self._values.count("mathrag_fallbacks_total", ["gate", "judge_unusable"], row.n)

    async def _count_decisions(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        """Count the decisions of methods for the samples in `window`, and the parts that were left out."""
        decided: Counter[tuple[str, str, str | None]] = Counter()
        for (stored,) in await connection.execute(_read(OUTCOMES, self._samples), {**window, "some": SOME}):
            outcome, problem = try_decode(stored, _Outcome, "an outcome")
            if outcome is None:
                _log.warning("not counted: %s", problem)
                continue
            decided.update((each.stage, each.action, each.fallback) for each in outcome.trace.decisions)
        for (stage, action, fallback), n in decided.items():
            self._values.count("mathrag_decisions_total", [stage, action], n)
            if fallback is not None:
                self._values.count("mathrag_fallbacks_total", [stage, fallback], n)


ATTEMPTED = """
    SELECT c.lane, c.role, a.outcome, count(*) AS n,
           CASE WHEN a.accepted THEN width_bucket(d.seconds, CAST(:bounds AS double precision[])) END AS bucket,
           sum(d.seconds) AS seconds, COALESCE(sum(a.prompt_tokens), 0) AS read,
           COALESCE(sum(a.completion_tokens), 0) AS written
    FROM attempts a JOIN calls c ON c.id = a.call_id
    CROSS JOIN LATERAL (SELECT CAST(extract(epoch FROM a.ended_at - a.started_at) AS double precision) AS seconds) d
    WHERE $window GROUP BY c.lane, c.role, a.outcome, bucket"""
WORKED = fill_names("""
    SELECT DISTINCT j.code ->> 'submitted_by' AS key, a.device, a.started_at, a.ended_at
    FROM attempts a JOIN steps t ON {ACCEPTED_FOR} t.call_id AND t.created JOIN samples s ON s.id = t.sample_id
    JOIN jobs j ON j.id = s.job_id
    WHERE a.epoch IS NOT NULL AND j.code ->> 'submitted_by' IS NOT NULL AND $window
    ORDER BY a.started_at""")
SERVED = fill_names("""
    SELECT j.code ->> 'submitted_by' AS key, count(*) AS n FROM samples s JOIN jobs j ON j.id = s.job_id
    WHERE s.kind = 'item' AND s.state IN {DONE} AND j.code ->> 'submitted_by' IS NOT NULL AND $window
    GROUP BY j.code ->> 'submitted_by'""")
ENDED = """
    SELECT s.state, s.failure, o.extraction, position(CAST(:unscored AS bytea) IN o.outcome) > 0 AS unscored,
           count(*) AS n
    FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.kind = 'item' AND $window GROUP BY 1, 2, 3, 4"""
STEPS = """
    SELECT t.created, count(*) AS n FROM samples s JOIN steps t ON t.sample_id = s.id
    WHERE $window GROUP BY t.created"""
GATES = """
    SELECT g.decision ->> 'strategy' AS strategy, count(*) AS n,
           CAST(g.decision ->> 'asked' AS integer) < 2 * CAST(g.decision ->> 'unparsed' AS integer) AS unusable
    FROM samples s JOIN outcomes o ON o.sample_id = s.id
    CROSS JOIN LATERAL (SELECT CAST(convert_from(o.outcome, 'UTF8') AS jsonb) AS decision) g
    WHERE s.kind = 'prepare' AND $window GROUP BY strategy, unusable"""
# Parsed here, not in the database: a model may write text that PostgreSQL refuses to parse as JSON.
OUTCOMES = """
    SELECT o.outcome FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.kind = 'item' AND position(CAST(:some AS bytea) IN o.outcome) > 0 AND $window"""
JOBS_ENDED = "SELECT j.state, count(*) AS n FROM jobs j WHERE $window GROUP BY j.state"

FRESH_S = 5.0
"""Seconds for which an answer is cached, so that several scrapers cost no more than one."""


class Metrics:
    """Holds the registry of this process. Its counters start with its first read, as in every process."""

    def __init__(self, fresh_s: float = FRESH_S) -> None:
        self._registry = CollectorRegistry()
        self._values = MetricValues()
        self._registry.register(self._values)
        ProcessCollector(registry=self._registry)
        self.requests = Requests(self._registry)
        self._row_counters = RowCounters(self._values)
        self._flips = Flips(self._values)
        self._vectors = Vectors(self._values)
        self._fresh_s = fresh_s
        self._looked_at = -fresh_s
        self._looking = asyncio.Lock()

    async def text(self, deps: Deps) -> bytes:
        """Return the metrics in Prometheus' text format; an unavailable database is a metric, not an error."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= self._fresh_s:
                began = time.perf_counter()
                try:
                    async with deps.database.transaction() as connection:
                        await self._row_counters.update(connection)
                        await self._flips.update(connection)
                        rows = await read_rows(connection)
                except (SQLAlchemyError, OSError) as error:
                    _log.warning("metrics without the database: %r", error)
                    rows = None
                await self._vectors.update(deps)
                gauge_rows = [*(rows or ()), *read_process(deps), *await read_services(deps)]
                gauge_rows.append(("mathrag_service_up", ["postgres"], rows is not None))
                gauge_rows.append(("mathrag_metrics_duration_seconds", [], time.perf_counter() - began))
                self._values.show(gauge_rows)
                self._looked_at = time.monotonic()
        return generate_latest(self._registry)


MOST_SPANS = 100
REMEMBERED_S = 3600


class JobSpans:
    """Creates a span for every job that ends from now on. It reads the rows, because any process may end a job."""

    def __init__(self, database: Database, redis: Redis) -> None:
        self._database = database
        self._redis = redis
        self._window = Window("jobs j", "j.ended_at", most=MOST_SPANS)
        self._ended = text(f"SELECT j.id, j.public_id FROM jobs j WHERE {self._window.condition}")  # noqa: S608

    async def follow(self, pause_s: float) -> None:
        """Read every `pause_s` seconds until cancelled; an outage is waited for."""
        while True:
            try:
                await self.update()
            except (SQLAlchemyError, RedisError, OSError) as error:
                _log.warning("ended jobs not looked at, trying again: %r", error)
            await asyncio.sleep(pause_s)

    async def update(self) -> None:
        """Create the spans of the jobs that have ended since the last call; of several orchestrators one does."""
        async with self._database.transaction() as connection:
            window = await self._window.advance(connection, await horizon(connection))
            rows = (await connection.execute(self._ended, window)).all() if window else []
            for row in rows:
                if await self._redis.set(f"mathrag:span:{row.public_id}", "1", nx=True, ex=REMEMBERED_S):
                    try:
                        await row_spans.trace_job(connection, row.id)
                    except SQLAlchemyError:
                        raise
                    except Exception:  # noqa: BLE001 - the spans of other jobs, and those to come, must not end with it
                        _log.exception("job has no span", extra={"job_id": str(row.public_id)})
