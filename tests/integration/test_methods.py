import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from redis.asyncio import Redis

from services.guard import app as app_module
from services.guard.app import create_app as app_create_app
from services.judge.executors import EstimateExecutor, ProgramExecutor, RerankExecutor, VerifyExecutor
from services.judge.pools import ProgramPool, VerificationPool
from services.orchestrator.reports.report import report_on_job
from services.orchestrator.scheduling.scheduler import Scheduler
from services.retriever.app import create_app
from services.retriever.searches import MAX_RERANKED
from shared import audit
from shared.audit import check
from shared.calls import DocumentRef, Lane, Request, Rules
from shared.lease.lease import Guards, Phase
from shared.models.difficulty import DifficultyClassifier, read_regression
from shared.models.embedding import StaticEmbedder
from shared.models.retriever_client import RetrieverClient
from shared.pipelines.binding import Pin
from shared.processes.grading_pool import GradingPool
from shared.rag.fusion import logistic
from shared.rag.grading import mark
from shared.replies import Estimated, Failure, FailureKind, Generated, Rated, Reply, Scored, Verified
from shared.runtime.lifecycle import finish_due_jobs
from shared.runtime.pins import ESTIMATOR, NO_RERANKER, VERIFIER, WEIGHTS, pin_reranker
from shared.runtime.prompting import PromptExecutor
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import LaneWorker, Lapse, Release, Wait
from shared.samples import GateDecision, Outcome
from shared.settings import EMBEDDINGS, REPOSITORY, Model, Reranker, Retrieval, Settings, Workers
from shared.storage import samples
from shared.storage.database import Database
from tests.doubles.asgi_server import serve_app
from tests.doubles.chat_server import ChatServer, chat_server
from tests.doubles.reflecting_model import respond
from tests.doubles.retrieval_server import RetrievalServer
from tests.integration.api import Api
from tests.integration.scene import (
    DOCUMENTS,
    ScriptedExecutor,
    SilentTicker,
    by_rule,
    drain,
    furnish,
    rows,
    run_sql,
    scalar,
    submit_job,
)
from tests.integration.test_audit import Device, staged

# Datasets that are no mathematics: uploaded with their grader, answered, graded by it, reported and audited.


pytestmark = pytest.mark.anyio

CAPITALS = [
    {"question": "What is the capital of France?", "golden_answers": ["Paris", "Lutetia"]},
    {"question": "What is the capital of Spain?", "golden_answers": ["Barcelona"]},
]
REPLIES = {"France": "The capital is\nAnswer: the city of Paris", "Spain": "Answer: Madrid"}


def world(request: Request) -> Reply:
    if request.role == "grade":
        answer, gold = request.values["answer"], request.values["gold"]
        assert isinstance(answer, str)
        assert isinstance(gold, str)
        return mark(answer, gold, request.rules or Rules())
    if request.role == "generate":
        question = str(request.values["question"])
        return Generated(text=next((text for place, text in REPLIES.items() if place in question), "?"))
    if request.template.startswith("answer-rubric"):
        return Rated(rating=5 if "Paris" in str(request.values["answer"]) else 2, text="")
    return by_rule(request)


async def run(api: Api, database: Database, grader: str, **fields: object) -> uuid.UUID:
    made = await api.upload("datasets", "capitals", CAPITALS, grader=grader)
    assert (made.status_code, made.json()["grader"], made.json()["alternatives"]) == (201, grader, 1)
    job = await api.job(dataset="capitals", **fields)
    await staged(database, ScriptedExecutor(world))
    return uuid.UUID(job["id"])


@pytest.mark.parametrize(
    ("grader", "correct", "score"),
    [("text", 0, None), ("contains", 1, None), ("f1", 1, 0.25), ("exact", 0, None)],
)
async def test_a_dataset_is_graded_by_the_grader_that_it_declares(
    api: Api, database: Database, grader: str, correct: int, score: float | None
) -> None:
    job = await run(api, database, grader)
    found = await report_on_job(database, str(job), {})
    assert (found.grader, found.accuracy.correct, found.accuracy.graded) == (grader, correct, 2)
    assert (found.score and found.score.mean.value) == score
    assert found.settings.models["grade"].name == f"grader-{grader}"
    assert found.endings.get("correct", 0) == correct
    assert await check(database, job) == []
    page = await samples.list_samples(database, str(job), 10, None)
    assert [row.answer for row in page.data] == ["the city of Paris", "Madrid"]


async def test_a_job_may_choose_another_grader_than_its_dataset(api: Api, database: Database) -> None:
    job = await run(api, database, "text", params={"grading": {"grader": "regex"}})
    assert (await report_on_job(database, str(job), {})).accuracy.correct == 1
    another = await api.job(name="another", dataset="capitals")
    assert another["params"]["grading"]["grader"] == "text"


async def test_a_rubric_is_rated_by_the_judge_after_all_answers(api: Api, database: Database) -> None:
    made = await api.upload("datasets", "capitals", CAPITALS, grader="rubric")
    assert made.status_code == 201
    job = await api.job(dataset="capitals")
    executor, device = ScriptedExecutor(world), Device(database)
    await device.flip("a-generator", "first")
    await device.drain(Lane.GENERATE, executor)
    assert await scalar(database, "SELECT count(*) FROM calls WHERE role = 'judge'") == 2
    await device.flip("a-judge", "drained")
    await device.drain(Lane.JUDGE, executor)
    await device.close("guard_stopped")
    found = await report_on_job(database, job["id"], {})
    assert (found.state, found.accuracy.correct, found.accuracy.graded) == ("completed", 1, 2)
    assert found.score is not None
    assert (found.score.name, found.score.mean.value) == ("the judge model's rating, 1 to 5", 3.5)
    assert await check(database, uuid.UUID(job["id"])) == []


async def test_a_choice_is_asked_with_its_choices(api: Api, database: Database) -> None:
    lines = [
        {"question": "Capital?", "choices": ["Bern", "Paris"], "answer": 1},
        {"question": "Capital?", "choices": {"text": ["Bern", "Paris"], "label": ["A", "B"]}, "answerKey": "A"},
        {"question": "Capital?", "options": {"A": "Bern", "B": "Paris"}, "gold": "Paris"},
    ]
    assert (await api.upload("datasets", "choices", lines, grader="choice")).status_code == 201
    asked_of = "SELECT question, gold FROM items WHERE dataset_id = (SELECT max(id) FROM datasets) ORDER BY ordinal"
    stored = await rows(database, asked_of)
    asked = "Capital?\nA. Bern\nB. Paris"
    assert stored == [(asked, "B"), (asked, "A"), (asked, "B")]


async def test_a_line_that_its_grader_cannot_use_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    for grader, line, said in (
        ("regex", {"question": "?", "answer": "(5"}, "is no regular expression"),
        ("choice", {"question": "?", "choices": ["a", "b"], "answer": "c"}, "names none of the choices"),
        ("choice", {"question": "?", "choices": ["1", "0"], "answer": 1}, "of one choice or the text of another"),
        ("choice", {"question": "?", "choices": "a, b", "answer": "A"}, "must be a list of 2 to 26 texts"),
        ("rubric", {"question": "?", "rubric": ["clear"]}, "`rubric` is an array"),
    ):
        with subtests.test(grader=grader, line=line):
            refused = await api.upload("datasets", "wrong", [line], grader=grader)
            assert refused.status_code == 422
            assert said in refused.text


async def test_the_same_items_with_another_grader_are_another_dataset(api: Api) -> None:
    assert (await api.upload("datasets", "capitals", CAPITALS, grader="text")).status_code == 201
    assert (await api.upload("datasets", "capitals", CAPITALS, grader="text")).status_code == 200
    assert (await api.upload("datasets", "capitals", CAPITALS, grader="f1")).status_code == 409


async def test_an_unknown_grader_is_refused_with_those_that_exist(api: Api) -> None:
    body = {"name": "j", "dataset": "items", "pipeline": "closed-book", "params": {"grading": {"grader": "fuzzy"}}}
    refused = await api.http.post("/v1/jobs", json=body)
    assert (refused.status_code, "math, math-dataset, last-number" in refused.text) == (422, True)
    refused = await api.upload("datasets", "wrong", CAPITALS, grader="fuzzy")
    assert (refused.status_code, "math, math-dataset, last-number" in refused.text) == (422, True)


async def test_the_grading_process_grades_as_the_registry_does() -> None:
    async with GradingPool(size=1) as pool:
        for rules in (
            Rules(grader="f1", golds=("Lutetia",), threshold=0.7),
            Rules(grader="choice", choices=("a", "b")),
        ):
            assert await pool.grade("B", "b", rules) == mark("B", "b", rules)


# Rerank calls from a job to a rerank server and back, and what happens when the operator changes the reranker.

LOGITS = {f"{document.problem}\n{document.text}": at / 4 - 2.5 for at, document in enumerate(DOCUMENTS)}
"""From -2.5 upwards: the relevance of the last ones is above one half."""
FLOOR = {"rerank": {"floor": 0.5}}
REGISTERED = "SELECT max(registered_at) FROM models WHERE name = 'reranker'"
_REPLY = msgspec.json.Decoder(Reply)


@dataclass
class Setting:
    client: httpx2.AsyncClient
    executor: RerankExecutor


@pytest.fixture
async def double() -> RetrievalServer:
    return RetrievalServer(logits=LOGITS)


@pytest.fixture
async def server(double: RetrievalServer) -> AsyncIterator[ChatServer]:
    async with chat_server(double.respond) as server:
        yield server


class RerankingByRole(ScriptedExecutor):
    def __init__(self, reranking: RerankExecutor) -> None:
        super().__init__()
        self.reranking = reranking

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.reranking.run(calls, epoch) if calls[0].role == "rerank" else super().run(calls, epoch)


@pytest.fixture
def retriever(database: Database, database_url: str, tmp_path: Path) -> Any:
    @asynccontextmanager
    async def started(**given: Any) -> AsyncIterator[Setting]:
        retrieval = Retrieval(reranker=Reranker(**given))
        settings = Settings(database_url=database_url, data_dir=tmp_path, retrieval=retrieval)
        before = await scalar(database, REGISTERED)
        app = create_app(settings)
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            async with asyncio.timeout(60):
                while before == await scalar(database, REGISTERED):  # noqa: ASYNC110 - the row is all there is
                    await asyncio.sleep(0.01)
            executor = RerankExecutor(database, settings)
            executor.retriever = RetrieverClient(client, settings)
            yield Setting(client, executor)

    return started


async def pinned(database: Database) -> Pin:
    async with database.transaction() as connection:
        return await pin_reranker(connection)


async def replies(database: Database) -> list[Reply]:
    sql = "SELECT reply FROM attempts a JOIN calls c ON c.id = a.call_id WHERE role = 'rerank' ORDER BY c.id, accepted"
    return [_REPLY.decode(bytes(reply)) for (reply,) in await rows(database, sql)]  # type: ignore[call-overload]


def call(pin: Pin, *documents: str, question: str = "question") -> ClaimedCall:
    values: Any = {"question": question, "documents": [DocumentRef(document) for document in documents]}
    body = msgspec.json.encode(Request(role="rerank", model=pin.hash, values=values))
    return ClaimedCall(id=1, key=b"", role="rerank", model_id=pin.model_id, request=body)


async def answers(executor: RerankExecutor, *calls: ClaimedCall) -> list[Reply]:
    return [each.reply async for each in executor.run(calls, None) if isinstance(each, AnsweredCall)]


async def test_a_jobs_documents_are_scored_in_the_order_asked(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url, revision="1") as setting:
        await submit_job(database, params=FLOOR)
        await drain(database, RerankingByRole(setting.executor))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    requests = await rows(database, "SELECT request FROM calls WHERE role = 'rerank' ORDER BY id")
    by_hash = {document.hash: f"{document.problem}\n{document.text}" for document in DOCUMENTS}
    assert len(requests) == 5
    for (request,), reply in zip(requests, await replies(database), strict=True):
        asked: Any = msgspec.json.decode(bytes(request))["values"]["documents"]  # type: ignore[call-overload]
        assert isinstance(reply, Scored)
        expected = [logistic(LOGITS[by_hash[each["doc"]]]) for each in asked]
        assert reply.scores == pytest.approx(expected)
    assert len(double.bodies) == 5


async def test_without_a_reranker_every_call_says_so_at_once(database: Database, retriever: Any) -> None:
    await furnish(database)
    async with retriever() as setting:
        await submit_job(database, params={"rerank": {"floor": 0.5, "by": "reranker"}})
        await drain(database, RerankingByRole(setting.executor))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    found = await replies(database)
    assert len(found) == await scalar(database, "SELECT count(*) FROM calls WHERE role = 'rerank'") == 5
    assert {reply.kind for reply in found if isinstance(reply, Failure)} == {FailureKind.NOT_CONFIGURED}


async def test_trouble_of_the_server_is_tried_again(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database, items=1)
    double.tell("424", 1)
    async with retriever(kind="endpoint", url=server.url) as setting:
        await submit_job(database, params=FLOOR)
        await drain(database, RerankingByRole(setting.executor))
        await run_sql(database, "UPDATE queue SET not_before = NULL")
        await drain(database, RerankingByRole(setting.executor))
    failed, scored = await replies(database)
    assert isinstance(failed, Failure)
    assert failed.kind is FailureKind.BACKEND_ERROR
    assert isinstance(scored, Scored)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("too_long", FailureKind.CONTEXT_EXCEEDED),
        ("hang", FailureKind.TIMEOUT),
        ("few", FailureKind.BACKEND_ERROR),
    ],
)
async def test_each_kind_of_trouble_arrives_as_what_it_is(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer, how: str, kind: FailureKind
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url, timeout_s=0.3) as setting:
        double.tell(how)
        [reply] = await answers(setting.executor, call(await pinned(database), DOCUMENTS[0].hash, DOCUMENTS[1].hash))
    assert isinstance(reply, Failure)
    assert reply.kind is kind


async def test_a_rerank_server_that_is_away_is_waited_for(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url) as setting:
        double.tell("reset")
        asked = call(await pinned(database), DOCUMENTS[0].hash, DOCUMENTS[1].hash)
        [found] = [each async for each in setting.executor.run([asked], None)]
    assert isinstance(found, Wait)
    assert found.what == f"the server at {server.url.removeprefix('http://')}"


async def test_calls_of_a_chunk_fail_alone(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url) as setting:
        double.tell("too_long", 1)
        pin = await pinned(database)
        found = await answers(setting.executor, *(call(pin, document.hash) for document in DOCUMENTS[:3]))
    assert [type(reply) for reply in found] == [Failure, Scored, Scored]


async def test_no_document_needs_no_server(database: Database, retriever: Any) -> None:
    async with retriever(kind="endpoint", url="http://127.0.0.1:1", timeout_s=0.2) as setting:
        pin = await pinned(database)
        nothing, missing = await answers(setting.executor, call(pin), call(pin, "0" * 64))
    assert nothing == Scored(scores=())
    assert isinstance(missing, Failure)
    assert "does not exist" in missing.detail


async def test_jobs_are_given_what_the_retriever_was_started_with_last(
    database: Database, retriever: Any, server: ChatServer
) -> None:
    first: dict[str, Any] = {"kind": "endpoint", "url": server.url, "model": "m", "revision": "1"}
    changes: list[dict[str, Any]] = [
        {}, {"model": "n"}, {"revision": "2"}, {"activation": "none"}, {"max_chars": 9}, {"protocol": "tei"}
    ]  # fmt: skip
    pins = []
    for change in changes:
        async with retriever(**{**first, **change}):
            pins.append(await pinned(database))
    assert len({pin.hash for pin in pins}) == len(changes)
    async with retriever():
        assert (await pinned(database)).hash == NO_RERANKER.hash.hex()
    async with retriever(**{**first, "url": f"{server.url}/", "batch": 3, "timeout_s": 9}):
        assert await pinned(database) == pins[0]


async def test_without_a_revision_replies_are_reused_inside_a_job_only(
    database: Database, retriever: Any, server: ChatServer
) -> None:
    for revision in ("", "1"):
        async with retriever(kind="endpoint", url=server.url, revision=revision):
            assert (await pinned(database)).pinned is bool(revision)


async def test_a_job_is_not_answered_by_another_reranker_than_it_was_given(
    database: Database, retriever: Any, server: ChatServer, double: RetrievalServer
) -> None:
    await furnish(database)
    async with retriever(kind="endpoint", url=server.url, revision="1"):
        given = await pinned(database)
    changed: tuple[dict[str, Any], ...] = ({"kind": "endpoint", "url": server.url, "revision": "2"}, {})
    for settings in changed:
        async with retriever(**settings) as setting:
            [reply] = await answers(setting.executor, call(given, DOCUMENTS[0].hash))
        assert isinstance(reply, Failure)
        assert reply.kind is FailureKind.BACKEND_ERROR
        assert "a reranker that the retriever is not configured with" in reply.detail
    assert double.bodies == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"documents": []}, "documents"),
        ({"documents": ["x"] * (MAX_RERANKED + 1)}, "documents"),
        ({"question": ""}, "question"),
        ({"question": "x" * 32_769}, "question"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
async def test_limits_name_the_field(retriever: Any, database: Database, change: dict[str, Any], field: str) -> None:
    async with retriever() as setting:
        body = {"model": "", "question": "q", "documents": ["d"], **change}
        reply = await setting.client.post("/rerank", json=body)
    assert reply.status_code == 422
    assert f"`{field}`" in reply.json()["detail"]


# Routing from a job's question to the classifier and back: who is judged, what is kept, what the report counts.

QUESTIONS = [f"What is {n} plus {n}?" for n in range(5)]


class RoutingByRole(ScriptedExecutor):
    def __init__(self) -> None:
        super().__init__()
        self.estimates = EstimateExecutor()

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.estimates.run(calls, epoch) if calls[0].role == "estimate" else super().run(calls, epoch)


async def routed(database: Database, threshold: float) -> uuid.UUID:
    params = {"quality": "judge", "route": {"enabled": True, "threshold": threshold}}
    job = await submit_job(database, params=params)
    await drain(database, RoutingByRole())
    return job


async def judged(database: Database, job: uuid.UUID) -> list[object]:
    sql = """SELECT DISTINCT s.ordinal FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
             JOIN calls c ON c.id = t.call_id WHERE j.public_id = :job AND c.role = 'judge' ORDER BY 1"""
    return [ordinal for (ordinal,) in await rows(database, sql, job=job)]


async def test_only_questions_that_look_hard_are_judged_and_another_threshold_estimates_nothing_anew(
    database: Database,
) -> None:
    await furnish(database)
    expected = DifficultyClassifier(read_regression(WEIGHTS), StaticEmbedder(EMBEDDINGS)).probabilities(QUESTIONS)
    threshold = median(each for each in expected if each is not None)
    hard = [number for number, each in enumerate(expected) if each is not None and each >= threshold]
    first, second = await routed(database, threshold), await routed(database, 0.0)
    assert await judged(database, first) == hard
    assert await judged(database, second) == [0, 1, 2, 3, 4]
    kept = "SELECT a.reply, m.hash FROM calls c JOIN attempts a ON a.call_id = c.id JOIN models m ON m.id = c.model_id"
    found = await rows(database, f"{kept} WHERE c.role = 'estimate'")
    assert {_REPLY.decode(reply) for reply, _ in found} == {Estimated(probability=each or 0) for each in expected}
    assert [bytes(hash_) for _, hash_ in found] == [ESTIMATOR.hash] * 5
    reports = [await report_on_job(database, str(job), {}) for job in (first, second)]
    assert reports[0].decisions["route"] == {"easy": 5 - len(hard), "hard": len(hard)}
    assert [each.calls_made["estimate"] for each in reports] == [5, 0]
    assert reports[1].calls_reused["estimate"] == 5
    found_wrong = {each.invariant for each in await audit.check_in_thread(database, first)}
    assert found_wrong <= {"I2"}, "scripted models have no residency"


async def test_a_job_of_other_weights_is_judged_throughout_and_says_why(database: Database) -> None:
    await furnish(database, items=2)
    params = {"quality": "judge", "route": {"enabled": True, "threshold": 1.0}}
    job = await submit_job(database, params=params)
    await run_sql(
        database,
        """UPDATE jobs SET pins = jsonb_set(pins, '{estimate,hash}', to_jsonb(repeat('0', 64)))""",
    )
    for _ in range(10):
        await drain(database, RoutingByRole())
        await run_sql(database, "UPDATE queue SET not_before = NULL")
    assert await judged(database, job) == [0, 1]
    found = await report_on_job(database, str(job), {})
    assert found.state == "completed"
    assert found.decisions["route"] == {"hard": 2}
    assert found.fallbacks["route"] == {"backend_error": 2}


# Self-RAG jobs from submit to audit, through real guards and workers: with a double that reflects, and with
# llama.cpp's own log-probabilities, whose model does not.

GENERATOR = REPOSITORY / "models" / "world-generator-f16.gguf"
EVERYTHING = {"candidates": len(DOCUMENTS)}
CALLS = """
    SELECT c.role, count(*) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE a.accepted GROUP BY 1 ORDER BY 1"""


class Stack:
    def __init__(self, settings: Settings, database: Database, redis: Redis) -> None:
        self.settings = settings
        self.database = database
        self.redis = redis

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(serve_app(app_create_app(self.settings)))
            guards = Guards(self.redis, [url])
            stack.push_async_callback(guards.close)
            await submit_job(self.database, "self-rag", params=EVERYTHING)
            await self._worker(Lane.JUDGE, guards).drain()
            if await scalar(
                self.database, "SELECT bool_or(needs_lease) FROM models WHERE name = 'a-generator' AND served"
            ):
                await self._opened(guards)
            await self._worker(Lane.GENERATE, guards).drain()
            await self._worker(Lane.JUDGE, guards).drain()

    def _worker(self, lane: Lane, guards: Guards) -> LaneWorker:
        scripted = ScriptedExecutor()
        executors = {"generate": PromptExecutor(self.database, guards), "retrieve": scripted, "grade": scripted}
        return LaneWorker(
            lane, self.database, executors, name=f"test-{lane.value}", guards=guards,
            ticker=SilentTicker(),  # type: ignore[arg-type]
            limits=Workers(window_ms=1),
        )  # fmt: skip

    async def _opened(self, guards: Guards) -> None:
        await Scheduler(self.settings, self.database, self.redis).look()
        with anyio.fail_after(120):
            while True:
                lease = (await guards.read_leases()).get("cpu:0")
                if lease is not None and lease.phase is Phase.OPEN:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
def stack(
    database: Database, redis: Redis, database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stack:
    monkeypatch.setattr(app_module, "POLL_S", 0.05)
    settings = Settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path,
        models={"a-judge": Model(driver="scripted", footprint_mib=96)},
        roles={"judge": "a-judge", "generate": "a-generator"},
    )  # fmt: skip
    return Stack(settings, database, redis)


def generated_by(stack: Stack, generator: Model) -> Stack:
    models = {**stack.settings.models, "a-generator": generator}
    return Stack(stack.settings.model_copy(update={"models": models}), stack.database, stack.redis)


@pytest.fixture
async def reflecting() -> AsyncIterator[ChatServer]:
    async with chat_server(respond) as server:
        yield server


async def test_a_job_is_answered_from_the_passage_that_the_model_finds_relevant(
    stack: Stack, database: Database, reflecting: ChatServer
) -> None:
    await furnish(database, items=3)
    await generated_by(stack, Model(driver="remote", url=reflecting.url)).run()
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    outcomes = [
        msgspec.json.decode(raw, type=Outcome)  # type: ignore[arg-type]
        for (raw,) in await rows(
            database, "SELECT o.outcome FROM outcomes o JOIN samples s ON s.id = o.sample_id ORDER BY s.ordinal"
        )
    ]
    assert [outcome.answer for outcome in outcomes] == ["0", "2", "4"]
    assert [outcome.context for outcome in outcomes] == [(), (DOCUMENTS[1].hash,), (DOCUMENTS[2].hash,)]
    best = outcomes[1].trace.candidates[0]
    assert (best.document, best.relevance) == (DOCUMENTS[1].hash, pytest.approx(0.9))
    assert best.score == pytest.approx(0.9 + 0.9 + 0.5 * (0.9 - 0.1))
    assert dict(await rows(database, CALLS)) == {"generate": 3 + 2 * len(DOCUMENTS), "grade": 3, "retrieve": 3}  # type: ignore[arg-type]
    job = await scalar(database, "SELECT public_id FROM jobs")
    assert await check(database, job) == []  # type: ignore[arg-type]


@pytest.mark.skipif(not GENERATOR.exists(), reason="the shipped GGUF file is not there")
async def test_llama_cpp_gives_log_probabilities_and_its_model_is_found_not_to_reflect(
    stack: Stack, database: Database
) -> None:
    await furnish(database, items=2)
    model = Model(driver="process", path=GENERATOR, context=512, parallel=2, footprint_mib=96)
    await generated_by(stack, model).run()
    failures = await rows(database, "SELECT DISTINCT s.failure FROM samples s")
    assert failures == [("no_reflection_tokens",)]
    replies = await rows(
        database, "SELECT a.reply FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'generate'"
    )
    assert len(replies) == 2
    for (raw,) in replies:
        reply = msgspec.json.decode(raw, type=Generated)  # type: ignore[arg-type]
        assert "".join(token.text for token in reply.tokens) == reply.text
        assert all(1 <= len(token.top) <= 5 and token.text in token.top for token in reply.tokens)
    job = await scalar(database, "SELECT public_id FROM jobs")
    assert await check(database, job) == []  # type: ignore[arg-type]


# Verify calls from a job to the verifier's process and back: as the one who scores, and as the gate's truth.


class VerifyingByRole(ScriptedExecutor):
    def __init__(self, verifying: VerifyExecutor) -> None:
        super().__init__()
        self.verifying = verifying

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.verifying.run(calls, epoch) if calls[0].role == "verify" else super().run(calls, epoch)


@pytest.fixture
async def verifying(database: Database) -> AsyncIterator[VerifyExecutor]:
    async with VerificationPool(1, deadline_s=60) as pool:
        yield VerifyExecutor(database, pool)


async def test_a_jobs_documents_are_verified_and_ranked_by_what_was_found(
    database: Database, verifying: VerifyExecutor
) -> None:
    await furnish(database)
    await submit_job(database, params={"quality": "verifier"})
    await drain(database, VerifyingByRole(verifying))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    assert await scalar(database, "SELECT count(*) FROM calls WHERE role = 'judge'") == 0
    names = await rows(database, "SELECT DISTINCT m.name FROM calls c JOIN models m ON m.id = c.model_id WHERE role = 'verify'")  # fmt: skip  # noqa: E501
    assert names == [(VERIFIER.name,)]
    outcomes = await rows(
        database, "SELECT outcome FROM outcomes o JOIN samples s ON s.id = sample_id WHERE kind = 'item'"
    )
    for (stored,) in outcomes:
        outcome = msgspec.json.decode(stored, type=Outcome)  # type: ignore[call-overload]
        assert [candidate.quality for candidate in outcome.trace.candidates] == [0.75] * len(outcome.trace.candidates)
        assert outcome.trace.candidates[0].features == {"verified": 1, "refuted": 0, "unknown": 0}


async def test_the_gates_decision_holds_the_truth(database: Database, verifying: VerifyExecutor) -> None:
    await furnish(database)
    await submit_job(database, params={"gate": {"truth": "verifier", "min_pairs": 5}})
    await drain(database, VerifyingByRole(verifying))
    prepared: Any = await scalar(database, "SELECT prepared FROM jobs")
    truth = msgspec.json.decode(prepared, type=GateDecision).truth
    assert truth is not None
    assert set(truth.refuted) == {0}
    assert (truth.judge.rho, truth.judge.undefined) == (None, "the verifier gave every document 0.75")


async def test_a_document_that_does_not_exist_is_a_failure_of_its_own_call(
    database: Database, verifying: VerifyExecutor
) -> None:
    await furnish(database)
    (hash_,) = (await rows(database, "SELECT encode(hash, 'hex') FROM documents WHERE body LIKE '%7+7=14%'"))[0]
    requests = [
        Request(role="verify", model=VERIFIER.hash.hex(), values={"document": DocumentRef(str(each))})
        for each in (hash_, "ab" * 32)
    ]
    calls = [ClaimedCall(id=n, key=b"", role="verify", model_id=1, request=msgspec.json.encode(each)) for n, each in enumerate(requests)]  # fmt: skip  # noqa: E501
    found = {answer.call_id: answer.reply async for answer in verifying.run(calls, None)}
    assert found[0] == Verified(verified=1, refuted=0, unknown=0)
    assert isinstance(found[1], Failure)
    assert found[1].kind is FailureKind.BACKEND_ERROR


# Programs from the generator to the interpreter's process and back; all of a job's answers take one load.

PROGRAMS = {
    "squares": "```python\nanswer = sum(k**2 for k in range(1, 21))\n```",
    "hostile": "```python\nimport os\nanswer = os.getpid()\n```",
    "none": "I would count.",
}


class ProgramsByRole(ScriptedExecutor):
    def __init__(self, programs: ProgramExecutor) -> None:
        super().__init__(self.write)
        self.programs = programs

    def write(self, request: Request) -> Reply:
        if not request.template.startswith("program"):
            return by_rule(request)
        number = int(str(request.values["question"]).split()[2])  # "What is 3 plus 4?"
        return Generated(text=list(PROGRAMS.values())[number % 3])

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        return self.programs.run(calls, epoch) if calls[0].role == "execute" else super().run(calls, epoch)


@pytest.mark.parametrize("items", [1, 10, 500])
async def test_programs_compute_answers_and_the_others_are_asked_again_in_one_load(
    database: Database, items: int
) -> None:
    await furnish(database, items)
    job = await submit_job(database, "program-aided")
    device = Device(database)
    async with ProgramPool(1, deadline_s=60) as pool:
        executor = ProgramsByRole(ProgramExecutor(pool))
        await device.drain(Lane.JUDGE, executor)
        await device.flip("a-generator", "first")
        for _ in range(2):
            await device.drain(Lane.GENERATE, executor)
            await device.drain(Lane.JUDGE, executor)
        await device.close("guard_stopped")
    while await scalar(database, "SELECT state FROM jobs") == "finalizing":
        await finish_due_jobs(database)  # some samples at once, as the orchestrator does
    found = await report_on_job(database, str(job), {})
    assert (found.state, found.model_loads) == ("completed", 1)
    squares, hostile, none = ((items + 2 - place) // 3 for place in range(3))
    counted = {"run": squares, "failed": hostile, "none": none}
    assert found.decisions["program"] == {action: count for action, count in counted.items() if count}
    assert found.calls_made["execute"] == min(items, 2)  # equal programs are one call
    assert found.calls_made["generate"] == 2 * items - squares
    (stored,) = (await rows(database, "SELECT outcome FROM outcomes o JOIN samples s ON s.id = sample_id WHERE kind = 'item' AND ordinal = 0"))[0]  # fmt: skip  # noqa: E501
    assert msgspec.json.decode(stored, type=Outcome).answer == "2870"  # type: ignore[call-overload]
    assert await check(database, job) == []
