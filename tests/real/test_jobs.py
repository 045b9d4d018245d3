"""A job of 60 questions on each real server: two loads, nothing lost, and a clean audit."""

import httpx2

from tests.faults.gates import Session
from tests.real.elasticsearch.node import Node
from tests.running import RunningStack

JOB = {"limit": 60, "params": {"gate": {"tau": 1.0}}}
"""Whatever rho is, the judge rates every candidate."""
SERVED = """
    SELECT DISTINCT m.backend FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE CAST(j.public_id AS text) = $1 AND c.role IN ('judge', 'generate')"""


def test_a_job_that_searches_on_elasticsearch(searching: RunningStack, elasticsearch: Node) -> None:
    """Vectors and words are two indexes there, with all documents of the corpus in each."""
    job = whole(searching, "elasticsearch")
    indexes = httpx2.get(f"{elasticsearch.url}/_cat/indices/mathrag-*?format=json", trust_env=False).json()
    documents = searching.get("/v1/corpora/world")["documents"]
    found = sorted((each["index"].split("-")[1], int(each["docs.count"])) for each in indexes)
    assert found == [("dense", documents), ("sparse", documents)]
    assert searching.get(f"/v1/jobs/{job}/report")["calls_made"]["retrieve"] == 2 * JOB["limit"]


def test_a_job_whose_models_are_served_by_llama_server(answering: RunningStack) -> None:
    """Judge and generator are two programs, one after the other."""
    job = whole(answering, "llama-server")
    assert answering.get(f"/v1/jobs/{job}/report")["parse_failures"] == 0
    with Session(answering) as session:
        assert [backend for (backend,) in session.rows(SERVED, job)] == ["llama.cpp"]


def whole(stack: RunningStack, name: str) -> str:
    """The id of a job that has ended with every sample, in two loads."""
    job = stack.submit(name, **JOB)
    stack.assert_whole(job)
    report = stack.get(f"/v1/jobs/{job}/report")
    assert (report["request_counts"]["total"], report["model_loads"]) == (60, 2)
    return job
