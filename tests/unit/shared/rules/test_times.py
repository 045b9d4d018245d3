"""Times of facts: dates and steps, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rules import graph


@given(st.dates())
def test_a_date_is_its_day_and_comes_back(date: object) -> None:
    unit, number = graph.parse(str(date))
    assert (unit, graph.written(number, unit)) == ("day", str(date))


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_a_whole_number_is_its_own_step(step: int) -> None:
    assert graph.parse(str(step)) == ("step", step)
    assert graph.written(step, "step") == str(step)


def test_days_after_one_another_are_steps_after_one_another() -> None:
    numbers = [graph.parse(day)[1] for day in ("2016-02-28", "2016-02-29", "2016-03-01")]
    assert [number - numbers[0] for number in numbers] == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", "2014-02-30", "2014-1-1", "20.09.2014", "2014-09-20T00:00:00", "1.5", "1e3", "9" * 19, "٣", "now"]
)
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        graph.parse(text)
