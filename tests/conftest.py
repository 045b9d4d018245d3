"""What all rings share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test is timed by the wall clock: on a busy machine the first table of Unicode's characters takes seconds.
settings.register_profile("mathrag", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mathrag")

# The tests' servers speak no TLS. If a connection is cancelled while asyncpg asks for it, nobody reads the answer's
# future, and asyncio reports that as an error of the test that runs.
os.environ.setdefault("PGSSLMODE", "disable")

pytest_plugins = ["tests.faults.recording", "pytester"]

RINGS = ("integration", "e2e", "faults", "real")
"""Folders whose tests carry the folder's name as their marker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with its ring."""
    here = Path(__file__).parent
    for item in items:
        ring = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if ring in RINGS:
            item.add_marker(ring)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio only: so does everything else here."""
    return "asyncio"
