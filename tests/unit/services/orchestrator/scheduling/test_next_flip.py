"""What a device's next flip waits for."""

import pytest

from services.orchestrator.scheduling.scheduler import predict_next_flip
from shared.calls import Lane
from shared.storage.jobs import LaneWork

pytestmark = pytest.mark.anyio


def lane(model: str, queued: int = 0, ended: int = 0, device: str | None = "cpu:0") -> LaneWork:
    return LaneWork(lane=Lane.JUDGE, model=model, device=device, queued=queued, ended=ended)


def test_no_flip_is_due_while_no_call_waits_for_another_model() -> None:
    work = [lane("a", 10), lane("b", 5, device="cuda:1"), lane("dense", 3, device=None)]
    assert predict_next_flip("cpu:0", ["a"], work) is None
    assert predict_next_flip("cpu:0", [], []) is None


def test_what_is_resident_is_answered_first() -> None:
    flip = predict_next_flip("cpu:0", ["a"], [lane("a", 42), lane("b", 5), lane("c", 7), lane("d", 0, ended=9)])
    assert flip is not None
    assert (flip.models, flip.waiting, flip.left) == (["c", "b"], 12, 42)


def test_the_time_left_is_as_sure_as_the_pace() -> None:
    flip = predict_next_flip("cpu:0", ["a"], [lane("a", 60, ended=30), lane("b", 1)])
    assert flip is not None
    assert flip.low_s == pytest.approx(60 * 30 / 42.83, rel=1e-3)
    assert flip.high_s == pytest.approx(60 * 30 / 20.24, rel=1e-3)


@pytest.mark.parametrize(("left", "ended"), [(60, 4), (60, 0), (0, 100)])
def test_no_time_is_said_where_too_few_calls_ended_or_none_are_left(left: int, ended: int) -> None:
    flip = predict_next_flip("cpu:0", ["a"], [lane("a", left, ended=ended), lane("b", 1)])
    assert flip is not None
    assert (flip.low_s, flip.high_s) == (None, None)
