"""A stack whose models answer at once and by rule, for what is about numbers of things and not about models."""

from collections.abc import Iterator

import pytest

from tests.running import RunningStack, running_stack

MODELS = ("judge-a", "judge-b", "generator")
CONFIG = "\n".join(
    (
        "models:",
        *(f"  {name}: {{driver: scripted, footprint_mib: 100}}" for name in MODELS),
        "roles: {judge: judge-a, generate: generator}",
    )
)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Two judges and a generator, of which one fits the device at a time."""
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "mathrag.yaml").write_text(CONFIG)
    with running_stack(folder / "data", MATHRAG_CONFIG=str(folder / "mathrag.yaml")) as running:
        running.furnish(folder / "world", items=40)
        yield running
