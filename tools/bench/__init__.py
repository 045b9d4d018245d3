"""Benchmarks: `python -m tools.bench NAME [options]`; `python -m tools.bench --list` names them.

A benchmark is a function that yields rows; its parameters are its options, its docstring is its help. Figures of
different runs and machines are not comparable: only the ratio to a floor or a peer of the same run counts. `make bench`
runs those that have a goal (`goals.py`).
"""

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from statistics import median
from typing import TypeVar

Row = Mapping[str, object]
"""Values by column."""
Rows = Iterable[Row | str | float]
"""The output of a benchmark: rows of tables, sentences, and the figure that counts, if there is one."""
Function = TypeVar("Function", bound=Callable[..., Rows])

BENCHMARKS: dict[str, Callable[..., Rows]] = {}


def benchmark(function: Function) -> Function:
    """Register a function as the benchmark of its name."""
    BENCHMARKS[function.__name__.replace("_", "-")] = function
    return function


def in_turn(
    sides: Mapping[str, Callable[[], object]], rounds: int, *, warm: int = 0, unit: str = "s"
) -> Generator[Row, None, dict[str, float]]:
    """Run all sides in turn, yield a row for each, and return the ratios of their medians to the first one, the floor.

    A side returns its figure as a float; a side with another result is timed. The first `warm` rounds do not count.
    """
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-warm, rounds):
        for name, run in sides.items():
            began = time.perf_counter()
            found = run()
            figure = found if isinstance(found, float) else time.perf_counter() - began
            if number >= 0:
                figures[name].append(figure)
                print(f"round {number + 1}, {name}: {figure:.4g} {unit}", file=sys.stderr, flush=True)
    floor, runs = next(iter(figures.items()))
    ratios = {name: median(found) / median(runs) for name, found in figures.items()}
    for name, found in figures.items():
        each = sorted(this / that for this, that in zip(found, runs, strict=True))
        yield {
            "measured": name, f"rounds, {unit}": found, f"median, {unit}": median(found),
            f"over {floor}": f"{ratios[name]:.3f} ({each[0]:.3f} to {each[-1]:.3f})",
        }  # fmt: skip
    return ratios


def print_rows(rows: Rows) -> None:
    """Print each row at once, as Markdown."""
    for line in format_rows(rows):
        print(line, flush=True)


def format_rows(rows: Rows) -> Iterator[str]:
    """Yield the lines of rows as Markdown; other columns begin another table."""
    columns: list[str] = []
    for row in rows:
        if not isinstance(row, Mapping):
            yield f"\n{row}" if isinstance(row, str) else f"\nfigure: {row:.4g}"
            columns = []
            continue
        if list(row) != columns:
            columns = list(row)
            yield f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|"
        yield f"| {' | '.join(map(format_cell, row.values()))} |"


def format_cell(value: object) -> str:
    """Write a number with four digits at most, a list as its values, and nothing as a dash."""
    if isinstance(value, list):
        return ", ".join(map(format_cell, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None or value == "" else str(value)
