"""The suites that back ends and model servers are held to, asked of the real ones that the environment names."""

import os
import subprocess
import sys

from tests.real.elasticsearch.node import Node
from tests.real.llama_server import LlamaServer
from tests.running import REPOSITORY

RECORDED = "tests/unit/tests/test_recorded_servers.py"


def test_the_suite_of_back_ends_holds_on_elasticsearch(elasticsearch: Node) -> None:
    suite = "tests/unit/services/retriever/test_back_ends.py"
    assert_holds(suite, "not flat and not hnsw and not ivf and not bm25s", ELASTICSEARCH_URL=elasticsearch.url)


def test_llama_server_answers_as_it_was_recorded_to(llama: LlamaServer) -> None:
    assert_holds(RECORDED, "real_server and llama", LLAMA_SERVER=str(llama.path))


def assert_holds(suite: str, chosen: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-k", chosen, suite]
    settings = {**os.environ, **environment}
    done = subprocess.run(command, cwd=REPOSITORY, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout.splitlines()[-1], done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout
