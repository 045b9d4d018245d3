"""Write the report of a run as Markdown: table, differences, caveats on the paper, figures, provenance."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mathrag.reproduction.caveats import describe_caveats, describe_rho
from mathrag.reproduction.preset import Preset
from mathrag.reproduction.problems import Problems
from mathrag.reproduction.table import VariantLine, format_percent, make_line, make_table
from shared.pages.figures.figure import Figure

FIGURES = "figures"
"""Folder beside the page."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The service's reports of a run."""

    experiment: dict[str, Any]
    """Report of the experiment."""
    jobs: dict[str, Any]
    """Reports of the jobs, by variant."""
    comparison: dict[str, Any]
    """Comparison of every pair of variants, from the experiment's report."""
    heatmap: dict[str, Any] | None = None
    """Report of the grid of weights; None if it was not run."""

    @property
    def lines(self) -> list[VariantLine]:
        """The lines of the table, in the preset's order."""
        return [make_line(variant, report) for variant, report in self.jobs.items()]


def write_page(name: str, preset: Preset, problems: Problems, results: Results, figures: Sequence[Figure]) -> str:
    """Return the whole report as Markdown."""
    lines = results.lines
    parts = [
        f"# The paper's experiment, preset `{name}`",
        f"{preset.about}.",
        _make_bullets(_describe_problems(problems)),
        "## Results",
        make_table(lines),
        _make_bullets(_list_notes(results)),
        "## Differences",
        "Left minus right over the questions that both answered, by paired tests with a joint correction:",
        _make_bullets(list_differences(results)),
        "## Errors",
        "Every answer has one ending; the rules are in docs/explanation/statistics.md.",
        make_endings_table(results.jobs),
        "## The gate",
        _make_bullets(describe_rho(results.jobs)) or "No variant has a gate.",
        "## Compared with the paper",
        _make_bullets(describe_caveats(lines, results.jobs, problems.documents)),
        *_list_figures(figures),
        "## Models",
        _make_bullets(_list_models(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def list_differences(results: Results) -> Iterator[str]:
    """Yield each pair's result, such as "gate against hybrid: not separable at n = 100: ..."."""
    for pair in results.comparison["pairs"]:
        yield f"{pair['left']} against {pair['right']}: {pair['words']}"


def make_endings_table(jobs: Mapping[str, Any]) -> str:
    """Return a Markdown table of how each variant's answers ended."""
    kinds = sorted({kind for report in jobs.values() for kind in report["endings"]})
    rows = [["", *kinds], ["---"] * (len(kinds) + 1)]
    rows += [[name, *(str(report["endings"].get(kind, 0)) for kind in kinds)] for name, report in jobs.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _make_bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {each}" for each in lines)


def _describe_problems(problems: Problems) -> Iterator[str]:
    yield f"questions: {problems.items} of {problems.questions.name}, SHA-256 {problems.asked_digest}"
    yield f"corpus: {problems.documents:,} documents of {problems.corpus.name}, SHA-256 {problems.corpus_digest}"
    yield from problems.notes


def _list_notes(results: Results) -> Iterator[str]:
    """Yield the notes of the jobs and of the comparison, each once, with the variants that it is about."""
    said: dict[str, list[str]] = {}
    for variant, report in results.jobs.items():
        for note in report["notes"]:
            said.setdefault(note, []).append(variant)
    yield from (f"{', '.join(variants)}: {note}" for note, variants in said.items())
    # The comparison repeats the notes of the jobs.
    yield from (note for note in results.comparison["notes"] if note.partition(": ")[2] not in said)


def _list_figures(figures: Sequence[Figure]) -> Iterator[str]:
    if figures:
        yield "## Figures"
    for each in figures:
        yield f"![{each.title}]({FIGURES}/{each.name}.svg)"
        yield each.caption


def _list_models(results: Results) -> Iterator[str]:
    answered = {
        (role, model["name"], model["backend"], model["version"], model["digest"])
        for report in results.jobs.values()
        for role, model in report["settings"]["models"].items()
    }
    for role, name, backend, version, digest in sorted(answered, key=str):
        yield f"{role}: {name}, {backend} {version}".rstrip() + f", digest {digest or 'unknown'}"
    for variant, report in results.jobs.items():
        yield f"{variant}: job {report['id']}, pipeline {report['settings']['pipeline_hash']}"


def list_terminal_rows(lines: Sequence[VariantLine]) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows for a terminal: our figures, then the paper's accuracy."""
    for each in lines:
        low, high = each.accuracy.low, each.accuracy.high
        yield (
            each.variant,
            format_percent(each.accuracy.value),
            f"{100 * low:.1f} to {100 * high:.1f}",
            "-" if each.std is None else f"{100 * each.std:.2f}",
            "-" if each.latency_s is None else f"{each.latency_s:.3g}",
            str(each.loads),
            format_percent(each.paper.accuracy) if each.paper else "-",
        )
