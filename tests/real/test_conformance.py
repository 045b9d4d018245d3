"""The suites that a back end or a model server is held to, against the real ones."""

import os
import subprocess
import sys

import pytest

from tests.real.elasticsearch.node import Node
from tests.running import REPOSITORY

OF_ELASTICSEARCH = ("tests/unit/test_back_ends.py",)
"""They ask the server that ELASTICSEARCH_URL names."""


@pytest.mark.parametrize("suite", OF_ELASTICSEARCH)
def test_a_suite_holds_on_elasticsearch(elasticsearch: Node, suite: str) -> None:
    """The same tests as on its double."""
    command = [sys.executable, "-m", "pytest", "-q", "-k", "lasticsearch", suite]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "ELASTICSEARCH_URL": elasticsearch.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
