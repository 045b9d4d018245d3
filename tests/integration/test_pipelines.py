import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from services.guard.drivers.process import LlamaServer, ProcessDriver
from shared import canonical
from shared.audit import check
from shared.calls import Decoding, ModelAnswer, Request
from shared.params import Params, decode_params
from shared.pipelines import registry
from shared.rag.crag import SHIPPED_VECTORS
from shared.rag.prompts import render, template
from shared.replies import Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity, get_shipped_signature
from shared.samples import Decision, GateDecision, Outcome
from shared.settings import REPOSITORY, Device, Model
from shared.storage.database import Database
from tests.integration.api import Api, finished
from tests.integration.scene import DOCUMENTS, ScriptedExecutor, by_rule, furnish, install, rows, run_sql, submit_job
from tests.integration.test_audit import staged

# Jobs with `crag` on a real database: another corpus by its own index, two stages, a clean audit, and calibration.


pytestmark = pytest.mark.anyio
ELSEWHERE = ModelIdentity(name="sparse", backend="retriever", digest="elsewhere")
FOREIGN = Document(problem="", text="Two equal numbers make twice the number.")
PARAMS = {"crag": {"fallback": "other", "diversity": 1.0, "rounds": 1}}


async def corpus_elsewhere(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            text("INSERT INTO documents VALUES (:h, '', :b)"), {"h": bytes.fromhex(FOREIGN.hash), "b": FOREIGN.text}
        )
        ids = {}
        for kind in ("dense", "sparse"):
            identity = msgspec.structs.replace(ELSEWHERE, name=kind)
            model = await pins.register(connection, identity)
            row = await connection.execute(
                text(
                    "INSERT INTO indexes (kind, signature, model_id, path, params, documents, state)"
                    " VALUES (:k, :s, :m, '', '{}', 1, 'ready') RETURNING id"
                ),
                {"k": kind, "s": f"other {kind}".encode(), "m": model},
            )
            ids[kind] = row.scalar_one()
        await connection.execute(
            text(
                "INSERT INTO corpora (name, hash, documents, dense_index, sparse_index)"
                " VALUES ('other', 'o', 1, :dense, :sparse)"
            ),
            ids,
        )


def doubtful(request: Request) -> Reply:
    if request.role == "retrieve" and request.model == ELSEWHERE.hash.hex():
        return Retrieved(hits=(Hit(document=FOREIGN.hash, rank=1, score=1.0),))
    if request.role == "judge":
        number = int.from_bytes(canonical.digest(request)[:4])
        document = request.values["document"]
        foreign = getattr(document, "doc", "") == FOREIGN.hash
        return Rated(rating=5 if foreign else 2 if number % 3 == 0 else 1, text="")
    return by_rule(request)


async def outcomes(database: Database) -> list[Outcome]:
    return [msgspec.json.decode(row[0], type=Outcome) for row in await rows(database, "SELECT outcome FROM outcomes")]


def of(outcome: Outcome, stage: str) -> list[Decision]:
    return [decision for decision in outcome.trace.decisions if decision.stage == stage]


async def test_what_is_doubtful_is_completed_from_another_corpus(database: Database) -> None:
    await furnish(database, items=5)
    await corpus_elsewhere(database)
    job = await submit_job(database, "crag", params=PARAMS)
    await staged(database, ScriptedExecutor(doubtful))
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await rows(database, "SELECT count(*) FROM calls WHERE role = 'generate'") == [(5,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        assert [decision.round for decision in of(outcome, "crag")] == [0, 1]
        assert of(outcome, "crag")[-1].action == "ambiguous"
        assert of(outcome, "external")[0].action == "searched"
        assert outcome.context[-1] == FOREIGN.hash
        assert len(outcome.context) == 2


async def test_a_judge_that_fails_is_replaced_and_the_job_goes_on(database: Database) -> None:
    await furnish(database, items=5)
    await corpus_elsewhere(database)

    def broken(request: Request) -> Reply:
        return Failure(kind=FailureKind.UNPARSED) if request.role in ("judge", "write") else by_rule(request)

    job = await submit_job(database, "crag", params=PARAMS)
    await staged(database, ScriptedExecutor(broken))
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        assert of(outcome, "crag")[0].fallback == "unparsed"
        assert of(outcome, "crag")[0].detail["evaluator"] == "similarity"
        assert {candidate.failure for candidate in outcome.trace.candidates} == {None}


@pytest.mark.parametrize("pipeline", ["crag", "my-crag"])
async def test_whatever_pipeline_evaluates_by_similarity_gets_the_thresholds_of_the_corpus_s_embedder(
    database: Database, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    install(monkeypatch, "my-crag", registry.get("crag").run)
    await furnish(database, items=1)
    embedder = {"e": get_shipped_signature()}
    await run_sql(database, "UPDATE indexes SET params = jsonb_build_object('embedder', CAST(:e AS text))", **embedder)
    await submit_job(database, pipeline, params={})
    ((params,),) = await rows(database, "SELECT params FROM jobs")
    assert msgspec.json.decode(params, type=Params).crag.similarity == SHIPPED_VECTORS


async def test_an_unknown_fallback_corpus_is_refused_at_submission(database: Database, api: Api) -> None:
    body = {"name": "x", "dataset": "items", "corpus": "docs", "pipeline": "crag", "params": PARAMS}
    reply = await api.http.post("/v1/jobs", json=body)
    assert reply.status_code in (404, 422), reply.text
    assert "other" in reply.json()["detail"]


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await furnish(database, items=60)
    return empty_api


async def test_thresholds_are_learnt_from_what_a_dataset_calls_relevant(database: Database, api: Api) -> None:
    await run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash, meta) SELECT id, 0, 'd0', :h, '{}'"
        " FROM corpora WHERE name = 'docs'",
        h=bytes.fromhex(DOCUMENTS[0].hash),
    )
    await run_sql(
        database,
        "UPDATE items SET gold_documents ="
        """ CASE WHEN ordinal % 3 = 0 THEN CAST('{}' AS jsonb) ELSE CAST('{"d0": 1}' AS jsonb) END""",
    )
    await api.job("crag", params={"candidates": 20, "crag": {"evaluator": "similarity"}})
    await finished(database)
    found = await api.get("/v1/jobs/a-job/calibration", trust=0.5)
    assert (found["name"], found["evaluator"], found["skipped"]) == ("a-job", "similarity", 0)
    figures = found["calibration"]
    assert (figures["trust"], figures["observations"], figures["relevant"]) == (0.5, 60, 40)
    assert figures["upper"]["value"] is not None


async def test_a_job_without_labels_or_of_another_pipeline_calibrates_nothing(database: Database, api: Api) -> None:
    await api.job("crag", params={"crag": {"evaluator": "similarity"}})
    await api.job("dense", name="b-job")
    await finished(database)
    for job, why in (("a-job", "0 relevant and 0 irrelevant"), ("b-job", "runs `dense`")):
        reply = await api.http.get(f"/v1/jobs/{job}/calibration")
        assert (reply.status_code, why in reply.json()["detail"]) == (409, True), reply.text


async def labelled(database: Database) -> None:
    await run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash, meta) SELECT id, 0, 'd0', :h, '{}'"
        " FROM corpora WHERE name = 'docs'",
        h=bytes.fromhex(DOCUMENTS[0].hash),
    )
    await run_sql(
        database,
        "UPDATE items SET gold_documents ="
        """ CASE WHEN ordinal % 3 = 0 THEN CAST('{}' AS jsonb) ELSE CAST('{"d0": 1}' AS jsonb) END""",
    )


async def searched_by(database: Database, embedder: str) -> None:
    await run_sql(
        database,
        "UPDATE indexes SET params = jsonb_build_object('embedder', CAST(:e AS text)) WHERE kind = 'dense'",
        e=embedder,
    )


async def crag_params(api: Api, job: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"/v1/jobs/{job}"))["params"]["crag"]
    return found


async def test_calibrated_thresholds_are_pinned_when_a_job_is_submitted(database: Database, api: Api) -> None:
    await labelled(database)
    by_similarity = {"candidates": 20, "crag": {"evaluator": "similarity"}}
    await api.job("crag", name="first", params=by_similarity)
    await finished(database)
    wanted = {"thresholds": "calibrated", "calibrated_by": "first", "evaluator": "similarity"}
    await api.job("crag", name="second", params={**by_similarity, "crag": wanted})
    found = await api.get("/v1/jobs/first/calibration")
    limits = {name: found["calibration"][name]["value"] for name in ("upper", "lower")}
    before = await crag_params(api, "second")
    assert (before["calibrated"], before["calibrated_by"]) == (limits, found["id"])
    await finished(database)
    job = (await api.get("/v1/jobs/second"))["id"]
    await run_sql(database, "UPDATE items SET gold_documents = NULL")
    assert await crag_params(api, "second") == before
    assert await check(database, uuid.UUID(job)) == []
    for outcome in (await outcomes(database))[-60:]:
        assert of(outcome, "crag")[0].detail["upper"] == limits["upper"]


def of_two_minds(request: Request) -> Reply:
    if request.role != "judge":
        return by_rule(request)
    number = int(str(request.values["question"]).split()[2])
    return Rated(rating=5 if number < 30 else 1, text="")


async def test_lists_that_a_judge_has_judged_calibrate_another_evaluator(database: Database, api: Api) -> None:
    await api.job("crag", name="judged", params={"candidates": 20, "crag": {"rounds": 0}})
    await api.job("crag", name="cheap", params={"candidates": 20, "crag": {"evaluator": "similarity"}})
    await staged(database, ScriptedExecutor(of_two_minds))
    found = await api.get("/v1/jobs/cheap/calibration", judged_by="judged", trust=0.5)
    assert (found["calibration"]["observations"], found["calibration"]["relevant"]) == (60, 30)
    assert found["evaluator"] == "similarity"
    wanted = {"thresholds": "calibrated", "calibrated_by": "cheap", "judged_by": "cheap", "evaluator": "similarity"}
    body = {"name": "x", "dataset": "items", "corpus": "docs", "pipeline": "crag", "params": {"crag": wanted}}
    refused = await api.http.post("/v1/jobs", json=body)
    assert (refused.status_code, "used the evaluator 'similarity'" in refused.json()["detail"]) == (409, True), (
        refused.text
    )
    wanted["judged_by"] = "judged"
    assert (await api.http.post("/v1/jobs", json=body)).status_code == 202
    assert (await crag_params(api, "x"))["calibrated_by"] == found["id"]


@pytest.mark.parametrize(
    ("crag", "status", "why"),
    [
        ({"thresholds": "calibrated"}, 422, "need the job that gives them"),
        ({"thresholds": "calibrated", "calibrated_by": "nobody"}, 404, "no job 'nobody'"),
        (
            {"thresholds": "calibrated", "calibrated_by": "first", "evaluator": "judge"},
            422,
            "used the evaluator 'similarity', not 'judge'",
        ),
    ],
)
async def test_a_calibration_that_cannot_be_had_is_said_at_submission(
    database: Database, api: Api, crag: dict[str, Any], status: int, why: str
) -> None:
    await labelled(database)
    await api.job("crag", name="first", params={"candidates": 20, "crag": {"evaluator": "similarity"}})
    await finished(database)
    body = {"name": "x", "dataset": "items", "corpus": "docs", "pipeline": "crag", "params": {"crag": crag}}
    reply = await api.http.post("/v1/jobs", json=body)
    assert (reply.status_code, why in reply.json()["detail"]) == (status, True), reply.text


async def test_the_shipped_vectors_thresholds_are_for_the_shipped_vectors(database: Database, api: Api) -> None:
    await searched_by(database, get_shipped_signature())
    await api.job("crag", name="shipped", params={"crag": {"evaluator": "similarity"}})
    await searched_by(database, "bge")
    await api.job("crag", name="other", params={"crag": {"evaluator": "similarity", "rounds": 0}})
    assert (await crag_params(api, "shipped"))["similarity"] == {"upper": 0.66, "lower": 0.54}
    assert (await crag_params(api, "other"))["similarity"] is None
    await finished(database)
    other = await rows(
        database,
        """
        SELECT o.outcome FROM outcomes o JOIN samples s ON s.id = o.sample_id JOIN jobs j ON j.id = s.job_id
        WHERE j.name = 'other' AND s.kind = 'item'""",
    )
    actions = {of(msgspec.json.decode(row[0], type=Outcome), "crag")[0].action for row in other}
    assert actions == {"ambiguous"}


async def test_a_calibration_by_another_embedder_is_refused(database: Database, api: Api) -> None:
    await labelled(database)
    await api.job("crag", name="first", params={"candidates": 20, "crag": {"evaluator": "similarity"}})
    await finished(database)
    await corpus_elsewhere(database)
    await run_sql(database, """UPDATE indexes SET params = '{"embedder": "bge"}' WHERE signature = 'other dense'""")
    crag = {"thresholds": "calibrated", "calibrated_by": "first", "evaluator": "similarity"}
    body = {"name": "x", "dataset": "items", "corpus": "other", "pipeline": "crag", "params": {"crag": crag}}
    reply = await api.http.post("/v1/jobs", json=body)
    assert (reply.status_code, "another embedder" in reply.json()["detail"]) == (422, True), reply.text


# A deterministic model on the real llama.cpp child: every number is the same, whatever else is asked.

GENERATOR = REPOSITORY / "models" / "world-generator-f16.gguf"
GREEDY = Decoding(temperature=0.0, max_tokens=32)
NAMES = ("zorlo", "bimak", "taflen", "quorv", "dostim", "welpa")


def prompt_about(name: str, n: int) -> str:
    context = f"By definition a {name} b = ({n}+a)*b. " + "Therefore 8 zorlo 7 = 5. " * n
    return render(template("cot"), {"question": f"What is {n} {name} 7?", "context": context})


PROMPTS = [prompt_about(name, n) for n, name in enumerate(NAMES * 2)]


async def started() -> LlamaServer:
    return await ProcessDriver("world", Model(driver="process", path=GENERATOR, deterministic=True), Device()).start()


async def alone(server: LlamaServer, prompts: Sequence[str]) -> dict[str, ModelAnswer]:
    return {prompt: await ask(server, prompt) for prompt in prompts}


async def ask(server: LlamaServer, prompt: str) -> ModelAnswer:
    reply = await server.complete(prompt, GREEDY, seed=1, logprobs=3)
    return ModelAnswer(text=reply.text, finish_reason=reply.finish_reason, tokens=reply.tokens)


async def test_every_number_is_the_same_whatever_else_is_asked() -> None:
    first = await started()
    expected = await alone(first, PROMPTS)
    assert all(reply.tokens for reply in expected.values())
    assert await alone(first, PROMPTS[::-1]) == expected
    at_once = await asyncio.gather(*(ask(first, prompt) for prompt in PROMPTS))
    assert dict(zip(PROMPTS, at_once, strict=True)) == expected
    for prompt in PROMPTS:
        with suppress(TimeoutError):
            await asyncio.wait_for(ask(first, prompt), 0.01)
    assert await alone(first, PROMPTS[::-1]) == expected
    await first.stop()
    second = await started()
    assert await alone(second, PROMPTS[::-1]) == expected
    await second.stop()


# Jobs with `enhanced` on a real database: in two stages, audited, and with a judge model that writes nonsense.


async def asked(database: Database) -> dict[object, object]:
    return dict(await rows(database, "SELECT role, count(*) FROM calls GROUP BY 1"))  # type: ignore[arg-type]


async def test_a_job_runs_with_one_load_of_each_model_and_a_clean_audit(database: Database) -> None:
    await furnish(database, items=5)
    job = await submit_job(database, "enhanced", params={"enhance": {"hyde": True}, "hyde": {"documents": 2}})
    await staged(database)
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert (await asked(database))["generate"] == 5
    assert (await asked(database))["write"] == 5 * (2 + 2)
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        stages = [decision.stage for decision in outcome.trace.decisions]
        assert [stage for stage in stages if stage in ("rewrite", "decompose", "hyde", "rerank")] == [
            "rewrite",
            "decompose",
            "hyde",
            "rerank",
        ]
        assert any("hypothetical dense" in (entry.paths or {}) for entry in outcome.trace.candidates)


@pytest.mark.parametrize("by", ["yes-no", "rating"])
async def test_the_judge_model_reranks_without_another_load(database: Database, by: str) -> None:
    await furnish(database, items=5)
    rerank = {"by": by, "threshold": 0.3}
    job = await submit_job(database, "enhanced", params={"rerank": rerank, "candidates": 3, "context_size": 3})
    await staged(database)
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    calls = await asked(database)
    assert "rerank" not in calls
    assert calls["judge"] == sum([len(outcome.trace.candidates) for outcome in await outcomes(database)])
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        relevance = {entry.document: entry.relevance or 0 for entry in outcome.trace.candidates}
        assert list(relevance.values()) == sorted(relevance.values(), reverse=True)
        kept = [document for document, each in relevance.items() if each >= 0.3]
        assert list(outcome.context) == (kept or list(relevance))


MATHEMATICS = {"rated": 3, "floor": 0.5, "by": "rating", "tested": False, "quality": "gate"}
OF_WORDS = {**MATHEMATICS, "rated": 2, "tested": True}
NO_FLOOR = {"floor": 0, "by": "auto", "tested": False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"grading": {"grader": "math"}}, MATHEMATICS),
        ({"grading": {"grader": "math"}, "rerank": {"floor": 0.2}}, {**MATHEMATICS, "floor": 0.2}),
        ({"grading": {"grader": "math"}, "rerank": {"floor": 0}}, {**MATHEMATICS, **NO_FLOOR}),
        ({"grading": {"grader": "math"}, "candidates": 2}, {**MATHEMATICS, "rated": 2}),
        ({"grading": {"grader": "math"}, "context_size": 1}, {**MATHEMATICS, "rated": 2}),
        (
            {"grading": {"grader": "math"}, "quality": "rules"},
            {**MATHEMATICS, "quality": "rules", "floor": None, "by": "auto"},
        ),
        ({"grading": {"grader": "text"}}, OF_WORDS),
        ({"grading": {"grader": "text"}, "context_size": 1}, {**OF_WORDS, "rated": 1, "quality": "rules"}),
        ({"grading": {"grader": "text"}, "quality": "judge"}, {**OF_WORDS, "quality": "judge"}),
        ({"grading": {"grader": "text"}, "rated": 3}, {**OF_WORDS, "rated": 3}),
        ({"grading": {"grader": "text"}, "rerank": {"floor": 0}}, {**OF_WORDS, **NO_FLOOR}),
        ({"grading": {"grader": "text"}, "rerank": {"by": "yes-no"}}, {**OF_WORDS, "by": "yes-no"}),
    ],
    ids=str,
)  # fmt: skip
async def test_the_gate_keeps_what_is_relevant_and_quality_orders_the_first_of_it(
    database: Database, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    await furnish(database, items=2)
    assert await filled_in(database, **given) == expected


@pytest.mark.parametrize(
    ("document", "expected"), [(DOCUMENTS[0], MATHEMATICS), (Document(text="We open at 8."), OF_WORDS)]
)
async def test_where_no_grader_is_chosen_the_corpus_tells_whether_it_is_mathematics(
    database: Database, document: Document, expected: dict[str, Any]
) -> None:
    await furnish(database, items=2)
    shown = {"hash": bytes.fromhex(document.hash), "problem": document.problem, "body": document.text}
    await run_sql(database, "INSERT INTO documents VALUES (:hash, :problem, :body) ON CONFLICT DO NOTHING", **shown)
    member = "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash) SELECT id, 0, 'x', :hash"
    await run_sql(database, f"{member} FROM corpora WHERE name = 'docs'", hash=shown["hash"])
    assert await filled_in(database) == expected


async def test_outside_mathematics_a_configured_reranker_is_asked(database: Database) -> None:
    await furnish(database, items=2)
    async with database.transaction() as connection:
        await pins.register(connection, ModelIdentity(name="reranker", backend="gguf", digest="a"))
    words = {"grader": "text"}
    assert await filled_in(database, grading=words) == {**OF_WORDS, "by": "reranker", "tested": False}
    assert await filled_in(database, grading=words, rerank={"by": "yes-no"}) == {**OF_WORDS, "by": "yes-no"}


async def filled_in(database: Database, **params: Any) -> dict[str, Any]:
    """What a job of `mathrag-gate` with these parameters was given."""
    await submit_job(database, params={"context_size": 2, "rated": None, "rerank": {}, **params})
    stored = (await rows(database, "SELECT params FROM jobs ORDER BY id"))[-1][0]
    found = decode_params(bytes(stored))  # type: ignore[arg-type]
    rerank = found.rerank
    filled = {"floor": rerank.floor, "by": rerank.by, "tested": rerank.tested}
    return {"rated": found.rated, **filled, "quality": found.quality}


async def test_a_job_tests_the_judge_before_its_samples_and_its_audit_is_clean(database: Database) -> None:
    await furnish(database, items=8)
    params = {"context_size": 2, "candidates": 3, "grading": {"grader": "text"}, "rated": 2, "rerank": {}}
    job = await submit_job(database, params=params)
    await staged(database)
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 8)]
    ((prepared,),) = await rows(database, "SELECT prepared FROM jobs")
    tested = msgspec.json.decode(bytes(prepared), type=GateDecision).relevance  # type: ignore[arg-type]
    assert tested is not None
    assert (tested.questions, tested.passed) == (8, tested.low >= 0.6)
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []


async def test_a_judge_that_writes_nonsense_leaves_the_original_question(database: Database) -> None:
    def nonsense(request: Request) -> Reply:
        if request.role == "rerank":
            return Failure(kind=FailureKind.NOT_CONFIGURED)
        return Generated(text="[[5]] as an AI") if request.role == "write" else by_rule(request)

    await furnish(database, items=5)
    job = await submit_job(database, "enhanced")
    await staged(database, ScriptedExecutor(nonsense))
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        fallbacks = [(decision.stage, decision.fallback) for decision in outcome.trace.decisions if decision.fallback]
        assert fallbacks == [("rewrite", "unparsed"), ("decompose", "unparsed"), ("rerank", "not_configured")]
        assert {path for entry in outcome.trace.candidates for path in entry.paths or {}} <= {
            "original dense",
            "original sparse",
        }


async def test_the_whole_flow_of_seed_document_001_takes_two_loads(database: Database) -> None:
    await furnish(database, items=5)
    crag = {"rounds": 2, "diversity": 1.0}
    job = await submit_job(database, "enhanced-crag", params={"crag": crag, "context_size": 3})
    await staged(database)
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert (await asked(database))["generate"] == 5
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        stages = dict.fromkeys(decision.stage for decision in outcome.trace.decisions)
        wanted = ("rewrite", "crag", "rerank", "compress")
        assert tuple(stage for stage in stages if stage in wanted) == wanted


async def test_prompts_that_do_not_fit_cost_no_load(database: Database) -> None:
    def cramped(request: Request) -> Reply:
        context = request.values.get("context")
        if request.role == "generate" and isinstance(context, list) and len(context) > 1:
            return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="900 tokens of 512")
        return by_rule(request)

    await furnish(database, items=5)
    job = await submit_job(database, "hyde", params={"context_size": 3, "hyde": {"documents": 1}})
    await staged(database, ScriptedExecutor(cramped))
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    assert (await asked(database))["generate"] == 5 * 3
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        assert len(outcome.context) == 1
        dropped = [each for each in outcome.trace.decisions if each.stage == "context"]
        assert [each.fallback for each in dropped] == ["context_exceeded"] * 2
