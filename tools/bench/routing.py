"""Routing by difficulty: accuracy against judge calls saved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mathrag.intervals import Interval, bootstrap, wilson
from shared.pages.figures import Figure, ParetoRow, draw_pareto, write_figure
from shared.params import RouteParams
from shared.statistics.significance import PairComparison, compare_pair, correct_family, describe_pair
from tools.bench import Rows, benchmark
from tools.bench.comparison import upload_parts
from tools.bench.stack import MATH, Stack, start_stack
from tools.difficulty.figures import HARD, measure_area

DEFAULT = RouteParams().threshold
TENTHS = range(11)
"""Tenths of the questions that are easy; each gives a threshold."""
PARAMS: dict[str, Any] = {"context_size": 1, "generate": {"max_tokens": 256}}


class ItemResult(NamedTuple):
    """Results of both jobs for one question."""

    probability: float | None
    """Probability that it is hard; None if it could not be estimated, which counts as hard."""
    calls: frozenset[str]
    """Keys of the judge calls that it needs if the judge scores."""
    by_rules: bool | None
    """Whether the answer was right; None if it failed or was not graded."""
    by_judge: bool | None
    level: int | None

    def easy(self, threshold: float) -> bool:
        """Decide as `shared.rag.gate` does."""
        return self.probability is not None and self.probability < threshold


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Costs and accuracy at one threshold."""

    threshold: float
    questions: int
    easy: int
    calls: int
    """Distinct judge calls that are still made."""
    saved: float
    """Share of the judge calls of a job without routing."""
    saved_by_chance: float
    """Expected share if as many questions were drawn at random."""
    accuracy: Interval
    pair: PairComparison
    """Comparison with a job without routing, over the items that both jobs have graded."""
    by_chance: float | None
    """Expected accuracy if as many questions were drawn at random."""
    skill: Interval | None
    """Difference of the accuracy to `by_chance`."""


class PartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one part."""

    name: str
    area: Interval | None
    """Area under the ROC curve of the estimate against the items' levels; None if they have none or only one."""
    points: list[Point]


@benchmark
def routing(
    items: int = 500, math: int = 300, data: Path = MATH, json: Path | None = None, figures: Path | None = None
) -> Rows:
    """Measure difficulty-aware routing: accuracy against judge calls saved, over thresholds, from two jobs per part.

    One job scores all documents by rules; another scores them by the judge and estimates every question. Easy questions
    at a threshold take the first job's answer, the others the second's, so no threshold costs a call. A third job
    really routes half of the questions, and must make the same answers and calls. `MATHRAG_CONFIG` names other models.
    `items` are of the problem world, `math` of MATH, in the folder `data`; 0 leaves a part out. `json` is a file for
    the rows, `figures` a folder for a figure of each part.
    """
    found = []
    with start_stack() as running:
        for name in upload_parts(running, items, math, data):
            asked_items = asked(running, name)
            found.append(PartFigures(name=name, area=against_levels(asked_items), points=pareto(asked_items)))
            yield f"### {name}, {len(asked_items)} questions\n\n{table(found[-1])}"
            yield checked(running, name, asked_items)
    if json:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if figures:
        for part in found:
            write_figure(picture(part), figures)


def asked(running: Stack, part: str) -> list[ItemResult]:
    """Run both jobs and join their results by question."""
    rules = job(running, part, "rules", quality="rules")
    judge = job(running, part, "judge", quality="judge", route={"enabled": True, "threshold": 0.0})
    verdicts = {each["index"]: each["correct"] for each in results(running, rules)}
    return [
        item(each, running.get(f"/v1/jobs/{judge}/samples/{each['index']}")["steps"], verdicts[each["index"]])
        for each in results(running, judge)
    ]


def item(judged: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], by_rules: bool | None) -> ItemResult:  # noqa: FBT001
    """Make an item of a line of the judge's results, the sample's calls, and the rules' verdict."""
    replies = [step["attempt"]["reply"] for step in steps if step["role"] == "estimate"]
    level = str(judged["level"] or "")[-1:]
    return ItemResult(
        probability=next((reply.get("probability") for reply in replies), None),
        calls=frozenset(step["key"] for step in steps if step["role"] == "judge"),
        by_rules=by_rules,
        by_judge=judged["correct"],
        level=int(level) if level.isdigit() else None,
    )


def job(running: Stack, part: str, name: str, **params: Any) -> str:
    fields = {"dataset": part, "corpus": part, "pipeline": "mathrag-gate", "params": {**PARAMS, **params}}
    return str(running.complete(name=f"{part}-{name}", **fields)["id"])


def results(running: Stack, job: str) -> list[dict[str, Any]]:
    lines = running.api.get(f"/v1/jobs/{job}/results", params={"format": "jsonl"}).raise_for_status().content
    return [msgspec.json.decode(line) for line in lines.splitlines()]


def thresholds(items: Sequence[ItemResult]) -> list[float]:
    """Return the thresholds that make each tenth of the items easy, as far as ties allow, and the default."""
    known = sorted(1.0 if each.probability is None else each.probability for each in items)
    return sorted({DEFAULT, *([*known, 1.0][len(known) * tenth // 10] for tenth in TENTHS)})


def pareto(items: Sequence[ItemResult]) -> list[Point]:
    """Compute a point for each threshold, with McNemar's tests corrected for all of them (Holm)."""
    points = [point(items, threshold) for threshold in thresholds(items)]
    pairs = correct_family([each.pair for each in points])
    return [msgspec.structs.replace(each, pair=pair) for each, pair in zip(points, pairs, strict=True)]


def point(items: Sequence[ItemResult], threshold: float) -> Point:
    """Compute a job's result at this threshold; a document's rating is needed if one of its questions is hard."""
    easy = sum(each.easy(threshold) for each in items)
    calls = len(frozenset().union(*(each.calls for each in items if not each.easy(threshold))))
    everything = len(frozenset().union(*(each.calls for each in items)))
    graded = [each for each in items if each.by_rules is not None and each.by_judge is not None]
    routed = [bool(each.by_rules if each.easy(threshold) else each.by_judge) for each in graded]
    pairs = Counter(
        (Fraction(right), Fraction(bool(each.by_judge))) for each, right in zip(graded, routed, strict=True)
    )
    return Point(
        threshold=threshold, questions=len(items), easy=easy, calls=calls,
        saved=1 - calls / everything if everything else 0.0, saved_by_chance=saved_by_chance(items, easy),
        accuracy=wilson(sum(routed), len(routed)), pair=compare_pair([pairs]),
        by_chance=by_chance(graded, threshold), skill=skill(graded, threshold),
    )  # fmt: skip


def saved_by_chance(items: Sequence[ItemResult], easy: int) -> float:
    """Compute the expected share of judge calls saved if `easy` questions are drawn at random.

    A call that m of n questions need is saved with the probability that all m are drawn.
    """
    waiting = Counter(call for each in items for call in each.calls)
    n = len(items)
    gone = [prod((easy - drawn) / (n - drawn) for drawn in range(min(m, easy + 1))) for m in waiting.values()]
    return sum(gone) / len(gone) if gone else 0.0


def by_chance(graded: Sequence[ItemResult], threshold: float) -> float | None:
    """Interpolate between the judge's accuracy and the rules' by the share of easy questions."""
    if not graded:
        return None
    rules, judge = sum(bool(each.by_rules) for each in graded), sum(bool(each.by_judge) for each in graded)
    share = sum(each.easy(threshold) for each in graded) / len(graded)
    return (share * rules + (1 - share) * judge) / len(graded)


def skill(graded: Sequence[ItemResult], threshold: float) -> Interval | None:
    """Average (easy - share of easy) x (rules' verdict - judge's); above 0 if rules cost easy questions less.

    The interval is a bootstrap over items with the share fixed.
    """
    if not graded:
        return None
    share = Fraction(sum(each.easy(threshold) for each in graded), len(graded))
    return bootstrap(
        [Counter((each.easy(threshold) - share) * (bool(each.by_rules) - bool(each.by_judge)) for each in graded)]
    )


def against_levels(items: Sequence[ItemResult]) -> Interval | None:
    """Compute the ROC AUC of the estimate against the items' levels, hard from `HARD` on."""
    known = [each for each in items if each.level is not None and each.probability is not None]
    hard = np.array([(each.level or 0) >= HARD for each in known], dtype=np.float64)
    if not 0 < hard.sum() < len(known):
        return None
    return measure_area(hard, np.array([each.probability for each in known], dtype=np.float64))


def checked(running: Stack, part: str, items: Sequence[ItemResult]) -> str:
    """Run a job that really routes, and compare it with the computed result."""
    at = thresholds(items)[len(TENTHS) // 2]
    routing = job(running, part, "routed", quality="judge", route={"enabled": True, "threshold": at})
    report = running.get(f"/v1/jobs/{routing}/report")
    expected = [each.by_rules if each.easy(at) else each.by_judge for each in items]
    same = [each["correct"] for each in results(running, routing)] == expected
    waited = report["calls_made"].get("judge", 0) + report["calls_reused"].get("judge", 0)
    return (
        f"A job at {at:g}: {'the same verdicts' if same else 'OTHER VERDICTS'}, {waited} judge calls "
        f"({point(items, at).calls} computed), decisions {report['decisions'].get('route')}, "
        f"fallbacks {report['fallbacks']}"
    )


COLUMNS = (
    "threshold", "easy questions", "judge calls", "saved", "saved by chance", "accuracy (Wilson 95 %)",
    "against judging all (McNemar, Holm)", "against chance, points",
)  # fmt: skip


def table(part: PartFigures) -> str:
    shown = _interval(part.area, 1, 3) if part.area else "n/a"
    lines: list[tuple[str, ...]] = [COLUMNS]
    for point in part.points:
        cells = (
            f"{point.threshold:.3g}", f"{point.easy} of {point.questions}", point.calls, f"{100 * point.saved:.1f} %",
            f"{100 * point.saved_by_chance:.1f} %", _interval(point.accuracy, 100, 1, " %"),
            describe_pair(point.pair), _interval(point.skill, 100, 1) if point.skill else "n/a",
        )  # fmt: skip
        lines.append(tuple(map(str, cells)))
    head, *rows = (f"| {' | '.join(line)} |" for line in lines)
    title = f"ROC AUC of the estimate against the items' levels: {shown}"
    return "\n".join([title, "", head, "|---" * len(COLUMNS) + "|", *rows])


def picture(part: PartFigures) -> Figure:
    """Draw the curve and that of chance."""
    rows = [
        ParetoRow(
            threshold=each.threshold, saved=each.saved, value=each.accuracy.value, low=each.accuracy.low,
            high=each.accuracy.high, n=each.pair.items, chance_saved=each.saved_by_chance, chance_value=each.by_chance,
        )
        for each in part.points
    ]  # fmt: skip
    return draw_pareto(rows, title=f"Routing by difficulty: {part.name}", name=f"pareto-{part.name}")


def _interval(found: Interval, scale: float, digits: int, unit: str = "") -> str:
    if found.value is None:
        return "n/a"
    value, low, high = (f"{scale * each:.{digits}f}" for each in (found.value, found.low, found.high))
    return f"{value}{unit} ({low} to {high})"
