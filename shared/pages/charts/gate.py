"""Draw the gate's decision: the scores of the calibration documents by rules and by the judge, and rho against tau."""

from collections import defaultdict
from collections.abc import Iterable
from math import sqrt

from markupsafe import Markup

from shared.samples import GateDecision, Strategy

SIDE, LEFT, TOP = 200, 34, 8
"""Side of the scatter plot's square and its offsets, in units of the viewBox."""
RULER = 240
"""Width of the line from rho = -1 to 1."""
LARGEST = 14.0
SCATTER = Markup(
    '<svg viewBox="0 0 250 246" role="img" aria-label="{label}"><rect class="axis" x="34" y="8" width="200"'
    ' height="200"/>{ticks}{dots}<text x="134" y="240" text-anchor="middle">score by rules</text>'
    '<text x="4" y="108" text-anchor="middle" transform="rotate(-90 4 108)">score by the judge</text></svg>'
)
RULE = Markup(
    '<svg viewBox="0 0 260 58" role="img" aria-label="{label}"><path class="axis" d="M10 30H250M10 26v8M130 26v8M250'
    ' 26v8"/><text class="faint" x="10" y="50" text-anchor="start">-1</text><text class="faint" x="130" y="50"'
    ' text-anchor="middle">0</text><text class="faint" x="250" y="50" text-anchor="end">1</text>{interval}'
    '<path class="threshold" d="M{tau:.1f} 16V40"/><text x="{tau:.1f}" y="12" text-anchor="middle">tau {said}</text>'
    '<circle class="series-1" cx="{rho:.1f}" cy="30" r="5"/></svg>'
)


def draw_scatter(decision: GateDecision) -> Markup:
    """Draw a dot for each pair of scores, with an area in proportion to its number of documents."""
    places: defaultdict[tuple[float, float], int] = defaultdict(int)
    for pair in zip(decision.rule_scores, decision.judge_scores, strict=True):
        places[pair] += 1
    label = f"{len(decision.documents)} documents by their score by rules and by the judge, both from 0 to 1"
    return SCATTER.format(label=label, ticks=_draw_ticks(), dots=Markup("").join(_draw_dots(places)))


def _draw_dots(places: dict[tuple[float, float], int]) -> Iterable[Markup]:
    """Yield one path for each number of documents, large dots first.

    A dot is a line of zero length with round ends.
    """
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for (rule, judge), count in sorted(places.items()):
        alike[count].append(f"M{LEFT + SIDE * rule:.1f} {TOP + SIDE * (1 - judge):.1f}h0")
    most = max(alike, default=1)
    for count in sorted(alike, reverse=True):
        size = max(LARGEST * sqrt(count / most), 5.0)
        yield Markup('<path class="dots" stroke-width="{:.1f}" d="{}"/>').format(size, "".join(alike[count]))


def _draw_ticks() -> Markup:
    return Markup("").join(
        Markup(
            '<text class="faint" x="{:.0f}" y="222" text-anchor="middle">{}</text><text class="faint" x="30" y="{:.0f}"'
            ' text-anchor="end">{}</text>'
        ).format(LEFT + SIDE * value, shown, TOP + SIDE * (1 - value) + 4, shown)
        for value, shown in ((0, "0"), (0.5, "0.5"), (1, "1"))
    )


def draw_ruler(decision: GateDecision) -> Markup:
    """Draw rho with its interval and tau on a scale from -1 to 1; empty if there is no rho."""
    if decision.rho is None:
        return Markup("")
    low, high = decision.low, decision.high
    known = low is not None and high is not None
    bounds = Markup('<path class="interval" d="M{:.1f} 30H{:.1f}"/>').format(_ruler_x(low or 0), _ruler_x(high or 0))
    label = f"rho {decision.rho:.3f}{f', between {low:.3f} and {high:.3f}' if known else ''}; tau {decision.tau:g}"
    return RULE.format(
        label=label, interval=bounds if known else "", tau=_ruler_x(decision.tau), said=f"{decision.tau:g}",
        rho=_ruler_x(decision.rho),
    )  # fmt: skip


def _ruler_x(value: float) -> float:
    return 10 + RULER * (max(-1.0, min(1.0, value)) + 1) / 2


def explain_decision(decision: GateDecision) -> str:
    """Explain why this strategy was chosen, for a reader who does not know rho."""
    if not decision.asked:
        return f"The job sets who scores: {decision.strategy.value}. Nothing was calibrated."
    if 2 * decision.unparsed > decision.asked:
        return f"The judge gave no rating in {decision.unparsed} of {decision.asked} replies, so rules score instead."
    if decision.rho is None or not decision.reason.startswith("rho = "):
        return "There are too few data to trust rules here, so the judge scores every document."
    return f"{_compare_rho(decision, decision.rho)}{_note_close_call(decision)}"


def _compare_rho(decision: GateDecision, rho: float) -> str:
    figures = f"rho = {rho:.3f} on {len(decision.documents)} documents"
    if decision.strategy is Strategy.RULES:
        return f"Rules agree with the judge well enough ({figures}, more than tau = {decision.tau:g}): rules score."
    return f"Rules agree too little with the judge ({figures}, not more than tau = {decision.tau:g}): the judge scores."


def _note_close_call(decision: GateDecision) -> str:
    if decision.low is None or decision.high is None or not decision.low <= decision.tau <= decision.high:
        return ""
    return f" It is a close call: the interval of rho, {decision.low:.3f} to {decision.high:.3f}, contains tau."
