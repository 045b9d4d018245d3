"""Groups the lines of a batch into jobs, one per model or pipeline and its sampling, so that each model is loaded
once.

Everything is written in one transaction with the batch's new state, while its file is read: a batch has all its
jobs, or none.
"""

import uuid
from collections.abc import Sequence

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.openai.identifiers import BATCH, format_id
from services.orchestrator.openai.lines import Line
from services.orchestrator.openai.names import NamedModel
from shared import canonical
from shared.calls import Decoding
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.runtime.parameters import parse_params
from shared.runtime.submit import Draft, Drafting, Submission, insert
from shared.samples import DatasetItem
from shared.settings import Settings
from shared.storage import datasets
from shared.storage.batches import StoredBatch
from shared.storage.configurations import Configuration
from shared.storage.database import copy

INSERT_DATASET = text("INSERT INTO datasets (name, hash, items, online) VALUES (:name, '', 0, true) RETURNING id")
INSERT_JOB = text("""
    INSERT INTO batch_jobs (batch_id, number, job, model, corpus) VALUES (:batch, :number, :job, :model, :corpus)""")
LINES = ("batch_id", "line", "custom_id", "job", "ordinal")
GIVEN = ("job", "ordinal", "repeat", "content")


class Group:
    """Lines that one job answers, and the dataset made of them."""

    def __init__(self, number: int, dataset: int, name: str, line: Line) -> None:
        self.number = number
        self.job = uuid.uuid4()
        self.dataset = dataset
        self.name = name
        """Name of the dataset; names that people choose cannot contain a `:`."""
        self.model: NamedModel = line.model
        self.decoding: Decoding = line.decoding
        self.digest = datasets.Digest()

    def add(self, line: Line) -> tuple[int, DatasetItem]:
        """Return the line's position in the dataset, and its item."""
        item = DatasetItem(
            question=line.question, gold=None, gold_documents=None, subject=None, level=None, custom_id=line.custom_id
        )
        ordinal = self.digest.items
        self.digest.add([item])
        return ordinal, item


class BatchJobs:
    """Stores a batch's lines as they come, and then the jobs that answer them."""

    def __init__(
        self, connection: AsyncConnection, settings: Settings, batch: StoredBatch, holding: Configuration
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._batch = batch
        self._holding = holding
        self._groups: dict[tuple[str, Decoding | None], Group] = {}

    @property
    def model(self) -> str | None:
        """Return the model of all lines; None if there are several."""
        names = {group.model.id for group in self._groups.values()}
        return names.pop() if len(names) == 1 else None

    async def add(self, lines: Sequence[Line]) -> None:
        """Store lines: their items, the inputs of their samples, and where each is answered."""
        items, inputs, places = [], [], []
        for line in lines:
            group = self._groups.get(line.group) or await self._begin(line)
            ordinal, item = group.add(line)
            items.append(datasets.item_row(group.dataset, ordinal, item))
            places.append((self._batch.id, line.number, line.custom_id, group.number, ordinal))
            if line.asked is not None:
                inputs.append((group.job, ordinal, 0, canonical.encode(line.asked)))
        for table, columns, rows in (
            ("items", datasets.ITEM_COLUMNS, items), ("given", GIVEN, inputs), ("batch_lines", LINES, places),
        ):  # fmt: skip
            await copy(self._connection, table, columns, rows)

    async def submit(self) -> None:
        """Insert the jobs.

        Raises:
            NotFound, Invalid, Unavailable: something that a job names cannot be used, or not yet.
            TooLarge, TooMany: a limit of the operator is exceeded.
        """
        groups = list(self._groups.values())
        for group in groups:
            values = {"dataset": group.dataset, "hash": group.digest.content, "items": group.digest.items}
            await self._connection.execute(datasets.FINISH, values)
        drafting = Drafting(self._connection, self._settings)
        await insert(self._connection, self._settings, [await self._draft_job(drafting, group) for group in groups])
        rows = [
            {"batch": self._batch.id, "number": each.number, "job": each.job, "model": each.model.id,
             "corpus": each.model.corpus} for each in groups
        ]  # fmt: skip
        await self._connection.execute(INSERT_JOB, rows)

    async def _begin(self, line: Line) -> Group:
        number = len(self._groups) + 1
        name = f"batch:{self._batch.public_id.hex}:{number}"
        dataset = int((await self._connection.execute(INSERT_DATASET, {"name": name})).scalar_one())
        group = self._groups[line.group] = Group(number, dataset, name, line)
        return group

    async def _draft_job(self, drafting: Drafting, group: Group) -> Draft:
        params, model = parse_params({}, self._holding.params), group.model
        batch = format_id(BATCH, self._batch.public_id)
        pipeline = _choose_pipeline(model)
        generate = msgspec.structs.replace(params.generate, **msgspec.structs.asdict(group.decoding))
        submission = Submission(
            name=f"{batch}-{group.number}", dataset=group.name, pipeline=pipeline,
            corpus=model.corpus, params=msgspec.structs.replace(params, generate=generate),
            configuration=self._holding.version, models={"generate": model.id} if pipeline == CONVERSATION else {},
            metadata={"batch": str(batch)}, job=group.job, submitted_by=self._batch.submitted_by,
        )  # fmt: skip
        return await drafting.draft(submission)


def _choose_pipeline(model: NamedModel) -> str:
    """Return the pipeline that answers requests to the model."""
    return EMBEDDING if model.kind == "embedder" else model.pipeline or CONVERSATION
