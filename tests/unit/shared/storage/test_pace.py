"""The estimate of what a job will still take: from what has ended, or none."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.storage.jobs import FEWEST, estimate_bounds, estimate_seconds

pytestmark = pytest.mark.anyio

FIRST = datetime(2026, 11, 21, 8, tzinfo=UTC)


def test_the_pace_is_that_between_the_first_and_the_last_sample_that_ended() -> None:
    assert estimate_seconds(100, ended=11, first=FIRST, last=FIRST + timedelta(seconds=5)) == 50


def test_a_rest_of_a_second_is_a_second() -> None:
    assert estimate_seconds(1, ended=101, first=FIRST, last=FIRST + timedelta(seconds=10)) == 1
    assert estimate_seconds(0, ended=101, first=FIRST, last=FIRST + timedelta(seconds=10)) == 0


@pytest.mark.parametrize(
    ("ended", "first", "last"),
    [(0, None, None), (FEWEST - 1, FIRST, FIRST + timedelta(seconds=5)), (50, FIRST, FIRST)],
)
def test_there_is_no_estimate_without_a_pace(ended: int, first: datetime | None, last: datetime | None) -> None:
    assert estimate_seconds(100, ended, first, last) is None


def test_the_interval_is_that_of_the_number_of_samples_that_end_in_such_a_time() -> None:
    assert estimate_bounds(100, ended=11, first=FIRST, last=FIRST + timedelta(seconds=10)) == (54, 209)


def test_the_more_has_ended_the_narrower_the_interval() -> None:
    few = estimate_bounds(100, ended=11, first=FIRST, last=FIRST + timedelta(seconds=10))
    many = estimate_bounds(100, ended=1001, first=FIRST, last=FIRST + timedelta(seconds=1000))
    assert few[0] < many[0] < 100 < many[1] < few[1]
