"""A job of 60 questions on each real server: two loads, nothing lost, and a clean audit."""

import httpx2

from tests.real.elasticsearch.node import Node
from tests.real.stacks import assert_served_by, ends_whole
from tests.running import RunningStack


def test_a_job_that_searches_on_elasticsearch(searching: RunningStack, elasticsearch: Node) -> None:
    report = ends_whole(searching, "elasticsearch")
    assert report["calls_made"]["retrieve"] == 2 * 60
    indexes = httpx2.get(f"{elasticsearch.url}/_cat/indices/mathrag-*?format=json", trust_env=False).json()
    documents = searching.get("/v1/corpora/world")["documents"]
    found = sorted((each["index"].split("-")[1], int(each["docs.count"])) for each in indexes)
    assert found == [("dense", documents), ("sparse", documents)]


def test_a_job_whose_models_are_served_by_llama_server(answering: RunningStack) -> None:
    report = ends_whole(answering, "llama-server")
    assert report["parse_failures"] == 0
    assert_served_by(answering, report["id"], "llama.cpp")
