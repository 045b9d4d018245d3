"""Faults of data: crashing, too long, impossible to store, empty, and very large data."""

import json
import shutil
from collections.abc import Iterable

import pytest

from tests.faults.gates import Session
from tests.faults.recording import Seen
from tests.faults.trial import Trial
from tests.faults.vocabulary import Subject
from tests.running import Document, RunningStack, ended

HANGS = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}"
"""Of Math-Verify's issue #65."""
TOKENS = 20_000
MANY = 50_000
PATHS = "SELECT i.path FROM corpora c JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) WHERE c.name = $1"


@pytest.mark.fault("S1")
def test_a_sample_that_hangs_its_grader_fails_alone(trial: Trial) -> None:
    trial.seen.describe("a gold answer that keeps SymPy busy forever, between two ordinary ones")
    items = [question("What is 1 plus 1?", "2"), question("What is 2 plus 2?", HANGS), question("Is 1 one?", "1")]
    upload(trial.stack, "S1", items)
    job = trial.stack.submit("S1", dataset="S1", pipeline="sparse", reuse="none")
    document = whole(trial.stack, job)
    assert document["request_counts"]["total"] == len(items)
    failures = trial.stack.get(f"/v1/jobs/{job}/report")["failures"]
    trial.seen.note(f"the others complete; the report's failures: {json.dumps(failures, sort_keys=True)}")


@pytest.mark.fault("S2")
def test_a_problem_that_no_context_holds_is_said_so_and_the_others_go_on(trial: Trial) -> None:
    trial.seen.describe(f"a question of {TOKENS:,} tokens between two ordinary ones; one above the limit of an upload")
    upload(trial.stack, "S2", [question("What is 1 plus 1?", "2"), question("1+" * (TOKENS // 2), "1")])
    job = trial.stack.submit("S2", dataset="S2", pipeline="sparse", reuse="none")
    counts = whole(trial.stack, job)["request_counts"]
    assert (counts["completed"], counts["failed"]) == (1, 1)
    sample = trial.stack.get(f"/v1/jobs/{job}/samples/1")
    assert sample["failure"].startswith("context_exceeded")
    refused = trial.stack.api.post("/v1/datasets?name=S2-long", content=lines([question("1+" * TOKENS, "1")]))
    assert refused.status_code in (400, 413, 422)
    trial.seen.note("`context_exceeded` for that sample alone; an upload above the limit is refused with its line")


@pytest.mark.fault("S3")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("NUL", b'{"question": "a\\u0000b"}\n'),
        ("lone surrogate", b'{"question": "a\\ud800b"}\n'),
        ("a megabyte", b'{"question": "' + b"x" * (1 << 20) + b'"}\n'),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_line(trial: Trial, name: str, content: bytes) -> None:
    trial.seen.describe("uploads with a NUL, a lone surrogate, and a question of one megabyte in their second line")
    good = lines([question("What is 1 plus 1?", "2")])
    response = trial.stack.api.post("/v1/datasets?name=S3", content=good + content)
    assert response.status_code in (400, 413, 422), response.text
    assert "2" in response.text
    assert trial.stack.api.get("/v1/datasets/S3").status_code == 404
    trial.seen.note("refused with the line number; no part is kept")


@pytest.mark.fault("S4")
def test_an_empty_corpus_is_refused(trial: Trial) -> None:
    trial.seen.describe("an upload without a document, and one of blank lines")
    for content in (b"", b"\n\n"):
        response = trial.stack.api.post("/v1/corpora?name=S4", content=content)
        assert response.status_code in (400, 422), response.text
    assert trial.stack.api.get("/v1/corpora/S4").status_code == 404
    trial.seen.note("refused: a corpus has at least one document")


@pytest.mark.fault("S5")
def test_one_custom_id_twice_is_refused_with_both_lines(trial: Trial) -> None:
    trial.seen.describe("a dataset whose first and third line have the same custom_id")
    rows = [{"question": f"What is {n}?", "custom_id": f"id-{n % 2}"} for n in range(3)]
    response = trial.stack.api.post("/v1/datasets?name=S5", content=lines(rows))
    assert response.status_code in (400, 409, 422), response.text
    assert all(said in response.json()["detail"] for said in ("line 1", "line 3", "id-0"))
    assert trial.stack.api.get("/v1/datasets/S5").status_code == 404
    trial.seen.note("refused with the line number; no part is kept")


@pytest.mark.fault("S6")
@pytest.mark.parametrize("items", [1, MANY])
def test_a_job_of_one_and_a_job_of_very_many_end_alike(scripted: RunningStack, seen: Seen, items: int) -> None:
    seen.describe(f"a job of 1 and a job of {MANY:,} samples, with models that answer at once")
    name = f"S6-{items}"
    upload(scripted, name, (question(f"What is {n} and {n}?") for n in range(items)))
    job = scripted.submit(name, dataset=name, corpus=None, pipeline="closed-book", reuse="none")
    counts = whole(scripted, job)["request_counts"]
    assert counts["completed"] == counts["total"] == items
    report = scripted.get(f"/v1/jobs/{job}/report")
    assert report["model_loads"] <= 1
    seen.figure(f"seconds of {items:,}", report["seconds"])


@pytest.mark.fault("B20")
def test_a_lost_index_is_named_and_built_again_by_the_same_upload(trial: Trial) -> None:
    trial.seen.describe(
        "the index files of the job's corpus removed, and the retriever killed so that it opens them again"
    )
    documents = lines([{"id": f"d{n}", "problem": f"What is {n}?", "text": f"It is {n}."} for n in range(50)])
    corpus = {"params": {"name": "B20"}, "content": documents}
    assert trial.stack.api.post("/v1/corpora", **corpus).status_code == 201
    for path in indexes_of(trial.stack, "B20"):
        shutil.rmtree(trial.stack.data_dir / path)
    trial.processes.kill(Subject.RETRIEVER)
    job = trial.stack.submit("B20", corpus="B20", pipeline="sparse", reuse="none")
    counts = trial.stack.wait(job, ended)["request_counts"]
    assert counts["failed"] == counts["total"] > 0
    assert trial.stack.get(f"/v1/jobs/{job}/audit")["violations"] == []
    assert "index" in json.dumps(trial.stack.get(f"/v1/jobs/{job}/samples/0")["steps"])
    assert trial.stack.api.post("/v1/corpora", **corpus).status_code in (200, 201)
    trial.ends_whole(trial.stack.api.post(f"/v1/jobs/{job}/requeue").json()["id"])
    trial.seen.note(
        "every sample fails and names the index; the same upload builds it again, and the requeued job completes"
    )


def indexes_of(stack: RunningStack, corpus: str) -> list[str]:
    with Session(stack) as session:
        return [row[0] for row in session.rows(PATHS, corpus)]


def question(text: str, gold: str | None = None) -> Document:
    return {"question": text, **({"answer": gold} if gold else {})}


def lines(rows: Iterable[Document]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def upload(stack: RunningStack, name: str, rows: Iterable[Document]) -> None:
    response = stack.api.post("/v1/datasets", params={"name": name}, content=lines(rows), timeout=300)
    assert response.status_code == 201, response.text


def whole(stack: RunningStack, job: str) -> Document:
    document = stack.wait(job, ended)
    counts = document["request_counts"]
    assert document["state"] == "completed", document
    assert counts["completed"] + counts["failed"] == counts["total"]
    assert stack.get(f"/v1/jobs/{job}/audit")["violations"] == []
    return document
