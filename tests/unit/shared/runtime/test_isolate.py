from collections.abc import Sequence

import pytest

from shared.runtime.queue import isolate

pytestmark = pytest.mark.anyio


class Runs:
    """Runs of numbers, of which negative ones stop their run."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def run(self, batch: Sequence[int]) -> str:
        self.batches.append(list(batch))
        if min(batch) < 0:
            raise ValueError(batch)
        return f"ran {list(batch)}"

    async def fail(self, member: int, error: Exception) -> str:
        return f"failed {member} by {type(error).__name__}"


@pytest.mark.parametrize("batch", [[-1], [1, -2, 3], [-1, -2, 3, 4, 5]])
async def test_no_batch_runs_twice(batch: list[int]) -> None:
    runs = Runs()
    results = await isolate(batch, runs.run, runs.fail)
    assert [each for each in results if each.startswith("failed")] == [
        f"failed {each} by ValueError" for each in batch if each < 0
    ]
    assert sorted({tuple(each) for each in runs.batches}) == sorted(map(tuple, runs.batches))


async def test_a_batch_of_one_that_has_stopped_is_not_run_again() -> None:
    runs = Runs()
    assert await isolate([1], runs.run, runs.fail, stopped=ValueError()) == ["failed 1 by ValueError"]
    assert await isolate([1, -2], runs.run, runs.fail, stopped=ValueError()) == ["ran [1]", "failed -2 by ValueError"]
    assert runs.batches == [[1], [-2]]


async def test_an_error_that_is_no_defect_of_members_is_raised() -> None:
    runs = Runs()
    with pytest.raises(ValueError, match="-1"):
        await isolate([-1, 2], runs.run, runs.fail, is_defect=lambda _: False)
    assert runs.batches == [[-1, 2]]
