"""Benchmarks: `python -m tools.bench NAME [options]`; `python -m tools.bench --list` names them.

A benchmark is a function that yields rows; its parameters are its options, its docstring is its help. Figures of
different runs and machines are not comparable: only the ratio to a floor or a peer of the same run counts.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import TypeVar

Row = Mapping[str, object]
"""Values by column."""
Rows = Iterable[Row | str]
"""The output of a benchmark: rows of tables, and sentences."""
Function = TypeVar("Function", bound=Callable[..., Rows])

BENCHMARKS: dict[str, Callable[..., Rows]] = {}


def benchmark(function: Function) -> Function:
    """Register a function as the benchmark of its name."""
    BENCHMARKS[function.__name__.replace("_", "-")] = function
    return function


def in_turn(sides: Mapping[str, Callable[[], object]], rounds: int, *, warm: int = 0, unit: str = "s") -> Iterator[Row]:
    """Run all sides in turn, and yield a row for each, with ratios to the first one, the floor.

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
    for name, found in figures.items():
        ratios = sorted(this / that for this, that in zip(found, runs, strict=True))
        yield {
            "measured": name, f"median, {unit}": median(found), "lowest": min(found), "rounds": rounds,
            f"over {floor}": f"{median(found) / median(runs):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
        }  # fmt: skip


def print_rows(rows: Rows) -> None:
    """Print each row at once, as Markdown; other columns begin another table."""
    columns: list[str] = []
    for row in rows:
        if isinstance(row, str):
            print(f"\n{row}", flush=True)
            columns = []
            continue
        if list(row) != columns:
            columns = list(row)
            print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        rounded = (f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
        cells = ("-" if value is None or value == "" else str(value) for value in rounded)
        print(f"| {' | '.join(cells)} |", flush=True)
