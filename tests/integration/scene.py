"""A small world in a real database: a dataset, a corpus, registered models, and executors that answer by rule."""

import asyncio
import math
import struct
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from shared import canonical
from shared.calls import CALL_KINDS, Generate, Lane, Request
from shared.lease.lease import DeviceLease, Phase
from shared.params import QUALITY_ALONE, Params
from shared.pipelines import registry
from shared.replies import (
    Atom,
    Document,
    Embedded,
    Estimated,
    Executed,
    FoundRules,
    Generated,
    Graded,
    Hit,
    NumberedRule,
    Rated,
    Relevance,
    Reply,
    Retrieved,
    Rule,
    Scored,
    Token,
    Verified,
    require,
)
from shared.runtime import pins
from shared.runtime.advance import Advancer
from shared.runtime.lifecycle import finish_due_jobs
from shared.runtime.pins import ModelIdentity
from shared.runtime.queue import AnsweredCall, Claim, ClaimedCall, Claims, Receipt, find_complete_samples, sweep
from shared.runtime.submit import Submission, submit
from shared.runtime.worker import Executor, LaneWorker, Lapse, Release
from shared.samples import Extraction, Library, Outcome, Pipeline, Prepare, Sample, Steps
from shared.settings import Settings, Workers
from shared.storage.database import Database

SETTINGS = Settings(roles={"judge": "a-judge", "generate": "a-generator"}, database_url="unused")
DOCUMENTS = [
    Document(problem=f"What is {n} plus {n}?", text=f"Therefore {n}+{n}={2 * n}. \\boxed{{{2 * n}}}") for n in range(20)
]
_REQUEST = msgspec.json.Decoder(Request)

Answer = Callable[[Request], Reply]
T = TypeVar("T")
U = TypeVar("U")
OPEN = DeviceLease(epoch=1, phase=Phase.OPEN, models=tuple(range(1000)))
"""Grants everything."""


async def furnish(database: Database, items: int = 5, name: str = "items", *, needs_lease: bool = True) -> None:
    """A corpus called "docs" with both indexes, a dataset of `items` questions, a judge and a generator."""
    async with database.transaction() as connection:
        await connection.execute(
            text("INSERT INTO documents VALUES (:h, :p, :b) ON CONFLICT DO NOTHING"),
            [{"h": bytes.fromhex(each.hash), "p": each.problem, "b": each.text} for each in DOCUMENTS],
        )
        for model in ("a-judge", "a-generator"):
            identity = ModelIdentity(
                name=model, backend="scripted", digest=model, device="cpu:0", needs_lease=needs_lease
            )
            await pins.register(connection, identity)
        await _corpus(connection)
    await add_dataset(database, items, name)


async def _corpus(connection: object) -> None:
    ids = {}
    for kind in ("dense", "sparse"):
        identity = ModelIdentity(name=kind, backend="retriever", digest=kind)
        model = await pins.register(connection, identity)  # type: ignore[arg-type]
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
        questions = [f"What is {n} plus {n}{' really' if n in changed else ''}?" for n in range(items)]
        entries = [
            {"d": dataset, "n": n, "h": canonical.digest(question), "q": question, "g": str(2 * n)}
            for n, question in enumerate(questions)
        ]
        insert = "INSERT INTO items (dataset_id, ordinal, hash, question, gold) VALUES (:d, :n, :h, :q, :g)"
        if entries:
            await connection.execute(text(insert), entries)


async def submit_job(database: Database, pipeline: str = "mathrag-gate", **fields: object) -> uuid.UUID:
    """A job over "items" and "docs", by quality alone: "a-job", then "a-job-2" and so on."""
    chosen: dict[str, Any] = fields.pop("params", {})  # type: ignore[assignment]
    params = msgspec.convert({**QUALITY_ALONE, **chosen} if pipeline == "mathrag-gate" else chosen, Params)
    jobs = await scalar(database, "SELECT count(*) FROM jobs")
    given = {
        "name": f"a-job-{jobs + 1}" if jobs else "a-job",
        "dataset": "items",
        "corpus": "docs",
        "pipeline": pipeline,
        "params": params,
        **fields,
    }
    return await submit(database, SETTINGS, Submission(**given))  # type: ignore[arg-type]


async def queue_job(
    database: Database, items: int = 2, *, pipeline: str = "closed-book", **fields: object
) -> uuid.UUID:
    """A job over so many questions without gold answers, whose first calls are in the queue."""
    await furnish(database, items)
    await without_gold(database)
    job = await submit_job(database, pipeline, **fields)
    await advance(database)
    return job


def by_rule(request: Request) -> Reply:
    """What a scripted world answers: deterministic in the request."""
    number = int.from_bytes(canonical.digest(request)[:4])
    match request.role:
        case "retrieve":
            first = number % len(DOCUMENTS) + request.skip
            chosen = [DOCUMENTS[(first + step) % len(DOCUMENTS)] for step in range(request.k)]
            return Retrieved(
                hits=tuple(Hit(document=d.hash, rank=n, score=1 / n) for n, d in enumerate(chosen, request.skip + 1))
            )
        case "judge" if request.logprobs:
            return Relevance(probability=number % 10 / 10, text="yes", labels={"yes": number % 10 / 10, "no": 0.1})
        case "judge":
            return Rated(rating=number % 5 + 1, text=f"[[{number % 5 + 1}]]")
        case "rerank":
            documents = request.values["documents"]
            return Scored(scores=tuple((number + place) % 10 / 10 for place in range(len(documents or ()))))
        case "write":
            return Generated(text=f"What is {number % 20} plus {number % 20}?")
        case "generate" if request.logprobs:
            return reflecting(number)
        case "generate":
            as_program = request.template.startswith("program") and number % 2
            return Generated(
                text=f"```python\nanswer = {number}\n```" if as_program else f"so \\boxed{{{number % 10}}}"
            )
        case _:
            return measured(request, number)


def measured(request: Request, number: int) -> Reply:
    """What needs neither a model nor an index."""
    match request.role:
        case "embed":
            return Embedded(vector=struct.pack("<3f", number, 0, 1))
        case "verify":
            return Verified(verified=number % 5, refuted=number % 3, unknown=number % 2)
        case "execute":
            return Executed(output=str(number % 10))
        case "estimate":
            return Estimated(probability=number % 10 / 10)
        case "rules":
            rule = Rule(head=Atom("r", 0, 1), body=(Atom("b", 0, 1),), support=1, body_size=2, confidence=0.5)
            return FoundRules(relation="r", rules=(NumberedRule(number % 10, rule),))
        case _:
            return Graded(math_verify=request.values["answer"] == request.values["gold"], strict=False)


def reflecting(number: int) -> Generated:
    """What a Self-RAG model says that wants passages and finds one useful, the more so the larger the number."""
    said = [("[Retrieval]", "[No Retrieval]"), ("[Relevant]", "[Irrelevant]"), ("[Utility:5]", "[Utility:1]")]
    likely = math.log(0.5 + number % 100 / 200)
    tokens = tuple(Token(text=yes, logprob=likely, top={yes: likely, no: math.log(0.25)}) for yes, no in said)
    return Generated(text=f"so \\boxed{{{number % 10}}}[Utility:5]", tokens=tokens)


class ScriptedExecutor:
    """Answers each call by a function and remembers what it ran."""

    def __init__(self, answer: Answer = by_rule) -> None:
        self.answer = answer
        self.ran: Counter[bytes] = Counter()
        self.gate: asyncio.Event | None = None
        """When set, a chunk waits for it before it answers."""

    async def run(
        self, calls: Sequence[ClaimedCall], epoch: int | None
    ) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        """One reply a call."""
        if self.gate is not None:
            await self.gate.wait()
        for call in calls:
            self.ran[call.key] += 1
            now = datetime.now(UTC)
            receipt = Receipt(started_at=now, ended_at=now, epoch=epoch, device="cpu:0" if epoch else None)
            yield AnsweredCall(call_id=call.id, reply=self.answer(_REQUEST.decode(call.request)), receipt=receipt)


class Leases:
    """What workers without a guard may claim; all that a test can have, until somebody says otherwise."""

    def __init__(self, lease: DeviceLease | None = OPEN) -> None:
        self.lease = lease

    async def read_leases(self) -> dict[str, DeviceLease | None]:
        """Of the one device that there is."""
        return {"cpu:0": self.lease}


class SilentTicker:
    """Remembers the ticks that nobody receives."""

    def __init__(self) -> None:
        self.ticks: list[Lane] = []

    async def tick(self, lane: Lane) -> bool:
        """Would wake a worker."""
        self.ticks.append(lane)
        return True

    async def clear_tick(self, lane: Lane) -> None:
        """A tick has left the queue."""


def worker(database: Database, lane: Lane, executor: Executor, **limits: object) -> LaneWorker:
    """A worker of one lane, all of whose roles `executor` answers."""
    return LaneWorker(
        lane,
        database,
        dict.fromkeys(CALL_KINDS, executor),
        name=f"test-{lane.value}",
        guards=Leases(),  # type: ignore[arg-type]
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
    async with database.engine.begin() as connection:
        return (await connection.execute(text(sql), values)).scalar()


async def rows(database: Database, sql: str, **values: object) -> list[tuple[object, ...]]:
    """All rows."""
    async with database.engine.begin() as connection:
        return [tuple(row) for row in await connection.execute(text(sql), values)]


# What a test needs to force an interleaving: other processes, held commits, proof that somebody waits.


@asynccontextmanager
async def processes(database: Database, count: int) -> AsyncIterator[list[Database]]:
    """`count` further databases with connections of their own, as other processes would have."""
    others = [Database(database.engine.url, pinned=True) for _ in range(count)]  # type: ignore[arg-type]
    try:
        yield others
    finally:
        for other in others:
            await other.close()


class HeldDatabase(Database):
    """A process that is frozen once, between the last statement of a transaction and its commit."""

    def __init__(self, database: Database, *, first: int = 0) -> None:
        """The `first` transactions pass; the next one is held."""
        self.engine = database.engine
        self.reached = asyncio.Event()
        """The statements have run."""
        self.go = asyncio.Event()
        """Set it to let the transaction commit."""
        self._first = first

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may be held before it commits."""
        async with super().transaction() as connection:
            yield connection
            self._first -= 1
            if self._first == -1:
                self.reached.set()
                await self.go.wait()

    statement = transaction
    """As if the commit that belongs to a single statement took long."""


class Uncommitted(Database):
    """The database as one open transaction sees it, whatever asks for a transaction or an engine."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.engine = self  # type: ignore[assignment]

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """The transaction itself."""
        yield self.connection

    begin = snapshot

    async def plant(self, sql: str, *, counted: bool = True, **values: object) -> None:
        """As the fixture `plant`: a statement of the owner, with the triggers off that refuse changes."""
        changed = await force_on(self.connection, sql, **values)
        assert changed > 0 or not counted


async def die_before_commit(
    database: Database, do: Callable[[Database], Coroutine[Any, Any, object]], *, first: int = 0
) -> None:
    """Another process does this, and is killed before a commit; the `first` ones pass."""
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=first)
        dying = asyncio.create_task(do(held))
        await held.reached.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)


async def commit_while_waited_for(
    database: Database,
    do: Callable[[Database], Coroutine[Any, Any, T]],
    wait: Callable[[Database], Coroutine[Any, Any, U]],
    *,
    first: int = 0,
) -> tuple[T, U]:
    """One process commits once another is seen to wait for it; the `first` commits pass. Returns both results."""
    async with processes(database, 2) as [one, two]:
        held = HeldDatabase(one, first=first)
        doing = asyncio.create_task(do(held))
        await held.reached.wait()
        waiting = asyncio.create_task(wait(two))
        await somebody_waits(database)
        held.go.set()
        return await doing, await waiting


async def somebody_waits(database: Database, backends: int = 1) -> None:
    """Until so many connections wait for a lock that another one holds."""
    async with asyncio.timeout(30):
        while True:
            waiting = await scalar(database, "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
            if waiting >= backends:  # type: ignore[operator]
                return
            await asyncio.sleep(0.005)


# The steps that a worker takes, one by one.


async def advance(database: Database, limit: int = 200) -> int:
    """Advance what is ready until nothing is; returns how many samples were."""
    advancer, total = Advancer(database), 0
    while count := (await advancer.advance(limit)).samples:
        total += count
    return total


async def model(database: Database, name: str = "a-generator") -> int:
    """The id of a registered model."""
    return await scalar(database, "SELECT max(id) FROM models WHERE name = :n", n=name)  # type: ignore[return-value]


async def claim(database: Database, limit: int = 100, *, who: str = "worker-1", role: str = "generate") -> Claim | None:
    """Claim pending calls of the generator, or of another role's model."""
    names = {"generate": "a-generator", "judge": "a-judge", "grade": "grader", "dense": "dense", "sparse": "sparse"}
    lane = Lane.GENERATE if role == "generate" else Lane.JUDGE
    return await Claims(database, who, 60.0).claim(lane, await model(database, names[role]), limit)


async def claim_some(database: Database, limit: int = 100, **whose: str) -> Claim:
    """Claim pending calls, of which there are some."""
    taken = await claim(database, limit, **whose)
    assert taken is not None
    return taken


def answered(call: ClaimedCall, reply: Reply | None = None) -> AnsweredCall:
    """A worker's answer to a call: by rule, or the given one."""
    now = datetime.now(UTC)
    reply = by_rule(_REQUEST.decode(call.request)) if reply is None else reply
    return AnsweredCall(call_id=call.id, reply=reply, receipt=Receipt(started_at=now, ended_at=now))


async def answer(
    database: Database, taken: Claim, reply: Reply | None = None, *, calls: Sequence[ClaimedCall] | None = None
) -> list[int]:
    """Answer all calls of a claim, or some."""
    chosen = taken.calls if calls is None else calls
    answers = [answered(call, reply) for call in chosen]
    return (await Claims(database, "worker-1", 60.0).answer(taken.token, answers)).calls


async def answer_preparations(database: Database) -> None:
    """Answer the calls of preparations until one has ended; nobody has looked at its job since."""
    while not await scalar(database, "SELECT count(*) FROM samples WHERE kind = 'prepare' AND state = 2"):
        await advance(database)
        for role in ("dense", "sparse", "judge"):
            if (taken := await claim(database, role=role)) is not None:
                await answer(database, taken)


async def repair(database: Database) -> set[Lane]:
    """What the orchestrator does beside its flips: end what is due, then sweep; the lanes that want a tick."""
    await finish_due_jobs(database)
    return await sweep(database, "sweeper")


async def let_claims_expire(database: Database) -> None:
    """As if every claim's time to live had passed."""
    await run_sql(database, "UPDATE queue SET claim_until = now() - interval '1 hour' WHERE token IS NOT NULL")


async def let_pauses_pass(database: Database) -> None:
    """As if every back-off had passed."""
    await run_sql(database, "UPDATE queue SET not_before = NULL")


async def without_gold(database: Database) -> None:
    """Questions without gold answers, so that nothing is graded."""
    await run_sql(database, "UPDATE items SET gold = NULL")


OWNERS: dict[str, str] = {}
"""The owner's URL by the application's, of the databases that tests share."""
OWNER_ENGINES: dict[tuple[asyncio.AbstractEventLoop, str], AsyncEngine] = {}
"""Connections of an owner that stay open, by the event loop that they belong to and the owner's URL."""
# Whatever refuses a change; events are noted all the same.
SWITCH_TRIGGERS = """
    DO $$ DECLARE each record; BEGIN
        FOR each IN SELECT tgrelid::regclass AS name, tgname FROM pg_trigger
            WHERE NOT tgisinternal AND tgname <> 'note_event' ORDER BY tgrelid, tgname
        LOOP EXECUTE format('ALTER TABLE %s # TRIGGER %I', each.name, each.tgname); END LOOP;
    END $$"""
REFUSED = ("42501", "23001")
"""No right, or a trigger's refusal."""


async def attempt(database: Database, sql: str) -> None:
    """One statement as who is connected, with no help."""
    async with database.engine.begin() as connection:
        await connection.execute(text(sql))


async def run_sql(database: Database, sql: str, **values: object) -> None:
    """Change rows behind the runtime's back: as the application where it may, else as the owner."""
    url = database.engine.url.render_as_string(hide_password=False)
    try:
        async with database.engine.begin() as connection:
            await connection.execute(text(sql), values)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") not in REFUSED or url not in OWNERS:
            raise
        await force(OWNERS[url], sql, **values)


async def force(owner_url: str, sql: str, **values: object) -> int:
    """Run a statement as the owner, with the triggers off that refuse changes; how many rows it changed."""
    kept = OWNER_ENGINES.get((asyncio.get_running_loop(), owner_url))
    engine = kept or create_async_engine(owner_url)
    async with engine.begin() as connection:
        changed = await force_on(connection, sql, **values)
    if kept is None:
        await engine.dispose()
    return changed


async def force_on(connection: AsyncConnection, sql: str, **values: object) -> int:
    """The same in the transaction of a connection of the owner."""
    await connection.execute(text(SWITCH_TRIGGERS.replace("#", "DISABLE")))
    changed = (await connection.execute(text(sql), values)).rowcount
    await connection.execute(text(SWITCH_TRIGGERS.replace("#", "ENABLE")))
    return int(changed)


async def sample_states(database: Database) -> list[int]:
    """States of all samples, by id."""
    return [state for (state,) in await rows(database, "SELECT state FROM samples ORDER BY id")]  # type: ignore[misc]


async def stuck(database: Database) -> list[int]:
    """Samples that wait although every reply they wait for is there: only the sweeper would find them."""
    async with database.transaction() as connection:
        return await find_complete_samples(connection)


async def job_states(database: Database) -> list[str]:
    """States of all jobs, by id."""
    return [state for (state,) in await rows(database, "SELECT state FROM jobs ORDER BY id")]  # type: ignore[misc]


def install(monkeypatch: pytest.MonkeyPatch, name: str, run: Pipeline, prepare: Prepare | None = None) -> None:
    """Register a pipeline for one test; the same name again is a changed pipeline."""
    registry.names()
    monkeypatch.setitem(registry.registered, name, registry.Registered(name, run, prepare))


def two_questions(sample: Sample, _params: Params, _library: Library) -> Steps:
    """A pipeline that waits for two generated texts at once."""
    first, _ = yield [Generate(template="cot", question=f"{sample.question} {n}") for n in (1, 2)]
    return ended(require(first).text)


def ended(answer: str | None) -> Outcome:
    """An outcome without a context."""
    return Outcome(answer=answer, extraction=Extraction.OK)
