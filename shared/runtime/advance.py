"""Advance samples: replay their pipelines on stored replies, record the next calls, and store what ended."""

import hashlib
import logging
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace
from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Unreadable
from mathrag.messages import redact
from shared import canonical
from shared.calls import MOST_SLOTS, RELEASE_0_1, Call, Expected, Lane, Retrieve, Yielded
from shared.params import Params, decode_params
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Bound, Pin, RepeatedDraw, SampleBinder
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.pipelines.imported import DRY_RUN, IMPORTED
from shared.pipelines.measured import MEASURED
from shared.pipelines.write_questions import WRITE_QUESTIONS
from shared.plugins.loading import encode_usable_pins, load_plugins
from shared.processes.children import limit_processor_time
from shared.replies import Document, Failure, FailureKind, Reply, SampleFailed
from shared.runtime.queue import isolate, mark_ready_among, revive_calls
from shared.samples import (
    Control,
    Conversation,
    FactQuery,
    GateDecision,
    Given,
    Item,
    Library,
    Outcome,
    Passages,
    Sample,
    Stored,
    Texts,
)
from shared.settings import Plugins, release
from shared.storage.database import Database, SampleState, concerns_rows, fill_names, get_sqlstate, sql
from shared.storage.provenance import LibraryCache, list_mentioned_documents
from shared.telemetry import row_spans, traces

# Replay a pipeline until it waits for missing replies. Pure: no I/O and no clock but the limit on endless steps.

T = TypeVar("T")
AWAY = FailureKind.UNAVAILABLE
"""The only failure of a call that always ends its sample."""
SPARE = 10
"""Documents that are drawn in addition to those of a prompt, since a sample's own documents are left out."""
MOST_SWAPPED = 30
"""Maximum number of documents that are drawn for a control."""
STEP_S = 10.0
"""Processor time of a step, which usually takes milliseconds. An endless one would stop its worker, and so all jobs."""


class TooManyCalls(ValueError):
    """A pipeline asks for more than can be stored; the message has the number and the limit."""


class Replay(Generic[T]):
    """One pipeline run. After construction and after each `answer`, exactly one of these holds:

    * `calls` is not empty: the pipeline waits for their replies, at `position`;
    * `result` is set: it ended;
    * `failure` is set: it failed with (kind, detail).
    """

    def __init__(self, steps: Generator[Yielded, Any, T]) -> None:
        self._steps = steps
        self._single = False
        self.position = 0
        self.calls: tuple[Call, ...] = ()
        self.result: T | None = None
        self.failure: tuple[str, str] | None = None
        self._send(None)

    def answer(self, replies: Sequence[Reply]) -> None:
        """Continue with the replies to `calls`, in their order.

        A reply that is `unavailable` ends the sample, even if its pipeline has a fallback: an answer that depends on
        an outage would not measure the pipeline.
        """
        self.position += 1
        if away := next((each for each in replies if isinstance(each, Failure) and each.kind is AWAY), None):
            self.fail(away.kind.value, away.detail)
            return
        self._send(replies[0] if self._single else list(replies))

    def fail(self, kind: str, detail: str) -> None:
        """End with a failure that the pipeline did not raise, such as a diverged replay."""
        self.calls = ()
        self.failure = (kind, detail)

    def check_size(self) -> None:
        """Check that the calls that it waits for can be stored.

        Raises:
            TooManyCalls: it waits for too many calls at once, or has too many rounds.
        """
        if len(self.calls) > MOST_SLOTS:
            raise TooManyCalls(f"the pipeline asks for {len(self.calls)} calls at once; a step holds {MOST_SLOTS}")
        # A waiting sample stores the next position.
        if self.calls and self.position >= MOST_SLOTS:
            raise TooManyCalls(f"the pipeline has waited for replies {MOST_SLOTS} times, the maximum")

    def _send(self, value: Any) -> None:
        self.calls = ()
        try:
            with limit_processor_time(STEP_S):
                self._run(value)
        except StopIteration as stop:
            self.result = stop.value
        except SampleFailed as failed:
            self.failure = (failed.kind, failed.detail)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a defect of a pipeline must end only this sample, with its traceback
            self.failure = ("pipeline_error", traceback.format_exc(limit=-4))

    def _run(self, value: Any) -> None:
        """Go on until it waits for calls; who yields none waits for nothing."""
        for _ in range(MOST_SLOTS):
            yielded = self._steps.send(value)
            self._single = not isinstance(yielded, Sequence)
            calls = tuple(yielded) if isinstance(yielded, Sequence) else (yielded,)
            if strange := [type(each).__name__ for each in calls if not isinstance(each, Call)]:
                raise TypeError(f"a pipeline must yield calls, but this one yielded {strange[0]}")
            self.calls = calls
            if self.calls:
                return
            value = []
        raise TooManyCalls(f"the pipeline yielded an empty step {MOST_SLOTS} times in a row")


# Make every pipeline's searches leave out what `params.duplicates` and `params.dense` say: documents that would reveal
# the answer, and those that are too far from the question.


def complete_searches(
    steps: Generator[Yielded, Any, T], params: Params, items: Sequence[Item]
) -> Generator[Yielded, Any, T]:
    """Run `steps` and add the duplicate rule, the asked item and the threshold to each of their searches.

    `items` holds one item for a sample and several for a calibration.
    """
    rule = params.duplicates
    golds = {item.question: item.gold or "" for item in items} if rule == "same-answer" else {}
    only = items[0].question if len(items) == 1 else ""

    def complete(call: Call) -> Call:
        if not isinstance(call, Retrieve):
            return call
        if call.index == "dense":
            call = replace(call, threshold=params.dense.threshold)
        if rule == RELEASE_0_1:
            return call
        item = "" if call.question == only else only
        return replace(call, duplicates=rule, item=item, gold=golds.get(item or call.question, ""))

    reply: Any = None
    while True:
        try:
            yielded = steps.send(reply)
        except StopIteration as stop:
            ended: T = stop.value
            return ended
        reply = yield [complete(call) for call in yielded] if isinstance(yielded, Sequence) else complete(yielded)


# The data of a job for replays: pipeline, parameters, pins. Fixed at submission, so each process caches it.

JOBS = text(
    "SELECT id, public_id::text AS public_id, pipeline, encode(pipeline_hash, 'hex') AS pipeline_hash,"
    " code ->> 'version' AS version, code ->> 'commit' AS commit, params, pins, reuse, dataset_id, corpus_id, prepared,"
    " CAST(code ->> 'limit' AS integer) AS item_limit FROM jobs WHERE id = ANY(:ids)"
)
DRAWN_ITEMS = text(
    "SELECT ordinal, question, gold, custom_id, expected, query FROM items WHERE dataset_id = :dataset"
    " AND ordinal < COALESCE(CAST(:limit AS integer), ordinal + 1)"
    " ORDER BY sha256(CAST(:seed AS bytea) || hash), ordinal LIMIT :n"
)
DRAWN_DOCUMENTS = text("""
    SELECT ordinal, encode(hash, 'hex') AS hash FROM corpus_documents
    WHERE corpus_id = :corpus AND ordinal = ANY(:ordinals)""")
SIZE = text("SELECT documents FROM corpora WHERE id = :corpus")
GIVEN: Mapping[str, type[Stored]] = {
    IMPORTED: Given, MEASURED: Given, CONVERSATION: Conversation, EMBEDDING: Texts, WRITE_QUESTIONS: Passages,
}  # fmt: skip
"""By pipeline, the type that is stored for each of its samples."""


def read_code(plugins: Plugins) -> None:
    """Import every pipeline and read the commit when the process starts, so that later edits do not run."""
    registry.names()
    load_plugins(plugins)
    release()


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its replays need it."""

    id: int
    pipeline: str
    dataset_id: int
    params: Params
    binding: Binding
    prepared: GateDecision | None
    controls: Mapping[int, Control] = {}
    """By the ordinal of an item that is drawn for it, the material that controls its metrics."""
    limit: int | None = None
    """Number of items to ask, from the dataset's beginning; None asks all."""
    corpus_id: int | None = None
    pipeline_hash: str = ""
    """Hash of the pipeline's version at submission; empty for a job that was not submitted."""
    release: tuple[str | None, str | None] = (None, None)
    """Version and commit of the program that accepted it."""

    def check_version(self) -> None:
        """Check that this process has the version of the pipeline that the job was submitted with, or a later release.

        Raises:
            Unreadable: this process has the same release, but another version of the pipeline.
        """
        here = registry.pipeline_hash(self.pipeline, self.params)
        # An image that was built without a commit may be any release, so a difference is allowed.
        if self.pipeline_hash in ("", here) or self.release[1] is None or self.release != release():
            return
        raise Unreadable(
            f"pipeline `{self.pipeline}` was submitted in version {self.pipeline_hash[:12]}, and this process has"
            f" {here[:12]}: a file was edited while the service ran; restart the service, then submit the job again"
        )

    def start(self, item: Item, repeat: int, library: Library, given: Stored | None = None) -> Replay[Any]:
        """Start a replay of the pipeline and the grading for one item; `given` is as in `Sample`.

        Raises:
            Unreadable: the pipeline is not installed.
        """
        if given is None and GIVEN.get(self.pipeline) is Given:
            given = DRY_RUN
        control = self.controls.get(item.ordinal) if repeat == 0 else None
        sample = Sample(item=item, repeat=repeat, prepared=self.prepared, given=given, control=control)
        steps = self.find_pipeline().run_and_grade(sample, self.params, library)
        return Replay(complete_searches(steps, self.params, [item]))

    def prepare(self, items: list[Item], library: Library) -> Replay[Any]:
        """Start a replay of the job's calibration over `items`.

        Raises:
            Unreadable: the pipeline is not installed, or has no calibration.
        """
        prepare = self.find_pipeline().prepare
        if prepare is None:
            raise Unreadable(f"pipeline `{self.pipeline}` has no calibration in this release")
        return Replay(complete_searches(prepare(items, self.params, library), self.params, items))

    def find_pipeline(self) -> registry.Registered:
        """Return the job's pipeline.

        Raises:
            Unreadable: it is not installed.
        """
        try:
            return registry.get(self.pipeline)
        except registry.UnknownPipeline as error:
            raise Unreadable(f"the job's pipeline is not installed: {error}") from error

    async def load_calibration_items(self, connection: AsyncConnection) -> list[Item]:
        """Load the first `gate.items` of the asked items in the order of sha256(seed, item), for the calibration."""
        return await self._draw_items(connection, self.params.gate.items)

    async def _draw_items(self, connection: AsyncConnection, most: int) -> list[Item]:
        seed = str(self.params.seed).encode()
        values = {"dataset": self.dataset_id, "limit": self.limit, "seed": seed, "n": most}
        return [item_from_row(row) for row in (await connection.execute(DRAWN_ITEMS, values)).mappings()]

    async def with_controls(self, connection: AsyncConnection) -> "JobSpec":
        """Return the spec with the controls of its metrics.

        Each of the drawn items gets the question of the next one, and documents drawn from the corpus. Both depend on
        the seed alone, so that every replay has the same.
        """
        metrics = self.params.metrics
        if not metrics.names or not metrics.controls:
            return self
        items = await self._draw_items(connection, metrics.controls)
        size = (await connection.execute(SIZE, {"corpus": self.corpus_id})).scalar() or 0
        draws = range(min(size, self.params.context_size + SPARE, MOST_SWAPPED))
        seeds = {item.ordinal: canonical.digest([self.params.seed, item.ordinal]) for item in items}
        wanted = {
            ordinal: [int.from_bytes(hashlib.sha256(seed + bytes([draw])).digest()[:8]) % size for draw in draws]
            for ordinal, seed in seeds.items()
        }
        ordinals = sorted({ordinal for drawn in wanted.values() for ordinal in drawn})
        rows = await connection.execute(DRAWN_DOCUMENTS, {"corpus": self.corpus_id, "ordinals": ordinals})
        hashes = {row.ordinal: row.hash for row in rows}
        controls = {
            item.ordinal: Control(
                question=other.question,
                documents=tuple(dict.fromkeys(hashes[each] for each in wanted[item.ordinal] if each in hashes)),
            )
            for item, other in zip(items, [*items[1:], *items[:1]], strict=True)
            if item.question != other.question
        }
        return msgspec.structs.replace(self, controls=controls)


class JobSpecs:
    """Cache of job specs by id. A spec is cached once its `prepared` is final, that is, once items are replayed."""

    def __init__(self, *, controls: bool = False) -> None:
        """`controls`: whether the specs have the controls of their metrics, which only replays of items need."""
        self._controls = controls
        self._specs: dict[int, JobSpec] = {}

    async def load(self, connection: AsyncConnection, items_of: set[int], prepares_of: set[int]) -> dict[int, JobSpec]:
        """Load the specs of jobs whose items or whose prepare samples are about to be replayed.

        Raises:
            Unreadable: the parameters, models or gate decision of one of them cannot be decoded.
        """
        return {
            id_: require_readable(spec)
            for id_, spec in (await self.load_each(connection, items_of, prepares_of)).items()
        }

    async def load_each(
        self, connection: AsyncConnection, items_of: set[int], prepares_of: set[int]
    ) -> dict[int, JobSpec | Unreadable]:
        """Load the same specs, with the error in place of each job that cannot be decoded."""
        missing = (items_of - self._specs.keys()) | prepares_of
        rows = (await connection.execute(JOBS, {"ids": sorted(missing)})).mappings() if missing else ()
        fresh = {row["id"]: _try_spec(row) for row in rows}
        for id_, spec in fresh.items():
            if self._controls and id_ in items_of and isinstance(spec, JobSpec):
                try:
                    fresh[id_] = await spec.with_controls(connection)
                except Unreadable as error:
                    fresh[id_] = error
        kept = {id_: spec for id_, spec in fresh.items() if id_ not in prepares_of and isinstance(spec, JobSpec)}
        self._specs.update(kept)
        return {id_: fresh.get(id_) or self._specs[id_] for id_ in items_of | prepares_of}


def require_readable(spec: JobSpec | Unreadable) -> JobSpec:
    """Return `spec` unless it is an error.

    Raises:
        Unreadable: the job could not be decoded.
    """
    if isinstance(spec, Unreadable):
        raise spec
    return spec


def item_from_row(row: RowMapping) -> Item:
    """Convert an `items` row.

    Raises:
        Unreadable: the columns are empty, as an outer join leaves them if the item is gone.
    """
    if row["ordinal"] is None:
        raise Unreadable("the sample's item is no longer in the dataset")
    copied = {name: row[name] for name in ("ordinal", "question", "gold", "custom_id")}
    return Item(
        **copied,
        expected=msgspec.convert(row["expected"] or {}, Expected),
        query=msgspec.convert(row["query"], FactQuery | None),
    )


def decode_given(row: RowMapping, pipeline: str) -> Stored | None:
    """Decode the stored input of the sample; None for pipelines without such data.

    Raises:
        Unreadable: the data is gone or cannot be decoded.
    """
    if pipeline not in GIVEN:
        return None
    if row["given"] is None:
        raise Unreadable("the stored input of the sample no longer exists")
    try:
        given: Stored = msgspec.json.decode(row["given"], type=GIVEN[pipeline])
    except ValueError as error:
        raise Unreadable(f"the stored input of the sample cannot be read: {error}") from error
    return given


def list_given_documents(given: Iterable[Stored | None]) -> set[str]:
    """Return the hashes of the documents in the stored input, which a replay may read before its first reply."""
    named: set[str] = set()
    for each in given:
        if isinstance(each, Given):
            named.update(each.contexts or ())
        elif isinstance(each, Passages):
            named.update(each.documents)
    return named


def _try_spec(row: RowMapping) -> JobSpec | Unreadable:
    try:
        params = decode_params(row["params"])
        return JobSpec(
            id=row["id"],
            pipeline=row["pipeline"],
            dataset_id=row["dataset_id"],
            params=params,
            prepared=msgspec.json.decode(row["prepared"], type=GateDecision) if row["prepared"] else None,
            limit=row["item_limit"],
            corpus_id=row["corpus_id"],
            pipeline_hash=row["pipeline_hash"],
            release=(row["version"], row["commit"]),
            binding=Binding(
                pins=msgspec.convert(row["pins"], dict[str, Pin]),
                params=params,
                nonce=row["public_id"] if row["reuse"] == "none" else "",
                job=row["public_id"],
            ),
        )
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return Unreadable(f"the job's parameters, models or gate decision cannot be read by this release: {error}")


# A sample's progress during an advance: its replay, its recorded steps, and the steps to be written.

_DECODER: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class StoredAnswer(NamedTuple):
    """An existing call with its accepted reply, as stored and as decoded; both None while it has none."""

    call_id: int
    raw: bytes | None
    reply: Reply | None
    error: str = ""
    """Why the stored reply cannot be decoded; empty if it can."""


def decode_answer(call_id: int, raw: bytes | None) -> StoredAnswer:
    """Decode a stored reply."""
    try:
        return StoredAnswer(call_id, raw, None if raw is None else _DECODER.decode(raw))
    except ValueError as error:
        return StoredAnswer(call_id, raw, None, str(error))


class NewStep(NamedTuple):
    """A step to be written."""

    position: int
    slot: int
    bound: Bound


class SampleProgress:
    """A ready sample's progress. `bound` holds the calls that its replay waits for, and is empty at its end."""

    def __init__(
        self, sample_id: int, job: JobSpec, repeat: int, recorded: int, replay: Replay[Any], place: int = 0
    ) -> None:
        self.sample_id = sample_id
        self.job = job
        self.replay = replay
        self.place = place
        """Priority of its calls in the queue; smaller ones are claimed first."""
        self.steps: list[NewStep] = []
        self.bound: tuple[Bound, ...] = ()
        self._binder = SampleBinder(job.binding, repeat)
        self._recorded = recorded
        self._record = hashlib.sha256()
        self._bind()

    @property
    def waits(self) -> bool:
        """Return whether the pipeline waits for calls."""
        return bool(self.replay.calls)

    @property
    def record(self) -> bytes:
        """SHA-256 of all consumed keys and replies in order, which determine the sample's outcome."""
        return self._record.digest()

    def expects(self, keys: Sequence[bytes]) -> bool:
        """Tell whether the pipeline yields the recorded calls; if not, fail the sample as `replay_diverged`."""
        yielded = [bound.key for bound in self.bound]
        if yielded == list(keys):
            return True
        where = f"position {self.replay.position}: recorded {_abbreviate(keys)}, yielded {_abbreviate(yielded)}"
        self.replay.fail("replay_diverged", where)
        return False

    def consume(self, answers: Sequence[StoredAnswer]) -> None:
        """Send the replies to `bound` to the pipeline and bind the calls that it yields next.

        A reply that cannot be decoded fails the sample as `unreadable`.
        """
        if unreadable := next((found for found in answers if found.error), None):
            where = f"the reply to call {unreadable.call_id} at position {self.replay.position}"
            self.replay.fail("unreadable", f"{where} cannot be read by this release: {unreadable.error}")
            return
        for bound, found in zip(self.bound, answers, strict=True):
            self._record.update(bound.key + (found.raw or b""))
        self.replay.answer([found.reply for found in answers if found.reply is not None])
        self._bind()

    def _bind(self) -> None:
        try:
            self.replay.check_size()
            self.bound = self._binder.bind(self.replay.calls)
        except (TooManyCalls, RepeatedDraw) as error:
            self.bound = ()
            self.replay.fail("pipeline_error", str(error))
        except Exception as error:  # noqa: BLE001 - a defect of a pipeline must end its own sample only
            self.bound = ()
            self.replay.fail("pipeline_error", f"cannot bind a call: {error!r}")
        where = self.replay.position
        if where >= self._recorded:
            self.steps.extend(NewStep(where, slot, bound) for slot, bound in enumerate(self.bound))


def _abbreviate(keys: Sequence[bytes]) -> str:
    return ", ".join(key.hex()[:12] for key in keys) or "nothing"


# Record the needs of a batch of samples: calls, queue rows, steps, and the samples' new positions.

# Sorted by key, so that two processes that insert the same keys cannot deadlock.
INSERT_CALLS = text("""
    INSERT INTO calls (key, lane, role, model_id, request)
    SELECT * FROM unnest(CAST(:keys AS bytea[]), CAST(:lanes AS text[]), CAST(:roles AS text[]),
                         CAST(:models AS integer[]), CAST(:requests AS bytea[]))
    ON CONFLICT (key) WHERE NOT failed DO NOTHING RETURNING id, key""")
ENQUEUE = text("""
    INSERT INTO queue (lane, model_id, place, call_id)
    SELECT * FROM unnest(CAST(:lanes AS text[]), CAST(:models AS integer[]), CAST(:places AS bigint[]),
                         CAST(:calls AS bigint[]))""")
EXISTING = text("""
    SELECT c.id, c.key FROM unnest(CAST(:keys AS bytea[])) u(key),
        LATERAL (SELECT id, key FROM calls WHERE key = u.key AND NOT failed OFFSET 0) c""")
ATTACHED = sql("""
    SELECT u.id, q.call_id IS NULL AS parked
    FROM unnest(CAST(:calls AS bigint[]), CAST(:places AS bigint[])) u(id, place)
        LEFT JOIN LATERAL (SELECT call_id, place FROM queue WHERE call_id = u.id OFFSET 0) q ON true
    WHERE q.place > u.place
       OR q.call_id IS NULL AND NOT EXISTS (SELECT 1 FROM attempts a WHERE {ACCEPTED_FOR} u.id OFFSET 0)""")
# A call is as urgent as the most urgent sample that waits for it. Rows that are being claimed need no place any more.
HASTEN = text("""
    WITH pending AS MATERIALIZED (
        SELECT call_id FROM queue WHERE call_id = ANY(:calls) AND token IS NULL ORDER BY call_id FOR UPDATE SKIP LOCKED)
    UPDATE queue q SET place = LEAST(q.place, (
        SELECT u.place FROM unnest(CAST(:calls AS bigint[]), CAST(:places AS bigint[])) u(call_id, place)
        WHERE u.call_id = q.call_id)) WHERE q.call_id = ANY(ARRAY(SELECT call_id FROM pending))""")
INSERT_STEPS = text("""
    INSERT INTO steps (sample_id, position, slot, call_id, created)
    SELECT * FROM unnest(CAST(:samples AS bigint[]), CAST(:positions AS smallint[]), CAST(:slots AS smallint[]),
                         CAST(:calls AS bigint[]), CAST(:created AS boolean[]))""")
# `+` keeps the planner from reading all ready samples by the index on job and state.
WAIT = sql("""
    UPDATE samples s SET state = {WAITING}, position = (
        SELECT u.position FROM unnest(CAST(:samples AS bigint[]), CAST(:positions AS smallint[])) u(id, position)
        WHERE u.id = s.id) WHERE s.id = ANY(:samples) AND +s.state = {READY}""")
NO_SUCH_CALL = "23503"
"""Foreign key violation: a call of a step was deleted."""


class CallVanished(Exception):
    """A call failed for good, or was purged, after this batch had found it."""


class RecordedBatch(NamedTuple):
    """The rows that `record` wrote."""

    lanes: frozenset[Lane]
    attached: list[int]
    """Calls without a reply that existed before this batch."""


async def record(
    connection: AsyncConnection, batch: Sequence[SampleProgress], known: Mapping[bytes, StoredAnswer]
) -> RecordedBatch:
    """Insert the calls and steps of `batch` and set its samples to waiting.

    Raises:
        CallVanished: roll back and do the batch again.
    """
    steps = [(progress, step) for progress in batch for step in progress.steps]
    # Later entries win, so each call gets the place of the most urgent sample.
    urgent_last = sorted(steps, key=lambda pair: -pair[0].place)
    wanted = {step.bound.key: (progress.place, step.bound) for progress, step in urgent_last}
    created = await insert_calls(connection, [wanted[key] for key in sorted(wanted.keys() - known.keys())])
    ids = {key: found.call_id for key, found in known.items()} | created
    ids |= await find_existing_calls(connection, sorted(wanted.keys() - ids.keys()))
    answered = {found.call_id for found in known.values() if found.raw}
    attached = sorted({ids[key] for key in wanted} - answered - set(created.values()))
    places = {ids[key]: place for key, (place, _) in wanted.items()}
    fresh = set(created.values()) | await _attach(connection, attached, [places[call] for call in attached])
    await _insert_steps(connection, steps, ids, fresh)
    waiting = [progress for progress in batch if progress.waits]
    if waiting:
        positions = [progress.replay.position + 1 for progress in waiting]
        await connection.execute(WAIT, {"samples": [p.sample_id for p in waiting], "positions": positions})
    return RecordedBatch(frozenset(bound.lane for key, (_, bound) in wanted.items() if ids[key] in fresh), attached)


async def insert_calls(connection: AsyncConnection, wanted: Sequence[tuple[int, Bound]]) -> dict[bytes, int]:
    """Insert and enqueue calls sorted by key; return the ids of the new ones."""
    if not wanted:
        return {}
    rows = await connection.execute(
        INSERT_CALLS,
        {
            "keys": [bound.key for _, bound in wanted],
            "lanes": [bound.lane.value for _, bound in wanted],
            "roles": [bound.role for _, bound in wanted],
            "models": [bound.model_id for _, bound in wanted],
            "requests": [bound.body for _, bound in wanted],
        },
    )
    ids = {row.key: row.id for row in rows}
    queued = [(place, bound, ids[bound.key]) for place, bound in wanted if bound.key in ids]
    if queued:
        await connection.execute(
            ENQUEUE,
            {
                "lanes": [bound.lane.value for _, bound, _ in queued],
                "models": [bound.model_id for _, bound, _ in queued],
                "places": [place for place, _, _ in queued],
                "calls": [call_id for _, _, call_id in queued],
            },
        )
    return ids


async def find_existing_calls(connection: AsyncConnection, keys: Sequence[bytes]) -> dict[bytes, int]:
    if not keys:
        return {}
    ids = {row.key: row.id for row in await connection.execute(EXISTING, {"keys": keys})}
    if len(ids) < len(keys):
        raise CallVanished
    return ids


async def _attach(connection: AsyncConnection, attached: Sequence[int], places: Sequence[int]) -> set[int]:
    """Return those of `attached` that are parked: this batch revives them, so they count as its own.

    Calls that less urgent samples have queued get this batch's places.
    """
    if not attached:
        return set()
    values = {"calls": attached, "places": places}
    rows = (await connection.execute(ATTACHED, values)).all()
    if not all(row.parked for row in rows):
        await connection.execute(HASTEN, values)
    return {row.id for row in rows if row.parked}


async def _insert_steps(
    connection: AsyncConnection,
    steps: Sequence[tuple[SampleProgress, NewStep]],
    ids: Mapping[bytes, int],
    fresh: set[int],
) -> None:
    if not steps:
        return
    calls = [ids[step.bound.key] for _, step in steps]
    first = {call: number for number, call in reversed(list(enumerate(calls)))}
    created = [call in fresh and first[call] == number for number, call in enumerate(calls)]
    values = {
        "samples": [progress.sample_id for progress, _ in steps],
        "positions": [step.position for _, step in steps],
        "slots": [step.slot for _, step in steps],
        "calls": calls,
        "created": created,
    }
    try:
        await connection.execute(INSERT_STEPS, values)
    except IntegrityError as error:
        if get_sqlstate(error) == NO_SUCH_CALL:
            raise CallVanished from error
        raise


# End samples. Each statement requires the state that it leaves, so running it twice has no effect.

INSERT_OUTCOMES = text("""
    INSERT INTO outcomes (sample_id, outcome, answer, extraction, correct, strict, record_hash)
    SELECT * FROM unnest(CAST(:samples AS bigint[]), CAST(:outcomes AS bytea[]), CAST(:answers AS text[]),
        CAST(:extractions AS text[]), CAST(:correct AS boolean[]), CAST(:strict AS boolean[]),
        CAST(:records AS bytea[]))""")
END_SAMPLES = sql("""
    UPDATE samples s SET ended_at = clock_timestamp(), (state, position, failure, detail) = (
        SELECT u.state, u.position, u.failure, u.detail
        FROM unnest(CAST(:samples AS bigint[]), CAST(:states AS smallint[]), CAST(:positions AS smallint[]),
            CAST(:failures AS text[]), CAST(:details AS text[])) u(id, state, position, failure, detail)
        WHERE u.id = s.id) WHERE s.id = ANY(:samples) AND +s.state = {READY}""")


async def store_ended(connection: AsyncConnection, ended: Sequence[SampleProgress]) -> None:
    """Store the outcomes and end states of samples whose replay ended."""
    if not ended:
        return
    for progress in ended:
        # Fail the sample alone if the database cannot hold its outcome, instead of the whole batch.
        result = progress.replay.result
        if progress.replay.failure is None and not isinstance(result, Outcome | GateDecision):
            progress.replay.fail("pipeline_error", f"it ended with {type(result).__name__} and not with an outcome")
        try:
            canonical.encode(result)
        except (TypeError, ValueError) as error:
            progress.replay.fail("pipeline_error", f"cannot store the outcome: {error}")
        if isinstance(result, Outcome) and "\0" in (result.answer or ""):
            progress.replay.fail("pipeline_error", "cannot store the outcome: the answer holds a NUL character")
    completed = [progress for progress in ended if progress.replay.failure is None]
    if completed:
        results = [progress.replay.result for progress in completed]
        outcomes = [result if isinstance(result, Outcome) else None for result in results]
        verdicts = [outcome.verdict if outcome else None for outcome in outcomes]
        columns = {
            "samples": [progress.sample_id for progress in completed],
            "outcomes": [canonical.encode(result) for result in results],
            "answers": [outcome.answer if outcome else None for outcome in outcomes],
            "extractions": [outcome.extraction.value if outcome else None for outcome in outcomes],
            "correct": [verdict.correct if verdict else None for verdict in verdicts],
            "strict": [verdict.strict if verdict else None for verdict in verdicts],
            "records": [progress.record for progress in completed],
        }
        await connection.execute(INSERT_OUTCOMES, columns)
    failures = [progress.replay.failure or (None, None) for progress in ended]
    await connection.execute(
        END_SAMPLES,
        {
            "samples": [progress.sample_id for progress in ended],
            "states": [
                SampleState.COMPLETED if progress.replay.failure is None else SampleState.FAILED for progress in ended
            ],
            "positions": [progress.replay.position for progress in ended],
            "failures": [kind for kind, _ in failures],
            "details": [detail and _make_storable(detail) for _, detail in failures],
        },
    )


class BrokenSample(NamedTuple):
    """A ready sample that cannot be replayed, or not be stored."""

    sample: int
    job: int
    public_id: str
    """Public id of the job."""
    kind: str
    detail: str


async def fail_samples(connection: AsyncConnection, broken: Sequence[BrokenSample]) -> None:
    """End these samples as failed, with no reply consumed."""
    if not broken:
        return
    await connection.execute(
        END_SAMPLES,
        {
            "samples": [each.sample for each in broken],
            "states": [SampleState.FAILED] * len(broken),
            "positions": [0] * len(broken),
            "failures": [each.kind for each in broken],
            "details": [_make_storable(each.detail) for each in broken],
        },
    )


def _make_storable(detail: str) -> str:
    return detail[:4000].replace("\0", "").encode(errors="replace").decode()


# Advance ready samples: replay each as far as its replies go, and record its calls or its end.
#
# Any process may do it. One short transaction per batch; the row locks are the claim, so a crash releases them.
# Lock order: samples (id), calls (key, by the unique index), queue (new rows only).
#
# A sample that cannot be read fails alone. If an unexpected error stops a batch, the batch is halved until the sample
# that causes the error is alone; that sample fails as `internal_error`, and the others continue.

# The most urgent jobs come first, so that a chat does not wait for the searches of an old large job.
READY_SAMPLES = fill_names("""
    SELECT s.id, s.job_id, s.kind, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id, i.expected,
        i.query, g.content AS given, j.public_id::text AS public_id, {PLACE} AS place
    FROM (SELECT * FROM jobs j
          WHERE j.ended_at IS NULL AND j.state IN {RUNNABLE} AND {HAS_PLUGINS} ORDER BY j.rank, j.id OFFSET 0) j,
        LATERAL (SELECT * FROM samples WHERE job_id = j.id AND state = {READY} {{which}}
                 FOR NO KEY UPDATE SKIP LOCKED) s
        LEFT JOIN LATERAL (SELECT * FROM items i WHERE {ASKED_BY_SAMPLE} OFFSET 0) i ON s.kind = 'item'
        LEFT JOIN LATERAL (SELECT * FROM given g WHERE {GIVEN_TO_SAMPLE} OFFSET 0) g ON true""")
PICK = text(READY_SAMPLES.format(which="LIMIT :n") + " LIMIT :n")
PICK_AGAIN = text(READY_SAMPLES.format(which="AND id = ANY(:samples) OFFSET 0"))
HISTORY = sql("""
    SELECT t.sample_id, t.position, c.key, c.id, a.reply
    FROM (SELECT * FROM steps WHERE sample_id = ANY(:ids) OFFSET 0) t,
        LATERAL (SELECT id, key FROM calls WHERE id = t.call_id OFFSET 0) c
        LEFT JOIN LATERAL (SELECT a.reply FROM attempts a WHERE {ACCEPTED_FOR} c.id OFFSET 0) a ON true
    ORDER BY t.sample_id, t.position, t.slot""")
ANSWERS = sql("""
    SELECT c.key, c.id, a.reply
    FROM unnest(CAST(:keys AS bytea[])) u(key),
        LATERAL (SELECT id, key FROM calls WHERE key = u.key AND NOT failed OFFSET 0) c
        LEFT JOIN LATERAL (SELECT a.reply FROM attempts a WHERE {ACCEPTED_FOR} c.id OFFSET 0) a ON true""")
Recorded = tuple[bytes, StoredAnswer]


class AdvanceResult(NamedTuple):
    """The results of one batch."""

    samples: int
    lanes: frozenset[Lane]
    """Lanes whose queue grew, which therefore need a tick."""
    jobs: frozenset[int]
    """Jobs with samples that ended, so the job itself may have ended."""


class BatchStopped(Exception):
    """An unexpected error (`__cause__`) stopped a batch; nothing was written."""

    def __init__(self, rows: Sequence[RowMapping]) -> None:
        super().__init__(f"{len(rows)} samples")
        self.rows = rows


_log = logging.getLogger(__name__)
NOTHING = AdvanceResult(0, frozenset(), frozenset())


class Advancer:
    """Advances samples for one process; keeps job specs and documents between batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = JobSpecs(controls=True)
        self._cache = LibraryCache()
        self._library: dict[str, Document] = {}
        """Documents that the batch's replays read. Kept until the batch ends, even if evicted from the cache."""

    async def advance(self, limit: int = 200) -> AdvanceResult:
        """Advance one batch of at most `limit` ready samples, or smaller ones if a sample stops it."""
        try:
            return await self._advance_picked(PICK, n=limit)
        except BatchStopped as error:
            stopped = error
        results = await isolate(
            stopped.rows,
            lambda rows: self._advance_picked(PICK_AGAIN, samples=[row["id"] for row in rows]),
            self._give_up,
            is_defect=lambda error: isinstance(error, BatchStopped),
            stopped=stopped,
        )
        return AdvanceResult(
            sum(result.samples for result in results),
            frozenset[Lane]().union(*(result.lanes for result in results)),
            frozenset[int]().union(*(result.jobs for result in results)),
        )

    async def _advance_picked(self, pick: TextClause, **values: Any) -> AdvanceResult:
        """Advance the samples that `pick` selects.

        Raises:
            BatchStopped: one of them may have to fail, so that the others can continue.
        """
        while True:
            try:
                return await self._batch(pick, values)
            except CallVanished:
                # A call failed for good between two statements and freed its key, so the batch can be repeated.
                _log.info("a call failed while a sample was being attached to it; repeating the batch")

    async def _batch(self, pick: TextClause, values: Mapping[str, Any]) -> AdvanceResult:
        self._library = {}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(pick, {**values, "plugins": encode_usable_pins()})).mappings().all()
            if not rows:
                return NOTHING
            try:
                batch, broken = await self._start(connection, rows)
                await self._replay(connection, batch)
                known = await self._drive(connection, batch)
                written = await record(connection, batch, known)
                ended = [progress for progress in batch if not progress.waits]
                await store_ended(connection, ended)
                await fail_samples(connection, broken)
            except Exception as error:
                if isinstance(error, CallVanished) or not concerns_rows(error):
                    raise
                raise BatchStopped(rows) from error
        failed = [(p.sample_id, p.job.binding.job, p.replay.failure[0]) for p in ended if p.replay.failure is not None]
        for sample, job, kind in (*failed, *((each.sample, each.public_id, each.kind) for each in broken)):
            _log.warning("a sample failed: %s", kind, extra=_ids(job, sample))
        if traces.is_on():
            samples = [progress.sample_id for progress in ended] + [each.sample for each in broken]
            await row_spans.trace_samples(self._database, samples)
        waiting = [progress for progress in batch if progress.waits]
        if written.attached or not all(progress.steps for progress in waiting):
            # A reply to a call that was there before may have been committed while this batch was not yet.
            await mark_ready_among(self._database, [progress.sample_id for progress in waiting])
            await revive_calls(self._database, written.attached)
        jobs = frozenset(progress.job.id for progress in ended) | {each.job for each in broken}
        return AdvanceResult(len(rows), written.lanes, jobs)

    async def _give_up(self, row: RowMapping, stopped: Exception) -> AdvanceResult:
        error = stopped.__cause__
        ids = _ids(row["public_id"], row["id"])
        _log.error("a sample cannot be advanced, so it fails: internal_error", exc_info=error, extra=ids)
        message = redact(f"{type(error).__name__}: {error}".partition("\n")[0])
        broken = _make_broken_sample(row, "internal_error", f"{message}; the log of the worker has the traceback")
        async with self._database.transaction() as connection:
            await fail_samples(connection, [broken])
        return AdvanceResult(1, frozenset(), frozenset({broken.job}))

    async def _start(
        self, connection: AsyncConnection, rows: Sequence[RowMapping]
    ) -> tuple[list[SampleProgress], list[BrokenSample]]:
        """Return fresh replays of the samples that this release can read, and the samples that it cannot."""
        items = {row["job_id"] for row in rows if row["kind"] == "item"}
        prepares = {row["job_id"] for row in rows if row["kind"] == "prepare"}
        specs = await self._jobs.load_each(connection, items, prepares)
        batch, broken, readable = [], [], []
        for row in rows:
            try:
                spec = require_readable(specs[row["job_id"]])
                spec.find_pipeline()
                spec.check_version()
                given = decode_given(row, spec.pipeline) if row["kind"] == "item" else None
                readable.append((row, spec, given, item_from_row(row) if row["kind"] == "item" else None))
            except Unreadable as error:
                broken.append(_make_broken_sample(row, "unreadable", str(error)))
        if shown := list_given_documents(given for _, _, given, _ in readable):
            self._library |= await self._cache.documents(connection, shown)
        for row, spec, given, item in readable:
            try:
                if item is None:
                    replay = spec.prepare(await spec.load_calibration_items(connection), self._library)
                else:
                    replay = spec.start(item, row["repeat"], self._library, given)
            except Unreadable as error:
                broken.append(_make_broken_sample(row, "unreadable", str(error)))
            else:
                progress = SampleProgress(row["id"], spec, row["repeat"], row["position"], replay, row["place"])
                batch.append(progress)
        return batch, broken

    async def _replay(self, connection: AsyncConnection, batch: Sequence[SampleProgress]) -> None:
        """Feed each sample the replies to its recorded steps."""
        rows = (await connection.execute(HISTORY, {"ids": [progress.sample_id for progress in batch]})).all()
        history: dict[int, list[list[Recorded]]] = {}
        for (sample_id, _), steps in groupby(rows, key=lambda row: (row.sample_id, row.position)):
            history.setdefault(sample_id, []).append([(row.key, decode_answer(row.id, row.reply)) for row in steps])
        await self._read(
            connection, (found for positions in history.values() for step in positions for _, found in step)
        )
        for progress in batch:
            for step in history.get(progress.sample_id, ()):
                if not progress.expects([key for key, _ in step]) or not all(found.raw for _, found in step):
                    break
                progress.consume([found for _, found in step])

    async def _drive(self, connection: AsyncConnection, batch: Sequence[SampleProgress]) -> dict[bytes, StoredAnswer]:
        """Continue while the requested calls already have replies, from any job; return the calls that exist."""
        known: dict[bytes, StoredAnswer] = {}
        active = [progress for progress in batch if progress.waits]
        while active:
            keys = {bound.key for progress in active for bound in progress.bound} - known.keys()
            rows = await connection.execute(ANSWERS, {"keys": sorted(keys)})
            known |= {row.key: decode_answer(row.id, row.reply) for row in rows}
            active = [p for p in active if all(b.key in known and known[b.key].raw for b in p.bound)]
            await self._read(connection, (known[bound.key] for p in active for bound in p.bound))
            for progress in active:
                progress.consume([known[bound.key] for bound in progress.bound])
            active = [progress for progress in active if progress.waits]
        return known

    async def _read(self, connection: AsyncConnection, answers: Iterable[StoredAnswer]) -> None:
        hashes = list_mentioned_documents(found.reply for found in answers if found.reply is not None)
        if hashes:
            self._library |= await self._cache.documents(connection, hashes)


def _make_broken_sample(row: RowMapping, kind: str, detail: str) -> BrokenSample:
    return BrokenSample(row["id"], row["job_id"], row["public_id"], kind, detail)


def _ids(job: str, sample: int) -> dict[str, Any]:
    return {"job_id": job, "sample_id": sample, "trace_id": job.replace("-", "")}
