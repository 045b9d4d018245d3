"""When a worker counts as deaf: ticks wait, it has nothing to do, and it takes none, look after look."""

import pytest

from shared.runtime.process import LOOKS, TickWatch

pytestmark = pytest.mark.anyio

BUSY, IDLE = True, False


def test_a_worker_that_takes_no_tick_is_deaf_after_some_looks() -> None:
    watch = TickWatch()
    assert [watch.is_stuck(1, busy=IDLE) for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]


@pytest.mark.parametrize(("waiting", "busy"), [(0, IDLE), (5, BUSY), (0, BUSY)])
def test_a_worker_without_ticks_or_with_work_is_not_deaf(waiting: int, busy: bool) -> None:
    watch = TickWatch()
    assert not any(watch.is_stuck(waiting, busy=busy) for _ in range(10 * LOOKS))


def test_a_tick_that_came_between_two_looks_begins_the_count_anew() -> None:
    watch = TickWatch()
    for _ in range(10):
        assert not any(watch.is_stuck(100, busy=IDLE) for _ in range(LOOKS - 1))
        watch.note_tick(request="of Celery's signal")
    assert not watch.is_stuck(100, busy=IDLE)


def test_a_moment_of_work_begins_the_count_anew() -> None:
    watch = TickWatch()
    for busy in (IDLE, IDLE, BUSY, IDLE, IDLE):
        assert not watch.is_stuck(1, busy=busy)
    assert watch.is_stuck(1, busy=IDLE)
