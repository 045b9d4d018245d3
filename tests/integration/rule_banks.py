"""Graphs and rule banks in the database: stored, mined by a miner that only a test has, and followed by jobs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from services.judge import mining_process
from services.judge.executors import MineExecutor, RulesExecutor
from services.judge.pools import MiningPool
from shared import canonical
from shared.calls import Lane
from shared.replies import Atom, CorpusRecord, Document, Failure, FailureKind, Miner, Rule
from shared.rules import miners
from shared.rules.graph import Graph
from shared.runtime import mining
from shared.runtime.lifecycle import finish_due_jobs
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import LaneWorker, Lapse, Release
from shared.samples import FactQuery, Phrase
from shared.settings import Workers
from shared.storage import graphs
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from tests.doubles import mining_process as doubled
from tests.integration.scene import Answer, Leases, ScriptedExecutor, SilentTicker, advance, by_rule, run_sql, scalar

PHRASES = {"Make_a_visit": Phrase(relation="Make_a_visit", phrase="travel to", inverse="host")}


def rule(head: Atom, *body: Atom, support: int = 5, certainty: float = 0.5) -> Rule:
    """A rule of a standard confidence."""
    return Rule(head=head, body=body, support=support, body_size=10, confidence=certainty)


VISIT = Atom("Make_a_visit", 0, 1)
BANK = (
    rule(VISIT, Atom("Consult", 0, 1), certainty=0.4),
    rule(VISIT, Atom("Like", 0, 2), Atom("Own", 2, 1), certainty=0.9),
    rule(VISIT, Atom("Consult", 1, 0), certainty=0.9),
    rule(Atom("Consult", 0, 1), Atom("Make_a_visit", 1, 0), support=1),
)
"""Visits follow from consulting, and from liking what is owned; consulting from being visited."""


async def add_bank(
    database: Database,
    rules: Sequence[Rule] = BANK,
    name: str = "bank",
    miner: Miner = "amie",
    graph: str | None = None,
) -> str:
    """A sealed bank; its hash."""

    async def batches() -> AsyncIterator[Sequence[Rule]]:
        yield rules

    bank, _ = await stored_rules.create_imported(database, name, stored_rules.ImportOrigin(miner, graph), batches())
    assert bank.hash is not None
    return bank.hash


async def add_graph(database: Database, name: str = "docs", digest: bytes = b"g" * 32) -> str:
    """A graph without facts whose corpus is the scene's, with phrases; the hash of these."""
    phrases = canonical.encode(PHRASES)
    statement = """
        INSERT INTO graphs (name, hash, facts, entities, relations, largest, corpus_id, phrases, phrases_hash)
        SELECT :name, :hash, 0, 0, 0, '[]', id, CAST(:phrases AS json), sha256(CAST(:phrases AS bytea))
        FROM corpora WHERE name = 'docs'"""
    await run_sql(
        database, statement.replace("CAST(:phrases AS bytea)", ":raw"), name=name, hash=digest,
        phrases=phrases.decode(), raw=phrases,
    )  # fmt: skip
    return canonical.digest(PHRASES).hex()


async def ask_for(database: Database, query: FactQuery) -> None:
    """Every question of the scene asks the same of a graph."""
    await run_sql(database, "UPDATE items SET query = CAST(:query AS jsonb)", query=canonical.encode(query).decode())


class FollowingRules(ScriptedExecutor):
    """Rules are found for real, the rest is answered by rule."""

    def __init__(self, database: Database, answer: Answer = by_rule) -> None:
        super().__init__(answer)
        self.finding = RulesExecutor(database)

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        """A chunk is of one model, and so of one role."""
        return self.finding.run(calls, epoch) if calls[0].role == "rules" else super().run(calls, epoch)


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
