"""Small graphs in the database, and rules that are mined from them by a miner that only a test has."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from services.judge import mining_process
from services.judge.executors import MineExecutor
from services.judge.pools import MiningPool
from shared.calls import Lane
from shared.replies import CorpusRecord, Document, Failure, FailureKind
from shared.rules import miners
from shared.rules.graph import Graph
from shared.runtime import mining
from shared.runtime.lifecycle import finish_due_jobs
from shared.runtime.worker import LaneWorker
from shared.settings import Workers
from shared.storage import graphs
from shared.storage.database import Database
from tests.doubles import mining_process as doubled
from tests.integration.scene import Leases, SilentTicker, advance, scalar

RELATIONS = ("likes 3", "owns 2", "sees 0")
LIVE = "SELECT count(*) FROM jobs WHERE ended_at IS NULL"


class StuckPool(MiningPool):
    """Never comes to an end."""

    def __init__(self) -> None:
        super().__init__(1, 60.0, 1024)
        self.asked = asyncio.Event()

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | Failure:
        """No reply."""
        self.asked.set()
        await asyncio.Event().wait()
        return request


class InlinePool(MiningPool):
    """Mines where it is asked: what starting and killing processes is about is tested with the pool."""

    def __init__(self) -> None:
        super().__init__(1, 60.0, 1024)
        self._answer = mining_process.load()

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | Failure:
        """As a process would; one that ended is a failure of its kind."""
        with patch.object(miners, "mine", doubled.mine):
            try:
                return self._answer(request)
            except SystemExit as ended:
                return Failure(kind=FailureKind.BACKEND_ERROR, detail=f"the miner ended with exit status {ended.code}")


async def store_graph(
    database: Database, name: str = "g", relations: Sequence[str] = RELATIONS, *, timed: bool = False
) -> None:
    """A graph whose first relation has two facts, its second three, and so on."""
    triples = [
        (entity, number, entity + 1) for number, _ in enumerate(relations) for entity in range(number + 2)
    ]  # fmt: skip
    graph = Graph(
        triples=np.array(triples, np.int32),
        times=np.arange(len(triples), dtype=np.int64) if timed else None,
        entities=[f"e{number}" for number in range(len(relations) + 3)],
        relations=list(relations),
    )
    await graphs.create(database, name, graphs.GraphFacts(graph, "step" if timed else None), _documents(name))


async def _documents(name: str) -> AsyncIterator[list[CorpusRecord]]:
    yield [CorpusRecord(external_id="0", document=Document(text=f"A fact of {name}."), meta={})]


def mining_worker(database: Database, executor: MineExecutor, processes: int, stop: asyncio.Event) -> LaneWorker:
    """As a judge worker's process has one beside its ticks."""
    return LaneWorker(
        Lane.JUDGE,
        database,
        {"mine": executor},
        name="miner",
        guards=Leases(),  # type: ignore[arg-type]
        ticker=SilentTicker(),  # type: ignore[arg-type]
        limits=Workers(window_ms=1, chunk=1, streams=processes),
        stopping=stop.is_set,
        mines=True,
    )


async def work(database: Database, processes: int = 2) -> None:
    """Mine until every job has ended, then seal what is due."""
    stop = asyncio.Event()
    executor = MineExecutor(database, InlinePool())
    working = asyncio.create_task(mining_worker(database, executor, processes, stop).mine())
    try:
        async with asyncio.timeout(30):
            while await scalar(database, LIVE):
                await advance(database)
                await finish_due_jobs(database)
                await asyncio.sleep(0.05)
    finally:
        stop.set()
        await working
        await executor.close()
    await seal(database)


async def seal(database: Database) -> None:
    """What the orchestrator does with banks."""
    for bank in await mining.list_due_banks(database):
        await mining.seal_bank(database, bank)


def request(name: str = "bank", graph: str = "g", **limits: Any) -> dict[str, Any]:
    """The body that asks for a bank; a toy graph's relations are small."""
    return {"name": name, "graph": graph, "mining": {"miner": "amie", "min_head_facts": 2, **limits}}
