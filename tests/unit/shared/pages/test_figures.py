"""Figures: the same rows make the same bytes, and what is drawn says its numbers, its n and its intervals."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.pages import figures
from shared.pages.figures import Figure, render_inline, render_svg, write_figure
from shared.pages.pages import load_style
from shared.pages.plots import (
    COLOURS,
    SHADES,
    Bar,
    Dot,
    Label,
    Line,
    make_axis,
    make_logarithmic_axis,
    measure,
    name_shade,
    shorten,
    wrap,
)
from tests.unit.figures import DECISION, GOLDEN, make_figures, residencies, scored, thresholds

NUMBERS = {
    "accuracy": ("61.0 % (56.7 to 65.2)", "not known", "n = 0 to 500 items", "Wilson, 95 %"),
    "rho": ("rho = 0.139", "tau = 0.45: judge", "-0.018 to 0.289", "n = 4 documents", "2 replies without a rating"),
    "weights": ("60.0", "n = 100 items a cell", "8 cells are 5 runs"),
    "endings": ("61.0 %", "9.0 %", "n = 100 samples a system"),
    "ranks": ("n = 1 to 3 samples a rank", "Student, 95 %"),
    "memory": ("n = 3 residencies on cpu:0", "1 of 4 readings could not be made"),
    "latency": ("2 s, n = 3", "0.1 s, n = 3", "5th to 95th percentile"),
    "calibration": ("n = 4 samples", "95 %"),
    "roc": ("n = 6 documents, 3 good by the verifier", "judge: area 0.833", "rules: area 0.500", "bootstrap"),
    "pareto": ("0.25", "0.5", "n = 0 to 200 items", "drawn by chance"),
}


FIGURES = make_figures()
Files = tuple[Path, Path]


@pytest.fixture(params=FIGURES, ids=lambda figure: figure.name)
def figure(request: pytest.FixtureRequest) -> Figure:
    made: Figure = request.param
    return made


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    folder = tmp_path_factory.mktemp("figures") / "made"
    return {figure.name: write_figure(figure, folder) for figure in FIGURES}


@pytest.fixture
def drawn(figure: Figure, written: dict[str, Files]) -> str:
    return written[figure.name][0].read_text("utf-8")


def test_a_figure_is_drawn_as_it_was_when_somebody_looked_at_it(figure: Figure, drawn: str) -> None:
    assert drawn == (GOLDEN / f"{figure.name}.svg").read_text("utf-8")


def test_a_drawn_figure_says_its_numbers(figure: Figure, drawn: str) -> None:
    assert not [number for number in NUMBERS[figure.name] if number not in drawn]


def test_the_same_rows_make_the_same_bytes(written: dict[str, Files], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("figures") / "again"
    again = {figure.name: write_figure(figure, folder) for figure in reversed(FIGURES)}
    pairs = [pair for name, files in written.items() for pair in zip(files, again[name], strict=True)]
    assert len(pairs) == 2 * len(FIGURES)
    assert [second.name for first, second in pairs if first.read_bytes() != second.read_bytes()] == []


def test_a_figure_is_two_files_with_its_data(figure: Figure, written: dict[str, Files]) -> None:
    picture, rows = written[figure.name]
    assert [picture.name, rows.name] == [f"{figure.name}.svg", f"{figure.name}.json"]
    assert picture.read_text("utf-8").startswith("<svg ")
    said = msgspec.json.decode(rows.read_bytes())
    assert (said["title"], said["caption"]) == (figure.title, figure.caption)
    assert len(said["rows"]) == len(figure.rows)


def test_a_figure_loads_nothing_and_has_no_style_of_its_own(drawn: str) -> None:
    assert set(re.findall(r"https?://[^\"' )]+", drawn)) == {"http://www.w3.org/2000/svg"}
    assert not re.search("@import|style=|<style| id=", drawn)


def test_every_coloured_element_takes_the_colours_of_the_pages(drawn: str) -> None:
    elements = re.findall(r"<(?:polyline|rect|circle|polygon)[^>]*>", drawn)
    unknown = [
        each for each in elements[1:] if not (found := re.search(r'class="([^"]+)"', each)) or not is_styled(found[1])
    ]
    assert unknown == [], "the first is the ground"


def is_styled(name: str) -> bool:
    style = load_style()
    return f".chart .{name} {{" in style or (name.startswith("heat-") and f".{name} {{" in style)


def test_the_colours_of_a_file_are_those_of_the_light_theme() -> None:
    light = load_style().partition("@media")[0]
    assert {name: colour for name, colour in COLOURS.items() if f"--{name}: {colour};" not in light} == {}


def test_every_figure_has_axes_with_units_and_a_caption_of_one_sentence(figure: Figure, drawn: str) -> None:
    titles = {title for panel in figure.plot.panels for title in (panel.x.title, panel.y.title) if title}
    assert titles
    assert [title for title in titles if "(" not in title] == [], "a unit"
    assert [title for title in titles if title not in drawn] == []
    assert figure.caption.count(".") == 1
    assert figure.caption.endswith(".")


def test_a_narrow_drawing_is_narrower_and_says_the_same_numbers(figure: Figure) -> None:
    wide, narrow = (re.findall("<text[^>]*>([0-9.]+ % .*?)</text>", drawn) for drawn in render_inline(figure))
    widths = [int(re.search(r'width="(\d+)"', drawn)[1]) for drawn in render_inline(figure)]  # type: ignore[index]
    assert widths[0] > 480 > widths[1]
    assert wide == narrow


def test_names_are_text_and_nothing_else() -> None:
    hostile = "<script>alert(1)</script>"
    drawn = render_svg(
        figures.draw_accuracy([figures.AccuracyRow(label=hostile, value=0.5, low=0.4, high=0.6, n=9)], title=hostile)
    )
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_systems_keep_their_order_and_groups_get_panels() -> None:
    rows = [figures.AccuracyRow(label=label, value=0.5, n=9, group=group) for group in "ba" for label in ("z", "y")]
    panels = figures.draw_accuracy(rows).plot.panels
    assert [panel.title for panel in panels] == ["b", "a"]
    assert panels[0].y.ticks == ((0, "z"), (1, "y"))
    assert panels[0].y.locate(0, 100) > panels[0].y.locate(1, 100), "the first is at the top"


def _marked(rows: list[figures.WeightsRow]) -> dict[tuple[str, str], bool]:
    """Whether a cell with a number has a frame, by its two weights."""
    [panel] = figures.draw_weights(rows).plot.panels
    bars = [mark for mark in panel.marks if isinstance(mark, Bar)]
    frames = {bar.start for bar in bars if bar.colour is None}
    names = [dict(axis.ticks) for axis in (panel.x, panel.y)]
    return {
        (names[0][round(bar.start[0] + 0.5)], names[1][round(bar.start[1] + 0.5)]): bar.start in frames
        for bar in bars
        if bar.colour is not None
    }


def test_cells_of_one_ratio_are_one_run_and_its_first_is_marked() -> None:
    weights = [(a / 10, b / 10) for a in range(11) for b in range(11)]
    rows = [figures.WeightsRow(rrf_weight=a, quality_weight=b, value=0.5 if a + b else None, n=10) for a, b in weights]
    marked = _marked(rows)
    assert len(marked) == 120
    assert sum(marked.values()) == 65
    assert marked["0.1", "0.1"]
    assert not marked["0.2", "0.2"]
    assert marked["0.1", "0"]
    assert not marked["0.2", "0"]


def test_the_job_says_which_cells_are_one_run_where_it_is_known() -> None:
    rows = [figures.WeightsRow(rrf_weight=1, quality_weight=up, value=0.5, n=10, job="one") for up in (1, 2)]
    assert list(_marked(rows).values()) == [True, False]


def test_a_cell_without_a_row_is_empty() -> None:
    rows = [figures.WeightsRow(rrf_weight=at, quality_weight=at, value=0.5, n=10) for at in (1, 2)]
    [panel] = figures.draw_weights(rows).plot.panels
    said = {mark.at: mark.text for mark in panel.marks if isinstance(mark, Label)}
    assert said == {(0, 0): "50.0", (0, 1): "–", (1, 0): "–", (1, 1): "50.0"}


def test_pairs_of_scores_that_coincide_are_one_larger_circle() -> None:
    [panel] = figures.draw_rho(DECISION).plot.panels
    dots = [mark for mark in panel.marks if isinstance(mark, Dot)]
    assert [dot.at for dot in dots] == [(0.25, 1.0), (0.5, 0.0), (0.875, 0.75)]
    assert dots[0].radius > dots[1].radius == dots[2].radius


@pytest.mark.parametrize(
    "changes", [{"rho": None, "low": None, "high": None}, {"documents": (), "rule_scores": (), "judge_scores": ()}]
)
def test_a_decision_without_a_correlation_is_drawn_all_the_same(changes: dict[str, Any]) -> None:
    assert "judge" in render_svg(
        figures.draw_rho(msgspec.structs.replace(DECISION, reason="undefined: judge", **changes))
    )


def test_endings_that_nobody_has_are_left_out_and_repeats_do_not_narrow_the_interval() -> None:
    once, often = (
        figures.make_ending_rows("x", {"correct": 60, "logic": 40, "refused": 0}, items) for items in (None, 20)
    )
    assert "refused" not in str(figures.draw_endings(once).plot)
    assert (once[0].low, once[0].high) == pytest.approx((0.5020, 0.6906), abs=5e-4)
    assert once[0].low is not None
    assert often[0].low is not None
    assert often[0].low < once[0].low - 0.1


def test_a_share_of_samples_of_items_with_different_repeats_has_no_interval() -> None:
    rows = figures.make_ending_rows("x", {"correct": 50, "logic": 30}, items=0)
    assert [(row.value, row.low, row.high) for row in rows] == [(0.625, None, None), (0.375, None, None)]
    assert "Wilson" not in render_svg(figures.draw_endings(rows))


@pytest.mark.parametrize("items", [1, 7, 40, 499])
def test_the_share_of_an_ending_lies_in_its_interval(items: int) -> None:
    for count in {*range(0, 3 * items, 1 + items // 50), 1, 3 * items - 1, 3 * items}:
        row, _ = figures.make_ending_rows("x", {"correct": count, "logic": 3 * items - count}, items)
        assert row.low is not None
        assert row.high is not None
        assert row.low <= row.value <= row.high


@pytest.mark.parametrize(
    "empty",
    [
        figures.draw_accuracy, figures.draw_calibration, figures.draw_endings, figures.draw_latency,
        figures.draw_pareto, figures.draw_ranks, figures.draw_residencies, figures.draw_roc, figures.draw_weights,
    ],
)  # fmt: skip
def test_a_figure_of_nothing_is_no_error(empty: Any) -> None:
    assert "n = 0" in render_svg(empty([]))


def bands(figure: Figure) -> list[tuple[str | None, tuple[float, float], tuple[float, float]]]:
    [panel] = figure.plot.panels
    return [(mark.colour, mark.start, mark.end) for mark in panel.marks if isinstance(mark, Bar)]


def test_a_band_reaches_from_opening_to_closing_and_models_are_stacked() -> None:
    rows = residencies()
    generator, judge = "series-1", "series-2"
    assert bands(figures.draw_residencies(rows)) == [
        (judge, (0.0, 0.0), (20.0, 41.5)), (judge, (20.0, 0.0), (30.0, 42.0)), (judge, (30.0, 0.0), (30.0, 40.0)),
    ]  # fmt: skip
    both = [msgspec.structs.replace(row, mib=10.0) for row in rows[1:3]]
    assert bands(figures.draw_residencies(both, until=rows[3].opened_at)) == [
        (generator, (0.0, 0.0), (10.0, 10.0)), (judge, (0.0, 10.0), (10.0, 20.0)),
    ]  # fmt: skip


def test_what_all_models_would_need_at_once_is_a_line_where_no_residency_held_them_all() -> None:
    judge, _, _, again = residencies()
    generator = msgspec.structs.replace(again, model="generator", mib=60.0)
    [panel] = figures.draw_residencies([judge, generator]).plot.panels
    assert Line(((0.0, 101.5), (30.0, 101.5)), dash="6 4") in panel.marks
    together = msgspec.structs.replace(generator, epoch=judge.epoch)
    [panel] = figures.draw_residencies([judge, together]).plot.panels
    assert not any(isinstance(mark, Line) and mark.dash for mark in panel.marks)


def test_times_that_are_no_time_stand_at_the_least_that_a_clock_tells() -> None:
    [row] = figures.make_latency_rows("grade", figures.RAN, [0.0, 0.0])
    assert (row.p5, row.p95) == (figures.MIN_SECONDS, figures.MIN_SECONDS)
    assert figures.make_latency_rows("grade", figures.RAN, []) == []


def test_an_interval_needs_two_observations() -> None:
    [row] = figures.make_rank_rows(figures.AFTER, {1: [0.5]})
    assert (row.value, row.low, row.high, row.n) == (0.5, None, None, 1)


def test_ratings_stay_apart_and_many_values_are_put_into_bins() -> None:
    assert [row.quality for row in figures.make_calibration_rows([(rating / 4, 1.0) for rating in range(5)])] == [
        0,
        0.25,
        0.5,
        0.75,
        1,
    ]
    binned = figures.make_calibration_rows([(place / 1000, 1.0) for place in range(1001)])
    assert len(binned) == figures.MAX_DISTINCT
    assert sum(row.n for row in binned) == 1001


def test_a_share_has_wilsons_interval_and_a_mean_of_grades_students() -> None:
    [share] = figures.make_calibration_rows([(0.5, 0.0), (0.5, 0.0)])
    assert share.high == pytest.approx(0.6576, abs=1e-4)
    [grades] = figures.make_calibration_rows([(0.5, 0.2), (0.5, 0.4), (0.5, 0.3)])
    assert grades.value == pytest.approx(0.3)
    assert grades.high == pytest.approx(0.5484, abs=1e-4)


def test_the_area_is_how_often_a_good_document_is_above_a_bad_one() -> None:
    judge, rules = figures.compute_areas(scored())
    pairs = [(good, bad) for good in (0.75, 1.0, 0.25) for bad in (0.25, 0.0, 0.5)]
    assert judge.value == pytest.approx(sum((good > bad) + 0.5 * (good == bad) for good, bad in pairs) / len(pairs))
    assert rules.value == 0.5
    assert judge.low is not None
    assert judge.high is not None
    assert judge.low < 0.8333 < judge.high


def test_the_curve_goes_from_nothing_to_everything() -> None:
    [panel] = figures.draw_roc(scored()).plot.panels
    _, judge, rules = (list(mark.points) for mark in panel.marks if isinstance(mark, Line))
    assert (judge[0], judge[-1]) == ((0, 0), (1, 1))
    assert judge == sorted(judge)
    assert rules == [(0, 0), (1, 1)]


def test_only_good_documents_have_no_curve() -> None:
    rows = [row for row in scored() if row.good]
    assert [area.value for area in figures.compute_areas(rows)] == [None, None]
    assert "no area, as there are 3 good and 0 bad documents" in render_svg(figures.draw_roc(rows))


def test_a_threshold_is_on_the_front_unless_another_is_better_in_one_and_as_good_in_the_other() -> None:
    assert figures.find_front(thresholds()) == [True, False, True, False]
    twice = [thresholds()[0], thresholds()[0]]
    assert figures.find_front(twice) == [True, True]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.0, 1.0], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([3.0, 41.5], ["0", "5", "10", "15", "20", "25", "30", "35", "40", "45"]),
        ([0.10, 0.14], ["0.10", "0.11", "0.12", "0.13", "0.14"]),
        ([5.0, 5.0], ["5.0", "5.1", "5.2", "5.3", "5.4", "5.5"]),
        ([None, -1200.0, 900.0], ["-1,500", "-1,000", "-500", "0", "500", "1,000"]),
    ],
)
def test_the_ticks_of_an_axis_are_round_and_reach_around_its_values(
    values: list[float | None], ticks: list[str]
) -> None:
    axis = make_axis("x", values)
    assert [name for _, name in axis.ticks] == ticks
    assert (axis.low, axis.high) == (axis.ticks[0][0], axis.ticks[-1][0])


def test_a_logarithmic_axis_gives_each_power_of_ten_the_same_room() -> None:
    axis = make_logarithmic_axis("s", [0.02, 3.0])
    assert (axis.low, axis.high) == (0.01, 10)
    assert [round(axis.locate(value, 300)) for value in (0.01, 0.1, 1, 10)] == [0, 100, 200, 300]


def test_a_long_text_is_cut_or_wrapped_to_its_room() -> None:
    words = "one two three four five six seven"
    assert shorten("one", 100) == "one"
    assert measure(shorten(words, 60)) <= 60
    assert " ".join(wrap(words, 60)) == words
    assert max(map(measure, wrap(words, 60))) <= 60
    assert wrap("indivisible", 10) == ["indivisible"]


def test_the_shade_of_a_cell_grows_with_its_value() -> None:
    shades = [name_shade(value, 0.2, 0.6) for value in (0.0, 0.2, 0.4, 0.6, 1.0)]
    assert shades == [f"heat-{shade}" for shade in (0, 0, SHADES // 2, SHADES, SHADES)]
