"""What all rings share: no test sees the settings, the data folder or the working directory of whoever runs it."""

import gc
import os
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import httpcore2
import psutil
import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).parents[1]

USERS_PREFIXES = ("MATHRAG_", "OTEL_", "OPENAI_", "PYTEST_ADDOPTS")
USERS_VARIABLES = {
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "DISPLAY", "WAYLAND_DISPLAY", "CUDA_VISIBLE_DEVICES"),
}
"""Variables, in upper case, with which a user changes what the product does. Servers that are named for the tests
(DATABASE_URL, REDIS_URL, ELASTICSEARCH_URL) stay."""
UNTIL_TESTS_RUN = ("MATHRAG_TEST_SERVERS", "PYTEST_ADDOPTS")
"""Variables for pytest itself and for `tests/servers.py`."""


def users_variables() -> list[str]:
    return [name for name in os.environ if name.upper().startswith(USERS_PREFIXES) or name.upper() in USERS_VARIABLES]


# Modules of tests make settings when they are imported, which is before any fixture. The working directory stays until
# tests run, because pytest's arguments are relative to it, but its configuration is not read.
for variable in set(users_variables()) - set(UNTIL_TESTS_RUN):
    del os.environ[variable]
os.environ["MATHRAG_CONFIG"] = os.devnull

# Profiles of property tests: `quick` is what `make test` does, `ci` tries the same examples each time, `full` is for
# `make properties`. No test is timed by the wall clock: on a busy machine the first table of Unicode's characters takes
# seconds.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", UNTIMED, max_examples=25)
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True, database=None)
settings.register_profile("full", UNTIMED, max_examples=300)
settings.load_profile("quick")

# The tests' servers speak no TLS. If a connection is cancelled while asyncpg asks for it, nobody reads the answer's
# future, and asyncio reports that as an error of the test that runs.
os.environ.setdefault("PGSSLMODE", "disable")

pytest_plugins = ["tests.faults.recording", "tests.outcomes", "pytester"]

RINGS = ("integration", "e2e", "faults", "real")
"""Folders whose tests carry the folder's name as their marker."""


@pytest.fixture(scope="session", autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as changed:
        for name in users_variables():
            changed.delenv(name)
        # Children run in the same folder and import `tests`, which is not installed.
        changed.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        # A client reads the authorities that it trusts, which takes 20 ms; few servers of the tests speak TLS.
        changed.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        changed.chdir(tmp_path_factory.mktemp("working-directory"))
        yield


GROWTH_BYTES = 25 << 20
_process = psutil.Process()
_size = 0


def pytest_collection_finish() -> None:
    global _size
    gc.collect()
    gc.freeze()
    _size = _process.memory_info().rss


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    global _size
    yield
    if _process.memory_info().rss > _size + GROWTH_BYTES:
        gc.collect()
        _size = _process.memory_info().rss


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        ring = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if ring in RINGS:
            item.add_marker(ring)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
