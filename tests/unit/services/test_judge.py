"""The judge's executors and its pools of processes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import httpx2
import msgspec
import numpy as np
import pytest

from services.judge import graphs, verification_process
from services.judge.executors import (
    OTHER_CLASSIFIER,
    UNKNOWN,
    EstimateExecutor,
    GradeExecutor,
    RetrieveExecutor,
    UnconfiguredExecutor,
    VerifyExecutor,
)
from services.judge.pools import MiningPool, VerificationPool
from shared.calls import Amie, DocumentRef, Grade, Request, Rules
from shared.models.difficulty import DifficultyClassifier, read_regression
from shared.models.embedding import StaticEmbedder
from shared.models.files import digest
from shared.models.retriever_client import RetrieverClient
from shared.params import GradingParams, Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.processes.grading_pool import GradingPool
from shared.replies import Estimated, Failure, FailureKind, Graded, Hit, Marked, Mined, Reply, Retrieved, Verified
from shared.runtime.pins import BUILT_IN, ESTIMATOR, WEIGHTS, grader_identity
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import CallEnd, Wait
from shared.settings import EMBEDDINGS, Retrieval, Settings
from shared.storage import provenance
from tests import plugins
from tests.plugins import marking, restart

# Estimate calls: one batch a chunk, and what cannot be estimated fails in words.


pytestmark = pytest.mark.anyio

QUESTIONS = ("What is $2+3$?", "Prove that there are infinitely many primes.")


def estimate_call(number: int, question: str, model: str = ESTIMATOR.hash.hex()) -> ClaimedCall:
    body = msgspec.json.encode(Request(role="estimate", model=model, values={"question": question}))
    return ClaimedCall(id=number, key=b"", role="estimate", model_id=3, request=body)


async def estimated(executor: EstimateExecutor, *calls: ClaimedCall) -> list[Reply]:
    answers = [answer async for answer in executor.run(calls, None)]
    assert [answer.call_id for answer in answers] == [each.id for each in calls]
    return [answer.reply for answer in answers]


async def test_a_chunk_is_answered_as_the_classifier_answers() -> None:
    classifier = DifficultyClassifier(read_regression(WEIGHTS), StaticEmbedder(EMBEDDINGS))
    expected = [Estimated(probability=each or 0) for each in classifier.probabilities(QUESTIONS)]
    executor = EstimateExecutor()
    assert await estimated(executor, *map(estimate_call, (1, 2), QUESTIONS)) == expected
    assert await estimated(executor, estimate_call(3, QUESTIONS[1])) == expected[1:]


async def test_a_question_that_the_classifier_cannot_read_fails_alone() -> None:
    first, second = await estimated(
        EstimateExecutor(),
        estimate_call(1, "求 $x$ 的值，其中两个数字之和是五。"),
        estimate_call(2, QUESTIONS[0]),
    )
    assert first == UNKNOWN
    assert isinstance(second, Estimated)


async def test_a_job_that_was_given_another_classifier_is_not_answered_by_this_one() -> None:
    assert await estimated(EstimateExecutor(), estimate_call(1, QUESTIONS[0], model="0" * 64)) == [OTHER_CLASSIFIER]


async def test_embeddings_that_the_weights_were_not_fitted_to_are_refused(tmp_path: Path) -> None:
    other = Path(copytree(EMBEDDINGS, tmp_path / "other"))
    (other / "config.json").write_text("{}")
    executor = EstimateExecutor(embeddings=other)
    for reply in await estimated(executor, *map(estimate_call, (1, 2), QUESTIONS)):
        assert isinstance(reply, Failure)
        assert reply.kind is FailureKind.BACKEND_ERROR
        assert "fitted to embedder" in reply.detail
    (other / "config.json").write_bytes((EMBEDDINGS / "config.json").read_bytes())
    assert isinstance((await estimated(executor, estimate_call(3, QUESTIONS[0])))[0], Estimated)


def test_jobs_are_pinned_to_the_weights_and_by_them_to_the_embedder() -> None:
    assert BUILT_IN["estimate"] is ESTIMATOR
    assert ESTIMATOR.digest == digest(WEIGHTS)
    assert read_regression(WEIGHTS).embedder == StaticEmbedder(EMBEDDINGS).signature


# Graders of plug-ins mark in processes of their own: what one of them does to its process is its own answer's fate.

DEADLINE_S = 0.3
UNPARSED, TIMEOUT, BROKEN = FailureKind.UNPARSED, FailureKind.GRADER_TIMEOUT, FailureKind.BACKEND_ERROR
FAIR = "return Marked(correct=answer == gold, score=0.5)"
BODIES = {"fair": FAIR, "loops": "while True: pass", "leaves": "import os; os._exit(7)"}
FICKLE: dict[str, tuple[str, FailureKind | Marked]] = {
    "raises": ("raise KeyError(answer)", UNPARSED),
    "unfit": ("raise InvalidGold('the gold answer is a pear')", UNPARSED),
    "wordy": ("return 'right'", UNPARSED),
    "proud": ("return Marked(correct=True, score=7.0)", UNPARSED),
    "loud": ("print('{'); return Marked(correct=True)", Marked(correct=True)),
}
"""By answer, what a fourth grader does, in one process."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    made = plugins.site(tmp_path, monkeypatch)
    for name, body in BODIES.items():
        install(made, name, body)
    lines = [f"if answer == {answer!r}:\n        {body}" for answer, (body, _) in FICKLE.items()]
    install(made, "fickle", "\n    ".join([*lines, FAIR]))
    restart(monkeypatch)
    yield made
    loading._loaded = loading.Loaded()


def install(site: plugins.Site, name: str, body: str) -> None:
    site.install(name, marking(name, body), kind="grader", value=f"plugin_{name}:GRADER")


@pytest.fixture
async def grades() -> AsyncIterator[GradeExecutor]:
    pools: list[GradingPool] = []

    def open_pool(plugin: Plugin) -> GradingPool:
        pools.append(GradingPool(1, DEADLINE_S, plugin))
        return pools[-1]

    async with GradingPool(1) as shipped:
        yield GradeExecutor(shipped, open_pool)
    for pool in pools:
        await pool.close()


def grade_calls(*names: str, answers: Sequence[str] = ()) -> dict[int, ClaimedCall]:
    made = {}
    for number, (name, answer) in enumerate(zip(names, answers or ["4"] * len(names), strict=True)):
        pins = {"grade": Pin(model_id=1, hash=grader_identity(name).hash.hex())}
        bound = bind(
            Grade(answer=answer, gold="4"), Binding(pins=pins, params=Params(grading=GradingParams(grader=name))), 0
        )
        made[number] = ClaimedCall(id=number, key=bound.key, role="grade", model_id=1, request=bound.body)
    return made


async def graded(grades: GradeExecutor, asked: dict[int, ClaimedCall]) -> dict[int, Reply | Wait]:
    ends = [end async for end in grades.run(list(asked.values()), None)]
    return {end.call_id: end.reply if isinstance(end, AnsweredCall) else end for end in ends}


async def test_each_grader_ends_its_own_answer_as_it_deserves(site: plugins.Site, grades: GradeExecutor) -> None:
    names = [*BODIES, *["fickle"] * (len(FICKLE) + 1), "math"]
    answers = ["4"] * len(BODIES) + [*FICKLE, "4", "4"]
    found = await graded(grades, grade_calls(*names, answers=answers))
    said = {name: found[number] for number, name in enumerate([*BODIES, *FICKLE, "fickle", "math"])}
    assert not isinstance(said["math"], Failure)
    fair = Marked(correct=True, score=0.5)
    expected = {"fair": fair, "loops": TIMEOUT, "leaves": BROKEN, "fickle": fair}
    assert {
        name: reply.kind if isinstance(reply, Failure) else reply for name, reply in said.items() if name != "math"
    } == expected | {answer: end for answer, (_, end) in FICKLE.items()}
    assert isinstance(said["raises"], Failure)
    assert said["raises"].detail == "grader 'fickle' raised KeyError: 'raises'"
    assert isinstance(said["proud"], Failure)
    assert "its score must be from 0 to 1, not 7.0" in said["proud"].detail


async def test_a_grader_of_other_code_than_its_calls_are_keyed_by_grades_nothing(
    site: plugins.Site, grades: GradeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = grade_calls("fair")
    install(site, "fair", "return Marked(correct=False)")
    assert [type(end) for end in (await graded(grades, asked)).values()] == [Wait]
    restart(monkeypatch)
    [end] = (await graded(grades, asked)).values()
    assert isinstance(end, Wait)
    assert end.what == "the plug-in's grader 'fair'"
    assert isinstance((await graded(grades, grade_calls("fair")))[0], Marked)


# Retrieve calls: what goes to the retriever, and what its answers become.

SETTINGS = Settings(retriever_url="http://retriever", retrieval=Retrieval(timeout_s=7))
Handler = Callable[[httpx2.Request], httpx2.Response]


def retrieve_call(question: str, **more: Any) -> ClaimedCall:
    body = msgspec.json.encode(Request(role="retrieve", model="m", values={"question": question}, k=5, **more))
    return ClaimedCall(id=1, key=b"", role="retrieve", model_id=3, request=body)


class Indexes:
    """A database in which every model has index 33."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["Indexes"]:
        yield self

    async def execute(self, *_: object) -> "Indexes":
        return self

    def scalar_one(self) -> int:
        return 33


async def ends(handler: Handler, *calls: ClaimedCall) -> list[CallEnd]:
    database: Any = Indexes()
    executor = RetrieveExecutor(database, SETTINGS)
    executor.retriever = RetrieverClient(httpx2.AsyncClient(transport=httpx2.MockTransport(handler)), SETTINGS)
    return [each async for each in executor.run(calls, None)]


async def retrieved(handler: Handler, *calls: ClaimedCall) -> list[Reply]:
    return [each.reply for each in await ends(handler, *calls) if isinstance(each, AnsweredCall)]


def found(request: httpx2.Request) -> httpx2.Response:
    searches = json.loads(request.content)["searches"]
    hits = [Retrieved(hits=(Hit(document=search["question"], rank=1, score=1.0),)) for search in searches]
    return httpx2.Response(200, content=msgspec.json.encode(hits))


async def test_a_chunk_is_one_request_with_all_that_determines_the_replies() -> None:
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return found(request)

    got = await retrieved(
        handler, retrieve_call("one"), retrieve_call("two", skip=5, hypothetical=("a", "b"), threshold=0.7)
    )
    assert [reply.hits[0].document for reply in got if isinstance(reply, Retrieved)] == ["one", "two"]
    [request] = seen
    common = {"index": 33, "k": 5, "duplicates": "same-words", "item": "", "gold": ""}
    assert json.loads(request.content)["searches"] == [
        {**common, "question": "one", "skip": 0, "hypothetical": [], "threshold": None},
        {**common, "question": "two", "skip": 5, "hypothetical": ["a", "b"], "threshold": 0.7},
    ]


async def test_the_operators_limit_holds() -> None:
    limits: list[Any] = []

    def late(request: httpx2.Request) -> httpx2.Response:
        limits.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("late")

    got = await retrieved(late, retrieve_call("one"), retrieve_call("two"))
    assert limits == [7]
    assert [reply.kind for reply in got if isinstance(reply, Failure)] == [FailureKind.TIMEOUT] * 2


@pytest.mark.parametrize(("status", "kind"), [(413, FailureKind.CONTEXT_EXCEEDED), (422, FailureKind.BACKEND_ERROR)])
async def test_a_question_that_is_refused_fails_alone(status: int, kind: FailureKind) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        is_bad = any(search["question"] == "bad" for search in json.loads(request.content)["searches"])
        return httpx2.Response(status, text="not this one") if is_bad else found(request)

    first, second, third = await retrieved(handler, retrieve_call("one"), retrieve_call("bad"), retrieve_call("three"))
    assert isinstance(first, Retrieved)
    assert isinstance(second, Failure)
    assert second.kind is kind
    assert isinstance(third, Retrieved)


@pytest.mark.parametrize("status", [404, 422, 500])
async def test_other_refusals_are_trouble_of_the_retriever(status: int) -> None:
    asked: list[int] = []

    def handler(_: httpx2.Request) -> httpx2.Response:
        asked.append(status)
        return httpx2.Response(status, text="away")

    got = await retrieved(handler, retrieve_call("one"), retrieve_call("two"))
    assert [reply.kind for reply in got if isinstance(reply, Failure)] == [FailureKind.BACKEND_ERROR] * 2
    assert len(asked) == 3


async def test_a_retriever_that_is_not_there_is_waited_for() -> None:
    def gone(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("nobody there")

    assert await ends(gone, retrieve_call("one")) == [
        Wait(1, "the retriever at retriever", "ConnectError('nobody there')")
    ]


@pytest.mark.parametrize("status", [401, 403, 429, 502, 503, 504])
async def test_a_retriever_that_refuses_everybody_is_waited_for(status: int) -> None:
    got = await ends(lambda _: httpx2.Response(status, text="no"), retrieve_call("one"), retrieve_call("two"))
    assert got == [Wait(1, "the retriever at retriever", f"HTTP {status}: no")] * 2


async def test_what_the_retriever_finds_away_is_waited_for_by_name() -> None:
    what = "Elasticsearch at 127.0.0.1:9200"
    problem = {"type": "unavailable", "detail": f"{what} cannot be reached", "what": what}
    got = await ends(lambda _: httpx2.Response(503, json=problem), retrieve_call("one"))
    assert got == [Wait(1, what, f"{what} cannot be reached")]


async def test_what_is_there_and_has_nothing_for_a_search_is_a_failure_of_it() -> None:
    problem = {"type": "refused", "detail": "the index is damaged", "what": "the index is damaged"}
    [reply] = await retrieved(lambda _: httpx2.Response(503, json=problem), retrieve_call("one"))
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.BACKEND_ERROR


async def test_a_key_that_a_server_refuses_fails_the_call_with_the_whole_reason() -> None:
    detail = f"Elasticsearch at 127.0.0.1:9200 refuses us (403): {'action ' * 60}granted by the index privileges [read]"
    problem = {"type": "refused", "detail": detail, "hint": "make a new key", "what": "Elasticsearch at 127.0.0.1:9200"}
    [reply] = await retrieved(lambda _: httpx2.Response(503, json=problem), retrieve_call("one"))
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.detail) == (FailureKind.UNAVAILABLE, f"{detail}; make a new key")


# Executors whose calls run side by side: what is closed early leaves no task, and no chunk loses its documents.

VERDICT = Verified(verified=1, refuted=0, unknown=0)


class Row(NamedTuple):
    hash: bytes
    problem: str
    body: str


class Documents:
    @asynccontextmanager
    async def statement(self) -> AsyncIterator["Documents"]:
        yield self

    async def execute(self, _query: Any, values: dict[str, list[bytes]]) -> list[Row]:
        await asyncio.sleep(0)
        return [Row(each, "", each.hex()) for each in values["hashes"]]


class Pool:
    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = 0

    async def grade(self, _answer: str | None, _gold: str, _rules: Rules) -> Reply:
        return await self._work(Graded(math_verify=True, strict=True))

    async def verify(self, _text: str) -> Reply:
        return await self._work(VERDICT)

    async def _work(self, reply: Reply) -> Reply:
        self.asked += 1
        try:
            if self.asked > 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return reply


class Patient:
    async def verify(self, _text: str) -> Reply:
        for _ in range(20):
            await asyncio.sleep(0)
        return VERDICT


def claimed(*requests: Request) -> list[ClaimedCall]:
    return [
        ClaimedCall(id=number, key=b"", role=each.role, model_id=1, request=msgspec.json.encode(each))
        for number, each in enumerate(requests)
    ]


def verify(number: int) -> Request:
    return Request(role="verify", model="", values={"document": DocumentRef(f"{number:064x}")})


GRADE = Request(role="grade", model="", values={"answer": "5", "gold": "5"})


@pytest.mark.parametrize("what", ["grades", "verifying"])
async def test_an_executor_that_is_closed_early_leaves_no_task(what: str) -> None:
    pool, database = Pool(), Documents()
    given: Any = pool
    made: Any = database
    executor = GradeExecutor(given, lambda _: given) if what == "grades" else VerifyExecutor(made, given)
    chunk = claimed(GRADE, GRADE, GRADE) if what == "grades" else claimed(verify(1), verify(2), verify(3))
    before = asyncio.all_tasks()
    async with aclosing(executor.run(chunk, None)) as answers:
        await anext(answers)
    assert asyncio.all_tasks() == before
    assert pool.cancelled == 2


async def test_chunks_side_by_side_do_not_lose_each_others_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance.LibraryCache.__init__, "__defaults__", (2,))
    pool: Any = Patient()
    database: Any = Documents()
    executor = VerifyExecutor(database, pool)

    async def replies(start: int) -> list[Reply]:
        chunk = claimed(*(verify(number) for number in range(start, start + 4)))
        return [answer.reply async for answer in executor.run(chunk, None)]

    for found in await asyncio.gather(*(replies(start) for start in range(0, 20, 2))):
        assert not [reply for reply in found if isinstance(reply, Failure)]


# Roles that an installation has nothing for.


async def test_a_role_that_nobody_answers_says_so_for_every_call() -> None:
    calls = [ClaimedCall(id=n, key=b"", role="estimate", model_id=1, request=b"{}") for n in (1, 2)]
    answers = [answer async for answer in UnconfiguredExecutor("no classifier").run(calls, None)]
    reply = Failure(kind=FailureKind.NOT_CONFIGURED, detail="no classifier")
    assert [(answer.call_id, answer.reply) for answer in answers] == [(1, reply), (2, reply)]
    assert not any(answer.is_infrastructure for answer in answers)


# The processes that mine: rules however many, and each bound in words. What all pools share is tested with grading.

PROCESS = "tests.doubles.mining_process"
MEMORY_MIB = 2048


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "triples").write_bytes(np.array([[0, 0, 1], [1, 1, 2]], "<i4").tobytes())
    (folder / "times").write_bytes(np.array([3, -1], "<i8").tobytes())
    (folder / "entities").write_bytes('Ångström\n"the Duke"\n東京\n'.encode())
    (folder / "relations").write_bytes(b"likes 3\nowns 2\n")
    return folder


def test_a_graph_is_read_from_its_files(folder: Path) -> None:
    graph = graphs.map_graph(folder)
    assert graph.triples.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert graph.times is not None
    assert graph.times.tolist() == [3, -1]
    assert list(graph.entities) == ["Ångström", '"the Duke"', "東京"]
    assert (graph.entities[-1], graph.entities[0:2]) == ("東京", ["Ångström", '"the Duke"'])
    with pytest.raises(IndexError):
        graph.entities[3]


async def test_relations_are_mined_in_a_process_that_is_kept(folder: Path) -> None:
    """Rules that are longer than any line of a pipe come back, and nothing is left beside the graph.

    What the miner refuses is no fault of the process: the graph and the limits decide it, so it is kept as a reply.
    """
    async with MiningPool(1, 60.0, MEMORY_MIB, PROCESS) as pool:
        mined = await pool.mine(folder, "likes 3", Amie())
        assert isinstance(mined, Mined)
        assert [rule.pca_confidence for rule in mined.rules] == [0, 1 / 3, 2 / 3]
        before = pool.pids
        many = await pool.mine(folder, "likes 2000", Amie())
        assert isinstance(many, Mined)
        assert (len(many.rules), pool.pids) == (2000, before)
        reply = await pool.mine(folder, "refused", Amie())
        assert reply == Failure(kind=FailureKind.REFUSED, detail="the graph has no such relation")
        assert pool.pids == before
    assert list(folder.parent.iterdir()) == [folder]


async def test_a_relation_that_takes_too_much_fails_alone(folder: Path) -> None:
    async with MiningPool(1, 0.5, MEMORY_MIB, PROCESS) as pool:
        memory = await pool.mine(folder, "takes 4 GiB", Amie())
        assert isinstance(memory, Failure)
        assert memory.kind is FailureKind.OUT_OF_MEMORY
        assert "takes more than 2048 MiB, its process's part of `workers.mining_mib`" in memory.detail
        time = await pool.mine(folder, "computes for ever", Amie())
        assert isinstance(time, Failure)
        assert time.kind is FailureKind.MINER_TIMEOUT
        assert "takes more than 0.5 s of the processor; raise `workers.mine_deadline_s`" in time.detail
        assert isinstance(await pool.mine(folder, "owns 2", Amie()), Mined)


# The verifier's processes: counts and the hard deadline. What all pools share is tested with grading.

SLOW = " ".join(
    rf"$(a_{{{n}}} + y + z)^{{24}} = (a_{{{n}}}^2 + y^2 + z^2 + 2a_{{{n}}}y + 2a_{{{n}}}z + 2yz)^{{12}}$"
    for n in range(400)
)
"""Identities that SymPy expands one by one."""


async def test_documents_are_verified_in_a_process_that_is_kept_until_it_dies() -> None:
    """Starting it costs more than a document.

    A process that dies at work is an infrastructure failure: the runtime tries again.
    """
    async with VerificationPool(1, deadline_s=60) as pool:
        assert await pool.verify("$1+1=2$, $2+2=5$, $x=3$, $(a+b)^2=a^2+2ab+b^2$") == Verified(
            verified=2, refuted=1, unknown=1
        )
        before = pool.pids
        assert await pool.verify("8+7=15") == Verified(verified=1, refuted=0, unknown=0)
        assert pool.pids == before
        (victim,) = before
        verifying = asyncio.create_task(pool.verify(SLOW))
        await asyncio.sleep(0.1)
        os.kill(victim, signal.SIGKILL)
        detail = "the verifier ended with exit status -9"
        assert await verifying == Failure(kind=FailureKind.BACKEND_ERROR, detail=detail)


async def test_a_document_that_takes_too_long_is_a_failure_of_its_own_kind() -> None:
    async with VerificationPool(1, deadline_s=0.5) as pool:
        await pool.start()
        (stuck,) = pool.pids
        reply = await pool.verify(SLOW)
        assert reply == Failure(kind=FailureKind.VERIFIER_TIMEOUT, detail="no verdict within 0.5 s of processor time")
        with pytest.raises(ProcessLookupError):
            os.kill(stuck, 0)
        await pool.start()
        assert await pool.verify("$1+1=2$") == Verified(verified=1, refuted=0, unknown=0)


def test_the_process_answers_with_what_a_reply_is_made_of() -> None:
    answer = verification_process.load()
    assert Verified(**answer({"text": "1+1=2. \ud800"})).verified == 1
