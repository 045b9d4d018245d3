"""Jobs on real servers, which are also killed, frozen, or not there yet: two loads, nothing lost, nothing charged."""

import signal
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.faults.gates import Session
from tests.faults.processes import Processes
from tests.faults.real import done
from tests.real.elasticsearch.node import Node
from tests.real.stacks import assert_served_by, ends_whole, survives_a_kill
from tests.running import JUDGED, RunningStack


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


AWAY_S = 10.0
"""Longer than the client's own repetitions take."""
FROZEN_S = 20.0
"""Longer than a request may take by the settings."""
JOB = {"reuse": "none", "params": JUDGED}
CHARGED = """
    SELECT c.role, a.outcome, count(DISTINCT a.id) FROM jobs j JOIN samples s ON s.job_id = j.id
    JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id JOIN attempts a ON a.call_id = c.id
    WHERE CAST(j.public_id AS text) = $1 AND NOT a.accepted GROUP BY 1, 2"""


@pytest.fixture
def node(elasticsearch: Node) -> Iterator[Node]:
    yield elasticsearch
    elasticsearch.stop()
    elasticsearch.start()


def half_searched(stack: RunningStack, name: str) -> str:
    job = stack.submit(name, **JOB)
    now = stack.wait(job, lambda document: done(document, "retrieve") > 0)
    # While it prepares, the searches of its items are still to come.
    to_come = now["state"] == "preparing" or done(now, "retrieve") < now["stages"]["retrieve"]["total"]
    assert to_come, "it came too late"
    return job


def assert_unharmed(stack: RunningStack, job: str) -> None:
    stack.assert_whole(job)
    with Session(stack) as session:
        assert [row for row in session.rows(CHARGED, job) if row[0] == "retrieve"] == []


def test_elasticsearch_is_killed_and_comes_back(searching: RunningStack, node: Node) -> None:
    job = half_searched(searching, "killed")
    node.kill()
    time.sleep(AWAY_S)
    node.start()
    assert_unharmed(searching, job)


def test_elasticsearch_is_frozen(searching: RunningStack, node: Node) -> None:
    job = half_searched(searching, "frozen")
    node.signal(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    node.signal(signal.SIGCONT)
    assert_unharmed(searching, job)


def test_elasticsearch_is_started_after_the_stack(searching: RunningStack, node: Node) -> None:
    processes = Processes(searching)
    processes.stop()
    node.stop()
    processes.start()
    job = searching.submit("early", **JOB)
    time.sleep(AWAY_S)
    node.start()
    assert_unharmed(searching, job)


def test_a_llama_server_is_killed(answering: RunningStack) -> None:
    survives_a_kill(answering)
