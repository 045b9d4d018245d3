"""A small world in a real database: a dataset, a corpus, registered models, and executors that answer by rule."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import text

from shared.contracts import canonical
from shared.contracts.calls import Generated, Graded, Lane, Rated, Reply, Retrieved
from shared.contracts.documents import Document, Hit
from shared.contracts.samples import Params
from shared.lease.lease import Lease, Phase
from shared.runtime import models
from shared.runtime.binding import Request
from shared.runtime.claims import Answered, Claimed, Receipt
from shared.runtime.execution import Executor, Lapse, Release
from shared.runtime.models import ModelIdentity
from shared.runtime.submit import Submission, submit
from shared.runtime.worker import Worker
from shared.settings import Settings, Workers
from shared.storage.database import Database

SETTINGS = Settings(roles={"judge": "a-judge", "generate": "a-generator"}, database_url="unused")
DOCUMENTS = [Document(problem=f"What is {n} plus {n}?", text=f"Therefore {n}+{n}={2 * n}. \\boxed{{{2 * n}}}") for n in range(20)]
_REQUEST = msgspec.json.Decoder(Request)

Answer = Callable[[Request], Reply]


async def furnish(database: Database, items: int = 5, name: str = "items") -> None:
    """A corpus called "docs" with both indexes, a dataset of `items` questions, a judge and a generator."""
    async with database.transaction() as connection:
        for document in DOCUMENTS:
            await connection.execute(
                text("INSERT INTO documents VALUES (:h, :p, :b) ON CONFLICT DO NOTHING"),
                {"h": bytes.fromhex(document.hash), "p": document.problem, "b": document.text},
            )
        for model, needs_lease in (("a-judge", True), ("a-generator", True)):
            identity = ModelIdentity(name=model, backend="scripted", digest=model, device="cpu:0", needs_lease=needs_lease)
            await models.register(connection, identity)
        await _corpus(connection)
    await add_dataset(database, items, name)


async def _corpus(connection: object) -> None:
    ids = {}
    for kind in ("dense", "sparse"):
        identity = ModelIdentity(name=kind, backend="retriever", digest=kind)
        model = await models.register(connection, identity)  # type: ignore[arg-type]
        row = await connection.execute(  # type: ignore[attr-defined]
            text(
                "INSERT INTO indexes (kind, signature, model_id, path, params, documents, state)"
                " VALUES (:k, :s, :m, '', '{}', 20, 'ready') ON CONFLICT (signature) DO UPDATE SET state = 'ready'"
                " RETURNING id"
            ),
            {"k": kind, "s": kind.encode(), "m": model},
        )
        ids[kind] = row.scalar_one()
    await connection.execute(  # type: ignore[attr-defined]
        text(
            "INSERT INTO corpora (name, hash, documents, dense_index, sparse_index) VALUES ('docs', 'h', 20, :d, :s)"
            " ON CONFLICT DO NOTHING"
        ),
        {"d": ids["dense"], "s": ids["sparse"]},
    )


async def add_dataset(database: Database, items: int, name: str, changed: frozenset[int] = frozenset()) -> None:
    """`items` questions; those in `changed` differ from the other datasets' ones."""
    async with database.transaction() as connection:
        dataset = (
            await connection.execute(
                text("INSERT INTO datasets (name, hash, items) VALUES (:n, :h, :i) RETURNING id"),
                {"n": name, "h": name.encode(), "i": items},
            )
        ).scalar_one()
        for n in range(items):
            question = f"What is {n} plus {n}{' really' if n in changed else ''}?"
            await connection.execute(
                text("INSERT INTO items (dataset_id, ordinal, hash, question, gold) VALUES (:d, :n, :h, :q, :g)"),
                {"d": dataset, "n": n, "h": canonical.digest(question), "q": question, "g": str(2 * n)},
            )


async def submit_job(database: Database, pipeline: str = "mathrag-gate", **fields: object) -> uuid.UUID:
    """A job over "items" and "docs" with a gate that decides on five pairs."""
    params = msgspec.convert(fields.pop("params", {}), Params)
    given = {"name": "a-job", "dataset": "items", "corpus": "docs", "pipeline": pipeline, "params": params, **fields}
    return await submit(database, SETTINGS, Submission(**given))  # type: ignore[arg-type]


def by_rule(request: Request) -> Reply:
    """What a scripted world answers: deterministic in the request."""
    number = int.from_bytes(request.key[:4])
    match request.role:
        case "retrieve":
            first = number % len(DOCUMENTS)
            chosen = [DOCUMENTS[(first + step) % len(DOCUMENTS)] for step in range(request.k)]
            return Retrieved(
                hits=tuple(Hit(document=d.hash, rank=n + 1, score=1 / (n + 1)) for n, d in enumerate(chosen))
            )
        case "judge":
            return Rated(rating=number % 5 + 1, text=f"[[{number % 5 + 1}]]")
        case "generate":
            return Generated(text=f"so \\boxed{{{number % 10}}}")
        case _:
            return Graded(math_verify=request.values["answer"] == request.values["gold"], strict=False)


class ScriptedExecutor:
    """Answers each call by a function and remembers what it ran."""

    def __init__(self, answer: Answer = by_rule) -> None:
        self.answer = answer
        self.ran: Counter[bytes] = Counter()
        self.gate: asyncio.Event | None = None
        """When set, a chunk waits for it before it answers."""

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered | Lapse | Release]:
        """One reply a call."""
        if self.gate is not None:
            await self.gate.wait()
        for call in calls:
            self.ran[call.key] += 1
            now = datetime.now(UTC)
            receipt = Receipt(started_at=now, ended_at=now, epoch=epoch, device="cpu:0" if epoch else None)
            yield Answered(call_id=call.id, reply=self.answer(_REQUEST.decode(call.request)), receipt=receipt)


class OpenLease:
    """A lease that grants everything, for workers without a guard."""

    async def read(self) -> Lease:
        """Every model id that a test can have."""
        return Lease(epoch=1, phase=Phase.OPEN, models=tuple(range(1000)))


class SilentTicker:
    """Remembers the ticks that nobody receives."""

    def __init__(self) -> None:
        self.ticks: list[Lane] = []

    async def tick(self, lane: Lane) -> None:
        """Would wake a worker."""
        self.ticks.append(lane)

    async def begun(self, lane: Lane) -> None:
        """A tick has left the queue."""


def worker(database: Database, lane: Lane, executor: Executor, **limits: object) -> Worker:
    """A worker of one lane, all of whose roles `executor` answers."""
    return Worker(
        lane,
        database,
        dict.fromkeys(("retrieve", "rerank", "judge", "generate", "grade"), executor),
        name=f"test-{lane.value}",
        lease=OpenLease(),  # type: ignore[arg-type]
        ticker=SilentTicker(),  # type: ignore[arg-type]
        limits=Workers(window_ms=1, **limits),  # type: ignore[arg-type]
    )


async def drain(database: Database, executor: Executor) -> None:
    """Both lanes in turn until neither has anything to do."""
    judge, generator = (worker(database, lane, executor) for lane in (Lane.JUDGE, Lane.GENERATE))
    before = -1
    while before != (before := await scalar(database, "SELECT count(*) FROM attempts")):
        await judge.drain()
        await generator.drain()
    await judge.drain()


async def scalar(database: Database, sql: str, **values: object) -> object:
    """The first column of the first row."""
    async with database.transaction() as connection:
        return (await connection.execute(text(sql), values)).scalar()


async def rows(database: Database, sql: str, **values: object) -> list[tuple[object, ...]]:
    """All rows."""
    async with database.transaction() as connection:
        return [tuple(row) for row in await connection.execute(text(sql), values)]
