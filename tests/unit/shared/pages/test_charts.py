import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from shared.pages.charts import (
    POINTS_BOTTOM,
    POINTS_HEIGHT,
    POINTS_TOP,
    HeatCell,
    IntervalPoint,
    Slope,
    draw_heat_table,
    draw_interval,
    draw_memory,
    draw_points,
    draw_progress,
    draw_ruler,
    draw_scatter,
    draw_shares,
    draw_slopes,
    draw_timeline,
    draw_whisker,
)
from shared.pages.lines import explain_decision
from shared.pages.plots import SERIES, SHADES, name_shade
from shared.samples import GateDecision, Strategy

# Bars that fill up.


def widths(drawn: str) -> list[float]:
    return [float(width) for width in re.findall(r'width="([\d.]+)"', drawn)]


def test_a_bar_is_as_long_as_the_share_that_is_done() -> None:
    assert widths(draw_progress(30, 40, failed=10)) == [50.0, 25.0]
    assert 'aria-label="30 of 40, 10 failed"' in draw_progress(30, 40, failed=10)


def test_nothing_to_do_is_an_empty_bar() -> None:
    assert widths(draw_progress(0, 0)) == [0.0, 0.0]


def test_an_estimate_stands_within_its_interval() -> None:
    drawn = draw_interval(1.0, 0.5, 1.0)
    assert 'x="50.00" width="50.00"' in drawn
    assert 'x="99.00" width="1"' in drawn


# The gate's decision, drawn and put into words.

DECISION = GateDecision(
    strategy=Strategy.JUDGE, reason="rho = 0.200 <= tau = 0.45: judge", tau=0.45, rho=0.2, low=0.1, high=0.3,
    spearman=0.2, documents=("a", "b", "c"), rule_scores=(0.0, 1.0, 1.0), judge_scores=(0.0, 1.0, 1.0), asked=3,
    unparsed=0,
)  # fmt: skip


def test_a_pair_of_scores_is_a_dot_at_its_place() -> None:
    dots = re.findall(r'class="dots" stroke-width="([\d.]+)" d="([^"]+)"', draw_scatter(DECISION))
    assert [place for _, place in dots] == ["M234.0 8.0h0", "M34.0 208.0h0"]
    assert float(dots[0][0]) > float(dots[1][0])


def test_the_ruler_shows_rho_between_its_bounds_and_tau() -> None:
    drawn = draw_ruler(replace(DECISION, rho=0.0, low=-1.0, high=1.0, tau=0.5))
    assert 'd="M10.0 30H250.0"' in drawn
    assert 'cx="130.0"' in drawn
    assert 'd="M190.0 16V40"' in drawn


def test_without_rho_there_is_no_ruler_and_without_bounds_no_interval() -> None:
    assert draw_ruler(replace(DECISION, rho=None, low=None, high=None)) == ""
    assert "interval" not in draw_ruler(replace(DECISION, low=None, high=None))


def test_a_gate_without_documents_has_an_empty_scatter() -> None:
    assert "dots" not in draw_scatter(replace(DECISION, documents=(), rule_scores=(), judge_scores=()))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "Rules agree too little with the judge (rho = 0.200 on 3 documents, not more than tau = 0.45)"),
        ({"high": 0.5}, "It is a close call: the interval of rho, 0.100 to 0.500, contains tau."),
        ({"strategy": Strategy.RULES, "rho": 0.6, "low": 0.5, "high": 0.7}, "rules score."),
        ({"rho": None, "low": None, "high": None}, "There are too few data to trust rules here"),
        ({"reason": "3 scored documents, fewer than the 30 needed: judge"}, "There are too few data"),
        ({"asked": 0, "strategy": Strategy.VERIFIER}, "The job sets who scores: verifier."),
        ({"asked": 9, "unparsed": 6, "strategy": Strategy.RULES}, "no rating in 6 of 9 replies, so rules score"),
    ],
)
def test_why_the_strategy_was_chosen_is_said_in_words(changed: dict[str, object], said: str) -> None:
    assert said in explain_decision(replace(DECISION, **changed))  # type: ignore[arg-type]


# Grids of figures: shades, missing cells, and texts that do not act.


def cells(drawn: str) -> list[tuple[str, str]]:
    return [
        (kind, re.sub(r"<[^>]+>", "", words)) for kind, words in re.findall(r'<td class="([\w-]+)">(.*?)</td>', drawn)
    ]


def test_every_place_of_the_grid_has_a_cell() -> None:
    figures = {
        ("1", "a"): HeatCell(0.2, "20.0", "4 to 62", "/jobs/x"), ("2", "a"): HeatCell(0.6, "60.0"),
        ("1", "b"): HeatCell(None, "refused"),
    }  # fmt: skip
    drawn = draw_heat_table(figures, ("k", ["1", "2"]), ("variant", ["a", "b"]), caption="seed 0", low=0.2, high=0.6)
    assert cells(drawn) == [
        ("heat-0", "20.04 to 62"),
        (f"heat-{SHADES}", "60.0"),
        ("missing", "refused"),
        ("missing", "–"),
    ]
    assert '<a href="/jobs/x">20.0</a>' in drawn
    assert drawn.count('scope="row"') == 2
    assert drawn.count('scope="col"') == 3


def test_one_figure_everywhere_is_in_the_middle_of_the_scale() -> None:
    assert name_shade(0.4, 0.4, 0.4) == f"heat-{SHADES // 2}"
    shades = [name_shade(value, 0.0, 0.8) for value in (-1, 0.0, 0.4, 0.8, 2)]
    assert shades == ["heat-0", "heat-0", "heat-4", "heat-8", "heat-8"]


def test_hostile_values_and_names_are_text() -> None:
    hostile = '<script>"\u202e'
    axis = (hostile, [hostile])
    drawn = draw_heat_table({(hostile, hostile): HeatCell(0.5, hostile)}, axis, axis, caption=hostile, low=0, high=1)
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
    assert drawn.count("U+202E") == 6


# Bars of memory against a budget.


def test_parts_are_drawn_to_the_scale_with_the_budget_as_a_line() -> None:
    drawn = draw_memory({"judge": 100, "generator": 50}, 150, 200)
    assert re.findall(r'x="([\d.]+)" y="5" width="([\d.]+)"', drawn) == [("0.0", "200.0"), ("200.0", "100.0")]
    assert 'x1="300.0"' in drawn
    assert 'class="wrong"' not in drawn


def test_what_is_beyond_the_budget_is_marked() -> None:
    assert '<rect x="200.0" y="1" width="200.0" height="3" class="wrong"/>' in draw_memory({"judge": 100}, 50, 100)


def test_it_is_told_in_words_and_names_cannot_act() -> None:
    drawn = draw_memory({'"><script>': 1}, 2, 2)
    assert 'aria-label="&#34;&gt;&lt;script&gt; 1 MiB; budget 2 MiB"' in drawn


def test_nothing_is_drawn_of_nothing_in_memory() -> None:
    assert "<rect" not in draw_memory({}, 0, 0)


# Lines along a parameter: where figures stand, and what is said of them.


def test_a_higher_figure_stands_higher_and_its_interval_around_it() -> None:
    drawn = draw_points(
        {"dense": {"1": IntervalPoint(0.42, 0.41, 0.5), "2": IntervalPoint(0.6, 0.42, 0.6)}}, "k", ["1", "2"]
    )
    assert re.search(r'aria-label="dense along k, from 40 to 60 %"', drawn)
    first, second = [float(y) for y in re.findall(r'cy="([\d.]+)" r="3.5"', drawn)]
    assert second == POINTS_TOP < first < POINTS_HEIGHT - POINTS_BOTTOM
    assert 'points="' in drawn


def test_values_without_a_figure_have_no_dot() -> None:
    drawn = draw_points({"a": {"1": IntervalPoint(0.5, 0.4, 0.6)}, "b": {}}, "k", ["1", "2"])
    assert len(re.findall(r'r="3.5"', drawn)) == 1
    assert 'role="img"' in draw_points({"a": {}}, "k", ["1"])


def test_no_more_lines_are_drawn_than_there_are_colours() -> None:
    drawn = draw_points({f"v{n}": {"1": IntervalPoint(0.5, 0.4, 0.6)} for n in range(SERIES + 2)}, "k", ["1"])
    assert len(re.findall(r"<polyline", drawn)) == SERIES
    assert f"v{SERIES}" not in drawn


def test_hostile_names_are_text() -> None:
    hostile = '"><script>\u202e'
    drawn = draw_points({hostile: {hostile: IntervalPoint(0.5, 0.4, 0.6)}}, hostile, [hostile])
    assert "<script>" not in drawn
    assert "\u202e" not in drawn


# Bars of parts.


def _drawn(bar: str) -> list[tuple[float, float]]:
    return [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)"', bar)]


def test_parts_stand_side_by_side_and_fill_the_bar() -> None:
    assert _drawn(draw_shares([1, 3])) == [(0, 25), (25, 75)]


def test_what_is_missing_to_the_whole_stays_empty() -> None:
    assert _drawn(draw_shares([1, 1], whole=4)) == [(0, 25), (25, 25)]


@pytest.mark.parametrize("parts", [[], [0.0, 0.0]])
def test_nothing_is_drawn_of_nothing_in_shares(parts: list[float]) -> None:
    assert all(width == 0 for _, width in _drawn(draw_shares(parts)))


# A slope chart: one line for each thing, from where it stood to where it stands.

SLOPES = [Slope("doc-a", 5, 1, strong=True, marked=True), Slope("doc-b", 1, 2), Slope("doc-c", 7, 7)]


def test_lines_rise_fall_or_stay() -> None:
    drawn = str(draw_slopes(SLOPES, "found", "reranked"))
    assert re.findall(r'<g class="([a-z ]+)">', drawn) == ["up strong", "down", "same"]
    heights = {float(y): x for x, y in re.findall(r'x="(\d+)" y="(\d+)"', drawn)}
    assert len(heights) == 1 + len(SLOPES)
    (rising, *_) = re.findall(r'y1="(\d+)" x2="\d+" y2="(\d+)"', drawn)
    assert int(rising[0]) > int(rising[1])


def test_who_cannot_see_it_hears_the_ranks() -> None:
    assert 'aria-label="Ranks: doc-a from 5 to 1, doc-b from 1 to 2, doc-c from 7 to 7"' in draw_slopes(
        SLOPES, "a", "b"
    )


def test_a_hostile_name_stays_a_name() -> None:
    drawn = str(draw_slopes([Slope('<script>"&\u202e' + "x" * 100, 1, 1)], "a", "b"))
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
    assert "x" * 20 not in drawn
    ET.fromstring(drawn)  # noqa: S314 - our own markup


# A device's residencies as bands.

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


# A figure with its interval: where its parts stand.


def places(drawn: str) -> list[tuple[str, float, float]]:
    found = re.findall(r'<line class="(\w+)" x1="([\d.]+)%" x2="([\d.]+)%"', drawn)
    return [(name, float(one), float(other)) for name, one, other in found]


def test_a_share_stands_on_a_scale_from_0_to_1() -> None:
    drawn = draw_whisker(0.5, 0.25, 0.75)
    assert places(drawn) == [("axis", 0, 100), ("span", 25, 75)]
    assert re.search(r'cx="50\.00%"', drawn)


def test_a_difference_stands_on_either_side_of_0() -> None:
    assert places(draw_whisker(0.1, -0.1, 0.3, start=-0.4, end=0.4)) == [
        ("axis", 0, 100), ("zero", 50, 50), ("span", pytest.approx(37.5), pytest.approx(87.5)),
    ]  # fmt: skip


def test_nothing_is_drawn_outside_of_the_scale() -> None:
    assert places(draw_whisker(0.5, -3, 3))[-1] == ("span", 0, 100)
