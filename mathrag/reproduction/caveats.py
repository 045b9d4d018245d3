"""Sentences on which of the paper's figures can be compared with a run's, and which cannot (docs/how-to/math.md)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mathrag.reproduction import paper
from mathrag.reproduction.problems import WHOLE
from mathrag.reproduction.table import VariantLine, format_percent
from shared.statistics.intervals import wilson


def describe_caveats(lines: Sequence[VariantLine], reports: Mapping[str, Any], documents: int) -> Iterator[str]:
    """Yield one caveat for each topic, in a sentence or two; `reports` is by variant."""
    items = max((each.items for each in lines), default=0)
    yield from _describe_sizes(items)
    yield from _describe_decoding(reports)
    yield _describe_corpus(documents, sum(each.duplicates for each in lines))
    if all(each.recall is None for each in lines):
        yield (
            "Recall@5: not measured, because MATH does not say which documents are relevant; the paper reports 99 to"
            " 100 % without defining relevance"
        )
    yield (
        "seconds: ours are device time for one answer to a question, as if methods shared no replies and without model"
        " loads; work that serves all repeats of a question counts once. The paper's are wall time on its machine. Only"
        " the order of magnitude can be compared"
    )
    yield 'grading: ours is by Math-Verify and by a strict grader; the paper says "exact match" without defining it'
    yield "models: the paper gives neither the quantisation of its generator nor its prompts"


def _describe_sizes(items: int) -> Iterator[str]:
    best, dense = paper.ROWS["gate"].accuracy, paper.ROWS["dense"].accuracy
    widths = " and ".join(_format_interval(dense, n) for n in (paper.FITTING, paper.QUESTIONS))
    yield (
        f"questions: {items} here; the paper says {paper.QUESTIONS}, its published runs have {paper.FITTING} each."
        f" The 95 % interval of {format_percent(dense)} is {widths}: neither separates"
        f" {format_percent(best)} from {format_percent(dense)}"
    )


def _format_interval(accuracy: float, n: int) -> str:
    found = wilson(round(accuracy * n), n)
    return f"{100 * found.low:.1f} to {100 * found.high:.1f} % over {n} questions"


def _describe_decoding(reports: Mapping[str, Any]) -> Iterator[str]:
    settings = [report["settings"] for report in reports.values()]
    temperatures = {each["params"]["generate"]["temperature"] for each in settings}
    repeats = max((each["repeats"] for each in settings), default=1)
    judged = any({"judge", "write"} & set(each["drawn"] or ()) for each in settings)
    if temperatures == {0.0} and not judged:
        yield (
            f"decoding: greedy, so {repeats} repeats share their replies and are one measurement; a standard deviation"
            " of 0 is meaningless. The paper's baselines have 0.0000, as greedy decoding gives; it does not say what"
            " varied in its own method. --sampled draws every answer again, --redraw-judge every rating"
        )
    elif temperatures == {0.0}:
        yield (
            f"decoding: greedy answers, with documents rated again in each of {repeats} repeats: the standard deviation"
            " comes from the judge's temperature, through the context that it chooses, and is 0 for methods without a"
            " judge. The paper's baselines have 0.0000, too; it does not say why its own method varied"
        )
    else:
        temperature_list = ", ".join(f"{each:g}" for each in sorted(temperatures))
        ratings = "rated again in each" if judged else "rated once for all, so the judge causes no variation"
        yield (
            f"decoding: sampled at temperature {temperature_list}, {repeats} repeats, documents {ratings}; the paper's"
            " baselines have a standard deviation of 0.0000, as greedy decoding gives: the deviations cannot be"
            " compared"
        )


def _describe_corpus(documents: int, duplicates: int) -> str:
    same = "as the paper" if documents == WHOLE else f"where the paper has {WHOLE:,}"
    return (
        f"corpus and contamination: {documents:,} worked solutions, {same}. Near-duplicates of a question are removed"
        f" from its results ({duplicates:,} hits); the paper does not say how it treats them"
    )


def describe_rho(reports: Mapping[str, Any]) -> Iterator[str]:
    """Yield the gate's decision of each variant that has one, with the paper's."""
    for variant, report in reports.items():
        if (gate := report["gate"]) is not None:
            yield f"{variant}: {gate['reason']} (the paper: rho = {paper.RHO:g}, so the judge)"
