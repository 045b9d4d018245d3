"""Answers that exist, measured by metrics: those of another system with their documents, and those of ended jobs."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from shared.audit import check
from shared.calls import Request
from shared.replies import Failure, FailureKind, Generated, Rated, Reply
from shared.runtime import purge
from shared.runtime.lifecycle import finish_due_jobs, list_due_jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.scene import rows, scalar
from tests.integration.tampering import as_owner

pytestmark = pytest.mark.anyio

FAITHFUL = ["faithfulness", "context_relevance"]
LINES = [
    {"index": 0, "text": "Zero is even. \\boxed{0}", "contexts": ["Zero is even.", "Nothing else."]},
    {"index": 1, "text": "It is \\boxed{2}.", "contexts": []},
    {"index": 2, "text": "It is \\boxed{4}."},
]
DOCUMENTS = "SELECT count(*) FROM documents WHERE problem = ''"
JUDGED = "SELECT count(*) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'judge'"


def judge(request: Request) -> Reply:
    """Everything is supported, relevant and answers the question."""
    if request.role != "judge":
        return scene.by_rule(request)
    labels = {"support": 3, "sufficient": 3, "addresses": 4}
    return Rated(rating=labels.get(request.template.partition("@")[0], 5), text="")


@pytest.fixture
async def owner(owner_url: str) -> AsyncIterator[Database]:
    owner = Database(owner_url, pinned=False)
    yield owner
    await owner.close()


async def import_answers(api: Api, lines: Any = LINES, name: str = "theirs", **query: Any) -> httpx2.Response:
    return await api.upload("jobs/import", name, lines, **{"dataset": "items", **query})


async def measure(api: Api, job: str, *metrics: str, **fields: Any) -> httpx2.Response:
    body = {"params": {"metrics": {"names": list(metrics)}}, **fields}
    return await api.http.post(f"/v1/jobs/{job}/measure", json=body)


async def purge_job(owner: Database, name: str) -> None:
    await purge.purge(owner, (await purge.find_jobs(owner, [name]))[0], "a-tester")


async def list_scores(api: Api, job: str) -> dict[int, dict[str, Any]]:
    samples = (await api.get(f"/v1/jobs/{job}/samples"))["data"]
    found = [await api.get(f"/v1/jobs/{job}/samples/{each['index']}") for each in samples]
    return {each["index"]: each["outcome"]["metrics"] for each in found}


# Imports with documents.


async def test_an_import_is_measured_by_the_documents_of_its_file(api: Api, database: Database) -> None:
    needing = [*FAITHFUL, "context_precision", "context_sufficiency", "context_recall", "citation_recall"]
    reply = await import_answers(api, metric=needing)
    assert reply.status_code == 202, reply.text
    await finished(database, judge)
    scores = await list_scores(api, "theirs")
    assert (scores[0]["faithfulness"]["value"], scores[0]["context_relevance"]["value"]) == (1.0, 1.0)
    assert scores[1]["faithfulness"]["value"] == 0.0  # a search that found nothing
    assert scores[1]["context_relevance"]["not_applicable"] == "the prompt had no documents"
    assert scores[2]["faithfulness"]["not_applicable"] == "nothing was searched"
    assert all(score.get("not_applicable") for score in scores[2].values()), scores[2]
    assert (scores[1]["context_sufficiency"]["value"], scores[1]["citation_recall"]["value"]) == (0.0, 0.0)
    assert await scalar(database, DOCUMENTS) == 2
    sample = await api.get("/v1/jobs/theirs/samples/0")
    shown = [sample["documents"][each]["text"] for each in sample["outcome"]["context"]]
    assert shown == ["Zero is even.", "Nothing else."]
    assert await check(database, reply.json()["id"]) == []
    page = (await api.http.get("/jobs/theirs/samples/0")).text
    assert "Its documents are those of the file" in page
    assert "Nothing else." in page


async def test_a_wrong_equation_in_a_given_answer_is_found_there_and_when_it_is_measured(
    api: Api, database: Database
) -> None:
    lines = [{"index": 1, "text": "1+1=3, so it is \\boxed{3}."}, {"index": 2, "text": "It is \\boxed{5}."}]
    assert (await import_answers(api, lines)).status_code == 202
    await finished(database, judge)
    assert (await measure(api, "theirs", "answer_relevance")).status_code == 202
    await finished(database, judge)
    for job in ("theirs", "theirs-measured"):
        assert (await api.get(f"/v1/jobs/{job}/report"))["endings"] == {"arithmetic": 1, "logic": 1}


async def test_files_of_ragas_and_deepeval_are_measured_as_they_are(api: Api, database: Database) -> None:
    ragas = {
        "user_input": "What is 1 plus 1?",
        "response": "2.",
        "retrieved_contexts": ["One and one."],
        "reference": "2",
    }
    test_case = {"input": "What is 1 plus 1?", "actual_output": "2.", "retrieval_context": ["One and one."],
                 "context": ["What should have been found."], "expected_output": "2"}  # fmt: skip
    table = b"user_input,response,retrieved_contexts\nWhat is 1 plus 1?,2.,\"['One and one.']\"\n"
    asked = []
    for name, lines, options in (
        ("jsonl", [ragas], {}),
        ("csv", [table], {"format": "csv"}),
        ("deepeval", [test_case], {}),
        ("deepeval-list", [json.dumps([test_case]).encode()], {}),
        ("deepeval-log", [json.dumps([test_case]).encode()], {"layout": "deepeval"}),
    ):
        reply = await import_answers(api, lines, name, metric="context_relevance", **options)
        assert reply.status_code == 202, reply.text
        await finished(database, judge)
        assert (await list_scores(api, name))[1]["context_relevance"]["value"] == 1.0, name
        asked.append(await scalar(database, JUDGED))
    assert await scalar(database, DOCUMENTS) == 1
    assert asked == [asked[0]] * 5  # the same question about the same document


async def test_citations_of_an_import_are_measured(api: Api, database: Database) -> None:
    lines = [{"index": 1, "text": "One is odd [1]. Two is even.", "contexts": ["One is odd."]}]
    assert (await import_answers(api, lines, metric=["citation_recall", "citation_precision"])).status_code == 202
    await finished(database, judge)
    scores = (await list_scores(api, "theirs"))[1]
    assert (scores["citation_recall"]["value"], scores["citation_precision"]["value"]) == (0.5, 1.0)


async def test_metrics_of_documents_are_refused_for_an_import_without_any(api: Api, database: Database) -> None:
    for metric in ("faithfulness", "citation_recall"):
        reply = await import_answers(api, LINES[2:], metric=metric)
        problem = reply.json()
        assert (reply.status_code, "no answer of the import has any" in problem["detail"]) == (422, True), problem
        assert "`contexts`" in problem["hint"]
    reply = await import_answers(api, metric="faithfullness")
    assert (reply.status_code, "did you mean 'faithfulness'" in reply.json()["hint"]) == (422, True)
    reply = await import_answers(api, metric="faithfulness", model="judge=nobody")
    assert (reply.status_code, "nobody" in reply.json()["detail"]) == (422, True), reply.text
    assert await scalar(database, "SELECT (SELECT count(*) FROM given) + (SELECT count(*) FROM jobs)") == 0
    assert await scalar(database, DOCUMENTS) == 0
    assert (await import_answers(api, LINES[2:], metric="answer_relevance")).status_code == 202
    await finished(database, judge)
    assert (await list_scores(api, "theirs"))[2]["answer_relevance"]["value"] == 1.0


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        (["x" * 1_000_000], "text 1 of `contexts` has 1000000 characters, more than 100000"),
        (["x"] * 101, "`contexts` has 101 texts, more than 100"),
        ("a text", "`contexts` is a string; write a list of texts"),
        ({"a": "b"}, "`contexts` is an object"),
        (["x", 3], "text 2 of `contexts` is a number"),
        (["a\0b"], "u0000"),
    ],
)
async def test_contexts_that_cannot_be_used_are_named_with_their_line(
    api: Api, database: Database, contexts: Any, said: str
) -> None:
    reply = await import_answers(api, [LINES[0], {"index": 1, "text": "2", "contexts": contexts}])
    problem = reply.json()
    assert (reply.status_code, problem["line"], said in problem["detail"]) == (422, 2, True), problem
    assert await scalar(database, DOCUMENTS) == 0


async def test_a_cell_that_is_no_list_is_named_with_its_line(api: Api) -> None:
    table = b"index,text,contexts\n0,a,\"['a', 'b']\"\n1,b,just a text\n"
    problem = (await import_answers(api, [table], format="csv")).json()
    assert (problem["line"], "`contexts` is a string" in problem["detail"]) == (3, True), problem
    table = b"index,text,contexts\n0,a,\"['a' 'b']\"\n"
    problem = (await import_answers(api, [table], format="csv")).json()
    assert (problem["line"], "`contexts` is not JSON" in problem["detail"]) == (2, True), problem


async def test_documents_of_an_import_stay_until_the_last_job_with_them_is_purged(
    api: Api, database: Database, owner: Database
) -> None:
    await import_answers(api, metric="faithfulness")
    await import_answers(api, LINES[:1], "again")
    await finished(database, judge)
    for name, left in (("theirs", 2), ("again", 0)):
        await purge.remove_unused(owner, "a-tester")
        assert await scalar(database, DOCUMENTS) == 2
        await purge_job(owner, name)
        await purge.remove_unused(owner, "a-tester")
        assert await scalar(database, DOCUMENTS) == left


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE documents SET body = 'x' WHERE body = 'Nothing else.'", "its text does not match its hash"),
        ("DELETE FROM documents WHERE body = 'Nothing else.'", "it is gone, although a given answer names it"),
    ],
)
async def test_a_changed_document_of_an_import_is_found(
    api: Api, database: Database, owner: Database, change: str, said: str
) -> None:
    job = (await import_answers(api)).json()
    await finished(database, judge)
    assert await check(database, job["id"]) == []
    found = await as_owner(owner, job["id"], change)
    assert [each.message for each in found if each.invariant == "I18"] == [said]


# Jobs that are measured later.


async def run_job(api: Api, database: Database, pipeline: str = "dense", **fields: Any) -> Any:
    job = await api.job(pipeline, **fields)
    await finished(database, judge)
    return job


async def test_a_job_is_measured_later_as_it_would_have_been_in_its_run(api: Api, database: Database) -> None:
    names = [*FAITHFUL, "context_precision", "context_sufficiency", "answer_relevance", "context_recall", "claims"]
    job = await run_job(api, database)
    before = await api.get("/v1/jobs/a-job")
    reply = await measure(api, "a-job", *names)
    assert (reply.status_code, reply.json()["name"], reply.json()["pipeline"]) == (202, "a-job-measured", "measured")
    calls = await scalar(database, "SELECT count(*) FROM calls WHERE role IN ('grade', 'generate', 'retrieve')")
    await finished(database, judge)
    roles = "SELECT count(*) FROM calls WHERE role IN ('grade', 'generate', 'retrieve')"
    assert await scalar(database, roles) == calls
    assert await api.get("/v1/jobs/a-job") == before
    asked = await scalar(database, JUDGED)
    await run_job(api, database, name="measured-in-its-run", params={"metrics": {"names": names}})
    assert await scalar(database, JUDGED) == asked
    assert await list_scores(api, "a-job-measured") == await list_scores(api, "measured-in-its-run")
    report = await api.get("/v1/jobs/a-job-measured/report")
    assert report["endings"] == (await api.get("/v1/jobs/a-job/report"))["endings"]
    assert report["accuracy"] == (await api.get("/v1/jobs/a-job/report"))["accuracy"]
    (note,) = (each for each in report["notes"] if "these are the answers" in each)
    assert (before["id"] in note, before["chain"] in note) == (True, True)
    for each in (job, reply.json()):
        assert await check(database, each["id"]) == []
    page = (await api.http.get("/jobs/a-job-measured/samples/1")).text
    assert f'This answer comes from job a-job (<a href="/jobs/{job["id"]}">' in page


async def test_measuring_again_makes_no_call(api: Api, database: Database) -> None:
    await run_job(api, database)
    assert (await measure(api, "a-job", *FAITHFUL)).status_code == 202
    await finished(database, judge)
    before = await scalar(database, "SELECT count(*) FROM calls")
    again = await measure(api, "a-job", *FAITHFUL)
    assert (again.status_code, again.json()["name"]) == (202, "a-job-measured-r2")
    await finished(database, judge)
    assert await scalar(database, "SELECT count(*) FROM calls") == before
    assert await list_scores(api, "a-job-measured-r2") == await list_scores(api, "a-job-measured")
    # A measured job can be measured, too.
    assert (await measure(api, "a-job-measured", *FAITHFUL, name="third")).status_code == 202
    await finished(database, judge)
    assert await scalar(database, "SELECT count(*) FROM calls") == before
    assert await list_scores(api, "third") == await list_scores(api, "a-job-measured")


async def test_a_request_with_the_same_key_makes_one_job(api: Api, database: Database) -> None:
    await run_job(api, database)
    body = {"params": {"metrics": {"names": FAITHFUL}}}
    made = [
        await api.http.post("/v1/jobs/a-job/measure", json=body, headers={"Idempotency-Key": "once"}) for _ in range(2)
    ]
    assert made[0].json()["id"] == made[1].json()["id"]
    assert made[1].headers["Idempotency-Replayed"] == "true"


async def test_an_imported_job_is_measured_later(api: Api, database: Database) -> None:
    await import_answers(api)
    await finished(database, judge)
    reply = await measure(api, "theirs", *FAITHFUL, "citation_recall")
    assert reply.status_code == 202, reply.text
    await finished(database, judge)
    scores = await list_scores(api, "theirs-measured")
    assert (scores[0]["faithfulness"]["value"], scores[1]["faithfulness"]["value"]) == (1.0, 0.0)
    assert scores[2]["faithfulness"]["not_applicable"] == "nothing was searched"
    assert await check(database, reply.json()["id"]) == []


async def test_the_passage_of_the_prompt_is_what_the_reply_is_held_against(api: Api, database: Database) -> None:
    seen: Counter[str] = Counter()

    def compressing(request: Request) -> Reply:
        if request.role == "write":
            return Generated(text="What was kept.")
        if request.template.startswith("support"):
            seen[str(request.values.get("documents"))] += 1
        return judge(request)

    await api.job("closed-book", name="unsearched")
    await api.job("enhanced", params={"compress": {"enabled": True}})
    await finished(database, compressing)
    passages = await rows(database, "SELECT CAST(convert_from(request, 'UTF8') AS json) -> 'values' ->> 'context'"
        " FROM calls WHERE role = 'generate'")  # fmt: skip
    assert {shown for (shown,) in passages} - {None}
    params = {"metrics": {"names": ["faithfulness"], "controls": 0}}
    assert (await measure(api, "a-job", params=params)).status_code == 202
    await finished(database, compressing)
    assert {shown.strip() for shown in seen} == {shown.strip() for (shown,) in passages if shown}
    reply = await measure(api, "unsearched", "faithfulness")
    assert (reply.status_code, "searches nothing" in reply.json()["detail"]) == (422, True)


async def test_failed_samples_are_left_out(api: Api, database: Database) -> None:
    def failing(request: Request) -> Reply:
        broken = request.role == "generate" and "3 plus 3" in json.dumps(str(request.values))
        return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too long") if broken else judge(request)

    await api.job("dense")
    await finished(database, failing)
    assert (await api.get("/v1/jobs/a-job"))["request_counts"]["failed"] == 1
    reply = await measure(api, "a-job", "faithfulness")
    assert reply.json()["request_counts"]["total"] == 4
    await finished(database, judge)
    notes = (await api.get("/v1/jobs/a-job-measured/report"))["notes"]
    assert "1 sample of that job failed and is left out" in notes
    assert await check(database, reply.json()["id"]) == []


async def test_the_first_items_and_all_repeats_of_a_job_are_measured(api: Api, database: Database) -> None:
    await run_job(api, database, limit=2, repeats=2, params={"generate": {"temperature": 1.0}})
    made = (await measure(api, "a-job", *FAITHFUL)).json()
    assert (made["limit"], made["repeats"], made["request_counts"]["total"]) == (2, 2, 4)
    await finished(database, judge)
    assert await check(database, made["id"]) == []
    asked = await scalar(database, JUDGED)
    params = {"generate": {"temperature": 1.0}, "metrics": {"names": FAITHFUL}}
    await run_job(api, database, name="in-its-run", limit=2, repeats=2, params=params)
    assert await scalar(database, JUDGED) == asked


async def test_only_a_completed_job_with_answers_is_measured(api: Api, database: Database) -> None:
    await api.job("dense")
    reply = await measure(api, "a-job", "faithfulness")
    assert (reply.status_code, "is running, so it cannot be measured yet" in reply.json()["detail"]) == (409, True)
    await api.http.post("/v1/jobs/a-job/cancel")
    while await list_due_jobs(database):
        await finish_due_jobs(database)
    reply = await measure(api, "a-job", "faithfulness")
    assert (reply.status_code, "only a completed job can be measured" in reply.json()["detail"]) == (409, True)
    await api.job("dense", name="empty", reuse="none")
    failed = Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too long")
    await finished(database, lambda request: failed if request.role == "generate" else judge(request))
    reply = await measure(api, "empty", "faithfulness")
    assert (reply.status_code, "has no answers to measure" in reply.json()["detail"]) == (409, True), reply.text
    assert (await measure(api, "nobody", "faithfulness")).status_code == 404
    await api.job("dense", name="ours")
    await finished(database, judge)
    for metrics, fields, said in (
        (["faithfullness"], {}, "no metric 'faithfullness'"),
        ([], {}, "at least one metric is needed"),
        (["faithfulness"], {"params": {"metrics": {"names": ["faithfulness"]}, "grading": {}}}, "`params.grading`"),
        (["faithfulness"], {"models": {"judge": "nobody"}}, "nobody"),
        (["faithfulness"], {"models": {"generate": "a-generator"}}, "no role 'generate'"),
        (["citation_recall"], {}, "does not number the documents"),
        (["faithfulness"], {"name": "no name"}, "is not a valid name"),
    ):
        reply = await measure(api, "ours", *metrics, **fields)
        assert (reply.status_code, said in reply.json()["detail"]) == (422, True), reply.text
    assert (await measure(api, "ours", "faithfulness", name="ours")).status_code == 409
    assert await scalar(database, "SELECT count(*) FROM given") == 0


async def test_a_measured_job_outlives_the_job_that_it_measures(api: Api, database: Database, owner: Database) -> None:
    await import_answers(api)
    await run_job(api, database)
    made = [(await measure(api, name, *FAITHFUL)).json() for name in ("theirs", "a-job")]
    await finished(database, judge)
    scores = [await list_scores(api, each["id"]) for each in made]
    for name in ("theirs", "a-job"):
        await purge_job(owner, name)
    await purge.delete_unused(owner, "a-tester")
    await purge.remove_unused(owner, "a-tester")
    assert await scalar(database, DOCUMENTS) == 2
    for each, before in zip(made, scores, strict=True):
        assert await check(database, each["id"]) == []
        assert await list_scores(api, each["id"]) == before
        sample = await api.get(f"/v1/jobs/{each['id']}/samples/0", prompts=True)
        assert sample["documents"].keys() == {*sample["outcome"]["context"]}
        assert all(step["prompt"] for step in sample["steps"] if step["role"] == "judge")
    reply = await measure(api, made[0]["id"], *FAITHFUL, name="once-more")
    assert reply.status_code == 202
    for each in made:
        await finished(database, judge)
        await purge_job(owner, each["id"])
    await finished(database, judge)
    await purge_job(owner, "once-more")
    await purge.remove_unused(owner, "a-tester")
    assert await scalar(database, DOCUMENTS) == 0


async def test_a_measured_job_is_neither_submitted_nor_requeued_by_itself(api: Api, database: Database) -> None:
    body = {"name": "j", "dataset": "items", "pipeline": "measured"}
    assert "mathrag job measure" in (await api.http.post("/v1/jobs", json=body)).json()["hint"]
    await run_job(api, database)
    await measure(api, "a-job", "faithfulness")
    await finished(database, judge)
    reply = await api.http.post("/v1/jobs/a-job-measured/requeue")
    assert (reply.status_code, "mathrag job measure" in reply.json()["hint"]) == (409, True)


async def test_answers_of_older_releases_are_read(api: Api, database: Database, owner: Database) -> None:
    job = (await import_answers(api, [{"index": 1, "text": "\\boxed{2}", "score": 1}])).json()
    assert await scalar(database, "SELECT content FROM given") == b'{"text":"\\\\boxed{2}","score":1.0}'
    await finished(database)
    assert await check(database, job["id"]) == []


async def test_the_judge_model_is_loaded_once(api: Api, database: Database) -> None:
    await run_job(api, database)
    await measure(api, "a-job", *FAITHFUL, "context_sufficiency", "answer_relevance")
    waves: list[str] = []

    def noting(request: Request) -> Reply:
        waves.append(request.role)
        return judge(request)

    await finished(database, noting)
    assert set(waves) == {"judge"}
    found = await rows(database, "SELECT DISTINCT t.position FROM steps t JOIN samples s ON s.id = t.sample_id"
        " JOIN jobs j ON j.id = s.job_id JOIN calls c ON c.id = t.call_id"
        " WHERE j.pipeline = 'measured' AND c.role = 'judge'")  # fmt: skip
    assert len(found) == 1
