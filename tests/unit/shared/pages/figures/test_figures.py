"""Figures: the same rows make the same bytes, and what is drawn says its numbers, its n and its intervals."""

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.errors import Unavailable
from shared.extras import install_command
from shared.pages.figures import (
    Figure,
    accuracy,
    calibration,
    endings,
    heatmap,
    latency,
    memory,
    pareto,
    ranks,
    render_svg,
    rho,
    roc,
    write_figure,
)
from tests.unit.figures import DECISION, GOLDEN, figures, residencies, scored, thresholds

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


FIGURES = figures()
Files = tuple[Path, Path, Path]


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


def test_a_figure_is_drawn_as_it_was_when_somebody_looked_at_it(figure: Figure) -> None:
    assert figure.chart == msgspec.json.decode((GOLDEN / f"{figure.name}.json").read_bytes())


def test_a_drawn_figure_says_its_numbers(figure: Figure, drawn: str) -> None:
    assert not [number for number in NUMBERS[figure.name] if number not in drawn]


def test_the_same_rows_make_the_same_bytes(written: dict[str, Files], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("figures") / "again"
    again = {figure.name: write_figure(figure, folder) for figure in reversed(FIGURES)}
    pairs = [pair for name, files in written.items() for pair in zip(files, again[name], strict=True)]
    assert len(pairs) == 3 * len(FIGURES)
    assert [second.name for first, second in pairs if first.read_bytes() != second.read_bytes()] == []


def test_a_figure_is_three_files_with_its_data(figure: Figure, written: dict[str, Files]) -> None:
    picture, pixels, rows = written[figure.name]
    assert [file.name for file in (picture, pixels, rows)] == [
        f"{figure.name}.{kind}" for kind in ("svg", "png", "json")
    ]
    assert picture.read_text("utf-8").startswith("<svg ")
    assert pixels.read_bytes().startswith(b"\x89PNG")
    said = msgspec.json.decode(rows.read_bytes())
    assert (said["title"], said["caption"]) == (figure.title, figure.caption)
    assert len(said["rows"]) == len(figure.rows)


def test_a_figure_asks_nothing_of_the_network(drawn: str) -> None:
    assert set(re.findall(r"https?://[^\"' )]+", drawn)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "@import" not in drawn
    assert "style=" not in drawn


def test_figures_can_stand_in_one_page(written: dict[str, Files]) -> None:
    drawn = {name: picture.read_text("utf-8") for name, (picture, _, _) in written.items()}
    ids = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in drawn.items()}
    for name, text in drawn.items():
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids[name]
        assert all(id_.startswith(f"{name}-") for id_ in ids[name])


def test_every_figure_has_axes_with_titles_and_says_what_is_to_be_seen(figure: Figure, drawn: str) -> None:
    titles = re.findall(r"[XY]-axis titled '([^']+)'", drawn)
    assert titles
    assert all("(" in title for title in titles), "a unit"
    assert figure.caption.count(".") == 1
    assert figure.caption.endswith(".")


def test_names_are_text_and_nothing_else() -> None:
    hostile = "<script>alert(1)</script>"
    drawn = render_svg(
        accuracy.draw([accuracy.AccuracyRow(label=hostile, value=0.5, low=0.4, high=0.6, n=9)], title=hostile)
    )
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_systems_keep_their_order_and_groups_get_panels() -> None:
    rows = [accuracy.AccuracyRow(label=label, value=0.5, n=9, group=group) for group in "ba" for label in ("z", "y")]
    chart = accuracy.draw(rows).chart
    assert chart["facet"]["row"]["sort"] == ["b", "a"]
    assert chart["spec"]["layer"][0]["encoding"]["y"]["sort"] == ["z", "y"]


def _marked(rows: list[heatmap.WeightsRow]) -> dict[tuple[float, float], bool]:
    return {
        (cell["rrf_weight"], cell["quality_weight"]): cell["first"]
        for cell in heatmap.draw(rows).chart["data"]["values"]
    }


def test_cells_of_one_ratio_are_one_run_and_its_first_is_marked() -> None:
    weights = [(a / 10, b / 10) for a in range(11) for b in range(11)]
    rows = [heatmap.WeightsRow(rrf_weight=a, quality_weight=b, value=0.5 if a + b else None, n=10) for a, b in weights]
    marked = _marked(rows)
    assert len(marked) == 121
    assert sum(first for cell, first in marked.items() if cell != (0, 0)) == 65
    assert marked[0.1, 0.1]
    assert not marked[0.2, 0.2]
    assert marked[0.1, 0]
    assert not marked[0.2, 0]


def test_the_job_says_which_cells_are_one_run_where_it_is_known() -> None:
    rows = [heatmap.WeightsRow(rrf_weight=1, quality_weight=up, value=0.5, n=10, job="one") for up in (1, 2)]
    assert list(_marked(rows).values()) == [True, False]


def test_a_cell_without_a_row_is_empty() -> None:
    rows = [heatmap.WeightsRow(rrf_weight=at, quality_weight=at, value=0.5, n=10) for at in (1, 2)]
    cells = heatmap.draw(rows).chart["data"]["values"]
    assert [cell["value"] for cell in cells] == [0.5, None, None, 0.5]


def test_pairs_of_scores_that_coincide_are_one_larger_circle() -> None:
    places = rho.draw(DECISION).chart["data"]["values"]
    assert [(place["rule"], place["judge"], place["documents"]) for place in places] == [
        (0.25, 1.0, 2), (0.5, 0.0, 1), (0.875, 0.75, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{"rho": None, "low": None, "high": None}, {"documents": (), "rule_scores": (), "judge_scores": ()}]
)
def test_a_decision_without_a_correlation_is_drawn_all_the_same(changes: dict[str, Any]) -> None:
    assert "judge" in render_svg(rho.draw(msgspec.structs.replace(DECISION, reason="undefined: judge", **changes)))


def test_endings_that_nobody_has_are_left_out_and_repeats_do_not_narrow_the_interval() -> None:
    once, often = (endings.make_rows("x", {"correct": 60, "logic": 40, "refused": 0}, items) for items in (None, 20))
    assert "refused" not in str(endings.draw(once).chart)
    assert (once[0].low, once[0].high) == pytest.approx((0.5020, 0.6906), abs=5e-4)
    assert once[0].low is not None
    assert often[0].low is not None
    assert often[0].low < once[0].low - 0.1


def test_a_share_of_samples_of_items_with_different_repeats_has_no_interval() -> None:
    rows = endings.make_rows("x", {"correct": 50, "logic": 30}, items=0)
    assert [(row.value, row.low, row.high) for row in rows] == [(0.625, None, None), (0.375, None, None)]
    assert "Wilson" not in render_svg(endings.draw(rows))


@pytest.mark.parametrize("items", [1, 7, 40, 499])
def test_the_share_of_an_ending_lies_in_its_interval(items: int) -> None:
    for count in range(3 * items + 1):
        row, _ = endings.make_rows("x", {"correct": count, "logic": 3 * items - count}, items)
        assert row.low is not None
        assert row.high is not None
        assert row.low <= row.value <= row.high


@pytest.mark.parametrize(
    "empty",
    [module.draw for module in (accuracy, heatmap, endings, ranks, memory, latency, calibration, roc, pareto)],
    ids=lambda empty: str(empty.__module__).rpartition(".")[2],
)
def test_a_figure_of_nothing_is_no_error(empty: Any) -> None:
    assert "n = 0" in render_svg(empty([]))


def test_a_band_reaches_from_opening_to_closing_and_models_are_stacked() -> None:
    rows = residencies()
    bands = memory.draw(rows).chart["data"]["values"]
    assert [(band["start"], band["end"], band["base"], band["top"]) for band in bands] == [
        (0.0, 20.0, 0.0, 41.5), (20.0, 30.0, 0.0, 42.0), (30.0, 30.0, 0.0, 40.0),
    ]  # fmt: skip
    both = [msgspec.structs.replace(row, mib=10.0) for row in rows[1:3]]
    stacked = memory.draw(both, until=rows[3].opened_at).chart["data"]["values"]
    assert [(band["model"], band["base"], band["top"], band["end"]) for band in stacked] == [
        ("generator", 0.0, 10.0, 10.0), ("judge", 10.0, 20.0, 10.0),
    ]  # fmt: skip


def test_times_that_are_no_time_stand_at_the_least_that_a_clock_tells() -> None:
    [row] = latency.make_rows("grade", latency.RAN, [0.0, 0.0])
    assert (row.p5, row.p95) == (latency.MIN_SECONDS, latency.MIN_SECONDS)
    assert latency.make_rows("grade", latency.RAN, []) == []


def test_an_interval_needs_two_observations() -> None:
    [row] = ranks.make_rows(ranks.AFTER, {1: [0.5]})
    assert (row.value, row.low, row.high, row.n) == (0.5, None, None, 1)


def test_ratings_stay_apart_and_many_values_are_put_into_bins() -> None:
    assert [row.quality for row in calibration.make_rows([(rating / 4, 1.0) for rating in range(5)])] == [
        0,
        0.25,
        0.5,
        0.75,
        1,
    ]
    binned = calibration.make_rows([(place / 1000, 1.0) for place in range(1001)])
    assert len(binned) == calibration.MAX_DISTINCT
    assert sum(row.n for row in binned) == 1001


def test_a_share_has_wilsons_interval_and_a_mean_of_grades_students() -> None:
    [share] = calibration.make_rows([(0.5, 0.0), (0.5, 0.0)])
    assert share.high == pytest.approx(0.6576, abs=1e-4)
    [grades] = calibration.make_rows([(0.5, 0.2), (0.5, 0.4), (0.5, 0.3)])
    assert grades.value == pytest.approx(0.3)
    assert grades.high == pytest.approx(0.5484, abs=1e-4)


def test_the_area_is_how_often_a_good_document_is_above_a_bad_one() -> None:
    judge, rules = roc.compute_areas(scored())
    pairs = [(good, bad) for good in (0.75, 1.0, 0.25) for bad in (0.25, 0.0, 0.5)]
    assert judge.value == pytest.approx(sum((good > bad) + 0.5 * (good == bad) for good, bad in pairs) / len(pairs))
    assert rules.value == 0.5
    assert judge.low is not None
    assert judge.high is not None
    assert judge.low < 0.8333 < judge.high


def test_the_curve_goes_from_nothing_to_everything() -> None:
    points = [point for layer in roc.draw(scored()).chart["layer"][1:] for point in layer["data"]["values"]]
    judge = [(point["false"], point["true"]) for point in points if point["scorer"] == "judge"]
    assert (judge[0], judge[-1]) == ((0, 0), (1, 1))
    assert judge == sorted(judge)
    assert [(point["false"], point["true"]) for point in points if point["scorer"] == "rules"] == [(0, 0), (1, 1)]


def test_only_good_documents_have_no_curve() -> None:
    rows = [row for row in scored() if row.good]
    assert [area.value for area in roc.compute_areas(rows)] == [None, None]
    assert "no area, as there are 3 good and 0 bad documents" in render_svg(roc.draw(rows))


def test_a_threshold_is_on_the_front_unless_another_is_better_in_one_and_as_good_in_the_other() -> None:
    assert pareto.find_front(thresholds()) == [True, False, True, False]
    twice = [thresholds()[0], thresholds()[0]]
    assert pareto.find_front(twice) == [True, True]


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_extra_the_error_names_it(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unavailable, match=missing) as refused:
        write_figure(accuracy.draw([]), tmp_path)
    assert refused.value.hint == install_command("report")
