"""What comes out of a job: results, samples, provenance, the report."""

import csv
import io
import json
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

from shared import canonical
from shared.calls import Request
from shared.replies import Failure, FailureKind, Graded, Rated, Reply
from shared.storage import jobs, samples
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant

pytestmark = pytest.mark.anyio


async def results(api: Api, job: Any) -> list[Any]:
    reply = await api.http.get(f"/v1/jobs/{job['id']}/results")
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_results_are_every_ended_sample_in_dataset_order(api: Api, database: Database) -> None:
    job = await api.job("dense", repeats=2)
    assert await results(api, job) == []
    await finished(database)
    lines = await results(api, job)
    assert [(line["index"], line["repeat"]) for line in lines] == [(n, r) for n in range(5) for r in (0, 1)]
    first = lines[0]
    assert (first["question"], first["gold"], first["state"]) == ("What is 0 plus 0?", "0", "completed")
    assert first["correct"] == (first["answer"] == "0")
    assert (first["strict"], first["extraction"], len(first["context"])) == (False, "ok", 1)


async def test_results_are_read_in_batches_that_miss_nothing(api: Api, database: Database) -> None:
    await api.job(repeats=2)
    await finished(database)
    async with database.transaction() as connection:
        job = await jobs.resolve(connection, "a-job")
    for size in (1, 3, 100):
        batches = [batch async for batch in samples.stream_with_outcomes(database, job, size)]
        assert [(row.index, row.repeat) for batch in batches for row, _ in batch] == [
            (n, r) for n in range(5) for r in (0, 1)
        ]
        assert max(map(len, batches)) <= size


async def test_results_are_the_same_in_every_format(api: Api, database: Database) -> None:
    job = await api.job("dense", repeats=2)
    await finished(database)
    lines = await results(api, job)
    path = f"/v1/jobs/{job['id']}/results"
    comma = await api.http.get(path, headers={"Accept": "text/csv"})
    assert comma.headers["content-type"] == "text/csv; charset=utf-8"
    assert comma.headers["content-disposition"] == f'attachment; filename="{job["id"]}.csv"'
    rows = list(csv.DictReader(io.StringIO(comma.text, newline="")))
    assert [(row["index"], row["repeat"], row["answer"]) for row in rows] == [
        (str(line["index"]), str(line["repeat"]), line["answer"]) for line in lines
    ]
    columns = await api.http.get(path, params={"format": "parquet"}, headers={"Accept": "text/csv"})
    assert columns.headers["content-type"] == "application/vnd.apache.parquet"
    table = pyarrow.parquet.read_table(io.BytesIO(columns.content)).to_pylist()
    assert [row["answer"] for row in table] == [line["answer"] for line in lines]
    assert [row["context"] for row in table] == [line["context"] for line in lines]


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet"])
async def test_a_job_without_results_gives_an_empty_file(api: Api, name: str) -> None:
    job = await api.job()
    reply = await api.http.get(f"/v1/jobs/{job['id']}/results", params={"format": name})
    assert reply.status_code == 200
    if name == "parquet":
        assert pyarrow.parquet.read_table(io.BytesIO(reply.content)).num_rows == 0
    else:
        assert len(reply.text.splitlines()) == (name == "csv")


async def test_samples_are_paged_whatever_their_state(api: Api) -> None:
    job = await api.job()
    first = await api.get(f"/v1/jobs/{job['id']}/samples", limit=3)
    rest = await api.get(f"/v1/jobs/{job['id']}/samples", limit=3, cursor=first["next_cursor"])
    assert [row["index"] for row in first["data"] + rest["data"]] == [0, 1, 2, 3, 4]
    assert {row["state"] for row in first["data"]} == {"ready"}
    assert rest["next_cursor"] is None


async def test_provenance_is_everything_that_the_answer_was_made_from(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params={"gate": {"min_pairs": 5, "tau": 1}})
    await finished(database)
    found = await api.get(f"/v1/jobs/{job['id']}/samples/2")
    assert found["question"] == "What is 2 plus 2?"
    roles = [step["role"] for step in found["steps"]]
    assert roles == ["retrieve"] * 2 + ["judge"] * roles.count("judge") + ["generate", "grade"]
    for step in found["steps"]:
        request = msgspec.json.decode(msgspec.json.encode(step["request"]), type=Request)
        assert canonical.digest(request).hex() == step["key"]
        assert step["attempt"]["outcome"] == "value"
    generate = found["steps"][-2]
    assert (generate["model"], generate["attempt"]["epoch"]) == ("a-generator", 1)
    assert found["outcome"]["answer"] in generate["attempt"]["reply"]["text"]
    (context,) = found["outcome"]["context"]
    assert found["documents"][context]["text"].startswith("Therefore")
    assert [residency["epoch"] for residency in found["residencies"]] == [1]
    assert found["residencies"][0]["models"] == ["a-generator", "a-judge"]
    assert len(found["record_hash"]) == 64


async def test_provenance_keeps_attempts_that_failed(api: Api, database: Database) -> None:
    job = await api.job()
    await scene.advance(database)
    taken = await scene.claim(database)
    assert taken is not None
    await scene.answer(database, taken, Failure(kind=FailureKind.CONNECTION, detail="away"))
    await scene.let_pauses_pass(database)
    await finished(database)
    step = (await api.get(f"/v1/jobs/{job['id']}/samples/0"))["steps"][0]
    assert step["attempt"]["outcome"] == "value"
    (other,) = step["other_attempts"]
    assert (other["outcome"], other["reply"]["detail"]) == ("connection", "away")


async def test_a_sample_that_a_job_does_not_have_is_not_found(api: Api) -> None:
    job = await api.job()
    for path, status in (("99", 404), ("0?repeat=1", 404), ("-1", 422), ("x", 422)):
        assert (await api.http.get(f"/v1/jobs/{job['id']}/samples/{path}")).status_code == status


async def test_the_report_counts_what_the_job_made_and_what_it_reused(api: Api, database: Database) -> None:
    for name in ("one", "two"):
        await api.job("dense", name=name)
    await finished(database)
    reports = [await api.get(f"/v1/jobs/{name}/report") for name in ("one", "two")]
    made = [report["calls_made"] for report in reports]
    assert made[0]["retrieve"] == made[0]["generate"] == 5
    assert set(made[1].values()) == {0}
    assert reports[1]["calls_reused"] == made[0]
    assert [report["model_calls"] for report in reports] == [5, 0]
    assert [report["model_loads"] for report in reports] == [1, 0]
    assert reports[0]["accuracy"] == reports[1]["accuracy"]
    assert reports[1]["stages"]["generate"]["seconds"] is None
    seconds = [report["stages"]["generate"]["device_s"] for report in reports]
    assert seconds[0] == seconds[1]
    assert seconds[0] is not None


async def test_the_report_agrees_with_the_results(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params={"gate": {"min_pairs": 5, "tau": 1}})
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    lines = await results(api, job)
    assert report["accuracy"]["correct"] == sum(line["correct"] for line in lines)
    assert report["accuracy"]["graded"] == 5
    assert report["accuracy"]["low"] < report["accuracy"]["value"] + 1e-9 < report["accuracy"]["high"] + 2e-9
    assert report["disagreements"] == report["accuracy"]["correct"]
    assert report["extraction"] == {"ok": 5}
    assert report["gate"]["strategy"] == "judge"
    assert len(report["gate"]["documents"]) == len(report["gate"]["judge_scores"])
    assert report["model_loads"] == 2
    assert report["request_counts"]["completed"] == 5
    assert report["settings"]["models"]["judge"]["digest"] == "a-judge"
    assert report["settings"]["params"]["gate"]["tau"] == 1
    assert report["seconds"] > 0
    assert report["notes"] == []


async def test_a_load_within_a_residency_counts_as_a_load(api: Api, database: Database) -> None:
    variants = [{"name": "gate", "pipeline": "mathrag-gate"}]
    experiment = {"name": "one", "datasets": [{"dataset": "items", "corpus": "docs"}], "variants": variants}
    assert (await api.http.post("/v1/experiments", json=experiment)).status_code == 202
    await finished(database)
    (row,) = (await api.get("/v1/experiments/one/report"))["rows"]
    assert row["result"]["model_loads"] == 2
    await scene.run_sql(
        database,
        "UPDATE residencies SET measured = measured || jsonb_build_object('reloads', jsonb_build_object(models[1], 1))"
        " WHERE epoch = (SELECT max(epoch) FROM attempts)",
    )
    experiment = await api.get("/v1/experiments/one/report")
    job = await api.get(f"/v1/jobs/{row['job']}/report")
    assert [job["model_loads"], experiment["model_loads"], experiment["rows"][0]["result"]["model_loads"]] == [3, 3, 3]


async def test_the_report_counts_judge_replies_without_a_rating(api: Api, database: Database) -> None:
    def sometimes(request: Request) -> Reply:
        reply = scene.by_rule(request)
        spoilt = isinstance(reply, Rated) and reply.rating == 3
        return Failure(kind=FailureKind.UNPARSED, detail="?") if spoilt else reply

    job = await api.job("mathrag-gate", params={"gate": {"min_pairs": 2, "tau": 1}})
    await scene.drain(database, scene.ScriptedExecutor(sometimes))
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    spoilt = "SELECT count(*) FROM attempts WHERE outcome = 'unparsed'"
    assert report["parse_failures"] == await scene.scalar(database, spoilt) > 0


async def test_failed_samples_are_counted_by_kind_and_in_no_accuracy(api: Api, database: Database) -> None:
    def broken(request: Request) -> Reply:
        if request.role == "generate" and "0 plus 0" in str(request.values["question"]):
            return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too long")
        return scene.by_rule(request)

    job = await api.job()
    await scene.drain(database, scene.ScriptedExecutor(broken))
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert report["failures"] == {"context_exceeded": 1}
    assert (report["request_counts"]["failed"], report["accuracy"]["graded"]) == (1, 4)
    (note,) = report["notes"]
    assert note.startswith("1 failed")
    assert note.endswith(f"{report['accuracy']['correct']} of 5")
    failed = (await results(api, job))[0]
    assert (failed["state"], failed["failure"], failed["answer"]) == ("failed", "context_exceeded", None)


async def test_a_grader_without_a_verdict_is_told_apart_from_a_wrong_answer(api: Api, database: Database) -> None:
    def silent(request: Request) -> Reply:
        return Graded(math_verify=None, strict=True) if request.role == "grade" else scene.by_rule(request)

    job = await api.job()
    await scene.drain(database, scene.ScriptedExecutor(silent))
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert (report["accuracy"]["graded"], report["accuracy"]["value"]) == (0, None)
    assert (report["strict"]["graded"], report["strict"]["value"], report["disagreements"]) == (5, 1.0, 0)


async def test_greedy_repeats_are_said_to_share_their_replies(api: Api, database: Database) -> None:
    job = await api.job(repeats=5)
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert report["calls_made"]["generate"] == 5
    assert any("shared their replies" in note for note in report["notes"])
    sampled = await api.job(name="sampled", repeats=3, params={"generate": {"temperature": 0.7}})
    await finished(database)
    report = await api.get(f"/v1/jobs/{sampled['id']}/report")
    assert report["calls_made"]["generate"] == 15
    assert not any("shared their replies" in note for note in report["notes"])


async def test_a_running_jobs_report_says_that_it_is_not_final(api: Api) -> None:
    job = await api.job()
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert (report["state"], report["seconds"]) == ("running", None)
    assert any("5 samples are still in progress" in note for note in report["notes"])


async def test_an_untouched_job_passes_the_audit(api: Api, database: Database) -> None:
    job = await api.job()
    await finished(database)
    found = await api.get(f"/v1/jobs/{job['id']}/audit")
    assert found["clean"] == (found["violations"] == [])


async def test_a_report_measures_the_documents_where_the_dataset_names_the_relevant_ones(
    api: Api, database: Database
) -> None:
    names = [(f"d{n}", document.hash) for n, document in enumerate(scene.DOCUMENTS)]
    for ordinal, (name, document) in enumerate([*names, ("twin", scene.DOCUMENTS[3].hash)]):
        values = {"ordinal": ordinal, "name": name, "hash": bytes.fromhex(document)}
        await scene.run_sql(
            database,
            "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
            " SELECT id, :ordinal, :name, :hash FROM corpora WHERE name = 'docs'",
            **values,
        )
    relevant = {"d3": 1, "twin": 2, "d5": 1, "d9": 0, "lost": 1}
    await scene.run_sql(
        database, "UPDATE items SET gold_documents = CAST(:gold AS jsonb) WHERE ordinal < 2", gold=json.dumps(relevant)
    )
    job = await api.job("hybrid", repeats=2, params={"candidates": 4})
    await finished(database)
    found = (await api.get(f"/v1/jobs/{job['id']}/report"))["retrieval"]
    assert (found["items"], found["absent"]) == (2, 2)
    wanted = {scene.DOCUMENTS[3].hash, scene.DOCUMENTS[5].hash}
    shares = []
    for index in (0, 1):
        sample = await api.get(f"/v1/jobs/{job['id']}/samples/{index}")
        candidates = [each["document"] for each in sample["outcome"]["trace"]["candidates"]]
        shares.append(len(wanted & set(candidates)) / 3)
    assert found["final"]["Recall@10"]["value"] == pytest.approx(sum(shares) / 2)
    assert found["fused"] == found["final"]
    assert found["reranking"]["nDCG@10"]["value"] == 0


async def test_a_report_without_relevant_documents_has_no_figures_of_retrieval(api: Api, database: Database) -> None:
    job = await api.job("dense")
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert (report["retrieval"], report["refused"], report["fallbacks"]) == (None, 0, {})


async def test_results_hold_what_models_said_and_rated_and_what_it_took(
    api: Api, database: Database, plant: Plant
) -> None:
    job = await api.job("mathrag-gate", name="said", params={"quality": "judge"})
    await finished(database)
    await plant("UPDATE attempts SET prompt_tokens = 3, completion_tokens = 2, ended_at = started_at + interval '1 s'")
    (plain, prompted) = [
        [
            json.loads(line)
            for line in (await api.http.get(f"{job['links']['self']}/results", params=asked)).text.splitlines()
        ]
        for asked in ({}, {"prompts": "true"})
    ]
    assert len(plain) == 5
    for row, more in zip(plain, prompted, strict=True):
        assert row["text"]
        assert len(row["judged"]) == len(row["ratings"]) > 0
        assert set(row["ratings"]) <= {1, 2, 3, 4, 5}
        calls = len(row["ratings"]) + 1
        assert (row["prompt_tokens"], row["completion_tokens"]) == (3 * calls, 2 * calls)
        assert row["prompt"] is None
        assert row["question"] in more["prompt"]
    shown = await api.get(f"{job['links']['self']}/samples/0")
    assert shown["text"] == plain[0]["text"]


async def test_a_sample_shows_what_models_were_asked_on_demand(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", name="said", params={"quality": "judge"})
    await finished(database)
    path = f"{job['links']['self']}/samples/0"
    assert {step["prompt"] for step in (await api.get(path))["steps"]} == {None}
    steps = (await api.get(path, prompts="true"))["steps"]
    for step in steps:
        assert (step["prompt"] is not None) == (step["role"] in ("judge", "generate"))
    (generated,) = [step["prompt"] for step in steps if step["role"] == "generate"]
    reply = await api.http.get(f"{job['links']['self']}/results", params={"prompts": "true"})
    assert generated == json.loads(reply.text.splitlines()[0])["prompt"]
