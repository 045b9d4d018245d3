"""The guard's clock never goes back, whatever is done to the machine's."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from services.guard import memory

pytestmark = pytest.mark.anyio


class Hands:
    def __init__(self) -> None:
        self.wall = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self.seconds = 100.0

    def now(self, zone: object) -> datetime:
        assert zone is UTC
        return self.wall


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(memory, "datetime", hands)
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: hands.seconds))
    return hands


def test_the_clock_starts_at_wall_time(hands: Hands) -> None:
    assert memory.GuardClock().now() == hands.wall


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_jump_of_the_wall_clock_changes_nothing(hands: Hands, jump: timedelta) -> None:
    guard_clock = memory.GuardClock()
    start = hands.wall
    hands.wall += jump
    hands.seconds += 2.5
    assert guard_clock.now() == start + timedelta(seconds=2.5)


def test_a_clock_that_is_set_goes_on_from_there(hands: Hands) -> None:
    guard_clock = memory.GuardClock()
    guard_clock.set(hands.wall + timedelta(hours=1))
    hands.seconds += 2.5
    assert guard_clock.now() == hands.wall + timedelta(hours=1, seconds=2.5)


def test_a_stamp_knows_its_zone() -> None:
    assert memory.GuardClock().now().utcoffset() == timedelta(0)
