"""A real stack on the shipped models, whose processes the tests kill."""

from collections.abc import Iterator, Mapping

import pytest

from tests.faults.recording import Seen
from tests.faults.trial import Trial, measured
from tests.running import RunningStack, running_stack

CLAIM_TTL_S = 5
"""A third of the default: what a dead worker held is taken up again so much sooner."""


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """One stack for all faults: that it survives them all is the point."""
    folder = tmp_path_factory.mktemp("faults")
    with running_stack(folder / "data", MATHRAG_WORKERS__CLAIM_TTL_S=str(CLAIM_TTL_S)) as running:
        running.furnish(folder / "world", items=300)
        yield running


@pytest.fixture(scope="session")
def whole(stack: RunningStack) -> Mapping[str, int]:
    """How many calls each stage of a job makes when nothing goes wrong."""
    return measured(stack)


@pytest.fixture
def trial(stack: RunningStack, whole: Mapping[str, int], seen: Seen) -> Trial:
    """A job of this test on the stack of all faults."""
    return Trial(stack, whole, seen)
