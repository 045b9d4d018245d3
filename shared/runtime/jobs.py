"""What replaying needs to know of a job: pipeline, parameters, pins. Fixed at submission, so each process caches it."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Yielded
from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery
from shared.contracts.params import Params, decode_params
from shared.contracts.samples import Conversation, GateDecision, Given, Item, Library, Sample, Stored, Texts
from shared.errors import Unreadable
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.pipelines.imported import IMPORTED
from shared.plugins.loading import load_plugins
from shared.release import release
from shared.runtime.duplicates import exclude_duplicates
from shared.runtime.replay import Replay
from shared.settings import Plugins

T = TypeVar("T")

JOBS = text(
    "SELECT id, public_id::text AS public_id, pipeline, encode(pipeline_hash, 'hex') AS pipeline_hash,"
    " code ->> 'version' AS version, code ->> 'commit' AS commit, params, pins, reuse, dataset_id, prepared,"
    " CAST(code ->> 'limit' AS integer) AS item_limit FROM jobs WHERE id = ANY(:ids)"
)
CALIBRATION = text(
    "SELECT ordinal, question, gold, custom_id, expected, query FROM items WHERE dataset_id = :dataset"
    " AND ordinal < COALESCE(CAST(:limit AS integer), ordinal + 1)"
    " ORDER BY sha256(CAST(:seed AS bytea) || hash), ordinal LIMIT :n"
)


GIVEN: Mapping[str, type[Stored]] = {IMPORTED: Given, CONVERSATION: Conversation, EMBEDDING: Texts}
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
    limit: int | None = None
    """Number of items to ask, from the dataset's beginning; None asks all."""
    source: str = ""
    """Hash of the pipeline's version at submission; empty for a job that was not submitted."""
    release: tuple[str | None, str | None] = (None, None)
    """Version and commit of the program that accepted it."""

    def check_source(self) -> None:
        """Check that this process runs the source that the job was submitted with, or a later release.

        Raises:
            Unreadable: this process has the same release but imported another source.
        """
        here = registry.pipeline_hash(self.pipeline)
        # An image that was built without a commit may be any release, so a difference is allowed.
        if self.source in ("", here) or self.release[1] is None or self.release != release():
            return
        raise Unreadable(
            f"pipeline `{self.pipeline}` was submitted with source {self.source[:12]}, and this process has imported"
            f" {here[:12]}: a file was edited while the service ran; restart the service, then submit the job again"
        )

    def start(self, item: Item, repeat: int, library: Library, given: Stored | None = None) -> Replay[Any]:
        """Start a replay of the pipeline and the grading for one item; `given` is as in `Sample`.

        Raises:
            Unreadable: the pipeline is not installed.
        """
        sample = Sample(item=item, repeat=repeat, prepared=self.prepared, given=given)
        return Replay(
            self._leave_out_duplicates(self.find_pipeline().run_and_grade(sample, self.params, library), [item])
        )

    def prepare(self, items: list[Item], library: Library) -> Replay[Any]:
        """Start a replay of the job's calibration over `items`.

        Raises:
            Unreadable: the pipeline is not installed, or has no calibration.
        """
        prepare = self.find_pipeline().prepare
        if prepare is None:
            raise Unreadable(f"pipeline `{self.pipeline}` has no calibration in this release")
        return Replay(self._leave_out_duplicates(prepare(items, self.params, library), items))

    def _leave_out_duplicates(
        self, steps: Generator[Yielded, Any, T], items: Sequence[Item]
    ) -> Generator[Yielded, Any, T]:
        return exclude_duplicates(steps, self.params.duplicates, items)

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
        seed = str(self.params.seed).encode()
        values = {"dataset": self.dataset_id, "limit": self.limit, "seed": seed, "n": self.params.gate.items}
        return [item_from_row(row) for row in (await connection.execute(CALIBRATION, values)).mappings()]


class Jobs:
    """Cache of job specs by id. A spec is cached once its `prepared` is final, that is, once items are replayed."""

    def __init__(self) -> None:
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
        raise Unreadable("the sample's item is not in the dataset any more")
    copied = {name: row[name] for name in ("ordinal", "question", "gold", "custom_id")}
    return Item(
        **copied,
        expected=msgspec.convert(row["expected"] or {}, Expected),
        query=msgspec.convert(row["query"], FactQuery | None),
    )


def decode_given(row: RowMapping, pipeline: str) -> Stored | None:
    """Decode what was stored for the sample at submission; None for pipelines without such data.

    Raises:
        Unreadable: the data is gone or cannot be decoded.
    """
    if pipeline not in GIVEN:
        return None
    if row["given"] is None:
        raise Unreadable("what was given for the sample is not there any more")
    try:
        given: Stored = msgspec.json.decode(row["given"], type=GIVEN[pipeline])
    except ValueError as error:
        raise Unreadable(f"what was given for the sample cannot be read: {error}") from error
    return given


def _try_spec(row: RowMapping) -> JobSpec | Unreadable:
    try:
        return _spec(row)
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return Unreadable(f"the job's parameters, models or gate decision cannot be read by this release: {error}")


def _spec(row: RowMapping) -> JobSpec:
    params = decode_params(row["params"])
    return JobSpec(
        id=row["id"],
        pipeline=row["pipeline"],
        dataset_id=row["dataset_id"],
        params=params,
        prepared=msgspec.json.decode(row["prepared"], type=GateDecision) if row["prepared"] else None,
        limit=row["item_limit"],
        source=row["pipeline_hash"],
        release=(row["version"], row["commit"]),
        binding=Binding(
            pins=msgspec.convert(row["pins"], dict[str, Pin]),
            params=params,
            nonce=row["public_id"] if row["reuse"] == "none" else "",
            job=row["public_id"],
        ),
    )
