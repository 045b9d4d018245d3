"""The report of a run as Markdown: table, comparisons, what can be compared with the paper, figures, provenance."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mathrag.reproduction.caveats import caveats, rho
from mathrag.reproduction.preset import Preset
from mathrag.reproduction.problems import Problems
from mathrag.reproduction.table import Line, line, percent, table
from shared.pages.figures.figure import Figure

FIGURES = "figures"
"""Folder beside the page."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What the service says of a run."""

    experiment: dict[str, Any]
    """Its report."""
    jobs: dict[str, Any]
    """Reports of the jobs, by variant."""
    comparison: dict[str, Any]
    """Each variant with each, as the experiment's report has it."""
    heatmap: dict[str, Any] | None = None
    """Report of the second experiment, where it was asked for."""

    @property
    def lines(self) -> list[Line]:
        """Of the table, in the preset's order."""
        return [line(variant, report) for variant, report in self.jobs.items()]


def page(name: str, preset: Preset, problems: Problems, results: Results, figures: Sequence[Figure]) -> str:
    """All of it."""
    lines = results.lines
    parts = [
        f"# The paper's experiment, preset `{name}`",
        f"{preset.about}.",
        _bullets(_asked(problems)),
        "## Results",
        table(lines),
        _bullets(_notes(results)),
        "## Differences",
        "Left minus right over the questions that both answered; paired tests, corrected together:",
        _bullets(differences(results)),
        "## Errors",
        "Every answer has one ending; the rules are in docs/statistics.md.",
        endings(results.jobs),
        "## The gate",
        _bullets(rho(results.jobs)) or "No variant has one.",
        "## Beside the paper",
        _bullets(caveats(lines, results.jobs, problems.documents)),
        *_drawn(figures),
        "## What answered",
        _bullets(_models(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def differences(results: Results) -> Iterator[str]:
    """Such as "gate against hybrid: not separable at n = 100: ..."."""
    for pair in results.comparison["pairs"]:
        yield f"{pair['left']} against {pair['right']}: {pair['words']}"


def endings(jobs: Mapping[str, Any]) -> str:
    """How each variant's answers ended, as Markdown."""
    kinds = sorted({kind for report in jobs.values() for kind in report["endings"]})
    rows = [["", *kinds], ["---"] * (len(kinds) + 1)]
    rows += [[name, *(str(report["endings"].get(kind, 0)) for kind in kinds)] for name, report in jobs.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _bullets(said: Iterable[str]) -> str:
    return "\n".join(f"- {each}" for each in said)


def _asked(problems: Problems) -> Iterator[str]:
    yield f"questions: {problems.items} of {problems.questions.name}, SHA-256 {problems.asked_digest}"
    yield f"corpus: {problems.documents:,} documents of {problems.corpus.name}, SHA-256 {problems.corpus_digest}"
    yield from problems.notes


def _notes(results: Results) -> Iterator[str]:
    """What each job's report says that a reader must know, once."""
    said: dict[str, list[str]] = {}
    for variant, report in results.jobs.items():
        for note in report["notes"]:
            said.setdefault(note, []).append(variant)
    yield from (f"{', '.join(variants)}: {note}" for note, variants in said.items())
    # The comparison says of each job again what its report says.
    yield from (note for note in results.comparison["notes"] if note.partition(": ")[2] not in said)


def _drawn(figures: Sequence[Figure]) -> Iterator[str]:
    if figures:
        yield "## Figures"
    for each in figures:
        yield f"![{each.title}]({FIGURES}/{each.name}.svg)"
        yield each.caption


def _models(results: Results) -> Iterator[str]:
    answered = {
        (role, model["name"], model["backend"], model["version"], model["digest"])
        for report in results.jobs.values()
        for role, model in report["settings"]["models"].items()
    }
    for role, name, backend, version, digest in sorted(answered, key=str):
        yield f"{role}: {name}, {backend} {version}".rstrip() + f", digest {digest or 'unknown'}"
    for variant, report in results.jobs.items():
        yield f"{variant}: job {report['id']}, pipeline {report['settings']['pipeline_hash']}"


def terminal(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """The table as a person sees it who waited for it: ours, then the paper's."""
    for each in lines:
        low, high = each.accuracy.low, each.accuracy.high
        yield (
            each.variant,
            percent(each.accuracy.value),
            f"{100 * low:.1f} to {100 * high:.1f}",
            "-" if each.std is None else f"{100 * each.std:.2f}",
            "-" if each.latency_s is None else f"{each.latency_s:.3g}",
            str(each.loads),
            percent(each.paper.accuracy) if each.paper else "-",
        )
