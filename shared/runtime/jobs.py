"""What an advance must know of a job: its pipeline, parameters and pins. Fixed at submit, so kept per process."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Yielded
from shared.contracts.grading import Expected
from shared.contracts.graphs import FactQuery
from shared.contracts.params import Params, stored_params
from shared.contracts.samples import GateDecision, Given, Item, Library, Sample
from shared.errors import Unreadable
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin
from shared.pipelines.imported import IMPORTED
from shared.release import release
from shared.runtime.duplicates import without_duplicates
from shared.runtime.replay import Replay

T = TypeVar("T")

JOBS = text(
    "SELECT id, public_id::text AS public_id, pipeline, encode(pipeline_hash, 'hex') AS pipeline_hash,"
    " code ->> 'version' AS version, code ->> 'commit' AS commit, rank, params, pins, reuse, dataset_id, prepared,"
    " CAST(code ->> 'limit' AS integer) AS item_limit FROM jobs WHERE id = ANY(:ids)"
)
CALIBRATION = text(
    "SELECT ordinal, question, gold, custom_id, expected, query FROM items WHERE dataset_id = :dataset"
    " AND ordinal < COALESCE(CAST(:limit AS integer), ordinal + 1)"
    " ORDER BY sha256(CAST(:seed AS bytea) || hash), ordinal LIMIT :n"
)


def read_code() -> None:
    """Import every pipeline and read the commit now, at a process's start: what is edited later does not run."""
    registry.names()
    release()


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as replay sees it."""

    id: int
    pipeline: str
    rank: int
    dataset_id: int
    params: Params
    binding: Binding
    prepared: GateDecision | None
    limit: int | None = None
    """Only the first so many items of the dataset; None: all."""
    source: str = ""
    """Hash of the pipeline's source when it was submitted; empty: it was not."""
    release: tuple[str | None, str | None] = (None, None)
    """Version and commit of the program that it was submitted to."""

    def check_source(self) -> None:
        """Return if this process runs what the job was submitted with, or a later release goes on with it.

        Raises:
            Unreadable: of the same release, this process has imported another source.
        """
        here = registry.pipeline_hash(self.pipeline)
        # Without a commit, as in an image that was built without one, any difference may be another release.
        if self.source in ("", here) or self.release[1] is None or self.release != release():
            return
        raise Unreadable(
            f"pipeline `{self.pipeline}` was submitted with source {self.source[:12]}, and this process has imported"
            f" {here[:12]}: a file was edited while the service ran; restart the service, then submit the job again"
        )

    def ranked(self, rank: int) -> "JobSpec":
        """The same job; its rank alone may change while it is kept."""
        return self if rank == self.rank else msgspec.structs.replace(self, rank=rank)

    def start(self, item: Item, repeat: int, library: Library, given: Given | None = None) -> Replay[Any]:
        """A fresh replay of one item's pipeline, graded; `given` of a job of imported answers.

        Raises:
            Unreadable: the pipeline is not installed.
        """
        sample = Sample(item=item, repeat=repeat, prepared=self.prepared, given=given)
        return Replay(self._asked(self.installed().graded(sample, self.params, library), [item]))

    def prepare(self, items: list[Item], library: Library) -> Replay[Any]:
        """A fresh replay of the job's calibration over `items`.

        Raises:
            Unreadable: the pipeline is not installed, or has no calibration.
        """
        prepare = self.installed().prepare
        if prepare is None:
            raise Unreadable(f"pipeline `{self.pipeline}` has no calibration in this release")
        return Replay(self._asked(prepare(items, self.params, library), items))

    def _asked(self, steps: Generator[Yielded, Any, T], items: Sequence[Item]) -> Generator[Yielded, Any, T]:
        return without_duplicates(steps, self.params.duplicates, items)

    def installed(self) -> registry.Registered:
        """Its pipeline.

        Raises:
            Unreadable: it is not installed.
        """
        try:
            return registry.get(self.pipeline)
        except registry.UnknownPipeline as error:
            raise Unreadable(f"the job's pipeline is not installed: {error}") from error

    async def calibration(self, connection: AsyncConnection) -> list[Item]:
        """The items that the gate is calibrated on: the first `gate.items` that are asked, by sha256(seed, item)."""
        seed = str(self.params.seed).encode()
        values = {"dataset": self.dataset_id, "limit": self.limit, "seed": seed, "n": self.params.gate.items}
        return [item_of(row) for row in (await connection.execute(CALIBRATION, values)).mappings()]


class Jobs:
    """Job specs by id. A spec is kept once its `prepared` is final, that is once items are asked for."""

    def __init__(self) -> None:
        self._specs: dict[int, JobSpec] = {}

    async def load(self, connection: AsyncConnection, items_of: set[int], prepares_of: set[int]) -> dict[int, JobSpec]:
        """Specs of the jobs whose items, and of those whose prepare samples, are about to be replayed.

        Raises:
            Unreadable: the parameters, models or gate decision of one of them cannot be decoded.
        """
        return {id_: readable(spec) for id_, spec in (await self.load_each(connection, items_of, prepares_of)).items()}

    async def load_each(
        self, connection: AsyncConnection, items_of: set[int], prepares_of: set[int]
    ) -> dict[int, JobSpec | Unreadable]:
        """The same, with the error in the place of each job that cannot be decoded."""
        missing = (items_of - self._specs.keys()) | prepares_of
        rows = (await connection.execute(JOBS, {"ids": sorted(missing)})).mappings() if missing else ()
        fresh = {row["id"]: _try_spec(row) for row in rows}
        kept = {id_: spec for id_, spec in fresh.items() if id_ not in prepares_of and isinstance(spec, JobSpec)}
        self._specs.update(kept)
        return {id_: fresh.get(id_) or self._specs[id_] for id_ in items_of | prepares_of}


def readable(spec: JobSpec | Unreadable) -> JobSpec:
    """`spec` itself.

    Raises:
        Unreadable: it is one.
    """
    if isinstance(spec, Unreadable):
        raise spec
    return spec


def item_of(row: RowMapping) -> Item:
    """An `items` row as a contract.

    Raises:
        Unreadable: the columns are empty, as an outer join leaves them where there is no such item.
    """
    if row["ordinal"] is None:
        raise Unreadable("the sample's item is not in the dataset any more")
    copied = {name: row[name] for name in ("ordinal", "question", "gold", "custom_id")}
    return Item(
        **copied,
        expected=msgspec.convert(row["expected"] or {}, Expected),
        query=msgspec.convert(row["query"], FactQuery | None),
    )


def given_of(row: RowMapping, pipeline: str) -> Given | None:
    """What a sample of a job of imported answers was given; None for another job's.

    Raises:
        Unreadable: it is gone, or is no such thing.
    """
    if pipeline != IMPORTED:
        return None
    if row["given"] is None:
        raise Unreadable("the answer that was imported for the sample is not there any more")
    try:
        given: Given = msgspec.json.decode(row["given"], type=Given)
    except ValueError as error:
        raise Unreadable(f"the answer that was imported for the sample cannot be read: {error}") from error
    return given


def _try_spec(row: RowMapping) -> JobSpec | Unreadable:
    try:
        return _spec(row)
    except ValueError as error:  # not JSON, not UTF-8, or other fields
        return Unreadable(f"the job's parameters, models or gate decision cannot be read by this release: {error}")


def _spec(row: RowMapping) -> JobSpec:
    params = stored_params(row["params"])
    return JobSpec(
        id=row["id"],
        pipeline=row["pipeline"],
        rank=row["rank"],
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
