"""A real stack on the shipped models, whose processes the tests kill."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.faults.limits import Disk, small_disk_if_allowed
from tests.faults.proxied import Proxied, run_proxied
from tests.faults.recording import Seen
from tests.faults.trial import SOONER, Trial, leaves_nothing_behind, measure_calls
from tests.running import RunningStack, running_stack

__all__ = ["leaves_nothing_behind"]

DISK_MIB = 64
TABLES_MIB = 600
"""Where the tables are that are behind a proxy."""
PROXIED_ITEMS = 60
ITEMS = 150
"""A stage lasts at least one second, and a trial not much longer than its longest wait."""

SCRIPTED = """\
models:
  judge-a: {driver: scripted, footprint_mib: 100}
  judge-b: {driver: scripted, footprint_mib: 100}
  generator: {driver: scripted, footprint_mib: 100}
roles: {judge: judge-a, generate: generator}
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def disk(folder: Path) -> Iterator[Disk | None]:
    (folder / "data").mkdir()
    with small_disk_if_allowed(folder / "disk", DISK_MIB) as mounted:
        for name in ("logs", "indexes") if mounted else ():
            (folder / "disk" / name).mkdir()
            (folder / "data" / name).symlink_to(folder / "disk" / name)
        yield mounted


@pytest.fixture(scope="session")
def stack(folder: Path, disk: Disk | None) -> Iterator[RunningStack]:
    with running_stack(folder / "data", **SOONER) as running:
        running.furnish(folder / "world", items=ITEMS)
        yield running


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "mathrag.yaml").write_text(SCRIPTED)
    with running_stack(folder / "data", MATHRAG_CONFIG=str(folder / "mathrag.yaml")) as running:
        running.furnish(folder / "world", items=40)
        yield running


@pytest.fixture(scope="session")
def it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxied")
    kept = folder / "disk" / "postgres"
    with (
        small_disk_if_allowed(folder / "disk", TABLES_MIB) as small,
        run_proxied(folder, PROXIED_ITEMS, kept=kept) as running,
    ):
        running.disk = small
        yield running


@pytest.fixture(scope="session")
def whole(stack: RunningStack) -> Mapping[str, int]:
    return measure_calls(stack)


@pytest.fixture
def trial(stack: RunningStack, whole: Mapping[str, int], seen: Seen) -> Trial:
    return Trial(stack, whole, seen)
