"""The whole embedded stack, once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import RunningStack, running_stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder starts the whole stack."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack with the problem world in it."""
    folder = tmp_path_factory.mktemp("e2e")
    with running_stack(folder / "data") as running:
        running.furnish(folder / "world", items=60)
        yield running
