"""The harness of the benchmarks: sides take turns, ratios are to the first one, and parameters are options."""

import argparse
import inspect
from pathlib import Path

import pytest

from tools.bench import in_turn, print_rows
from tools.bench.__main__ import add_option


def test_sides_take_turns_and_are_compared_with_the_first() -> None:
    runs: list[str] = []
    figures = {"floor": iter([9.0, 1.0, 2.0, 3.0]), "system": iter([9.0, 2.0, 6.0, 6.0])}

    def side(name: str) -> float:
        runs.append(name)
        return next(figures[name])

    rows = list(in_turn({name: lambda name=name: side(name) for name in figures}, 3, warm=1))  # type: ignore[misc]
    assert runs == ["floor", "system"] * 4
    assert [(row["measured"], row["median, s"], row["lowest"]) for row in rows] == [
        ("floor", 2.0, 1.0),
        ("system", 6.0, 2.0),
    ]
    assert rows[1]["over floor"] == "3.000 (2.000 to 3.000)"


def test_a_side_without_a_figure_is_timed() -> None:
    (row,) = in_turn({"nothing": lambda: "a result"}, 1)
    assert isinstance(row["median, s"], float)


def test_rows_are_printed_as_tables_with_a_heading_for_other_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": 1, "b": 0.123456}, {"a": None, "b": ""}, "A sentence.", {"c": "x"}])
    assert capsys.readouterr().out.splitlines() == [
        "", "| a | b |", "|---|---|", "| 1 | 0.1235 |", "| - | - |", "", "A sentence.", "", "| c |", "|---|", "| x |",
    ]  # fmt: skip


def test_parameters_are_options_of_their_types() -> None:
    def measured(
        folder: Path, most_items: int = 3, out: Path | None = None, names: tuple[str, ...] = (), *, large: bool = False
    ) -> None: ...

    parser = argparse.ArgumentParser()
    for parameter in inspect.signature(measured, eval_str=True).parameters.values():
        add_option(parser, parameter)
    assert vars(parser.parse_args(["in", "--most-items", "5", "--out", "o", "--names", "a", "b", "--large"])) == {
        "folder": Path("in"), "most_items": 5, "out": Path("o"), "names": ["a", "b"], "large": True,
    }  # fmt: skip
    assert vars(parser.parse_args(["in"])) == {
        "folder": Path("in"), "most_items": 3, "out": None, "names": (), "large": False,
    }  # fmt: skip
