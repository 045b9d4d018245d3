"""When a measurement of slots ends, and which number is chosen."""

import pytest

from shared.models.tuning import SIZES, Measurement, choose, has_peaked


def measured(*speeds: float) -> list[Measurement]:
    return [
        Measurement(slots=slots, windows=(speed, speed, speed), mib=None)
        for slots, speed in zip(SIZES, speeds, strict=False)
    ]


def test_the_speed_is_the_median_of_the_windows() -> None:
    assert Measurement(slots=1, windows=(9.0, 1.0, 4.0), mib=None).calls_s == 4.0


@pytest.mark.parametrize(
    ("speeds", "slots"),
    [
        ((10.0,), 1),
        ((10.0, 19.0, 35.0, 60.0), 8),
        ((10.0, 20.0, 19.9), 2),
        ((9.5, 10.0), 1),
        ((9.49, 10.0), 2),
        ((10.0, 30.0, 57.0, 59.0, 60.0), 4),
    ],
)
def test_the_fewest_slots_within_five_percent_of_the_fastest_are_chosen(speeds: tuple[float, ...], slots: int) -> None:
    assert choose(measured(*speeds)).slots == slots


@pytest.mark.parametrize(
    ("speeds", "ended"),
    [
        ((10.0,), False),
        ((10.0, 9.0), False),
        ((10.0, 9.0, 8.0), True),
        ((10.0, 20.0, 19.0, 21.0), False),
        ((10.0, 20.0, 19.0, 18.0), True),
        ((10.0, 20.0, 18.0, 19.0), True),
        ((10.0, 20.0, 30.0, 20.0), False),
    ],
)
def test_it_ends_after_two_numbers_of_slots_that_are_slower_than_the_best(
    speeds: tuple[float, ...], ended: bool
) -> None:
    assert has_peaked(measured(*speeds)) is ended
