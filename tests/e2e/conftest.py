"""The whole embedded stack, once."""

from collections.abc import Iterator

import pytest

from tests.running import RunningStack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("e2e")
    with running_stack(folder / "data") as running:
        running.furnish(folder / "world", items=60)
        yield running
