"""The demand for a device: waiting calls, the models that they need, and the seconds that they take."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.calls import Lane
from shared.lease import learned_memory, residencies
from shared.lease.memory import Estimate, Hardware, read_context
from shared.lease.plan import Demand, Room
from shared.lease.policy import DECIDED
from shared.params import Params
from shared.pipelines.binding import Bound
from shared.rag.answer_metrics import CLAIMS_TOKENS
from shared.runtime.advance import JobSpec
from shared.runtime.price import PLACEHOLDER_CONTROL, MadeUpLibrary, dry_rounds, make_placeholder_item
from shared.settings import Device, Model
from shared.shapes import MIB
from shared.storage.database import sql

TRUSTED_S = 5.0
"""Seconds for which figures are reused: they change slowly, and the scheduler runs twenty times a second."""
RECENT = 5
"""Number of newest loads of a model over which the median is taken."""

# The inner limit bounds the rows that are read even if few of the newest attempts were of leased models. It goes by
# time, because each session draws a hundred ids ahead. A call that began during others of its model counts the time
# that it adds.
CALLS = text("""
    WITH made AS (
        SELECT c.model_id, a.started_at, a.ended_at, max(a.ended_at) OVER (
            PARTITION BY c.model_id ORDER BY a.started_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy
        FROM (SELECT call_id, device, epoch, started_at, ended_at FROM attempts ORDER BY created_at DESC LIMIT 500) a
        JOIN calls c ON c.id = a.call_id WHERE a.epoch IS NOT NULL AND a.device = :device)
    SELECT model_id, sum(GREATEST(0, extract(epoch FROM ended_at - GREATEST(started_at, busy)))) / count(*) AS seconds
    FROM made GROUP BY model_id""")
# Both times come from the guard: from closing the previous residency to opening this one.
LOADS = text("""
    SELECT r.servers,
        CASE WHEN r.cause = ANY(:decided) THEN extract(epoch FROM r.opened_at - p.closed_at) END AS apart_s
    FROM residencies r LEFT JOIN residencies p ON p.epoch = r.previous_epoch
    WHERE r.device = :device AND r.opened_at IS NOT NULL ORDER BY r.epoch DESC LIMIT 50""")


class MeasuredSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Measured seconds of calls and loads on a device, by the model's row id."""

    call_s: dict[int, float] = {}
    """Seconds of the device per call: the time in which at least one call ran, divided by the number of calls."""
    load_s: dict[int, float] = {}
    """Seconds of a flip to the model, including unloading and verification."""

    def flip_s(self, models: Iterable[int]) -> float:
        """Return the seconds of a flip to these models; 0 for models that were never measured."""
        return sum(self.load_s.get(model, 0.0) for model in models)


class MeasuredSecondsReader:
    """Reads the measured seconds of one device, at most every `TRUSTED_S`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._known = MeasuredSeconds()
        self._read_at = float("-inf")

    async def read(self, connection: AsyncConnection) -> MeasuredSeconds:
        """Return the seconds; a model's figure is kept until there is a newer one."""
        if time.monotonic() - self._read_at >= TRUSTED_S:
            values = {"device": self._device}
            calls = {row.model_id: float(row.seconds) for row in await connection.execute(CALLS, values)}
            rows = await connection.execute(LOADS, {**values, "decided": list(DECIDED)})
            loads = load_seconds((row.servers, row.apart_s) for row in rows)
            self._known = MeasuredSeconds(call_s=self._known.call_s | calls, load_s=self._known.load_s | loads)
            self._read_at = time.monotonic()
        return self._known


def load_seconds(flips: Iterable[tuple[list[dict[str, Any]], float | None]]) -> dict[int, float]:
    """Return the median seconds of the newest flips to each model.

    Args:
        flips: started servers (`model`, `seconds`), and the seconds from closing the last model to opening, if there
            was one; newest first. The seconds besides the starts are shared by the models. Servers without both
            figures, as another release may write them, are left out.
    """
    taken: dict[int, list[float]] = defaultdict(list)
    for servers, apart_s in flips:
        known = [server for server in servers if {"model", "seconds"} <= server.keys()]
        starts = sum(server["seconds"] for server in known)
        rest = max(0.0, float(apart_s or 0.0) - starts) / max(1, len(known))
        for server in known:
            taken[server["model"]].append(server["seconds"] + rest)
    return {model: median(seconds[:RECENT]) for model, seconds in taken.items()}


MODELS = text("""
    SELECT id, name, device, footprint_mib, estimated, architecture, options FROM models
    WHERE id = ANY(:ids) AND needs_lease ORDER BY id""")


class ModelCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that the work makes of a model."""

    lane: Lane
    calls: int
    tokens: int
    """Tokens of its longest answer."""

    def combine(self, other: "ModelCalls | None") -> "ModelCalls":
        """Return the sum of both: their calls, the longer answers, and the lane that comes first."""
        if other is None:
            return self
        lane = min(self.lane, other.lane, key=list(Lane).index)
        return ModelCalls(lane=lane, calls=self.calls + other.calls, tokens=max(self.tokens, other.tokens))


async def load_demands(
    connection: AsyncConnection,
    models: Mapping[str, Model],
    wanted: Mapping[int, ModelCalls],
    measured: Mapping[str, MeasuredSeconds],
    hardware: Hardware = Hardware(),  # noqa: B008 - frozen
) -> list[Demand]:
    """Return the models of `wanted` that need the lease, pinned to the device that serves them, with learned memory
    and measured seconds in place of assumptions.

    Args:
        models: configuration, for slots that a row does not have.
        wanted: calls by model id.
        measured: seconds by device.
    """
    rows = (await connection.execute(MODELS, {"ids": list(wanted)})).all()
    learned = {
        device: await learned_memory.find_learned(connection, device)
        for device in sorted({str(row.device) for row in rows})
    }
    demands = []
    for row in rows:
        model, work, seconds = models.get(row.name), wanted[row.id], measured.get(row.device, MeasuredSeconds())
        slots = row.options.get("parallel") or (model.parallel if model else 1)
        on_gpu = not row.device.startswith("cpu")
        weights = row.architecture["weights_bytes"] / MIB if row.architecture else float(row.footprint_mib)
        call = hardware.call(weights, tokens=work.tokens, parallel=slots, on_gpu=on_gpu)
        demands.append(
            Demand(
                model_id=row.id,
                name=row.name,
                lane=work.lane,
                memory=learned_memory.estimate_row(row, slots, learned[row.device].get(row.id)),
                parallel=slots,
                context=model.context if model else read_context(row.options),
                calls=work.calls,
                call_s=_to_estimate(seconds.call_s.get(row.id), "its last calls here") or call,
                load_s=_to_estimate(seconds.load_s.get(row.id), "its last loads here") or hardware.load(weights),
                shared=on_gpu,
                device=row.device,
            )
        )
    return demands


async def load_rooms(connection: AsyncConnection, devices: Sequence[Device]) -> list[Room]:
    """Return the devices with the models that they hold."""
    rooms = []
    for device in devices:
        newest = await residencies.find_newest(connection, device.id)
        resident = newest.models if newest is not None and newest.state == "open" else ()
        rooms.append(Room(device=device.id, budget_mib=device.models_mib, resident=resident))
    return rooms


def _to_estimate(seconds: float | None, detail: str) -> Estimate | None:
    return None if seconds is None else Estimate(value=seconds, source="measured", detail=detail)


Calls = Counter[tuple[int, Lane]]
"""Number of calls by model and lane."""
LIVE = sql("""
    SELECT kind, position, count(*) AS samples FROM samples WHERE job_id = :job AND state IN {LIVE}
    GROUP BY kind, position ORDER BY position""")
# Calls do not belong to jobs, so a call counts for every job that waits for it.
OPEN = sql("""
    SELECT c.model_id, c.role, count(*) AS calls FROM (
        SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        WHERE s.job_id = :job AND s.state = {WAITING}) mine
    JOIN calls c ON c.id = mine.call_id AND NOT c.failed
    WHERE NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} c.id) GROUP BY c.model_id, c.role""")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bound of the calls that a job needs from models: its pipeline is run dry, for one question.

    Shared replies, and a gate that chooses rules, reduce the number; pipelines with loops may increase it.
    """

    wanted: dict[int, ModelCalls]
    order: tuple[int, ...]
    """Models in the order in which one question needs them."""


class DryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one question's calls, round by round; a round waits for the replies of the one before."""

    calibration: tuple[Calls, ...]
    sample: tuple[Calls, ...]
    control: tuple[Calls, ...]
    """Of a sample that also controls the metrics."""


class Rounds(NamedTuple):
    """The calls of one question, round by round."""

    calibration: list[list[Bound]]
    sample: list[list[Bound]]


def run_dry(job: JobSpec, repeat: int = 0) -> Rounds:
    """Run the job's pipeline on made-up replies; a decision of the gate that exists is kept."""
    library, item = MadeUpLibrary(), make_placeholder_item(job.params)
    calibration: list[list[Bound]] = []
    if job.find_pipeline().prepare is not None and job.prepared is None:
        prepare = job.prepare([item], library)
        calibration = list(dry_rounds(job, prepare))
        job = msgspec.structs.replace(job, prepared=prepare.result)
    return Rounds(calibration, list(dry_rounds(job, job.start(item, repeat, library), repeat)))


def run_dry_with_control(job: JobSpec) -> Rounds:
    """Run the pipeline on a sample that also controls the metrics."""
    return run_dry(msgspec.structs.replace(job, controls={0: PLACEHOLDER_CONTROL}))


def count_controls(params: Params, items: int) -> int:
    """Return the number of items that control the metrics, at most."""
    return min(params.metrics.controls, items) if params.metrics.names else 0


def count_dry(job: JobSpec) -> DryCounts:
    """Count the distinct calls of each round."""
    found = run_dry(job)
    sample = control = _count_distinct(found.sample)
    if job.params.metrics.names:
        control = _count_distinct(run_dry_with_control(job).sample)
    return DryCounts(calibration=_count_distinct(found.calibration), sample=sample, control=control)


def _count_distinct(made: Iterable[list[Bound]]) -> tuple[Calls, ...]:
    """Count each distinct call once, since its repetition is answered from storage."""
    seen: set[bytes] = set()
    counted = []
    for round_ in made:
        new = {bound.key: bound for bound in round_ if bound.key not in seen}
        seen |= new.keys()
        counted.append(Counter((bound.model_id, bound.lane) for bound in new.values()))
    return tuple(counted)


def estimate_new(job: JobSpec, samples: int) -> Needs:
    """Return the needs of a job that is not submitted."""
    found = count_dry(job)
    calls = _multiply_calls(found.calibration, job.params.gate.items)
    calls += _count_samples(found, samples, count_controls(job.params, samples))
    return _make_needs(found, calls, job.params)


async def estimate_live(connection: AsyncConnection, row: int, job: JobSpec, samples: int) -> Needs:
    """Return the remaining needs of the job with this row id: its open calls, and those that follow from the positions
    of its samples.
    """
    found = await to_thread.run_sync(count_dry, job)
    left: Calls = Counter()
    for opened in await connection.execute(OPEN, {"job": row}):
        lane = Lane.GENERATE if opened.role == "generate" else Lane.JUDGE
        left[opened.model_id, lane] += opened.calls
    controls = count_controls(job.params, samples)
    for there in await connection.execute(LIVE, {"job": row}):
        if there.kind == "prepare":
            left += _multiply_calls(found.calibration[there.position :], job.params.gate.items)
            left += _count_samples(found, samples, controls)
        else:
            # Which samples are controls is not known here: those with most calls ahead are taken for them.
            controlling = min(controls, there.samples)
            left += _count_samples(found, there.samples, controlling, there.position)
            controls -= controlling
    return _make_needs(found, left, job.params)


def _count_samples(found: DryCounts, samples: int, controls: int, position: int = 0) -> Calls:
    """Count the calls of samples from this position on, of which this many control the metrics."""
    plain = _multiply_calls(found.sample[position:], samples - controls)
    return plain + _multiply_calls(found.control[position:], controls)


def _multiply_calls(counted: Iterable[Calls], times: int) -> Calls:
    total: Calls = Counter()
    for calls in counted:
        for key, n in calls.items():
            total[key] += n * times
    return total


def _make_needs(found: DryCounts, calls: Calls, params: Params) -> Needs:
    """Leave out models without calls; a model in two lanes counts for the one that comes first."""
    judged = params.grading.decoding.max_tokens if params.grading.grader == "rubric" else 0
    labelled = params.metrics.max_tokens if params.metrics.names else 0
    if params.metrics.names and params.metrics.unit == "claims":
        labelled = max(labelled, CLAIMS_TOKENS)
    tokens = {Lane.JUDGE: max(params.judge.max_tokens, judged, labelled), Lane.GENERATE: params.generate.max_tokens}
    wanted: dict[int, ModelCalls] = {}
    for (model, lane), n in sorted(calls.items(), key=lambda each: list(Lane).index(each[0][1])):
        wanted[model] = ModelCalls(lane=lane, calls=n, tokens=tokens[lane]).combine(wanted.get(model))
    order = [
        model for counted in (*found.calibration, *found.sample) for model, _ in sorted(counted) if model in wanted
    ]
    return Needs(wanted=wanted, order=drop_repeats([*order, *(model for model in wanted if model not in order)]))


def drop_repeats(order: Iterable[int]) -> tuple[int, ...]:
    """Drop each model that follows itself."""
    return tuple(model for model, _ in groupby(order))
