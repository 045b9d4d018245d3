"""A device's residencies as bands."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.pages.charts import draw_timeline

NOW = datetime(2026, 11, 24, 8, 0, 0, tzinfo=UTC)


def flip(begin: float, opened: float | None, closed: float | None, *models: str, mib: int = 80) -> dict[str, Any]:
    at = [None if each is None else NOW - timedelta(seconds=each) for each in (begin, opened, closed)]
    return {
        "models": list(models), "cause": "drained", "state": "closed" if closed is not None else "open",
        "wanted_at": at[0], "opened_at": at[1], "closed_at": at[2], "declared_mib": mib,
    }  # fmt: skip


def bands(svg: str) -> list[tuple[str, float, float, float]]:
    found = re.findall(r'<rect class="([^"]+)" x="([^"]+)" y="[^"]+" height="([^"]+)" width="([^"]+)"', svg)
    return [(kind, float(x), float(width), float(height)) for kind, x, height, width in found]


def test_a_device_that_never_held_a_model_has_no_picture() -> None:
    assert draw_timeline([], 160, NOW) is None


def test_bands_are_as_long_as_their_time_and_as_high_as_their_memory() -> None:
    drawn = draw_timeline([flip(50, 40, 0, "generator", mib=160), flip(100, 80, 50, "judge", mib=40)], 160, NOW)
    assert drawn is not None
    assert bands(drawn.svg) == [
        ("series-1 loading", 0, 200, 25), ("series-1 resident", 200, 300, 25),
        ("series-2 loading", 500, 100, 100), ("series-2 resident", 600, 400, 100),
    ]  # fmt: skip
    assert drawn.legend == [("series-1", "judge"), ("series-2", "generator")]


def test_an_open_residency_goes_on_to_the_next_five_seconds_and_others_end_the_picture() -> None:
    opened = draw_timeline([flip(60, 50, None, "judge")], 160, NOW)
    later = draw_timeline([flip(60, 50, None, "judge")], 160, NOW + timedelta(seconds=4))
    closed = draw_timeline([flip(60, 50, 20, "judge")], 160, NOW)
    assert opened is not None
    assert later is not None
    assert closed is not None
    assert opened.end == later.end == NOW + timedelta(seconds=5)
    assert closed.end == NOW - timedelta(seconds=20)


def test_only_the_last_ten_minutes_are_shown_and_only_their_models_named() -> None:
    drawn = draw_timeline([flip(50, 40, None, "generator"), flip(4000, 3990, 3900, "judge")], 160, NOW)
    assert drawn is not None
    assert drawn.end - drawn.start == timedelta(minutes=10)
    assert [models for _, models in drawn.legend] == ["generator"]


def test_an_emptied_device_is_a_low_line_and_more_than_the_budget_is_cut() -> None:
    drawn = draw_timeline([flip(20, 10, None), flip(60, 50, 20, "large", mib=500)], 160, NOW)
    assert drawn is not None
    kinds = {kind: height for kind, _, _, height in bands(drawn.svg)}
    assert kinds["series-1 resident"] == 100
    assert kinds["drained resident"] < 10


def test_a_models_name_is_text() -> None:
    drawn = draw_timeline([flip(20, 10, None, '<b>&"')], 160, NOW)
    assert drawn is not None
    assert "<b>" not in drawn.svg
