"""A real stack on the shipped models, whose processes the tests kill."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.faults.limits import Disk, small_disk
from tests.faults.recording import Seen
from tests.faults.trial import Trial, measured
from tests.running import RunningStack, running_stack

CLAIM_TTL_S = 5
"""A third of the default: what a dead worker held is taken up again so much sooner."""
DISK_MIB = 64
ITEMS = 150
"""A stage lasts for a second at least, and a trial not much longer than what it waits for."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stack keeps everything."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def disk(folder: Path) -> Iterator[Disk | None]:
    """A small disk for the stack's logs and indexes; None where none can be mounted."""
    (folder / "data").mkdir()
    try:
        with small_disk(folder / "disk", DISK_MIB) as mounted:
            for name in ("logs", "indexes"):
                (folder / "disk" / name).mkdir()
                (folder / "data" / name).symlink_to(folder / "disk" / name)
            yield mounted
    except PermissionError:
        yield None


@pytest.fixture(scope="session")
def stack(folder: Path, disk: Disk | None) -> Iterator[RunningStack]:
    """One stack for all faults: that it survives them all is the point."""
    with running_stack(folder / "data", MATHRAG_WORKERS__CLAIM_TTL_S=str(CLAIM_TTL_S)) as running:
        running.furnish(folder / "world", items=ITEMS)
        yield running


@pytest.fixture(scope="session")
def whole(stack: RunningStack) -> Mapping[str, int]:
    """How many calls each stage of a job makes when nothing goes wrong."""
    return measured(stack)


@pytest.fixture
def trial(stack: RunningStack, whole: Mapping[str, int], seen: Seen) -> Trial:
    """A job of this test on the stack of all faults."""
    return Trial(stack, whole, seen)
