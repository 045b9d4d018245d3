"""The benchmarks that have a goal: `make bench`, or `make bench PART="floor calls"`.

Each runs in a process of its own. Its figure and raw rows are added to the history, performance.jsonl, and the computed
blocks of docs/reference/performance.md are written from it. Nothing is written if other programs use the processors.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from shared.pages.pages import rewrite_blocks, table
from shared.settings import REPOSITORY
from tools.bench import Row, Rows, format_cell, format_rows, jobs, peer, print_rows, retrieval, staging, storing
from tools.reproduction.pages import commit

PAGE = REPOSITORY / "docs" / "reference" / "performance.md"
HISTORY = PAGE.with_suffix(".jsonl")
WORSE = 0.15
"""A figure that is worse than the one before by more than this share is a regression."""
WATCHED_S = 3.0
BUSY = 10.0
"""Per cent of all processors that other programs may use. It is measured before and after a part, while the part's own
processes do not run; the load average would still show the part before."""


class GoalPart(NamedTuple):
    """A benchmark with a figure that counts."""

    name: str
    measured: str
    compared: str
    run: Callable[[], Rows]
    goal: float | None = None
    unit: str = ""
    """Unit of the figure; empty for a ratio."""
    more: bool = False
    """Whether more is better."""

    def misses(self, figure: float) -> bool:
        """Return whether the figure does not reach the goal."""
        return self.goal is not None and (figure < self.goal if self.more else figure > self.goal)

    def lost(self, figure: float, before: float) -> float:
        """Return the share by which a figure is worse than the one before; negative if it is better."""
        return before / figure - 1 if self.more else figure / before - 1

    def ratio(self, figure: float) -> float:
        """Return the figure itself if it is a ratio, and otherwise its ratio to the goal."""
        return figure / self.goal if self.unit and self.goal else figure

    def format(self, figure: float) -> str:
        return f"{format_cell(float(figure))} {self.unit}".strip()

    def format_goal(self) -> str:
        return f"at {'least' if self.more else 'most'} {self.format(self.goal)}" if self.goal is not None else "-"


PARTS = {
    part.name: part
    for part in (
        GoalPart("floor", "job of 200 questions, shipped models", "two bare loops over its prompts", jobs.floor, 1.1),
        GoalPart("server", "job of 30 questions, llama-server", "two bare loops over its prompts", jobs.server, 1.1),
        GoalPart("slow", "job whose calls take 100 ms each", "two bare loops over its prompts", jobs.slow, 1.02),
        GoalPart("calls", "stored calls, 5,000 items", "-", jobs.calls, 1500, "calls/s", more=True),
        GoalPart("calls-20000", "calls/s of 20,000 items", "those of 5,000", jobs.calls_20000, 0.7, more=True),
        GoalPart("claims-of-one", "stored calls, claimed singly", "-", jobs.claims_of_one, 300, "calls/s", more=True),
        GoalPart("loads", "model loads of a job of 1, 10 and 500 items", "-", jobs.loads, 2, "loads"),
        GoalPart("peer", "the same prompts through inspect_ai", "a job", peer.peer, 10, more=True),
        GoalPart("search", "hybrid retrieval", "the bare libraries", retrieval.search, 1.15),
        GoalPart("index", "indexing 7,500 documents", "the bare libraries", retrieval.index, 1.5),
        GoalPart("uploads", "uploading 100,000 rows", "COPY into the same tables", storing.uploads, 4),
        GoalPart("submit", "submitting 100,000 samples", "COPY of the same rows", storing.submit, 4),
        GoalPart(
            "compare", "comparison of two jobs of 100,000 items", "more than its SQL alone", storing.compare, 2, "s"
        ),
        GoalPart("cancel", "cancelling 200,000 samples", "1 s to the answer, 30 s to the end", jobs.cancel, 1),
        GoalPart("idle", "memory of an idle stack", "-", jobs.idle, 650, "MiB"),
        GoalPart("startup", "processor time of the slowest command", "import of its libraries", jobs.startup, 1.5),
        GoalPart("staging", "sample by sample, 40 samples", "staged", staging.staging, more=True),
    )
}


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the history."""

    date: str
    commit: str
    cores: int
    load: float
    """Load average of one minute, before."""
    others: float
    """Per cent of all processors that other programs used."""
    part: str
    figure: float
    goal: float | None
    seconds: float
    rows: list[str | dict[str, Any]]
    """The raw rows and sentences of the benchmark."""


_ENTRIES = msgspec.json.Decoder(HistoryEntry)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"by default all: {', '.join(PARTS)}")
    names = parser.parse_args().parts or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"unknown: {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    if len(names) == 1:
        run_part(PARTS[names[0]])
    else:
        run_each(names)


def run_each(names: Sequence[str]) -> None:
    """Run each part in a process of its own; exit with 1 if one fails."""
    known = len(read_history(HISTORY))
    runs = {name: subprocess.run([sys.executable, "-m", "tools.bench.goals", name], check=False) for name in names}
    history = read_history(HISTORY)
    print(f"\n{summarise(history, {entry.part for entry in history[known:]})}")
    failed = [name for name, run in runs.items() if run.returncode]
    print(f"failed: {', '.join(failed) or 'none'}")
    print(f"not written: {', '.join(set(names) - {entry.part for entry in history[known:]}) or 'none'}")
    raise SystemExit(bool(failed))


def run_part(
    part: GoalPart,
    *,
    page: Path = PAGE,
    history: Path = HISTORY,
    watch: Callable[[], float] = lambda: psutil.cpu_percent(WATCHED_S),
) -> None:
    """Run a part, print it, and write it unless `watch`, the processor time of other programs in per cent, forbids it.

    The last line printed is the ratio.
    """
    print(f"\n## {part.name}", flush=True)
    others, load, began = watch(), os.getloadavg()[0], time.monotonic()
    rows: list[Row | str | float] = []
    print_rows(keep(part.run(), rows))
    figures = [row for row in rows if isinstance(row, float)]
    if not figures:
        print(f"\n{part.name} has no figure")
        return
    seconds, others_after = round(time.monotonic() - began), watch()
    entry = HistoryEntry(
        date=datetime.now(UTC).date().isoformat(), commit=commit(), cores=os.cpu_count() or 1, load=round(load, 2),
        others=max(others, others_after), part=part.name, figure=figures[-1], goal=part.goal, seconds=seconds,
        rows=[dict(row) if isinstance(row, Mapping) else row for row in rows if not isinstance(row, float)],
    )  # fmt: skip
    known = read_history(history)
    print(f"\n{describe(part, entry, find_previous(known, entry))}")
    if entry.others > BUSY:
        print(
            f"Nothing is written: other programs used {others:.0f} % of the processors before and {others_after:.0f} %"
            f" after the part, and the limit is {BUSY:.0f} %. Run it again when they have ended."
        )
    else:
        add(history, entry)
        page.write_text(rewrite_blocks(page.read_text("utf-8"), make_blocks([*known, entry])), "utf-8")
    print(f"ratio: {part.ratio(entry.figure):.2f}")


def keep(rows: Rows, kept: list[Row | str | float]) -> Iterator[Row | str | float]:
    for row in rows:
        kept.append(row)
        yield row


def describe(part: GoalPart, entry: HistoryEntry, before: HistoryEntry | None) -> str:
    """Say what was measured, against what, and whether it is worse than before."""
    compared = f" (compared with: {part.compared})" if part.compared != "-" else ""
    goal = f"; goal: {part.format_goal()}{', MISSED' if part.misses(entry.figure) else ''}" if part.goal else ""
    history = f"; before: {format_previous(part, entry, before)}" if before else ""
    return f"{part.name}, {part.measured}{compared}: {part.format(entry.figure)}{goal}{history}; {entry.seconds:.0f} s"


def format_previous(part: GoalPart, entry: HistoryEntry, before: HistoryEntry | None) -> str:
    """Write the previous figure, and by how much the new one is worse if that is a regression."""
    if before is None:
        return "-"
    lost = part.lost(entry.figure, before.figure)
    return part.format(before.figure) + (f", **now {lost:.0%} worse**" if lost > WORSE else "")


def find_previous(history: Sequence[HistoryEntry], entry: HistoryEntry) -> HistoryEntry | None:
    """Return the last entry of the same part from a machine with as many cores."""
    return next((old for old in reversed(history) if (old.part, old.cores) == (entry.part, entry.cores)), None)


def read_history(file: Path) -> list[HistoryEntry]:
    """Read all entries, oldest first."""
    return _ENTRIES.decode_lines(file.read_bytes()) if file.exists() else []


def add(file: Path, entry: HistoryEntry) -> None:
    with file.open("ab") as opened:
        opened.write(msgspec.json.encode(entry) + b"\n")


def make_blocks(history: Sequence[HistoryEntry]) -> Mapping[str, str]:
    """Write the computed blocks of the page: the table of all parts, and the newest raw rows of each."""
    blocks = dict.fromkeys(PARTS, "Not measured yet.")
    blocks |= {name: write_rows(entry) for name, entry in find_newest(history).items()}
    return {**blocks, "goals": summarise(history, PARTS)}


def find_newest(history: Sequence[HistoryEntry]) -> dict[str, HistoryEntry]:
    """Return the newest entry of each part that there still is."""
    return {entry.part: entry for entry in history if entry.part in PARTS}


def summarise(history: Sequence[HistoryEntry], names: Mapping[str, Any] | set[str]) -> str:
    """Write a table of parts with their newest figures; a missed goal and a regression are in bold."""
    newest, rows = find_newest(history), []
    for name, part in PARTS.items():
        if name not in names:
            continue
        row = [f"`{name}`", part.measured, part.compared, part.format_goal()]
        if entry := newest.get(name):
            figure = part.format(entry.figure)
            before = find_previous(history[: history.index(entry)], entry)
            row += [f"**{figure}**" if part.misses(entry.figure) else figure, format_previous(part, entry, before)]
        rows.append([*row, entry.date] if entry else [*row, "-", "-", "-"])
    return table(("part", "figure", "compared with", "goal", "measured", "before", "date"), rows)


def write_rows(entry: HistoryEntry) -> str:
    """Write when and where a part was measured, and its rows."""
    origin = (
        f"`{entry.part}`: {entry.date}, commit {entry.commit}, {entry.cores} cores, load average {entry.load:.2g}"
        f" before, {entry.others:.0f} % used by other programs, {entry.seconds:.0f} s."
    )
    return "\n".join([origin, *format_rows(entry.rows)])


if __name__ == "__main__":
    main()
