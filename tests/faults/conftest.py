"""A real stack on the shipped models, whose processes the tests kill."""

from collections.abc import Iterator

import pytest

from tests.running import RunningStack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """One stack for all faults: that it survives them all is the point."""
    folder = tmp_path_factory.mktemp("faults")
    with running_stack(folder / "data") as running:
        running.furnish(folder / "world", items=600)
        yield running
