"""What of the paper's figures can be set beside one's own, and what cannot, in words (reference: docs/math.md)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mathrag.reproduction import paper
from mathrag.reproduction.problems import WHOLE
from mathrag.reproduction.table import Line, percent
from shared.statistics.intervals import wilson


def caveats(lines: Sequence[Line], reports: Mapping[str, Any], documents: int) -> Iterator[str]:
    """One sentence or two each; `reports` by variant."""
    items = max((each.items for each in lines), default=0)
    yield from _sizes(items)
    yield from _decoding(reports)
    yield _corpus(documents, sum(each.duplicates for each in lines))
    if all(each.recall is None for each in lines):
        yield (
            "Recall@5: not given, since MATH names no relevant documents; the paper gives 99 to 100 % without saying"
            " what counts as relevant"
        )
    yield (
        "seconds: ours are those of the device for one answer to a question, as if no reply had been shared between"
        " methods, loads apart; what serves all repeats of a question counts once. The paper's are wall time on its"
        " machine. Only the order of magnitude can be compared"
    )
    yield 'grading: ours by Math-Verify, and by the strict grader beside it; the paper says "exact match" and not how'
    yield "models: the paper names neither the quantisation of its generator nor the words of its prompts"


def _sizes(items: int) -> Iterator[str]:
    best, dense = paper.ROWS["gate"].accuracy, paper.ROWS["dense"].accuracy
    widths = " and ".join(_interval(dense, n) for n in (paper.FITTING, paper.QUESTIONS))
    yield (
        f"questions: {items} here; the paper says {paper.QUESTIONS}, its published runs have {paper.FITTING} each."
        f" Of {percent(dense)} the 95 % interval is {widths}: neither tells {percent(best)} from {percent(dense)}"
    )


def _interval(accuracy: float, n: int) -> str:
    found = wilson(round(accuracy * n), n)
    return f"{100 * found.low:.1f} to {100 * found.high:.1f} % over {n} questions"


def _decoding(reports: Mapping[str, Any]) -> Iterator[str]:
    settings = [report["settings"] for report in reports.values()]
    temperatures = {each["params"]["generate"]["temperature"] for each in settings}
    repeats = max((each["repeats"] for each in settings), default=1)
    judged = any({"judge", "write"} & set(each["drawn"] or ()) for each in settings)
    if temperatures == {0.0} and not judged:
        yield (
            f"decoding: greedy, so that {repeats} repeats share their replies and are one measurement; a standard"
            " deviation of 0 says nothing. The paper's baselines have 0.0000, which is what greedy decoding gives;"
            " what varied in its own method is not said. --sampled draws every answer anew, --redraw-judge every rating"
        )
    elif temperatures == {0.0}:
        yield (
            f"decoding: greedy answers, and each of {repeats} repeats has documents rated anew: a standard deviation is"
            " what the judge's temperature varies through the context that it chooses, and 0 for methods without a"
            " judge. The paper's baselines have 0.0000, too; why its own method varied is not said"
        )
    else:
        said = ", ".join(f"{each:g}" for each in sorted(temperatures))
        ratings = "rated anew in each" if judged else "rated once for all, so that the judge varies nothing"
        yield (
            f"decoding: sampled at temperature {said}, {repeats} repeats, documents {ratings}; the paper's baselines"
            " have a standard deviation of 0.0000, which is what greedy decoding gives: spreads are not of the same"
            " thing"
        )


def _corpus(documents: int, duplicates: int) -> str:
    same = "as the paper" if documents == WHOLE else f"where the paper has {WHOLE:,}"
    return (
        f"corpus and contamination: {documents:,} worked solutions, {same}. Near-duplicates of a question are left out"
        f" of what it finds ({duplicates:,} hits); the paper does not say what it does with them"
    )


def rho(reports: Mapping[str, Any]) -> Iterator[str]:
    """What the gate found, beside the paper's."""
    for variant, report in reports.items():
        if (gate := report["gate"]) is not None:
            yield f"{variant}: {gate['reason']} (the paper: rho = {paper.RHO:g}, so the judge)"
